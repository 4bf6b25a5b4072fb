"""The models of an audit: their names, the classes they know, and their answers in one order of classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.assemble.system import System
from foveate.data.dataset import GroupedDataset
from foveate.errors import DataError, UnreadableImage


def named_models(models: Any | Mapping[str, Any]) -> dict[str, Any]:
    """One model under the name of its class, or several under theirs; an error for what cannot be asked."""
    systems = {str(k): v for k, v in models.items()} if isinstance(models, Mapping) else {type(models).__name__: models}
    if not systems:
        raise DataError("no models to audit; give a fitted system, or a mapping from name to system.")
    for name, system in systems.items():
        if not hasattr(system, "predict_proba"):
            raise DataError(f"'{name}' is a {type(system).__name__}, which has no predict_proba; give a fitted system.")
    return systems


def supervision_of(system: Any) -> str:
    """What labels the system consumed, in words."""
    stated = getattr(system, "supervision", None)
    return str(stated() if callable(stated) else getattr(system, "needs", "")) or "not stated"


def classes_of(system: Any, dataset: GroupedDataset) -> list[str]:
    """The classes ``system`` knows, in the order of its outputs; those of the dataset when it does not say."""
    names = getattr(system, "class_names_", None)
    return list(dataset.class_names) if names is None else [str(name) for name in names]


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


def aligned_shares(
    values: ArrayLike, system: Any, dataset: GroupedDataset, predicted: Sequence[str]
) -> NDArray[np.float64]:
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
