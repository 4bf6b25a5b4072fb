"""Counting right and wrong by class and group: what every group metric is made from.

Which training groups count as majority and which as minority is decided here, once.

Reference: Wilson 1927, "Probable inference, the law of succession, and statistical inference" (the interval).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.errors import DataError
from foveate.measure.answers import NO_ANSWER, UNREADABLE


def wilson_interval(correct: int, n: int, z: float = 1.959963984540054) -> tuple[float, float]:
    """The Wilson score interval of a share; 95 % with the default ``z``. ``(0, 1)`` when ``n`` is 0.

    Unlike ``p ± z·s.e.`` it stays inside [0, 1] and keeps a width when all (or none) are correct.

    >>> [round(v, 4) for v in wilson_interval(8, 10)]
    [0.4902, 0.9433]
    """
    if n == 0:
        return 0.0, 1.0
    if not 0 <= correct <= n:
        raise DataError(f"wilson_interval: {correct} correct out of {n}; expected 0 <= correct <= n.")
    p, square = correct / n, z * z
    middle = (p + square / (2 * n)) / (1 + square / n)
    half = z / (1 + square / n) * math.sqrt(p * (1 - p) / n + square / (4 * n * n))
    # With none or all correct the ends are 0 and 1 exactly; rounding must not move them inside.
    return (
        0.0 if correct == 0 else max(0.0, middle - half),
        1.0 if correct == n else min(1.0, middle + half),
    )


def minority_groups(train_counts: ArrayLike, tolerance: float = 0.1) -> NDArray[np.bool_]:
    """Which groups the training split under-represents within their class.

    A group is *minority* when its share of its class is below the uniform share ``1 / num_attributes`` by
    more than ``tolerance`` (relative); every other group is *majority*. So, with the usual datasets:

    - 10×10 dominoes: the diagonal is majority, all 90 others are minority;
    - Waterbirds (3498/184/56/1057): landbird on water and waterbird on land are minority;
    - CelebA (71629/66874/22880/1387): only the blond men are minority, since the other hair colour is split
      almost evenly and ``tolerance`` keeps that from counting;
    - a group that never occurs in training is minority; a class that never occurs has neither kind.

    Args:
        train_counts: images per group, ``[num_classes, num_attributes]``.
        tolerance: how far below uniform still counts as uniform.

    Returns: ``bool [num_classes, num_attributes]``, True for minority. All False for a balanced split.

    >>> minority_groups([[3498, 184], [56, 1057]])
    array([[False,  True],
           [ True, False]])
    """
    counts = np.asarray(train_counts, dtype=np.float64)
    if counts.ndim != 2:
        raise DataError(f"train_counts must be [num_classes, num_attributes]; got shape {counts.shape}.")
    total = counts.sum(axis=1, keepdims=True)
    return (counts < (1 - tolerance) * total / counts.shape[1]) & (total > 0)


@dataclass(frozen=True)
class GroupRow:
    """One non-empty test group. ``low`` and ``high`` bound its accuracy (95 % Wilson interval)."""

    name: str
    label: int
    attribute: int
    n: int
    correct: int
    accuracy: float
    low: float
    high: float
    train_count: int | None = None
    kind: str | None = None
    """"majority" or "minority" by the training counts, None when they do not tell."""
    unanswered: int = 0
    """Images that the model was shown and named no class for; they count as wrong."""


@dataclass(frozen=True)
class GroupTable:
    """Counts per class and per group, from which every metric follows."""

    class_names: list[str]
    attribute_names: list[str]
    class_n: NDArray[np.int64]
    class_correct: NDArray[np.int64]
    n: NDArray[np.int64] | None
    correct: NDArray[np.int64] | None
    train: NDArray[np.int64] | None
    skipped: int
    class_unanswered: NDArray[np.int64]
    unanswered: NDArray[np.int64] | None

    @staticmethod
    def of(
        predictions: ArrayLike,
        labels: ArrayLike,
        attributes: ArrayLike | None,
        train_counts: ArrayLike | None,
        class_names: Sequence[str] | None,
        attribute_names: Sequence[str] | None,
    ) -> GroupTable:
        p, y = indices("predictions", predictions), indices("labels", labels)
        a = None if attributes is None else indices("attributes", attributes)
        check_lengths(p, y, a)
        read = p != UNREADABLE
        if not read.any():
            raise DataError(f"no predictions to measure: of {len(p)} images {int((~read).sum())} could not be read.")
        train = None if train_counts is None or a is None else np.asarray(train_counts, dtype=np.int64)
        classes = len(class_names) if class_names is not None else None
        values = len(attribute_names) if attribute_names is not None else None
        if train is not None:
            classes, values = _shape_of_counts(train, classes, values, y, a)
            train = train.reshape(classes, values)
        classes = classes if classes is not None else int(y.max()) + 1
        if y.min() < 0 or y.max() >= classes:
            raise DataError(f"labels run from {y.min()} to {y.max()}, but there are {classes} classes.")
        y, right, silent = y[read], (p == y)[read], (p == NO_ANSWER)[read]
        names = list(class_names) if class_names is not None else [str(c) for c in range(classes)]
        class_n = np.bincount(y, minlength=classes)
        class_correct = np.bincount(y[right], minlength=classes)
        skipped, class_silent = int((~read).sum()), np.bincount(y[silent], minlength=classes)
        if a is None:
            return GroupTable(names, [], class_n, class_correct, None, None, None, skipped, class_silent, None)
        values = values if values is not None else int(a.max()) + 1
        if a.min() < 0 or a.max() >= values:
            raise DataError(f"attributes run from {a.min()} to {a.max()}, but there are {values} values.")
        g = y * values + a[read]
        return GroupTable(
            names,
            list(attribute_names) if attribute_names is not None else [str(v) for v in range(values)],
            class_n,
            class_correct,
            np.bincount(g, minlength=classes * values).reshape(classes, values),
            np.bincount(g[right], minlength=classes * values).reshape(classes, values),
            train,
            skipped,
            class_silent,
            np.bincount(g[silent], minlength=classes * values).reshape(classes, values),
        )

    @property
    def accuracy(self) -> NDArray[np.float64]:
        """``[num_classes, num_attributes]``; 0 for an empty group (never used with a weight)."""
        assert self.n is not None
        assert self.correct is not None
        return self.correct / np.maximum(self.n, 1)

    @property
    def kinds(self) -> dict[str, NDArray[np.bool_]]:
        """Masks of the majority and minority groups; empty when training does not tell them apart."""
        if self.train is None:
            return {}
        minority = minority_groups(self.train)
        if not minority.any():
            return {}
        return {"minority": minority, "majority": ~minority & (self.train > 0)}

    def rows(self) -> tuple[list[GroupRow], list[str]]:
        """A row for every non-empty group, and the names of the empty ones."""
        assert self.n is not None
        assert self.correct is not None
        rows: list[GroupRow] = []
        empty: list[str] = []
        kinds = self.kinds
        for (c, v), n in np.ndenumerate(self.n):
            name = f"{self.class_names[c]}/{self.attribute_names[v]}"
            if not n:
                empty.append(name)
                continue
            correct = int(self.correct[c, v])
            low, high = wilson_interval(correct, int(n))
            kind = next((kind for kind, where in kinds.items() if where[c, v]), None)
            count = None if self.train is None else int(self.train[c, v])
            silent = 0 if self.unanswered is None else int(self.unanswered[c, v])
            rows.append(GroupRow(name, c, v, int(n), correct, correct / int(n), low, high, count, kind, silent))
        return rows, empty


def indices(what: str, values: ArrayLike) -> NDArray[np.int64]:
    """``values`` as one whole number per image, ``int64 [N]``; anything else is an error that calls them ``what``.

    >>> indices("labels", [0, 1.0, 2])
    array([0, 1, 2])
    """
    array = np.asarray(values)
    if array.ndim != 1:
        raise DataError(f"{what} must be one index per image, shape [N]; got shape {array.shape}.")
    if array.size and not np.issubdtype(array.dtype, np.integer) and not (array == array.astype(np.int64)).all():
        raise DataError(f"{what} must be whole numbers (class indices, not probabilities).")
    return array.astype(np.int64, copy=False)


def check_lengths(p: NDArray[Any], y: NDArray[Any], a: NDArray[Any] | None) -> None:
    """Raise unless predictions ``p``, labels ``y`` and attributes ``a`` (None when unknown) are equally many.

    >>> check_lengths(np.zeros(3), np.zeros(2), None)
    Traceback (most recent call last):
    ...
    foveate.errors.DataError: 3 predictions for 2 labels; give one each per image.
    """
    if len(p) != len(y) or (a is not None and len(a) != len(y)):
        given = "" if a is None else f" and {len(a)} attributes"
        raise DataError(f"{len(p)} predictions for {len(y)} labels{given}; give one each per image.")


def _shape_of_counts(
    train: NDArray[np.int64], classes: int | None, values: int | None, y: NDArray[Any], a: NDArray[Any] | None
) -> tuple[int, int]:
    """How many classes and attributes ``train`` counts, or a :class:`DataError`."""
    if train.ndim == 2:
        found = train.shape
    else:
        if classes is None and values is None:
            classes = int(y.max()) + 1
        if classes is None and values is not None:
            classes = train.size // values
        found = (classes or 1, train.size // (classes or 1))
    wanted = (classes if classes is not None else found[0], values if values is not None else found[1])
    needed = (int(y.max()) + 1, 1 if a is None else int(a.max()) + 1)
    if found != wanted or found[0] * found[1] != train.size or found[0] < needed[0] or found[1] < needed[1]:
        raise DataError(
            f"train_counts has shape {train.shape}, but {max(wanted[0], needed[0])} classes and "
            f"{max(wanted[1], needed[1])} attributes were expected; give [num_classes, num_attributes]."
        )
    return int(found[0]), int(found[1])
