"""Glimpse keeps the most attended patches and never computes the rest."""

import foveate as fv
from examples.shared import animals, batch, plain, unusual
from foveate import notebook


def draw(small: bool = False):
    data = animals(small)
    glimpse = fv.Glimpse("micro-vit", "micro-vit", keep=0.25, progress=False).fit(data.train)
    images = batch(data, unusual(data, each=3))
    masks = glimpse.look(images).mask.float()
    shown = torch_upsampled(masks, images.shape[-2:])
    figure = notebook.figure(1.5 * len(images), 3.2)
    axes = figure.subplots(2, len(images), squeeze=False)
    for i, image in enumerate(images.permute(0, 2, 3, 1).numpy()):
        axes[0, i].imshow(image)
        axes[1, i].imshow((image * (0.15 + 0.85 * shown[i][..., None])).astype("uint8"))
    plain(axes)
    return figure


def torch_upsampled(masks, size):
    """Masks ``[B, h, w]`` at the size of the images, every patch as a square."""
    return masks.repeat_interleave(size[0] // masks.shape[1], 1).repeat_interleave(size[1] // masks.shape[2], 2).numpy()
