"""What a model under audit can do: the one place where the audit asks, and goes on without what a model cannot.

An audit takes more than foveate's systems: anything with ``predict_proba`` will do. Everything beyond that is asked
here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveate.assemble.capabilities import network_of, sees_images_alone
from foveate.assemble.system import System
from foveate.assemble.wrapping.given import as_system
from foveate.data.dataset import GroupedDataset
from foveate.data.preprocess import Preprocess
from foveate.errors import DataError
from foveate.export.swift import quickened
from foveate.export.trunks import Embeds
from foveate.look.gaze import Gaze

LOOK_BATCH = 16
"""Images looked at together."""


def named_models(models: Any | Mapping[str, Any], dataset: GroupedDataset) -> dict[str, Any]:
    """The models by name, plain modules wrapped; an error when there is none, or one that cannot predict."""
    systems = {str(k): v for k, v in models.items()} if isinstance(models, Mapping) else {type(models).__name__: models}
    if not systems:
        raise DataError("no models to audit; give a fitted system, or a mapping from name to system.")
    systems = {name: as_system(system, dataset) for name, system in systems.items()}
    for name, system in systems.items():
        if not hasattr(system, "predict_proba"):
            raise DataError(
                f"'{name}' is a {type(system).__name__}, which has no predict_proba; give a fitted system, or a model "
                "from elsewhere as fv.wrap(model, class_names)."
            )
    return systems


def takes_new_images(system: Any) -> TypeGuard[System]:
    """Whether edited images can be put before it, so that experiments are possible: they come without true masks."""
    return isinstance(system, System) and sees_images_alone(system)


def supervision_of(system: Any) -> str:
    """What labels it consumed, in words."""
    stated = getattr(system, "supervision", None)
    return str(stated() if callable(stated) else getattr(system, "needs", "")) or "not stated"


def classes_of(system: Any, dataset: GroupedDataset) -> list[str]:
    """The classes it names, in the order of its outputs; by default those of the dataset."""
    names = getattr(system, "class_names_", None)
    return list(dataset.class_names) if names is None else [str(name) for name in names]


def training_counts_of(system: Any, dataset: GroupedDataset) -> tuple[NDArray[np.int64] | None, list[str]]:
    """Images per training group, flat, and the attribute's values there; None when it does not remember."""
    raw = getattr(system, "train_counts_", None)
    values = list(getattr(system, "attribute_names_", None) or dataset.attribute_names or [])
    return None if raw is None else np.asarray(raw, dtype=np.int64).ravel(), values


def view_of(system: Any) -> Preprocess | None:
    """How images reach it, when it says so."""
    return getattr(system, "preprocess_", None)


def cut_of(system: Any) -> Preprocess | None:
    """The same, for a system that cuts images: its maps cover the cut only."""
    view = view_of(system)
    return view if view is not None and view.fit == "crop" else None


def embedder_of(system: System, quick: bool = False) -> Callable[[list[Tensor]], Tensor] | None:
    """Images to the features of its own network ``[B, D]``, when it ends as one.

    ``quick`` asks through a recorded graph where that agrees: worth it for a network whose logits come from one.
    """
    network = network_of(system)
    if network is None:
        return None
    ask: Callable[[Tensor], Tensor] | None = None

    @torch.no_grad()
    def embed(images: list[Tensor]) -> Tensor:
        nonlocal ask
        inputs = system.inputs(images)
        if ask is None:
            module = Embeds(network.cpu()).eval()
            ask = quickened(module, inputs) if quick else module
        return ask(inputs).float().cpu()

    return embed


def look_passes(system: Any) -> int:
    """What a look at one image costs, in predictions: Grad-CAM goes back and forth, occlusion asks for every cell."""
    return 50 if getattr(system, "network_", True) is None else 3


def gaze_at(system: Any, images: Sequence[Tensor], batch: int = LOOK_BATCH) -> list[Gaze] | None:
    """The gaze of ``system`` on each image, one :class:`Gaze` of batch size one each.

    None when the system has nothing to show: no ``look``, one that is not implemented, or that needs true masks too.
    """
    look = getattr(system, "look", None)
    if look is None or not sees_images_alone(system):
        return None
    out: list[Gaze] = []
    for start in range(0, len(images), batch):
        try:
            gaze = look(list(images[start : start + batch]))
        except NotImplementedError:  # the look that a system inherits when it has none of its own
            return None
        if gaze is None:
            return None
        out.extend(_one(gaze, i) for i in range(len(gaze)))
    return out


def _one(gaze: Gaze, i: int) -> Gaze:
    def cut(values: Tensor | None) -> Tensor | None:
        return None if values is None else values[i : i + 1].detach().cpu()

    return replace(
        gaze,
        map=gaze.map[i : i + 1].detach().cpu(),
        parts=cut(gaze.parts),
        mask=cut(gaze.mask),
        boxes=cut(gaze.boxes),
        scores={},
    )
