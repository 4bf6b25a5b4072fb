"""Models of timm by name with a checkpoint: held as foveate's own backbones, saved by their name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from foveate import compat  # noqa: F401  (before timm)
from foveate.assemble.network import Network
from foveate.assemble.wrapping.brought import Brought
from foveate.assemble.wrapping.networks import HeldNetwork
from foveate.data.preprocess import Preprocess
from foveate.errors import ModelError
from foveate.extract.backbone import Backbone, BackboneSpec, list_backbones, native_size, read_state

NAMELESS = "the class names of {} are not known; give them in the order of its outputs."
NOT_FOUND = (
    "'{}' is neither a model file nor a timm name with a checkpoint. Give a file (.onnx, .pt2, TorchScript) "
    "or NAME@weights.safetensors."
)


def by_name(
    name: str, checkpoint: str | Path, class_names: Sequence[str] | None, size: tuple[int, int] | None
) -> Brought:
    """A model by its timm name, with the state dict in ``checkpoint``."""
    import timm
    import timm.data

    state = read_state(checkpoint)
    if not list_backbones(name.split(".")[0]):
        raise ModelError(NOT_FOUND.format(name))
    if class_names is None:
        raise ModelError(NAMELESS.format(name))
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
    view = Preprocess(size, mean=tuple(config["mean"]), std=tuple(config["std"]))
    return Brought(HeldNetwork(name, network), preprocess=view)
