"""One call from a fitted system and a dataset to its group report."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.assemble.system import System, aligned
from foveate.assemble.wrapping.given import as_system
from foveate.data.dataset import GroupedDataset
from foveate.measure import GroupReport, group_report


def evaluate(
    system: System, dataset: GroupedDataset, *, train_counts: NDArray[np.int64] | None = None, **options: Any
) -> GroupReport:
    """Predict ``dataset`` and report average, worst group, majority, minority, and every group.

    Args:
        system: a fitted system; a plain ``nn.Module`` is wrapped, with a warning that says what was assumed of it.
        dataset: what to evaluate on; without attributes only class figures are given.
        train_counts: training images per group; by default those the system was trained on, when the
            attributes are the same.
        options: passed on to ``predict`` (``batch_size``, ``workers``, ``on_bad``).

    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=32)
    >>> base = fv.ERM("micro_resnet", epochs=1, progress=False).fit(data.train)
    >>> report = fv.evaluate(base, data.test)
    >>> [group.name for group in report.groups]
    ['cat/meadow', 'cat/sea', 'duck/meadow', 'duck/sea']
    >>> report.worst_group <= report.average
    True
    """
    system = as_system(system, dataset)
    dataset = aligned(system, dataset)
    return report_of(system, dataset, system.predict(dataset, **options), train_counts=train_counts)


def report_of(
    system: System,
    dataset: GroupedDataset,
    predictions: NDArray[np.int64],
    *,
    train_counts: NDArray[np.int64] | None = None,
) -> GroupReport:
    """The report of :func:`evaluate` for predictions ``[n]`` that are there already (-1: unreadable, -2: no answer)."""
    if train_counts is None and dataset.attribute_names == system.attribute_names_:
        train_counts = system.train_counts_
    return group_report(
        predictions, dataset.labels, dataset.attributes, train_counts,
        class_names=dataset.class_names, attribute_names=dataset.attribute_names,
    )  # fmt: skip
