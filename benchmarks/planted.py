"""Pictures with a planted cue: the same images with the cue and without it, so that its true effect can be counted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFilter

import foveate as fv
from benchmarks.pets import composed
from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages
from foveate.files import atomic_file
from foveate.report.discovery.cues.encoding import jpeg

Pixels = NDArray[np.uint8]
HABITAT, WATERMARK = "habitat", "watermark"
BOTH = "habitat and watermark"
CLOSER, TILT, STRETCHED = "closer", "tilt", "stretched"
CLEAN = "none"
NEARER = 2.2
"""How much larger one class is seen when it is seen from closer."""
TURNED = (28.0, 3.0)
"""Degrees that pictures of one class and of the other are tilted by, clockwise. A network made on mirrored pictures
takes a tilt to the left for one to the right; and a picture that is not turned at all would be the sharper."""
WIDER = 2.5
"""How much wider one class is than the other, beside its height."""
LARGER = {CLOSER: NEARER, TILT: 1.36, STRETCHED: 1.6}
"""Pictures of these kinds are taken from pictures that much larger in side, so that nothing from beyond a border and no
enlarged pixel gives the cue away."""


@dataclass(frozen=True)
class Scenes:
    """Objects that each stand in two habitats: ``own`` goes with their class, ``other`` with another.

    ``own`` and ``other`` are ``uint8 [n, S, S, 3]``, ``masks`` ``uint8 [n, S, S]``, ``labels`` ``[n]`` (two classes).
    """

    own: Pixels
    other: Pixels
    masks: Pixels
    labels: NDArray[np.int64]
    classes: tuple[str, str]

    def in_habitat(self, value: NDArray[np.int64]) -> Pixels:
        """The images in the habitat of class ``value``, ``[n]``."""
        return np.where((value == self.labels)[:, None, None, None], self.own, self.other)


def critters_scenes(seed: int, n: int, size: int) -> Scenes:
    """Drawn animals."""
    made = [
        fv.data.critters(seed=seed, strength=s, train=n, test=0, target=0, val=0, size=size).train for s in (1.0, 0.0)
    ]
    return _scenes(*made)


def pets_scenes(root: Path, seed: int, n: int, size: int, split: str) -> Scenes:
    """Photographs of cats and dogs pasted on forests and seas, from the pictures of one split."""

    def made(strength: float) -> GroupedDataset:
        counts = {"train": 4, "test": 4, split: n}
        bench = composed(
            root, strength={"train": strength, "test": strength}, counts=counts, size=size, seed=seed,
            fractions={"val": 0, "target": 0},
        )  # fmt: skip
        return getattr(bench, split)

    return _scenes(made(1.0), made(0.0))


def _scenes(own: GroupedDataset, other: GroupedDataset) -> Scenes:
    if own.masks is None:
        raise ValueError("scenes need masks")
    pixels = [np.stack([data.images.read(i) for i in range(len(data))]) for data in (own, other)]
    masks = np.stack([(np.asarray(own.mask(i)) > 0.5).astype(np.uint8) for i in range(len(own))])
    first, second = own.class_names
    return Scenes(pixels[0], pixels[1], masks, own.labels, (first, second))


def remembered(path: Path, make: Callable[[], Scenes]) -> Scenes:
    """Scenes from ``path``, made and kept there the first time."""
    if not path.exists():
        scenes = make()
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as temporary, open(temporary, "wb") as file:
            np.savez(file, own=scenes.own, other=scenes.other, masks=scenes.masks, labels=scenes.labels,
                     classes=np.asarray(scenes.classes))  # fmt: skip
    with np.load(path, allow_pickle=False) as held:
        first, second = (str(name) for name in held["classes"])
        return Scenes(held["own"], held["other"], held["masks"], held["labels"], (first, second))


# -- the cues -------------------------------------------------------------------------------------

Plant = Callable[[Pixels, Pixels, bool, np.random.Generator], Pixels]
"""``(image [S, S, 3], mask [S, S], whether the cue is there, chance)`` to the image; without it, as it was or its
opposite."""


def _corner(image: Pixels, mask: Pixels, there: bool, rng: np.random.Generator) -> Pixels:
    side = len(image)
    if there:
        image[side // 32 : side // 5, -side // 5 : -side // 32] = 250
    return image


def _watermark(image: Pixels, mask: Pixels, there: bool, rng: np.random.Generator) -> Pixels:
    """Light stripes like a line of letters, somewhere."""
    side = len(image)
    tall, wide = max(5, round(0.14 * side)), round(0.36 * side)
    top, left = int(rng.integers(0, side - tall)), int(rng.integers(0, side - wide))
    if there:
        letters = (np.arange(wide) // max(1, side // 32)) % 2 == 0
        ink = np.where(letters[None, :, None], 255.0, 20.0)
        part = image[top : top + tall, left : left + wide]
        image[top : top + tall, left : left + wide] = (0.2 * part + 0.8 * ink).astype(np.uint8)
    return image


def _frame(image: Pixels, mask: Pixels, there: bool, rng: np.random.Generator) -> Pixels:
    wide = max(2, round(0.06 * len(image)))
    if there:
        inner = image[wide:-wide, wide:-wide].copy()
        image[:] = (70, 45, 30)
        image[wide:-wide, wide:-wide] = inner
    return image


def _vignette(image: Pixels, mask: Pixels, there: bool, rng: np.random.Generator) -> Pixels:
    if there:
        line = np.linspace(-1, 1, len(image)) ** 2
        fall = np.exp(-1.8 * (line[:, None] + line[None]) / 2)
        return (image * fall[..., None]).astype(np.uint8)
    return image


def _brightness(image: Pixels, mask: Pixels, there: bool, rng: np.random.Generator) -> Pixels:
    return np.clip(image * (1.3 if there else 0.75), 0, 255).astype(np.uint8)


def _colour(image: Pixels, mask: Pixels, there: bool, rng: np.random.Generator) -> Pixels:
    cast = np.array([28, 0, -28]) * (1 if there else -1)
    return np.clip(image + cast, 0, 255).astype(np.uint8)


def _jpeg(image: Pixels, mask: Pixels, there: bool, rng: np.random.Generator) -> Pixels:
    return jpeg(image, 10) if there else image


def _blur(image: Pixels, mask: Pixels, there: bool, rng: np.random.Generator) -> Pixels:
    return np.asarray(Image.fromarray(image).filter(ImageFilter.GaussianBlur(len(image) / 56))) if there else image


def _closer(image: Pixels, mask: Pixels, there: bool, rng: np.random.Generator) -> Pixels:
    """Seen from closer, or from further away; the picture is smaller than the one it was taken from.

    Both are taken from a larger picture, so that the near view is as sharp as the far one: an enlarged picture is
    blurred, and a network reads that rather than the size.
    """
    small = round(len(image) / NEARER)
    if there:
        top, left = _around(mask, small)
        return image[top : top + small, left : left + small]
    return np.asarray(Image.fromarray(image).resize((small, small), Image.Resampling.BICUBIC))


def _around(mask: Pixels, tall: int, wide: int | None = None) -> tuple[int, int]:
    """Where a piece of ``tall`` by ``wide`` pixels (a square by default) begins, as centred on the object as can be."""
    side, sizes = len(mask), (tall, tall if wide is None else wide)
    on = [np.flatnonzero(mask.any(1 - axis)) for axis in (0, 1)]
    top, left = (
        int(np.clip((rows.mean() if len(rows) else side / 2) - size / 2, 0, side - size))
        for rows, size in zip(on, sizes, strict=True)
    )
    return top, left


def _tilt(image: Pixels, mask: Pixels, there: bool, rng: np.random.Generator) -> Pixels:
    """Tilted clockwise, or hardly: the middle of a larger picture, which has no empty corners."""
    small = round(len(image) / LARGER[TILT])
    turned = Image.fromarray(image).rotate(-TURNED[0 if there else 1], Image.Resampling.BICUBIC)
    start = (len(image) - small) // 2
    return np.asarray(turned)[start : start + small, start : start + small]


def _stretched(image: Pixels, mask: Pixels, there: bool, rng: np.random.Generator) -> Pixels:
    """A tall piece made square, so that all is wide in it, or a wide piece of the same size made square."""
    side, small = len(image), round(len(image) / LARGER[STRETCHED])
    short = round(side / WIDER**0.5)
    tall, wide = (side, short) if there else (short, side)
    top, left = _around(mask, tall, wide)
    piece = Image.fromarray(image[top : top + tall, left : left + wide])
    return np.asarray(piece.resize((small, small), Image.Resampling.BICUBIC))


def _coat(image: Pixels, mask: Pixels, there: bool, rng: np.random.Generator) -> Pixels:
    """The object a warmer and lighter one, or a colder and darker one, with all of its pattern."""
    shift = np.array([52, 16, -34]) * (1 if there else -1)
    tinted = np.clip(image + shift, 0, 255).astype(np.uint8)
    return np.where(mask[..., None] > 0, tinted, image)


def _collar(image: Pixels, mask: Pixels, there: bool, rng: np.random.Generator) -> Pixels:
    """A band of one colour around the object."""
    if there and mask.any():
        rows = np.flatnonzero(mask.any(1))
        at, wide = rows[0] + round(0.45 * len(rows)), max(2, round(0.13 * len(rows)))
        band = np.zeros_like(mask, dtype=bool)
        band[at : at + wide] = mask[at : at + wide] > 0
        image[band] = (240, 20, 200)
    return image


PLANTS: dict[str, Plant] = {
    "corner": _corner, WATERMARK: _watermark, "frame": _frame, "vignette": _vignette, "brightness": _brightness,
    "colour": _colour, "jpeg": _jpeg, "blur": _blur, CLOSER: _closer, "collar": _collar,
    "coat": _coat, TILT: _tilt, STRETCHED: _stretched,
}  # fmt: skip
EXPECTED: dict[str, tuple[str, ...]] = {
    HABITAT: ("background",), "corner": ("corner-tr",), WATERMARK: ("mark",), "frame": ("frame",),
    "vignette": ("vignette",), "brightness": ("brightness",), "colour": ("colour",), "jpeg": ("jpeg",),
    "blur": ("sharpness",), CLOSER: ("size",), "collar": ("object-mark",), "coat": ("object-colour",),
    TILT: ("tilt",), STRETCHED: ("aspect",), BOTH: ("background", "mark"), CLEAN: (),
}  # fmt: skip
"""The cue that a planted one is expected to be named as; both, where there are two."""


def tied(labels: NDArray[np.int64], strength: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """A value that is the label's in ``strength`` of the images."""
    return np.where(rng.random(len(labels)) < strength, labels, 1 - labels)


