"""The training images per group, by which usual and unusual groups are told apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.data.dataset import GroupedDataset
from foveate.errors import DataError
from foveate.report.abilities import classes_of, training_counts_of
from foveate.report.sentences.sections import foreign_counts

GIVEN_BY_USER = "given"


@dataclass(frozen=True)
class TrainingCounts:
    """Images per training group ``[C, A]``, and whose they are: a model's name, or ``"given"``."""

    array: NDArray[np.int64]
    source: str

    @property
    def counts(self) -> list[list[int]]:
        return self.array.tolist()

    @property
    def usual_share(self) -> float:
        """How much of a class its most frequent attribute makes up in training, averaged over images.

        >>> TrainingCounts(np.array([[9, 1], [2, 8]]), "ERM").usual_share
        0.85
        """
        return float(self.array.max(axis=1).sum() / max(int(self.array.sum()), 1))


def training_counts(
    systems: Mapping[str, Any], dataset: GroupedDataset, given: ArrayLike | None
) -> tuple[TrainingCounts | None, list[str]]:
    """The counts to compare all models by (the most uneven of what the models remember), and notes on the others."""
    if dataset.attributes is None:
        return None, []
    shape = (dataset.num_classes, dataset.num_attributes)
    if given is not None:
        counts = np.asarray(given, dtype=np.int64)
        if counts.size != shape[0] * shape[1]:
            raise DataError(f"train_counts has shape {counts.shape}; expected {shape}, one count for every group.")
        return TrainingCounts(counts.reshape(shape), GIVEN_BY_USER), []
    found: list[TrainingCounts] = []
    notes: list[str] = []
    names = dataset.attribute_names or []
    for model, system in systems.items():
        raw, values = training_counts_of(system, dataset)
        if raw is None:
            continue
        known = classes_of(system, dataset)
        if raw.size != len(known) * len(values) or set(values) != set(names):
            notes.append(foreign_counts(model))
            continue
        rows, columns = [known.index(name) for name in dataset.class_names], [values.index(value) for value in names]
        found.append(TrainingCounts(raw.reshape(len(known), len(values))[np.ix_(rows, columns)], model))
    return max(found, key=lambda entry: entry.usual_share, default=None), notes
