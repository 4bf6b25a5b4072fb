"""Any trained classifier as a system that predicts: a callable, a timm model, an ONNX or another model file."""

from __future__ import annotations

import importlib
import json
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from foveate import compat  # noqa: F401  (before timm)
from foveate.assemble.network import Network
from foveate.assemble.system import Images, System
from foveate.data.preprocess import Preprocess
from foveate.errors import FoveateError, MissingExtra, ModelError, first_line
from foveate.extract.backbone import Backbone, BackboneSpec, freeze, list_backbones, native_size, read_state
from foveate.look import Gaze
from foveate.look.occlusion import occlusion

Logits = Callable[[Tensor], Any]
ONNX_NAMES, ONNX_VIEW = "class_names", "preprocess"
"""Keys of an ONNX file's own metadata (JSON) that are read when the caller gives nothing."""


class Wrapped(System):
    """A model trained elsewhere: it predicts and can be audited; it is not fitted or saved by foveate.

    Made by :func:`wrap`. With a ``network_`` (timm models) ``look`` gives Grad-CAM, otherwise occlusion.
    """

    network_: Network | None = None

    def __init__(self, model: Any = None, name: str = "model"):
        self.model = model
        self.name = name

    def __repr__(self) -> str:
        return f"Wrapped({self.name}, {len(self.class_names_)} classes)"

    def __sklearn_clone__(self) -> Wrapped:
        return self  # there is no settings-only form of it, and nothing here can change it

    def supervision(self) -> str:
        return "not known (trained elsewhere)"

    def fit(self, train: Any = None, target: Any = None, val: Any = None, *, callbacks: Any = ()) -> Wrapped:
        raise ModelError(f"{self.name} was trained elsewhere; foveate only predicts with it and audits it.")

    def save(self, folder: str | Path) -> Path:
        raise ModelError(f"{self.name} was trained elsewhere; keep its own file, foveate does not copy it.")

    @torch.no_grad()
    def _logits(self, inputs: Tensor) -> Tensor:
        found = self.model(inputs)
        scores = torch.as_tensor(np.asarray(found) if not isinstance(found, Tensor) else found)
        expected = (len(inputs), len(self.class_names_))
        if tuple(scores.shape) != expected:
            raise ModelError(
                f"{self.name} gave {tuple(scores.shape)} for {len(inputs)} images; expected logits {expected}, one "
                f"column for each of the classes {', '.join(self.class_names_[:6])}. Give the class names in the "
                "order of its outputs."
            )
        return scores.float()

    def look(self, images: Images, method: str = "grad-cam") -> Gaze:
        """Grad-CAM where there is a network to look into, else occlusion (49 predictions an image)."""
        inputs = self.inputs(images)
        if self.network_ is not None:
            return self.network_.cpu().eval().gradcam(inputs, method=method)
        return occlusion(self._logits, inputs)


