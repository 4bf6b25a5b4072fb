"""Asking the models: what they say about every image, what discovery finds about them, and where they look."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.assemble.system import System
from foveate.data.dataset import GroupedDataset
from foveate.engine.progress import Progress
from foveate.errors import DataError, UnreadableImage
from foveate.export.swift import Swift
from foveate.export.trunks import Trunks
from foveate.measure import UNREADABLE, decided_by_shares
from foveate.report.abilities import classes_of, takes_new_images
from foveate.report.discovery.discover import OBSERVED, Discovery, discover, prepare
from foveate.report.heat import GAZE_IMAGES, HeatOnObject, measure_heat
from foveate.report.workload import foreseen, looks, predicted_in_pieces, swift_of

Say = Callable[[str], None]


@dataclass(frozen=True)
class ModelAnswers:
    """What the models said about a dataset of ``N`` images, by model.

    Attributes:
        classes: the ``K`` classes that any of them names: those of the dataset first.
        probabilities: ``[N, K]`` each; rows of NaN for images that could not be read, of 0 where there is no answer.
        predictions: ``[N]`` each; ``UNREADABLE`` and ``NO_ANSWER`` there.
        discoveries: what was found without attributes, for models that can be asked about edited images.
        heat: how much of each model's heat lies on the object; None where that cannot be known.
    """

    classes: list[str]
    probabilities: dict[str, NDArray[np.float64]]
    predictions: dict[str, NDArray[np.int64]]
    discoveries: dict[str, Discovery]
    heat: dict[str, HeatOnObject | None]

    @property
    def read(self) -> NDArray[np.bool_]:
        """Which images every model could read, ``[N]``."""
        return _read_by_all(self.predictions)


def ask_models(
    systems: Mapping[str, Any],
    dataset: GroupedDataset,
    *,
    discovery: bool,
    objects: str | None,
    attribute: str,
    seed: int,
    minutes: float | None,
    say: Say,
    show_progress: bool,
    options: dict[str, Any],
) -> ModelAnswers:
    """Ask every model all there is to ask, with a bar that moves; see :func:`foveate.report.audit` for the words."""
    classes = predicted_classes(systems, dataset)
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    with Progress("audit", foreseen(systems, dataset, discovery), show_progress) as bar:

        def tell(line: str, note: str) -> None:
            say(line)
            bar.note(note)

        probabilities: dict[str, NDArray[np.float64]] = {}
        swift: dict[str, Swift | None] = {}
        trunks = Trunks(len(systems))
        for name, system in systems.items():
            tell(f"{name}: predicting {len(dataset)} images", f"{name}: predicting")
            swift[name] = swift_of(system, dataset, discovery, trunks)
            chances = predicted_in_pieces(swift[name] or system, dataset, bar if show_progress else None, options)
            probabilities[name] = _aligned(chances, system, dataset, classes)
        predictions = {name: decided_by_shares(values) for name, values in probabilities.items()}
        able = {name: system for name, system in systems.items() if takes_new_images(system)}
        for name, system in systems.items():
            if discovery and isinstance(system, System) and name not in able:
                say(f"{name}: no discovery: it reads a true mask with every image, and changed images have none")
        read = _read_by_all(predictions)
        found: dict[str, Discovery] = {}
        if discovery and able and read.any():
            tell(f"looking at {min(OBSERVED, int(read.sum()))} images", "looking at the images")
            base = prepare(
                dataset, read, objects=objects, attribute=attribute, seed=seed, tick=bar.advance, models=len(able)
            )
            for name, system in able.items():
                tell(f"{name}: exchanging properties between images", f"{name}: experiments")
                found[name] = discover(
                    system, base, probabilities[name], classes, seed=seed, tick=bar.advance, deadline=deadline,
                    swift=swift[name],
                )  # fmt: skip
        heat: dict[str, HeatOnObject | None] = {}
        for name, system in systems.items():
            if dataset.masks is not None or dataset.boxes is not None:
                tell(f"{name}: where it looks, on {min(GAZE_IMAGES, len(dataset))} images", f"{name}: where it looks")
            heat[name] = measure_heat(system, dataset, predictions[name], seed=seed, tick=looks(bar, system))
    return ModelAnswers(classes, probabilities, predictions, found, heat)


def predicted_classes(systems: Mapping[str, Any], dataset: GroupedDataset) -> list[str]:
    """The classes of the dataset first, then those that only models know."""
    names = list(dataset.class_names)
    for model, system in systems.items():
        known = classes_of(system, dataset)
        missing = [name for name in dataset.class_names if name not in known]
        if missing:
            raise DataError(
                f"'{model}' does not know the class{'es' if len(missing) > 1 else ''} {', '.join(missing)} of "
                f"{dataset.name}; it was trained on {', '.join(known)}. Audit it on images of classes it knows."
            )
        names += [name for name in known if name not in names]
    return names


def _aligned(values: ArrayLike, system: Any, dataset: GroupedDataset, predicted: Sequence[str]) -> NDArray[np.float64]:
    """Probabilities with one column for every predicted class, in that order: ``[N, K]``."""
    given = np.asarray(values, dtype=np.float64)
    known = classes_of(system, dataset)
    if given.shape != (len(dataset), len(known)):
        raise DataError(
            f"predict_proba gave {given.shape} for {len(dataset)} images and {len(known)} classes; "
            f"expected {(len(dataset), len(known))}."
        )
    out = np.zeros((len(dataset), len(predicted)))
    out[:, [predicted.index(name) for name in known]] = given
    for i in np.flatnonzero(~np.isfinite(given).all(axis=1)):
        # a foveate system tells an unreadable image (NaN) from no answer (0); of any other model NaN may mean either
        out[i] = np.nan if isinstance(system, System) or not _readable(dataset, int(i)) else 0.0
    return out


def _readable(dataset: GroupedDataset, index: int) -> bool:
    try:
        dataset.images.read(index)
    except UnreadableImage:
        return False
    return True


def _read_by_all(predictions: Mapping[str, NDArray[np.int64]]) -> NDArray[np.bool_]:
    return np.logical_and.reduce([p != UNREADABLE for p in predictions.values()])
