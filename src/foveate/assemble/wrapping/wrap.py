"""Any trained classifier as a system: a module, a function, a name, a file, a folder, a factory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from foveate.assemble.network import Network
from foveate.assemble.wrapping.brought import Brought
from foveate.assemble.wrapping.files import model_file, told_beside
from foveate.assemble.wrapping.holding import HeldFunction
from foveate.assemble.wrapping.modules import HeldModule
from foveate.assemble.wrapping.networks import HeldNetwork
from foveate.assemble.wrapping.timm_models import NAMELESS, NOT_FOUND, by_name
from foveate.assemble.wrapping.wrapped import Wrapped
from foveate.data.preprocess import Preprocess
from foveate.errors import ModelError

Logits = Callable[[Tensor], Any]


def wrap(
    model: str | Path | Logits | nn.Module,
    class_names: Sequence[str] | None = None,
    *,
    preprocess: Preprocess | None = None,
    checkpoint: str | Path | None = None,
    image_size: int | tuple[int, int] | None = None,
    layer: str | None = None,
    trust: bool = False,
    name: str | None = None,
) -> Wrapped:
    """A classifier trained elsewhere as a system, so that it can be evaluated, audited and cured.

    Args:
        model: one of

            - a Python callable (or ``nn.Module``) from normalised images ``[B, 3, h, w]`` to logits ``[B, C]``;
            - a timm name together with ``checkpoint``, or ``"NAME@file"``;
            - an ``.onnx`` file (extra ``onnx``);
            - a TorchScript or ``torch.export`` (``.pt2``) file, with ``trust=True``.
        class_names: names of the outputs, in their order. An ONNX file may hold them itself, and exports of foveate
            have them in the file beside them.
        preprocess: how images reach the model. Default: what the ONNX file says, timm's own values for a timm
            model, else ImageNet mean and deviation at ``image_size``.
        checkpoint: state dict of a timm model, ``.safetensors`` or PyTorch.
        image_size: side or ``(height, width)`` the model sees.
        layer: the module whose output are the feature maps, as the model calls it (``"layer4"``); by default the last
            maps that everything passes through.
        trust: allow formats that hold a program or pickled objects (TorchScript, ``.pt2``, whole pickled
            modules). Say so only for files whose origin you know. State dicts and ONNX graphs never need it: a
            state dict is read as numbers alone, and an ONNX graph only names operators of the runtime.
        name: what to call it.

    >>> import torch
    >>> import foveate as fv
    >>> view = Preprocess((8, 8), mean=(0.5,) * 3, std=(0.5,) * 3)
    >>> blue = fv.wrap(lambda x: torch.stack([-x[:, 2].mean((1, 2)), x[:, 2].mean((1, 2))], 1), ["land", "sea"],
    ...                preprocess=view)
    >>> blue.predict(torch.tensor([[[[0.0]], [[0.0]], [[1.0]]]]).expand(1, 3, 8, 8)).tolist()
    [1]
    >>> blue.look(torch.rand(1, 3, 8, 8)).kind
    'occlusion'
    """
    size = (image_size, image_size) if isinstance(image_size, int) else image_size
    found = _brought(model, class_names, size, checkpoint, trust, name)
    names = class_names if class_names is not None else found.class_names
    if names is None:
        raise ModelError(NAMELESS.format(name or found.held.name))
    found.held.name = name or found.held.name
    system = Wrapped(found.held, found.held.name, layer)
    system.class_names_ = [str(c) for c in names]
    system.preprocess_ = preprocess or found.preprocess or Preprocess(size or found.size or (224, 224))
    return system


def _brought(
    model: Any, class_names: Sequence[str] | None, size: tuple[int, int] | None, checkpoint: str | Path | None,
    trust: bool, name: str | None,
) -> Brought:  # fmt: skip
    """The model and what it says of itself."""
    if isinstance(model, (str, Path)):
        path = Path(model).expanduser()
        arch, at, file = str(model).partition("@")
        if at and checkpoint is None:
            model, checkpoint = arch, Path(file).expanduser()
        if checkpoint is not None:
            return by_name(str(model), checkpoint, class_names, size)
        if not path.is_file():
            raise ModelError(NOT_FOUND.format(model))
        found = model_file(path, trust)
        beside = told_beside(path)
        if beside is not None:
            found.class_names, found.preprocess = beside
        return found
    if isinstance(model, Network):
        return Brought(HeldNetwork(name or type(model).__name__, model))
    if isinstance(model, nn.Module):
        return Brought(HeldModule(name or type(model).__name__, model))
    if callable(model):
        return Brought(HeldFunction(name or str(getattr(model, "__name__", "model")), model))
    raise ModelError(f"expected a callable, a timm name or a model file, found {type(model).__name__}.")
