"""Columns of a dataset as cues: the camera, the hospital, the given attribute."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.data.dataset import GroupedDataset
from foveate.report.discovery.cues.cue import Cue

MOST_VALUES = 50
"""A column of text with more values than this names things; it does not group them."""


def column(name: str) -> Cue:
    """The cue of a column that came with the images."""
    return Cue(f"column:{name}", f"the column '{name}'")


def given_attribute(word: str = "attribute") -> Cue:
    """The cue of the attribute that the user gave, called ``word`` in sentences.

    >>> given_attribute("habitat").name
    'the habitat'
    """
    return Cue("column:attribute", f"the {word}", given=True)


def read_columns(
    dataset: GroupedDataset, positions: NDArray[np.int64], word: str = "attribute"
) -> list[tuple[Cue, NDArray[np.float64]]]:
    """Columns of the dataset as features: numbers as they are, text and categories as one column a value."""
    columns: list[tuple[Cue, Any]] = [(column(name), values) for name, values in dataset.extras.items()]
    if dataset.attributes is not None:
        columns.append((given_attribute(word), dataset.attributes))
    out: list[tuple[Cue, NDArray[np.float64]]] = []
    for cue, raw in columns:
        values = np.asarray(raw)
        if values.ndim != 1 or len(values) != len(dataset):
            continue
        values = values[positions]
        unique = np.unique(values.astype(str))
        if len(unique) < 2 or (not cue.given and _same_split(values, dataset.attributes, positions)):
            continue
        if np.issubdtype(values.dtype, np.floating):
            out.append((cue, np.nan_to_num(values.astype(np.float64))[:, None]))
        elif (split := by_value(values)) is not None:
            out.append((cue, split))
        elif np.issubdtype(values.dtype, np.integer):
            out.append((cue, values.astype(np.float64)[:, None]))
    return out


def by_value(values: NDArray[Any]) -> NDArray[np.float64] | None:
    """One column of 0 and 1 for every value of ``values`` ``[n]``; None for a single one, or too many to group images.

    >>> by_value(np.asarray(["a", "b", "a"])).tolist()
    [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    """
    unique = np.unique(values.astype(str))
    if not 1 < len(unique) <= min(MOST_VALUES, max(2, len(values) // 5)):
        return None
    return (values.astype(str)[:, None] == unique[None]).astype(np.float64)


def _same_split(values: Any, attributes: NDArray[np.int64] | None, positions: NDArray[np.int64]) -> bool:
    """Whether a column splits the images just as the attribute does, and so is the attribute once more."""
    if attributes is None:
        return False
    pairs = set(zip(values.astype(str), attributes[positions], strict=True))
    return len(pairs) == len({a for a, _ in pairs}) == len({b for _, b in pairs})