def wrap(
    model: str | Path | Logits | nn.Module,
    class_names: Sequence[str] | None = None,
    *,
    preprocess: Preprocess | None = None,
    checkpoint: str | Path | None = None,
    image_size: int | tuple[int, int] | None = None,
    trust: bool = False,
    name: str | None = None,
) -> Wrapped:
    """A classifier trained elsewhere as a system, so that it can be evaluated and audited.

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
        trust: allow formats that hold a program or pickled objects (TorchScript, ``.pt2``, whole pickled
            modules). Say so only for files whose origin you know. State dicts and ONNX graphs never need it: a
            state dict is read as numbers alone, and an ONNX graph only names operators of the runtime.
        name: what to call it.

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
    network: Network | None = None
    stated: dict[str, Any] = {}
    if isinstance(model, (str, Path)):
        path = Path(model).expanduser()
        arch, at, file = str(model).partition("@")
        if at and checkpoint is None:
            model, checkpoint = arch, Path(file).expanduser()
        if checkpoint is not None:
            network, view = _timm(str(model), checkpoint, class_names, size)
            run: Any = freeze(network)
            stated = {"preprocess": view}
            name = name or str(model)
        elif path.is_file():
            run, stated = _from_file(path, trust)
            stated |= told_beside(path)
            name = name or path.stem
        else:
            raise ModelError(_not_found(str(model)))
    elif isinstance(model, nn.Module):
        run, name = freeze(model), name or type(model).__name__
        network = model if isinstance(model, Network) else None
    elif callable(model):
        run, name = model, name or getattr(model, "__name__", "model")
    else:
        raise ModelError(f"expected a callable, a timm name or a model file, found {type(model).__name__}.")
    names = class_names if class_names is not None else stated.get("class_names")
    if names is None:
        raise ModelError(_nameless(name))
    system = Wrapped(run, name or "model")
    system.network_ = network
    system.class_names_ = [str(c) for c in names]
    system.preprocess_ = preprocess or stated.get("preprocess") or Preprocess(size or stated.get("size") or (224, 224))
    return system


# -- timm -----------------------------------------------------------------------------------------


def _timm(
    name: str, checkpoint: str | Path, class_names: Sequence[str] | None, size: tuple[int, int] | None
) -> tuple[Network, Preprocess]:
    import timm
    import timm.data

    state = read_state(checkpoint)
    if not list_backbones(name.split(".")[0]):
        raise ModelError(_not_found(name))
    if class_names is None:
        raise ModelError(_nameless(name))
    size = size or native_size(name)
    try:
        net: Any = timm.create_model(name, num_classes=len(class_names), img_size=size)
    except TypeError:  # CNNs take any size and do not know the word
        net = timm.create_model(name, num_classes=len(class_names))
    try:
        net.load_state_dict(state)
    except RuntimeError as error:
        raise ModelError(
            f"{checkpoint} does not fit '{name}' with {len(class_names)} classes: "
            f"{str(error).splitlines()[1].strip() if len(str(error).splitlines()) > 1 else error} "
            "Name the model the checkpoint was made with, and every class it knows."
        ) from error
    head = net.get_classifier()
    if not isinstance(head, nn.Linear):
        raise ModelError(f"'{name}' ends in {type(head).__name__}, not in one linear layer; wrap it as a callable.")
    config = timm.data.resolve_model_data_config(net)
    net.reset_classifier(0)
    network = Network(Backbone(net, BackboneSpec(name, size)), head)
    return network, Preprocess(size, mean=tuple(config["mean"]), std=tuple(config["std"]))


# -- files ----------------------------------------------------------------------------------------


def _from_file(path: Path, trust: bool) -> tuple[Logits, dict[str, Any]]:
    if path.suffix == ".onnx":
        return _onnx(path)
    inside = set()
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            inside = {part for entry in archive.namelist() for part in entry.split("/")}
    kind = "torch.export" if path.suffix == ".pt2" else "TorchScript" if "code" in inside else "pickled PyTorch"
    if path.suffix == ".safetensors":
        raise ModelError(f"{path} holds weights without an architecture; say which one: wrap('resnet18@{path}').")
    if not trust:
        raise ModelError(
            f"{path} is a {kind} file, which can hold a program that runs when it is loaded. If you know where it "
            "comes from, allow it with trust=True (--trust). A state dict (NAME@file) or an ONNX file needs no trust."
        )
    try:
        if kind == "torch.export":
            return torch.export.load(path).module(), {}
        if kind == "TorchScript":
            return torch.jit.load(str(path), map_location="cpu").eval(), {}
        found = torch.load(path, map_location="cpu", weights_only=False)
    except Exception as error:
        raise ModelError(f"{path} cannot be loaded as a {kind} file: {first_line(error)}") from error
    if isinstance(found, nn.Module):
        return freeze(found), {}
    raise ModelError(f"{path} holds {type(found).__name__}, not a model; for a state dict say NAME@{path}.")


def told_beside(path: Path) -> dict[str, Any]:
    """What ``foveate export`` wrote beside a model file: ``class_names`` and ``preprocess``; empty without it.

    Only for exports of one graph: a model of two graphs cannot be run from one of its files.
    """
    sidecar = path.parent / "foveate-export.json"
    if not path.is_file() or not sidecar.is_file():
        return {}
    try:
        told = json.loads(sidecar.read_text(encoding="utf-8"))
        if [graph["file"] for graph in told["graphs"]] != [path.name]:
            return {}
        return {
            "class_names": [str(c) for c in told["class_names"]], "preprocess": Preprocess(**told["preprocess"])
        }  # fmt: skip
    except (ValueError, TypeError, KeyError, FoveateError) as error:
        raise ModelError(f"{sidecar} cannot be read: {type(error).__name__} {error}.") from error


def _onnx(path: Path) -> tuple[Logits, dict[str, Any]]:
    try:
        onnxruntime = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise MissingExtra("onnxruntime", "onnx", "reading an ONNX model") from error

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 4  # it would print names out of the file as they are; errors are raised anyway
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        inputs, told = session.get_inputs(), session.get_modelmeta().custom_metadata_map
        str([(one.name, one.shape) for one in inputs])  # names that are no text show when they are read
    except Exception as error:
        raise ModelError(f"{path} is not a readable ONNX model: {first_line(error)}") from error
    first = _image_input(path, inputs)
    fixed = first.shape[0] if isinstance(first.shape[0], int) else None

    def run(inputs: Tensor) -> Tensor:
        pixels = inputs.detach().cpu().contiguous().numpy()
        if fixed is None or fixed == len(pixels):
            return torch.from_numpy(_asked(path, session, first.name, pixels))
        parts = []
        for start in range(0, len(pixels), fixed):  # a graph made for one batch size: fill the last one up
            part = pixels[start : start + fixed]
            full = np.concatenate([part, np.repeat(part[-1:], fixed - len(part), axis=0)])
            parts.append(_asked(path, session, first.name, full)[: len(part)])
        return torch.from_numpy(np.concatenate(parts))

    stated: dict[str, Any] = {}
    try:
        if ONNX_NAMES in told:
            stated["class_names"] = [str(c) for c in json.loads(told[ONNX_NAMES])]
        if ONNX_VIEW in told:
            stated["preprocess"] = Preprocess(**json.loads(told[ONNX_VIEW]))
    except (ValueError, TypeError, FoveateError) as error:
        raise ModelError(f"{path}: its metadata cannot be read: {error}") from error
    if len(first.shape) == 4 and all(isinstance(side, int) for side in first.shape[2:]):
        stated["size"] = (first.shape[2], first.shape[3])
    return run, stated


def _asked(path: Path, session: Any, name: str, pixels: Any) -> Any:
    """The first output of a graph, an array of numbers with a row an image."""
    try:
        found = session.run(None, {name: pixels})[0]
    except Exception as error:  # the runtime's own kinds, which differ from version to version
        raise ModelError(
            f"{path} cannot be run on images {list(pixels.shape)}: {first_line(error)} If it was made for "
            "another size, say so with image_size (--size)."
        ) from error
    if not isinstance(found, np.ndarray) or found.dtype.kind not in "fiu" or found.ndim < 1:
        raise ModelError(
            f"{path} gives {getattr(found, 'dtype', type(found).__name__)} and no logits [batch, classes]."
        )
    return found


def _image_input(path: Path, inputs: Sequence[Any]) -> Any:
    """The one input of a graph that reads images; anything else is refused with what was found."""
    found = ", ".join(f"{i.name}: {i.type.removeprefix('tensor')} {i.shape}" for i in inputs) or "none"
    if len(inputs) != 1:
        raise ModelError(f"{path} has {len(inputs)} inputs ({found}); expected one: images [batch, 3, height, width].")
    first = inputs[0]
    if first.type != "tensor(float)":
        raise ModelError(f"{path} reads {found}; expected 32-bit floating-point images [batch, 3, height, width].")
    sides = [side for side in first.shape if isinstance(side, int)]
    colours = first.shape[1] if len(first.shape) == 4 else 0
    if (isinstance(colours, int) and colours != 3) or 0 in sides:
        raise ModelError(f"{path} reads {found}; expected images [batch, 3, height, width], none of them 0.")
    return first


def _not_found(what: str) -> str:
    return (
        f"'{what}' is neither a model file nor a timm name with a checkpoint. Give a file (.onnx, .pt2, TorchScript) "
        "or NAME@weights.safetensors."
    )


def _nameless(name: str | None) -> str:
    return f"the class names of {name} are not known; give them in the order of its outputs."
