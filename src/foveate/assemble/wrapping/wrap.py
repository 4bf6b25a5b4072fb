"""Any trained classifier as a system: a module, a function, a name, a file, a folder, a factory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from foveate.assemble.network import Network
from foveate.assemble.wrapping.brought import Brought
from foveate.assemble.wrapping.clip_towers import by_clip_name, from_clip, is_clip
from foveate.assemble.wrapping.factories import built, is_address
from foveate.assemble.wrapping.files import model_file, told_beside
from foveate.assemble.wrapping.holding import HeldFunction
from foveate.assemble.wrapping.modules import HeldModule
from foveate.assemble.wrapping.networks import HeldNetwork
from foveate.assemble.wrapping.timm_models import NAMELESS, NOT_FOUND, by_name, from_timm, is_timm
from foveate.assemble.wrapping.transformers_models import from_folder, from_object, is_folder, is_transformers
from foveate.assemble.wrapping.wrapped import Wrapped
from foveate.data.preprocess import Preprocess
from foveate.decide.prompts import Prompts
from foveate.errors import ModelError
from foveate.extract.clip import PREFIX

Logits = Callable[[Tensor], Any]


@dataclass(frozen=True)
class _Told:
    """What the caller says of the model."""

    class_names: Sequence[str] | None
    size: tuple[int, int] | None
    weights: str | Path | None
    processor: Any
    prompts: Prompts | None
    head: str | Path | None
    trust: bool


def wrap(
    model: str | Path | Logits | nn.Module,
    class_names: Sequence[str] | None = None,
    *,
    preprocess: Preprocess | None = None,
    weights: str | Path | None = None,
    processor: Any = None,
    prompts: Prompts | None = None,
    head: str | Path | None = None,
    image_size: int | tuple[int, int] | None = None,
    otherwise: Sequence[str] | None = None,
    layer: str | None = None,
    trust: bool = False,
    name: str | None = None,
    try_out: bool = True,
) -> Wrapped:
    """A classifier trained elsewhere as a system, so that it can be evaluated, audited and cured.

    Args:
        model: one of

            - an ``nn.Module`` from normalised images ``[B, 3, h, w]`` to logits ``[B, C]``; also of timm, torchvision,
              transformers (image classifiers) and open_clip (whole CLIP models). Logits are found in a mapping, a
              tuple or an object with ``.logits`` when it is clear which tensor they are; one logit an image stands
              for the second of two classes;
            - any other Python callable: a black box;
            - a timm name together with ``weights``, or ``"NAME@file"``;
            - a folder written by transformers' ``save_pretrained`` (extra ``transformers``);
            - ``"open_clip:ARCH/TAG"`` or ``"open_clip:ARCH@file"`` (extra ``clip``);
            - an ``.onnx`` file (extra ``onnx``): a black box;
            - a TorchScript or ``torch.export`` (``.pt2``) file, with ``trust=True``;
            - ``"package.module:build"``: a function of your own that makes the model, with ``weights`` for it.
              Naming a module runs its code.
        class_names: names of the outputs, in their order; by default those the model has (transformers' ``id2label``,
            an ONNX file's metadata, what ``foveate export`` wrote beside it, an attribute ``class_names``).
        preprocess: how images reach the model. By default what the model says of itself: timm's values, the image
            processor of transformers, an ONNX file's metadata; else ImageNet mean and deviation at ``image_size``.
        weights: state dict of a timm model or of what a factory makes, ``.safetensors`` or PyTorch.
        processor: the image processor of a transformers object.
        prompts: texts for every class of a CLIP model, by class name or in class order; by default
            ``"a photo of a {}."``.
        head: state dict of a linear layer on the image embedding of a CLIP model, in place of texts.
        image_size: side or ``(height, width)`` the model sees.
        otherwise: class names for a model that brings none of its own, such as those of a dataset.
        layer: the module whose output are the feature maps, as the model calls it (``"layer4"``); by default the last
            maps that everything passes through.
        trust: allow formats that hold a program or pickled objects (TorchScript, ``.pt2``, whole pickled
            modules). Say so only for files whose origin you know. State dicts and ONNX graphs never need it: a
            state dict is read as numbers alone, and an ONNX graph only names operators of the runtime.
        name: what to call it.
        try_out: show it one blank image at once, so that a wrong size or number of classes is told here.

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
    given = class_names if class_names is not None else otherwise
    found = _brought(model, _Told(given, size, weights, processor, prompts, head, trust))
    names = class_names if class_names is not None else found.class_names or otherwise
    if names is None:
        raise ModelError(NAMELESS.format(name or found.held.name))
    found.held.name = name or found.held.name
    system = Wrapped(found.held, found.held.name, layer)
    system.class_names_ = [str(c) for c in names]
    system.assumed_ = class_names is None and found.class_names is None
    system.preprocess_ = preprocess or _view(found, size)
    if try_out and not isinstance(found.held, HeldFunction):  # a function may count, or cost
        system.try_out()
    return system


def _view(found: Brought, size: tuple[int, int] | None) -> Preprocess:
    """How images reach the model, by what it says itself and the ``size`` the caller asks for."""
    own = found.preprocess or Preprocess(found.size or (224, 224))
    return own if size is None else replace(own, size=size)


def _brought(model: Any, told: _Told) -> Brought:
    """The model and what it says of itself."""
    if isinstance(model, (str, Path)):
        return _named(str(model), told)
    if isinstance(model, Network):
        return Brought(HeldNetwork(type(model).__name__, model))
    if is_clip(model):
        return from_clip(model, told.class_names, told.prompts, told.head)
    if isinstance(model, nn.Module):
        if is_transformers(model):
            return from_object(model, told.processor)
        found = from_timm(model, told.size) if is_timm(model) else Brought(HeldModule(type(model).__name__, model))
        found.class_names = found.class_names or _own_names(model)
        return found
    if callable(model):
        return Brought(HeldFunction(str(getattr(model, "__name__", "model")), model), _own_names(model))
    raise ModelError(f"expected a callable, a timm name or a model file, found {type(model).__name__}.")


def _named(model: str, told: _Told) -> Brought:
    """A model by a name, the address of a factory, or the path of a file or folder."""
    if model.startswith(PREFIX):
        return by_clip_name(model, told.class_names, told.size, told.prompts, told.head)
    path = Path(model).expanduser()
    name, at, file = model.partition("@")
    weights = Path(file).expanduser() if at and told.weights is None else told.weights
    if is_address(name) and not path.exists():
        found = _brought(built(name, weights, told.class_names), replace(told, weights=None))
        found.held.name = name
        return found
    if weights is not None:
        return by_name(name if at else model, weights, told.class_names, told.size)
    if is_folder(path):
        return from_folder(path)
    if (path / "system.json").is_file():
        raise ModelError(f"{path} is a model that foveate saved; open it with fv.load({str(path)!r}).")
    if not path.is_file():
        raise ModelError(NOT_FOUND.format(model))
    found = model_file(path, told.trust)
    beside = told_beside(path)
    if beside is not None:
        found.class_names, found.preprocess = beside
    return found


def _own_names(model: Any) -> list[str] | None:
    """Class names that a model carries itself, as ``class_names``, in the order of its outputs."""
    names = getattr(model, "class_names", None)
    if isinstance(names, (list, tuple)) and names and all(isinstance(name, str) for name in names):
        return list(names)
    return None
