"""How much work an audit is, and predicting in pieces, so that a bar with the time left can move."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from foveate.assemble.system import System
from foveate.data.dataset import GroupedDataset
from foveate.engine.progress import Progress
from foveate.export.swift import Swift
from foveate.export.trunks import Trunks
from foveate.report.abilities import look_passes, takes_new_images
from foveate.report.discovery.discover import OBSERVED, asked_about
from foveate.report.heat import GAZE_IMAGES

PIECE = 128
"""Images between two moves of the bar."""


def looks(bar: Progress, system: Any) -> Callable[[int], None]:
    """Moves ``bar`` by what looks at so many images cost."""
    cost = look_passes(system)
    return lambda images: bar.advance(images * cost)


def foreseen(systems: Mapping[str, Any], dataset: GroupedDataset, wanted: bool) -> int:
    """How many images will pass through a model, for the time left."""
    n = len(dataset)
    looked = min(GAZE_IMAGES, n) if dataset.masks is not None or dataset.boxes is not None else 0
    total = sum(n + looked * look_passes(system) for system in systems.values())
    if not wanted:
        return total
    each = asked_about(n) + min(OBSERVED, n)
    able = sum(takes_new_images(system) for system in systems.values())
    return total + able * each + (min(OBSERVED, n) if able else 0)


def swift_of(system: Any, dataset: GroupedDataset, wanted: bool, trunks: Trunks | None = None) -> Swift | None:
    """What asks a model of foveate's about the dataset and, if ``wanted``, about edited images; None for others.

    ``trunks`` are shared by all models of an audit. A model that reads masks of the dataset is asked by itself.
    """
    if not isinstance(system, System):
        return None
    edited = wanted and takes_new_images(system)
    return Swift(system, len(dataset) + (asked_about(len(dataset)) if edited else 0), trunks if edited else None)


def predicted_in_pieces(
    system: Any, dataset: GroupedDataset, bar: Progress | None, options: dict[str, Any]
) -> ArrayLike:
    """Probabilities of the whole dataset; in pieces when a bar wants to move."""
    if bar is None or not isinstance(system, (System, Swift)):
        return system.predict_proba(dataset, **options)
    parts = []
    for start in range(0, len(dataset), PIECE):
        piece = dataset.subset(np.arange(start, min(start + PIECE, len(dataset))))
        parts.append(system.predict_proba(piece, **options))
        bar.advance(len(piece))
    return np.concatenate(parts)
