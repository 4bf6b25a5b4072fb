"""Critters with a cue: the label is a small thing off to the side, and the animal in view is the shortcut.

The mirror image of ``critters``: there attention finds the object that decides. Here, as with hair colour in photos
of faces, what draws the eye goes with the label in training and is not it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.data.benchmark import Benchmark
from foveate.data.critters import CritterImages, CritterMasks, critters
from foveate.data.dataset import GroupedDataset
from foveate.data.drawing.exact import Dice, raw_bits, uniforms
from foveate.data.drawing.raster import Canvas, Frame
from foveate.data.drawing.scene import Scene, outline
from foveate.data.drawing.things import THINGS, paint_thing
from foveate.errors import DataError

_CUE_KEY = 1 << 21  # the cues' own bit streams, apart from those of scenes and plans
_TRIES = 16
_things = tuple(THINGS.values())


def cue_critters(
    seed: int = 0,
    *,
    classes: int = 2,
    size: int = 64,
    strength: float = 0.95,
    cue_size: tuple[float, float] = (0.14, 0.18),
    contrast: float = 1.0,
    train: int | None = None,
    target: int | None = None,
    val: int | None = None,
    test: int | None = None,
    object_scale: tuple[float, float] = (0.36, 0.54),
) -> Benchmark:
    """A benchmark whose label sits where attention does not look.

    In every image stands a large animal, and somewhere else a small thing: a mushroom, a ball, ... The class is the
    *thing*; the attribute is the species, which goes with the class in ``train`` (``strength``) and with nothing in the
    other splits. The habitat is random. Masks and boxes are those of the thing.

    Args:
        seed: the same seed gives the same bits on every machine.
        classes: how many things (and species), 2 to 8.
        size: side of the images in pixels.
        strength: share of a class that comes with its own species in ``train``; ``1 / classes`` is none.
        cue_size: smallest and largest height of the thing as a share of the image.
        contrast: 1 paints the thing as it is; less lets the background shine through.
        train, target, val, test, object_scale: as for :func:`~foveate.data.critters.critters`.

    >>> bench = cue_critters(train=200, target=8, val=8, test=40)
    >>> bench.train.class_names, bench.train.attribute_names, bench.train.group_counts.tolist()
    (['mushroom', 'ball'], ['cat', 'duck'], [95, 5, 5, 95])
    >>> round(float(bench.train[0].mask.mean()), 3) < 0.05
    True
    """
    if len(cue_size) != 2 or not 0.05 <= cue_size[0] <= cue_size[1] <= 0.4:
        raise DataError(
            f"cue_size is (smallest, largest) share of the image, between 0.05 and 0.4; found {cue_size!r}."
        )
    if not 0.0 < contrast <= 1.0:
        raise DataError(f"contrast lies above 0 and goes up to 1; found {contrast!r}.")
    if not 0.0 <= strength <= 1.0:
        raise DataError(f"strength is a share between 0 and 1; found {strength!r}.")
    animals = critters(
        seed, classes=classes, size=size, strength=None, second_strength=strength, attribute="second",
        train=train, target=target, val=val, test=test, object_scale=object_scale,
    )  # fmt: skip
    made = {split: _turned(data, cue_size, contrast) for split, data in animals.splits.items()}
    kept = {k: v for k, v in animals.notes.items() if k in ("seed", "species_names", "habitat_names", "colour_names")}
    notes: dict[str, Any] = {**kept, "attribute": "species", "strengths": {"species": strength}}
    return Benchmark("critters-cue", made, notes)


def _turned(data: GroupedDataset, cue_size: tuple[float, float], contrast: float) -> GroupedDataset:
    """The same scenes with the thing as label, small and apart, and the species as attribute."""
    assert isinstance(data.images, CritterImages)
    assert data.attributes is not None
    assert data.attribute_names is not None
    scenes = [replace(scene, second=None) for scene in data.images.scenes]
    name = data.name.replace("critters", "critters-cue")
    images = CueImages(scenes, data.attributes, cue_size, contrast, name)
    return GroupedDataset(
        images,
        data.attributes,
        data.attribute_names,
        attributes=data.labels,
        attribute_names=data.class_names,
        masks=CritterMasks(images),
        boxes=np.array([_box(frame, data.images.scenes[0].size) for frame in images.frames], dtype=np.float32),
        extras={k: v for k, v in data.extras.items() if k != "second"},
        name=name,
    )


class CueImages(CritterImages):
    """Critter scenes with a small thing painted in; ``masks`` are those of the things.

    Args:
        scenes: recipes of the animals.
        cues: which thing each image gets, ``[N]``.
        cue_size, contrast: as for :func:`cue_critters`.
        name: of the dataset, for messages.
    """

    def __init__(
        self, scenes: list[Scene], cues: NDArray[np.int64], cue_size: tuple[float, float], contrast: float, name: str
    ):
        super().__init__(scenes, name)
        self.cues, self.contrast = cues, float(contrast)
        canvas = Canvas(scenes[0].size) if scenes else None
        self.frames = [_place(scene, cue_size, canvas) for scene in scenes]

    def pair(self, i: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Image ``i`` and the mask of its cue."""
        i = range(len(self.scenes))[i]
        if self._keep and self._drawn[i]:
            return self._pixels[i], self._masks[i]
        image, mask = self._painted(i)
        if self._keep:
            self._pixels[i], self._masks[i], self._drawn[i] = image, mask, True
        return image, mask

    def _painted(self, i: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        pixels, _ = self.redraw(i)
        thing, size = _things[int(self.cues[i])](), self.scenes[i].size
        dark, light = Canvas(size), Canvas(size)
        light.planes[:] = 255.0
        for canvas in (dark, light):
            paint_thing(canvas, thing, self.frames[i])
        cover = 1.0 - (light.planes - dark.planes)[0] / 255.0  # what a white ground does not shine through
        scene = pixels.transpose(2, 0, 1).astype(np.float64)
        scene += self.contrast * (dark.planes - scene * cover)
        image = np.floor(np.minimum(np.maximum(scene, 0.0), 255.0) + 0.5).astype(np.uint8)
        mask = np.where(cover > 0.5, 255, 0).astype(np.uint8)  # its soft shadow covers less
        return np.ascontiguousarray(image.transpose(1, 2, 0)), mask


def _place(scene: Scene, cue_size: tuple[float, float], canvas: Canvas | None) -> Frame:
    """Where the thing stands: of several random places the one that overlaps the animal least."""
    dice = Dice(uniforms(raw_bits(scene.seed, scene.split, scene.index, _CUE_KEY), 2 + 2 * _TRIES).tolist())
    size = scene.size
    scale = dice.between(*cue_size) * size
    flip = 1.0 if dice.chance(0.5) else -1.0
    ax0, ay0, ax1, ay1 = outline(scene, canvas).box
    best, best_overlap = (0.5 * size, size - 1.0), 1e18
    for _ in range(_TRIES):
        x = dice.between(0.65 * scale, size - 0.65 * scale)
        y = dice.between(1.35 * scale, size - 1.0)
        wide = min(float(ax1), x + 0.6 * scale) - max(float(ax0), x - 0.6 * scale)
        tall = min(float(ay1), y) - max(float(ay0), y - 1.3 * scale)
        overlap = max(wide, 0.0) * max(tall, 0.0)
        if overlap < best_overlap:
            best, best_overlap = (x, y), overlap
    return Frame(best[0], best[1], scale, flip)


def _box(frame: Frame, size: int) -> tuple[float, float, float, float]:
    """A box that holds any thing standing at ``frame``."""
    reach = 0.6 * frame.scale
    x0, y0 = max(np.floor(frame.x - reach), 0.0), max(np.floor(frame.y - 1.3 * frame.scale), 0.0)
    return (
        float(x0),
        float(y0),
        float(min(np.ceil(frame.x + reach), size)),
        float(min(np.ceil(frame.y + 0.15 * frame.scale + 1.0), size)),
    )
