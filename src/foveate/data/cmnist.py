"""Coloured MNIST: the shortcut is the digit's own colour, so it overlaps the object completely."""

from __future__ import annotations

import colorsys
import hashlib
import os
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from foveate.data.benchmark import Benchmark
from foveate.data.dataset import GroupedDataset
from foveate.data.pools import Deck, ImagePool, cell_counts, deal, load_pool, prepare_assets, shuffled_cells
from foveate.errors import DataError, suggest

VARIANTS = ("digits10", "arjovsky", "cnc")
_Palette = dict[str, tuple[int, ...]]
_TEN: _Palette = {
    "red": (235, 40, 40), "orange": (250, 140, 20), "yellow": (250, 230, 40), "green": (40, 170, 60),
    "cyan": (50, 220, 230), "blue": (60, 90, 240), "purple": (140, 50, 190), "magenta": (240, 60, 220),
    "brown": (150, 95, 45), "white": (245, 245, 245),
}  # fmt: skip
_TWO: _Palette = {"red": (255, 0, 0), "green": (0, 255, 0)}
_FIVE: _Palette = {
    f"hue{72 * i}": tuple(round(255 * v) for v in colorsys.hsv_to_rgb(i / 5, 1.0, 1.0)) for i in range(5)
}  # fmt: skip
_CNC_THRESHOLD = 120


def cmnist(
    root: str | os.PathLike[str] | None = None,
    seed: int = 0,
    strength: float | None = None,
    *,
    variant: str = "digits10",
    size: int | None = None,
) -> Benchmark:
    """Coloured MNIST. Which version the DAR paper used is not stated; three are here.

    ``digits10`` (default): 10 digits x 10 colours at strength 0.95, 5,000 training images of each digit
    (4,748 in its own colour, 28 in each other), 10 per cell in ``target`` and ``val``, 89 per cell in
    ``test``; no digit is used twice. The colour scales with the stroke's brightness.

    ``arjovsky`` (Arjovsky et al. 2019, section 5.1): two classes (digit < 5 is class 1), labels flipped with
    probability 0.25, red or green by the flipped label except with probability 0.2 / 0.1 (the two training
    environments, ``extras["environment"]``) and 0.9 (test). Ours differs from the original code in that
    ``test`` is the MNIST test set, and balanced ``target`` (250 per cell) and ``val`` (1,000 per cell) come
    from the 10,000 images kept out of training. 14 x 14 pixels, every second row and column. Its strengths
    are part of the recipe: ``strength`` must stay None.

    ``cnc`` (Zhang et al. 2022, Correct-n-Contrast): five classes of digit pairs (0-1, 2-3 …), five hues at
    strength 0.995 on the pixels of at least 120, darker pixels stay grey; 10,000 training images of each
    class (9,948 in its own colour, 13 in each other), 40 per cell in ``target`` and ``val``, 370 in ``test``.

    Masks and boxes mark the coloured pixels; ``extras`` hold ``digit`` and ``mnist_index``.

    Args:
        root: folder of the source data (see :func:`foveate.assets.fetch`).
        seed: which images are drawn, their order, and the noise.
        strength: share of each class in its own colour in ``train``.
        variant: ``digits10``, ``arjovsky`` or ``cnc``.
        size: 14, 28 or any larger number (padded); by default 32, and 14 for ``arjovsky``.
    """
    if variant not in VARIANTS:
        raise DataError(
            f"unknown cmnist variant '{variant}'.{suggest(variant, VARIANTS)} The variants are {', '.join(VARIANTS)}."
        )
    return from_pools(
        load_pool("mnist", "train", root), load_pool("mnist", "test", root), seed, strength, variant, size
    )


def prepare(
    root: str | os.PathLike[str] | None = None, tell: Callable[[str], None] | None = None
) -> dict[str, dict[str, object]]:
    """Fetch and check what :func:`cmnist` needs; returns folder and image counts of each source."""
    return prepare_assets(["mnist"], root, tell)


