"""Drawn scenes for :func:`foveate.data.critters.critters`: animals, habitats and things, rasterised exactly.

``exact`` holds the arithmetic and randomness that give the same bits on every machine, ``raster`` the shapes
and the canvas, ``animals`` how parts become one animal, ``species`` and ``habitats`` and ``things`` what is
drawn, ``scene`` how they are put together into an image, its mask, box and keypoints.
"""
