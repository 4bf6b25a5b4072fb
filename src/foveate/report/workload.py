"""Running discovery inside an audit: how much work there is, and the work, with a bar that moves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.data.dataset import GroupedDataset
from foveate.engine.progress import Progress
from foveate.report.discovery.discover import EXPERIMENTED, OBSERVED, PASSES, Discovery, discover, prepare
from foveate.report.heat import GAZE_IMAGES
from foveate.systems import System

PIECE = 128
"""Images between two moves of the bar."""
BATCH = 32
"""Images a model sees at a time. More are no faster on a processor, and take memory."""


def look_passes(system: Any) -> int:
    """What a look at one image costs, in predictions: Grad-CAM goes back and forth, occlusion asks for every cell."""
    return 50 if getattr(system, "network_", True) is None else 3


def looked(bar: Progress, system: Any) -> Callable[[int], None]:
    """Moves ``bar`` by what looks at so many images cost."""
    cost = look_passes(system)
    return lambda images: bar.advance(images * cost)


def work(systems: Mapping[str, Any], dataset: GroupedDataset, wanted: bool) -> int:
    """How many images will pass through a model, for the time left."""
    n = len(dataset)
    looked = min(GAZE_IMAGES, n) if dataset.masks is not None or dataset.boxes is not None else 0
    total = sum(n + looked * look_passes(system) for system in systems.values())
    if not wanted:
        return total
    each = PASSES * min(EXPERIMENTED, n) + min(OBSERVED, n)
    able = sum(isinstance(system, System) for system in systems.values())
    return total + able * each + (min(OBSERVED, n) if able else 0)


def predicted_in_pieces(
    system: Any, dataset: GroupedDataset, bar: Progress | None, options: dict[str, Any]
) -> ArrayLike:
    """Probabilities of the whole dataset; in pieces when a bar wants to move."""
    if bar is None or not isinstance(system, System):
        return system.predict_proba(dataset, **options)
    parts = []
    for start in range(0, len(dataset), PIECE):
        piece = dataset.subset(np.arange(start, min(start + PIECE, len(dataset))))
        parts.append(system.predict_proba(piece, **{"batch_size": BATCH, **options}))
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
    attribute: str,
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
    base = prepare(dataset, read, objects=objects, attribute=attribute, seed=seed, tick=bar.advance)
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
