"""Drawing from pools of labelled images: exact group counts, nothing used twice unless asked for."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate import assets
from foveate.assets import MappedArray
from foveate.errors import DataError


@dataclass(frozen=True)
class ImagePool:
    """Images to draw from: ``images[i]`` is a ``uint8`` array, ``labels`` is ``[N]``."""

    images: MappedArray | NDArray[np.uint8]
    labels: NDArray[np.int64]


def load_pool(name: str, split: str, root: str | os.PathLike[str] | None = None) -> ImagePool:
    """One split (``train`` or ``test``) of a dataset in :mod:`foveate.assets`, memory-mapped."""
    folder = assets.fetch(name, root)
    labels = np.load(folder / f"{split}_labels.npy", allow_pickle=False).astype(np.int64)
    return ImagePool(MappedArray(folder / f"{split}_images.npy"), labels)


def prepare_assets(
    names: Sequence[str],
    root: str | os.PathLike[str] | None = None,
    tell: Callable[[str], None] | None = None,
) -> dict[str, dict[str, object]]:
    """Fetch the datasets ``names``, hash them again, count images: ``{name: {folder, train, test}}``."""
    report: dict[str, dict[str, object]] = {}
    for name in names:
        folder = assets.fetch(name, root, verify=True, tell=tell)
        counts = {s: len(load_pool(name, s, root).labels) for s in ("train", "test")}
        report[name] = {"folder": str(folder), **counts}
    return report


def cell_counts(
    per_class: int | Sequence[int], attributes: int, strength: float, pairing: Sequence[int] | None = None
) -> NDArray[np.int64]:
    """Images of every (class, attribute) cell, ``[C, A]``, with ``strength`` of a class on its own attribute.

    The other attributes of a class share the rest equally, rounded; the paired attribute takes what remains,
    so that the class total is exact. With 4,396 per class, 10 attributes and 0.95 this gives the 4,180 / 24
    of the DAR paper's Table 4.

    Args:
        per_class: images of each class (one number for ``attributes`` classes, or one per class).
        attributes: number of attribute values, at least 2.
        strength: share of a class on its paired attribute, ``1 / attributes`` for none to ``1``.
        pairing: the attribute of each class; class ``i`` goes with attribute ``i % attributes`` by default.

    >>> cell_counts(4396, 10, 0.95)[0].tolist()
    [4180, 24, 24, 24, 24, 24, 24, 24, 24, 24]
    >>> cell_counts([100, 50], 2, 0.9).tolist()
    [[90, 10], [5, 45]]
    """
    totals = [per_class] * attributes if isinstance(per_class, int) else list(per_class)
    if attributes < 2:
        raise DataError(f"a shortcut needs at least 2 attribute values, found {attributes}.")
    if not 0.0 <= strength <= 1.0:
        raise DataError(f"strength is the share of a class on its own attribute, from 0 to 1; found {strength}.")
    pairs = [i % attributes for i in range(len(totals))] if pairing is None else list(pairing)
    cells = np.zeros((len(totals), attributes), dtype=np.int64)
    for c, total in enumerate(totals):
        # halves go up; the inner rounding keeps 0.005 * 10000 / 4 = 12.5 free of floating-point dust
        others = math.floor(round((1.0 - strength) * total / (attributes - 1), 9) + 0.5)
        others = min(others, total // (attributes - 1))
        cells[c] = others
        cells[c, pairs[c]] = total - others * (attributes - 1)
    return cells


class Deck:
    """Positions of a pool, shuffled within every label, dealt from the top.

    >>> deck = Deck([0, 1, 0, 1], np.random.default_rng(0))
    >>> sorted(deck.draw(0, 2).tolist())
    [0, 2]
    """

    def __init__(self, labels: ArrayLike, rng: np.random.Generator, what: str = "images"):
        labels = np.asarray(labels)
        self._rng = rng
        self._what = what
        self._all = {int(v): np.flatnonzero(labels == v) for v in np.unique(labels)}
        self._left = {v: rng.permutation(rows) for v, rows in self._all.items()}

    def draw(self, value: int, n: int, *, reuse: bool = False) -> NDArray[np.int64]:
        """The next ``n`` positions with label ``value``.

        With ``reuse`` the deck is shuffled anew whenever it runs out, so the pool is used up evenly.
        """
        left = self._left.get(value, np.zeros(0, dtype=np.int64))
        if n > len(left) and (not reuse or not len(self._all.get(value, ()))):
            raise DataError(f"{n:,} {self._what} with label {value} are needed, but only {len(left):,} are left.")
        while len(left) < n:
            left = np.concatenate([left, self._rng.permutation(self._all[value])])
        self._left[value] = left[n:]
        return left[:n].astype(np.int64)


def shuffled_cells(cells: NDArray[np.int64], rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Labels and attributes (``[N]`` each) of a split with these ``[C, A]`` counts, in random order."""
    groups = rng.permutation(np.repeat(np.arange(cells.size), cells.ravel()))
    return groups // cells.shape[1], groups % cells.shape[1]


def deal(deck: Deck, values: NDArray[np.int64], *, reuse: bool = False) -> NDArray[np.int64]:
    """A position from ``deck`` for each of ``values``, with that label."""
    chosen = np.zeros(len(values), dtype=np.int64)
    for value in np.unique(values):
        rows = np.flatnonzero(values == value)
        chosen[rows] = deck.draw(int(value), len(rows), reuse=reuse)
    return chosen
