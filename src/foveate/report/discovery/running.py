"""Running discovery inside an audit: how much work there is, and the work, with a bar that moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.data.dataset import GroupedDataset
from foveate.engine.progress import Progress
from foveate.report.discovery.discover import EXPERIMENTED, OBSERVED, PASSES, Discovery, discover, prepare
from foveate.systems import System


def work(systems: Mapping[str, Any], dataset: GroupedDataset, wanted: bool) -> int:
    """How many images will pass through a model, for the time left."""
    if not wanted:
        return len(systems) * len(dataset)
    each = PASSES * min(EXPERIMENTED, len(dataset)) + min(OBSERVED, len(dataset))
    return len(systems) * (len(dataset) + each) + min(OBSERVED, len(dataset))


def predicted_in_pieces(
    system: Any, dataset: GroupedDataset, bar: Progress | None, options: dict[str, Any]
) -> ArrayLike:
    """Probabilities of the whole dataset; in pieces when a bar wants to move."""
    if bar is None or not isinstance(system, System):
        return system.predict_proba(dataset, **options)
    parts = []
    for start in range(0, len(dataset), 512):
        piece = dataset.subset(np.arange(start, min(start + 512, len(dataset))))
        parts.append(system.predict_proba(piece, **options))
        bar.advance(len(piece))
    return np.concatenate(parts)


def discovered(
    systems: Mapping[str, Any],
    dataset: GroupedDataset,
    probabilities: Mapping[str, NDArray[np.float64]],
    predicted: Sequence[str],
    read: NDArray[np.bool_],
    wanted: bool,
    objects: str | None,
    seed: int,
    say: Callable[[str], None],
    bar: Progress,
) -> dict[str, Discovery]:
    """What discovery finds about every model that can be asked about new images.

    One that cannot (a model that needs the true mask of every image) is left out, and ``say`` is told.
    """
    able = {name: system for name, system in systems.items() if isinstance(system, System)}
    if not wanted or not able or not read.any():
        return {}
    say(f"looking at {min(OBSERVED, int(read.sum()))} images")
    bar.note("looking at the images")
    base = prepare(dataset, read, objects=objects, seed=seed, tick=bar.advance)
    found = {}
    for name, system in able.items():
        say(f"{name}: exchanging properties between images")
        bar.note(f"{name}: experiments")
        try:
            found[name] = discover(
                system, base, probabilities[name], predicted, name=name, seed=seed, tick=bar.advance
            )  # fmt: skip
        except NotImplementedError as error:
            say(f"{name}: no discovery: {error}")
    return found
