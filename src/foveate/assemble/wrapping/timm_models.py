"""Models of timm, by name with a checkpoint or as objects: held as foveate's own backbones, saved by their name."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from foveate import compat  # noqa: F401  (before timm)
from foveate.assemble.network import Network
from foveate.assemble.wrapping.brought import Brought
from foveate.assemble.wrapping.modules import HeldModule
from foveate.assemble.wrapping.networks import HeldNetwork
from foveate.data.preprocess import Preprocess
from foveate.errors import ModelError
from foveate.extract.backbone import (
    Backbone,
    BackboneSpec,
    create_backbone,
    list_backbones,
    native_size,
    read_state,
)
from foveate.extract.safe_args import check_args

from timm.models.vision_transformer import VisionTransformer  # isort: skip

NAMELESS = "the class names of {} are not known; give them in the order of its outputs (--classes cat,dog)."
NOT_FOUND = (
    "'{}' is neither a model file nor a timm name with a checkpoint. Give a file (.onnx, .pt2, TorchScript), a folder "
    "of transformers, NAME@weights.safetensors, open_clip:ARCH/TAG or package.module:build."
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


# -- objects --------------------------------------------------------------------------------------


def is_timm(model: object) -> bool:
    """Whether an object is a model of timm."""
    return type(model).__module__.startswith("timm.models.") and hasattr(model, "get_classifier")


def from_timm(net: Any, size: tuple[int, int] | None) -> Brought:
    """A model object of timm: held by its name where that builds the same network, else as any other module.

    Networks built by their name keep their blocks, so a plain ViT can be masked.
    """
    import timm.data

    told = dict(getattr(net, "pretrained_cfg", None) or {})
    name = str(told.get("architecture") or type(net).__name__)
    built = getattr(getattr(net, "patch_embed", None), "img_size", None)
    size = (int(built[0]), int(built[1])) if built is not None else size
    found = Brought(HeldModule(name, net), _labels(told), size=size)
    if told:
        config = timm.data.resolve_model_data_config(net)
        sides = tuple(config["input_size"][-2:])
        size = size or (int(sides[0]), int(sides[1]))
        found.preprocess = Preprocess(size, mean=tuple(config["mean"]), std=tuple(config["std"]))
    network = _by_its_name(net, told.get("architecture"), size or (224, 224))
    if network is not None:
        found.held = HeldNetwork(name, network)
    return found


def _labels(told: dict[str, Any]) -> list[str] | None:
    names = told.get("label_names")
    return [str(name) for name in names] if isinstance(names, (list, tuple)) and names else None


def _by_its_name(net: Any, arch: str | None, size: tuple[int, int]) -> Network | None:
    """The same network as a backbone that its name builds again, and its head; None when that would be another one."""
    head = net.get_classifier()
    if not isinstance(head, nn.Linear) or head.out_features < 2:
        return None
    args: dict[str, Any] = {}
    if type(net) is VisionTransformer:
        arch, args = arch or "vit_base_patch16_224", _vit_args(net)
    if not arch or arch not in list_backbones(arch):
        return None
    x = torch.randn(2, 3, *size, generator=torch.Generator().manual_seed(0))
    try:
        backbone = create_backbone(BackboneSpec(arch, size, args=check_args(args)))
        body = {k: v for k, v in net.state_dict().items() if k in backbone.net.state_dict()}
        backbone.net.load_state_dict(body)
        network = Network(backbone, copy.deepcopy(head)).eval()
        with torch.no_grad():
            same = torch.equal(network(x), net.eval()(x))
    except (ModelError, RuntimeError, TypeError, ValueError, AttributeError):
        return None
    return network if same else None


def _vit_args(net: Any) -> dict[str, Any]:
    """The arguments that shape timm's plain ViT, read off a ready one."""
    block, width = net.blocks[0], int(net.embed_dim)
    stays = nn.Identity
    return {
        "embed_dim": width, "depth": len(net.blocks), "num_heads": int(block.attn.num_heads),
        "patch_size": int(net.patch_embed.patch_size[0]), "mlp_ratio": block.mlp.fc1.out_features / width,
        "qkv_bias": block.attn.qkv.bias is not None, "qk_norm": not isinstance(block.attn.q_norm, stays),
        "init_values": None if isinstance(block.ls1, stays) else 1e-5, "class_token": net.cls_token is not None,
        "reg_tokens": int(net.num_reg_tokens), "no_embed_class": bool(net.no_embed_class),
        "pre_norm": not isinstance(net.norm_pre, stays), "fc_norm": not isinstance(net.fc_norm, stays),
        "global_pool": str(net.global_pool), "dynamic_img_size": bool(net.dynamic_img_size),
    }  # fmt: skip