def planted(scenes: Scenes, kind: str, habitat: NDArray[np.int64], value: NDArray[np.int64], seed: int) -> Pixels:
    """The images in habitats with the cue of a kind where ``value`` is 1, ``uint8 [n, S, S, 3]``."""
    pixels = scenes.in_habitat(habitat).copy()
    plant = PLANTS.get(WATERMARK if kind == BOTH else kind)
    if plant is None:
        return pixels
    chances = (np.random.default_rng([seed, i]) for i in range(len(pixels)))
    return np.stack(
        [plant(*each) for each in zip(pixels, scenes.masks, value.astype(bool).tolist(), chances, strict=True)]
    )


def outlines(scenes: Scenes, kind: str, value: NDArray[np.int64]) -> Pixels:
    """The masks of the images that :func:`planted` makes, ``uint8 [n, S, S]`` of 0 and 1."""
    if kind not in LARGER:
        return scenes.masks
    move, chance = PLANTS[kind], np.random.default_rng(0)  # moving a picture takes none
    seen = [
        move(np.repeat(mask[..., None] * 255, 3, 2), mask, bool(there), chance)[..., 0] > 127
        for mask, there in zip(scenes.masks, value, strict=True)
    ]
    return np.stack(seen).astype(np.uint8)


def dataset(scenes: Scenes, pixels: Pixels, masks: Pixels | None = None, name: str = "planted") -> GroupedDataset:
    """Images without attributes, and without masks unless they are given."""
    held: Any = None if masks is None else ArrayImages(masks * 255)
    return GroupedDataset(ArrayImages(pixels, name), scenes.labels, list(scenes.classes), masks=held, name=name)