def from_pools(
    train: ImagePool,
    test: ImagePool,
    seed: int = 0,
    strength: float | None = None,
    variant: str = "digits10",
    size: int | None = None,
    per_class: int | None = None,
    per_cell: dict[str, int] | None = None,
) -> Benchmark:
    """Coloured digits from any pools of 28 x 28 digits; ``per_class`` and ``per_cell`` set the counts.

    ``per_class`` is the number of training images of each class (for ``arjovsky``: of both together),
    ``per_cell`` that of each cell of ``target``, ``val`` and ``test`` (``arjovsky`` uses all of ``test``).
    """
    size = size or (14 if variant == "arjovsky" else 32)
    if size != 14 and size < 28:
        raise DataError(f"cmnist sizes are 14, 28 or more, found {size}.")
    if variant == "arjovsky":
        if strength is not None:
            raise DataError("the 'arjovsky' variant fixes its own strengths; leave strength out.")
        rows = _arjovsky_rows(train, test, seed, per_class or 50_000, per_cell or {"target": 250, "val": 1000})
        colours, names, threshold, strength = _TWO, ["digit >= 5", "digit < 5"], 1, 0.85
    elif variant == "cnc":
        strength = 0.995 if strength is None else strength
        per_cell = per_cell or {"target": 40, "val": 40, "test": 370}
        rows = _cell_rows(train, test, seed, cell_counts(per_class or 10_000, 5, strength), per_cell, pair=2)
        colours, names, threshold = _FIVE, [f"{i}-{i + 1}" for i in range(0, 10, 2)], _CNC_THRESHOLD
    else:
        strength = 0.95 if strength is None else strength
        per_cell = per_cell or {"target": 10, "val": 10, "test": 89}
        rows = _cell_rows(train, test, seed, cell_counts(per_class or 5_000, 10, strength), per_cell, pair=1)
        colours, names, threshold = _TEN, [str(d) for d in range(10)], 1
    splits = {}
    for split, columns in rows.items():
        pool = test if split == "test" else train
        where = f"cmnist/{split}"
        index, shades = columns["mnist_index"], columns.pop("colour")
        labels = columns.pop("label")
        masks = StrokeMasks(pool, index, size, threshold)
        splits[split] = GroupedDataset(
            ColouredDigits(pool, index, shades, list(colours.values()), size, threshold, where),
            labels,
            names,
            attributes=shades,
            attribute_names=list(colours),
            masks=masks,
            boxes=masks.boxes(),
            extras=columns | {"digit": pool.labels[index]},
            name=where,
        )
    notes = {"seed": seed, "strength": strength, "variant": variant, "sources": ["mnist"]}
    return Benchmark(f"cmnist-{variant}", splits, notes)


_Columns = dict[str, NDArray[np.int64]]


