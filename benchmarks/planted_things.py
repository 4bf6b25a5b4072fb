"""Photographs of cats and dogs with a thing beside them that goes with the class: what a part may settle on.

Animals and scenes are those that the studies on photographs compose. The things are the drawn ones of critters, painted
into the finished picture with their soft shadow, where they overlap the animal least. The scene tells nothing; the
thing goes with the class in 95 of 100 training images and in half of all others.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from benchmarks.pets import composed
from foveate.data import Benchmark
from foveate.data.dataset import GroupedDataset
from foveate.data.drawing.raster import Canvas, Frame
from foveate.data.drawing.things import CLUTTER, THINGS, Layer, paint_thing
from foveate.data.images import ArrayImages

Pixels = NDArray[np.uint8]
Where = NDArray[np.bool_]
STRENGTH = 0.95
KINDS = ("ball", "lamp")
"""The thing that goes with cats in training, and the one that goes with dogs."""
TALL = (0.22, 0.30)
"""Height of a thing as a share of the picture."""
NEW, SMALL = 3, (0.16, 0.22)
"""So many things of kinds that never occur in training lie in a cluttered picture, and they are smaller."""
PLACES = 24
COUNTS = {"train": 400, "val": 240, "test": 400}


@dataclass(frozen=True)
class Planted:
    """Photographs with things.

    Attributes:
        bench: train, val and test; the attribute is the thing.
        things: where the thing of every test image is, ``bool [N, S, S]``.
        cluttered: the test images with three more things, of kinds that never occur in training.
    """

    bench: Benchmark
    things: Where
    cluttered: GroupedDataset


def pets_with_things(root: Path, seed: int, size: int = 224) -> Planted:
    """Compose photographs and plant things; the same seed gives the same images."""
    shares = {"target": 0.0, "val": 0.2}
    plain = composed(root, strength={"train": 0.5}, counts=COUNTS, fractions=shares, size=size, seed=seed)
    splits: dict[str, GroupedDataset] = {}
    for number, split in enumerate(("train", "val", "test")):
        data, rng = plain.splits[split], np.random.default_rng([seed, number])
        pixels, animals = _read(data)
        kinds = tied(data.labels, STRENGTH if split == "train" else 0.5, rng)
        shown = zip(pixels, animals, kinds, strict=True)
        things = np.stack([plant(picture, animal, THINGS[KINDS[kind]](), rng) for picture, animal, kind in shown])
        splits[split] = _with_things(data, pixels, animals & ~things, kinds, f"pets-things/{split}")
    seen, busy = animals & ~things, pixels.copy()  # of test, the last
    for picture, animal, thing in zip(busy, seen, things, strict=True):
        there = animal | thing
        for name in rng.permutation(sorted(CLUTTER))[:NEW]:
            new = plant(picture, there, CLUTTER[name](), rng, SMALL)
            there |= new
            animal &= ~new
    cluttered = _with_things(data, busy, seen, kinds, "pets-things/cluttered")
    return Planted(Benchmark("pets-things", splits, {"seed": seed, "strength": STRENGTH}), things, cluttered)


def tied(labels: NDArray[np.int64], strength: float, rng: np.random.Generator) -> NDArray[np.int64]:
    """Kinds of things, of which just the share ``strength`` of every class is the class's own, ``[N]``.

    >>> labels = np.repeat([0, 1], 100)
    >>> kinds = tied(labels, 0.95, np.random.default_rng(0))
    >>> [int((kinds[labels == c] == c).sum()) for c in (0, 1)]
    [95, 95]
    """
    kinds = labels.copy()
    for c in (0, 1):
        rows = rng.permutation(np.flatnonzero(labels == c))
        kinds[rows[round(strength * len(rows)) :]] = 1 - c
    return kinds


def plant(
    picture: Pixels, keep_off: Where, layers: list[Layer], rng: np.random.Generator, height: tuple[float, float] = TALL
) -> Where:
    """Paint a thing into ``picture`` ``[S, S, 3]``, of several places at the one where it covers least of ``keep_off``
    ``[S, S]``. Gives the pixels it covers (its shadow does not count), ``[S, S]``.

    >>> picture, animal = np.full((64, 64, 3), 200, np.uint8), np.zeros((64, 64), bool)
    >>> animal[:, :32] = True
    >>> thing = plant(picture, animal, THINGS["ball"](), np.random.default_rng(0))
    >>> bool((picture[thing] != 200).any()), int((thing & animal).sum())
    (True, 0)
    """
    size = len(picture)
    tall = rng.uniform(*height) * size
    xs = rng.uniform(0.6 * tall, size - 0.6 * tall, PLACES)
    ys = rng.uniform(1.2 * tall, size - 0.1 * tall, PLACES)
    covered = [_covers(size, layers, Frame(x, y, tall)) for x, y in zip(xs, ys, strict=True)]
    best = int(np.argmin([(where & keep_off).sum() for where in covered]))
    canvas = Canvas(size)
    canvas.planes[:] = picture.transpose(2, 0, 1)
    paint_thing(canvas, layers, Frame(float(xs[best]), float(ys[best]), tall))
    picture[:] = np.clip(np.rint(canvas.planes), 0, 255).astype(np.uint8).transpose(1, 2, 0)
    return covered[best]


def _covers(size: int, layers: list[Layer], frame: Frame) -> Where:
    """The pixels whose centre lies in one of a thing's shapes."""
    canvas = Canvas(size)
    inside = [shape.moved(frame).distance(canvas.x, canvas.y) <= 0 for shape, _ in layers]
    return np.asarray(np.logical_or.reduce(inside))


def _read(data: GroupedDataset) -> tuple[Pixels, Where]:
    """Pixels ``[N, S, S, 3]`` and where the animals are, ``[N, S, S]``."""
    pixels = np.stack([data.images.read(i) for i in range(len(data))])
    return pixels, np.stack([np.asarray(data.mask(i)) > 0.5 for i in range(len(data))])


def _with_things(
    data: GroupedDataset, pixels: Pixels, seen: Where, kinds: NDArray[np.int64], name: str
) -> GroupedDataset:
    masks = ArrayImages(np.where(seen, 255, 0).astype(np.uint8), f"{name} masks")
    return GroupedDataset(
        ArrayImages(pixels, name), data.labels, data.class_names, attributes=kinds, attribute_names=list(KINDS),
        masks=masks, name=name,
    )  # fmt: skip
