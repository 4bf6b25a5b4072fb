"""What people hand over where a system is expected: a module as it is becomes one, and what was assumed is said."""

from __future__ import annotations

import warnings
from typing import Any

from torch import nn

from foveate.assemble.system import System
from foveate.assemble.wrapping.wrap import wrap
from foveate.data.dataset import GroupedDataset


class WrappedWarning(UserWarning):
    """A model was wrapped without a word about its classes or images: what was assumed."""


def as_system(model: Any, dataset: GroupedDataset) -> Any:
    """``model`` as it is; a plain ``nn.Module`` wrapped, with the classes of ``dataset`` unless it names its own.

    >>> import torch
    >>> import foveate as fv
    >>> data = fv.data.critters(train=8, target=0, val=0, test=0, size=32)
    >>> net = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2))
    >>> with warnings.catch_warnings(record=True) as said:
    ...     system = as_system(net, data.train)
    >>> system.class_names_, "fv.wrap" in str(said[0].message)
    (['cat', 'duck'], True)
    """
    if isinstance(model, System) or not isinstance(model, nn.Module) or hasattr(model, "predict_proba"):
        return model
    system = wrap(model, otherwise=list(dataset.class_names))
    whose = "in the order of the dataset" if system.assumed_ else "as the model names them"
    (height, width), mean = system.preprocess_.size, tuple(round(m, 3) for m in system.preprocess_.mean)
    warnings.warn(
        f"{system.name} was wrapped as it is: its outputs are taken for {', '.join(system.class_names_[:8])} "
        f"({whose}), its images to be {width} x {height} px with mean {mean}. "
        "Otherwise, say so: fv.wrap(model, class_names, preprocess=…).",
        WrappedWarning,
        stacklevel=3,
    )
    return system