def _cell_rows(
    train: ImagePool, test: ImagePool, seed: int, cells: NDArray[np.int64], per_cell: dict[str, int], pair: int
) -> dict[str, _Columns]:
    rng = np.random.default_rng(seed)
    learn, judge = Deck(train.labels // pair, rng, "digits"), Deck(test.labels // pair, rng, "digits")
    rows = {}
    for split, counts in ({"train": cells} | {s: np.full_like(cells, n) for s, n in per_cell.items()}).items():
        labels, colours = shuffled_cells(counts, rng)
        index = deal(judge if split == "test" else learn, labels)
        rows[split] = {"label": labels, "colour": colours, "mnist_index": index}
    return rows


def _arjovsky_rows(
    train: ImagePool, test: ImagePool, seed: int, training: int, per_cell: dict[str, int]
) -> dict[str, _Columns]:
    rng = np.random.default_rng(seed)

    def noisy(digits: NDArray[np.int64]) -> NDArray[np.int64]:
        return (digits < 5).astype(np.int64) ^ (rng.random(len(digits)) < 0.25)

    order = rng.permutation(len(train.labels))
    first, rest = order[:training], order[training:]
    labels = noisy(train.labels[first])
    environment = np.arange(len(first)) % 2
    flip = rng.random(len(first)) < np.where(environment == 0, 0.2, 0.1)
    rows = {"train": {"label": labels, "colour": labels ^ flip, "mnist_index": first, "environment": environment}}
    held = noisy(train.labels[rest])
    deck = Deck(held, rng, "digits")
    for split, n in per_cell.items():
        label, colour = shuffled_cells(np.full((2, 2), n), rng)
        rows[split] = {"label": label, "colour": colour, "mnist_index": rest[deal(deck, label)]}
    labels = noisy(test.labels)
    colour = labels ^ (rng.random(len(labels)) < 0.9)
    rows["test"] = {"label": labels, "colour": colour, "mnist_index": np.arange(len(labels))}
    return rows


def _fit(digit: NDArray[np.uint8], size: int) -> NDArray[np.uint8]:
    """A 28 x 28 digit at ``size``: every second pixel for 14, zero-padded around for more than 28."""
    if size == 14:
        return digit[::2, ::2]
    canvas = np.zeros((size, size), np.uint8)
    start = (size - 28) // 2
    canvas[start : start + 28, start : start + 28] = digit
    return canvas


class ColouredDigits:
    """Colours a digit when it is read: ``uint8 [size, size, 3]``."""

    def __init__(
        self,
        pool: ImagePool,
        index: NDArray[np.int64],
        colours: NDArray[np.int64],
        palette: Sequence[tuple[int, ...]],
        size: int,
        threshold: int,
        name: str,
    ):
        self.digits, self.index, self.colours = pool.images, index, colours
        self.palette = np.array(palette, np.uint16)
        self.size, self.threshold, self.name = size, threshold, name

    def __len__(self) -> int:
        return len(self.index)

    def read(self, i: int) -> NDArray[np.uint8]:
        digit = _fit(self.digits[int(self.index[i])], self.size)
        colour = self.palette[self.colours[i]]
        if self.threshold > 1:
            return np.where(digit[..., None] >= self.threshold, colour, digit[..., None]).astype(np.uint8)
        return ((digit[..., None].astype(np.uint16) * colour + 127) // 255).astype(np.uint8)

    def where(self, i: int) -> str:
        return f"{self.name}[{i}] (mnist {self.index[i]})"

    def digest(self, i: int) -> bytes:
        return hashlib.blake2b(self.read(i).tobytes(), digest_size=16).digest()


class StrokeMasks:
    """The coloured pixels of every digit: ``uint8 [size, size]``, 0 or 255."""

    def __init__(self, pool: ImagePool, index: NDArray[np.int64], size: int, threshold: int):
        self.digits, self.index, self.size, self.threshold = pool.images, index, size, threshold

    def __len__(self) -> int:
        return len(self.index)

    def read(self, i: int) -> NDArray[np.uint8]:
        digit = _fit(self.digits[int(self.index[i])], self.size)
        return np.where(digit >= self.threshold, 255, 0).astype(np.uint8)

    def where(self, i: int) -> str:
        return f"strokes of mnist {self.index[i]}"

    def digest(self, i: int) -> bytes:
        return hashlib.blake2b(self.read(i).tobytes(), digest_size=16).digest()

    def boxes(self) -> NDArray[np.float32]:
        """Tight boxes ``[N, 4]`` of all masks; NaN where a digit has no stroke."""
        digits = np.zeros((len(self), 28, 28), np.uint8)
        for row, i in enumerate(self.index):
            digits[row] = self.digits[int(i)]
        strokes = digits[:, ::2, ::2] if self.size == 14 else digits
        on = strokes >= self.threshold
        start = 0 if self.size == 14 else (self.size - 28) // 2
        across, down = np.any(on, axis=1), np.any(on, axis=2)
        side = on.shape[1]
        first_x, first_y = across.argmax(axis=1), down.argmax(axis=1)
        last_x, last_y = side - across[:, ::-1].argmax(axis=1), side - down[:, ::-1].argmax(axis=1)
        boxes = np.stack([first_x, first_y, last_x, last_y], axis=1).astype(np.float32) + start
        boxes[~across.any(axis=1)] = np.nan
        return boxes
