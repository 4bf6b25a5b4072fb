"""A model name becomes a ready backbone: its architecture, its weights and how images must reach it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.resources import as_file, files
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from foveate import assets, compat  # noqa: F401  (compat before timm)
from foveate.data.preprocess import Preprocess
from foveate.errors import DataError, ModelError, suggest
from foveate.extract.backbone import (
    Backbone,
    create_backbone,
    default_preprocess,
    list_backbones,
    load_weights,
    native_size,
    read_state,
)

ImageSize = int | tuple[int, int] | None


def open_backbone(name: str, image_size: ImageSize = None) -> tuple[Backbone, Preprocess]:
    """The backbone called ``name`` with its weights, in evaluation mode, and the preprocessing that goes with it.

    Args:
        name: one of

            * ``"micro-vit"``: a tiny ViT for 64 px that comes with foveate, made on critters;
            * ``"vit-s-focus"``: ViT-S/14, DINOv2-S fine-tuned for saliency; ``"mobilenet-v2"`` and
              ``"resnet50-tfjs"``: ImageNet classifiers. These are assets (:mod:`foveate.assets`): read from the
              machine, or fetched;
            * any timm name, ``"vit_small_patch14_dinov2"``: timm's pretrained weights, from the local hub cache or
              the network;
            * ``"open_clip:ARCH/TAG"``: the visual tower of a CLIP model;
            * ``"ARCH@path/to/weights.safetensors"``: a timm architecture with a local checkpoint.
        image_size: side, or ``(height, width)``, the backbone is to see; by default what its weights were made
            with. The position embedding of a ViT is resampled; its sides must be multiples of the patch.

    Every name gives the same weights each time, so features can be cached; ``backbone.spec`` rebuilds the
    architecture alone.

    >>> backbone, view = open_backbone("micro-vit")
    >>> backbone.spec.name, view.size, tuple(backbone(torch.zeros(1, 3, 64, 64)).shape)
    ('micro_vit', (64, 64), (1, 96))
    """
    size = _as_size(image_size)
    if name.startswith("open_clip:"):
        from foveate.extract import clip

        return clip.open_visual(name, image_size)
    if name in _OURS:
        ours = _OURS[name]
        backbone = _build(ours.arch, ours.state(), ours.args(), size or ours.size, name, antialias=ours.antialias)
    elif "@" in name:
        arch, _, path = name.partition("@")
        state = read_state(Path(path).expanduser())
        backbone = _build(arch, state, {}, size or _made_for(arch, state), name)
    else:
        backbone = _from_hub(name, size)
    found = backbone.spec.image_size
    assert found is not None
    return backbone.eval(), default_preprocess(backbone, found)


def list_named() -> list[str]:
    """Names of the models whose weights foveate itself knows.

    >>> list_named()
    ['micro-vit', 'vit-s-focus', 'mobilenet-v2', 'resnet50-tfjs']
    """
    return list(_OURS)


# -- weights we know ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Ours:
    arch: str
    size: tuple[int, int]
    state: Callable[[], dict[str, Tensor]]
    args: Callable[[], dict[str, Any]] = dict
    antialias: bool = True
    """How the position embedding is resampled to another grid; as the weights saw it when they were made."""


def _folder(asset: str) -> Path:
    try:
        return assets.fetch(asset)
    except DataError as error:
        raise ModelError(
            f"the weights of '{asset}' are not on this machine and could not be fetched. With a network, "
            f"run: foveate assets {asset}. {error}"
        ) from error


def _micro_vit() -> dict[str, Tensor]:
    with as_file(files("foveate.assets").joinpath("weights/micro-vit.safetensors")) as path:
        return {name: tensor.float() for name, tensor in read_state(path).items()}


def _vit_s_focus() -> dict[str, Tensor]:
    from foveate.extract.onnx_weights import read_onnx

    return focus_state(read_onnx(_folder("vit-s-focus") / "vit_s_focus.onnx"))


def _mobilenet() -> dict[str, Tensor]:
    return mobilenet_state(read_state(_folder("mobilenet-v2") / "mobilenet_v2-b0353104.pth"))


def _resnet50() -> dict[str, Tensor]:
    from foveate.extract.tfjs_weights import keras_resnet_state, read_tfjs

    return keras_resnet_state(read_tfjs(_folder("resnet50-tfjs")))


def _resnet50_args() -> dict[str, Any]:
    from foveate.extract.tfjs_weights import keras_epsilon, read_model

    return {"eps": keras_epsilon(read_model(_folder("resnet50-tfjs")))}


_OURS: dict[str, _Ours] = {
    "micro-vit": _Ours("micro_vit", (64, 64), _micro_vit),
    "vit-s-focus": _Ours("vit_small_patch14_dinov2", (224, 224), _vit_s_focus, antialias=False),
    "mobilenet-v2": _Ours("mobilenetv2_100", (224, 224), _mobilenet),
    "resnet50-tfjs": _Ours("resnet50_keras", (224, 224), _resnet50, _resnet50_args),
}


def focus_state(graph: Any) -> dict[str, Tensor]:
    """The ViT inside the saliency network of ``vit-s-focus`` under timm's names; its decoder is left out.

    Args:
        graph: an :class:`~foveate.extract.onnx_weights.OnnxGraph` of a DINOv2-type ViT exported from the
            transformers library.
    """
    named = {**graph.tensors, **graph.linear_weights()}
    layers = 1 + max((int(key.split(".")[3]) for key in named if key.startswith("backbone.encoder.layer.")), default=-1)
    prefix, patches = graph.feeding("Concat", "/backbone/embeddings"), graph.feeding("Reshape", "/backbone/embeddings")
    if not layers or len(prefix) != 1 or len(patches) != 1:
        raise ModelError("the ONNX file does not hold the ViT expected of 'vit-s-focus'; fetch the asset again.")
    state = {"pos_embed": torch.cat([prefix[0], patches[0]], dim=1)}

    def take(to: str, *sources: str) -> None:
        state[to] = torch.cat([named[f"backbone.{source}"] for source in sources])

    try:
        take("cls_token", "embeddings.cls_token")
        for leaf in ("weight", "bias"):
            take(f"patch_embed.proj.{leaf}", f"embeddings.patch_embeddings.projection.{leaf}")
            take(f"norm.{leaf}", f"layernorm.{leaf}")
        for i in range(layers):
            block, layer = f"blocks.{i}", f"encoder.layer.{i}"
            for leaf in ("weight", "bias"):
                attention = f"{layer}.attention.attention"
                take(f"{block}.attn.qkv.{leaf}", *(f"{attention}.{part}.{leaf}" for part in ("query", "key", "value")))
                take(f"{block}.attn.proj.{leaf}", f"{layer}.attention.output.dense.{leaf}")
                for part in ("norm1", "norm2", "mlp.fc1", "mlp.fc2"):
                    take(f"{block}.{part}.{leaf}", f"{layer}.{part}.{leaf}")
            take(f"{block}.ls1.gamma", f"{layer}.layer_scale1.lambda1")
            take(f"{block}.ls2.gamma", f"{layer}.layer_scale2.lambda1")
    except KeyError as error:
        raise ModelError(f"the ONNX file has no tensor {error}; fetch the asset 'vit-s-focus' again.") from error
    return state


def mobilenet_state(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """torchvision's MobileNetV2 under the names of timm's ``mobilenetv2_100``; every tensor must be known."""
    wide = {"conv.0.0": "conv_pw", "conv.0.1": "bn1", "conv.1.0": "conv_dw", "conv.1.1": "bn2", "conv.2": "conv_pwl",
            "conv.3": "bn3"}  # fmt: skip
    first = {"conv.0.0": "conv_dw", "conv.0.1": "bn1", "conv.1": "conv_pw", "conv.2": "bn2"}
    modules = {"features.0.0": "conv_stem", "features.0.1": "bn1", "features.18.0": "conv_head", "features.18.1": "bn2",
               "classifier.1": "classifier"}  # fmt: skip
    number = 1
    for stage, blocks in enumerate((1, 2, 3, 4, 3, 3, 1)):
        for block in range(blocks):
            for old, new in (first if number == 1 else wide).items():
                modules[f"features.{number}.{old}"] = f"blocks.{stage}.{block}.{new}"
            number += 1
    renamed = {}
    for key, tensor in state.items():
        module, _, leaf = key.rpartition(".")
        if module not in modules:
            raise ModelError(f"'{key}' is not a tensor of torchvision's MobileNetV2; use its own checkpoint.")
        renamed[f"{modules[module]}.{leaf}"] = tensor
    return renamed


# -- building ----------------------------------------------------------------------------------------------


def _build(
    arch: str, state: dict[str, Tensor], args: dict[str, Any], size: tuple[int, int], name: str, antialias: bool = True
) -> Backbone:
    """``arch`` with ``state``, loaded strictly at the grid the weights were made for, then fitted to ``size``."""
    backbone = create_backbone(arch, image_size=size, **args)
    net: Any = backbone.net
    if backbone.is_vit:
        _check_patches(size, net.patch_embed.patch_size, name)
        if isinstance(net.pos_embed, nn.Parameter) and "pos_embed" in state:
            state = {**state, "pos_embed": _fit_positions(state["pos_embed"], net, antialias)}
    load_weights(net, state, arch)
    return backbone


def _made_for(arch: str, state: Mapping[str, Tensor]) -> tuple[int, int]:
    """The image size of a checkpoint, from its position embedding where it has one (a square grid)."""
    net: Any = create_backbone(arch).net
    positions = state.get("pos_embed")
    if positions is None or not isinstance(getattr(net, "pos_embed", None), nn.Parameter) or positions.ndim != 3:
        return native_size(arch)
    side = _grid_side(positions, net)
    return side * net.patch_embed.patch_size[0], side * net.patch_embed.patch_size[1]


def _grid_side(positions: Tensor, net: Any) -> int:
    patches = positions.shape[1] - (net.pos_embed.shape[1] - net.patch_embed.num_patches)
    side = round(max(patches, 0) ** 0.5)
    if side == 0 or side**2 != patches:
        raise ModelError(f"the position embedding has {positions.shape[1]} rows, which is no square grid of patches.")
    return side


def _fit_positions(positions: Tensor, net: Any, antialias: bool) -> Tensor:
    """A position embedding ``[1, prefix + N, D]`` of a square grid, resampled for ``net``."""
    from timm.layers import resample_abs_pos_embed

    prefix = net.pos_embed.shape[1] - net.patch_embed.num_patches
    side = _grid_side(positions, net)
    return resample_abs_pos_embed(
        positions, list(net.patch_embed.grid_size), [side, side], num_prefix_tokens=prefix, antialias=antialias
    )


def _from_hub(name: str, size: tuple[int, int] | None) -> Backbone:
    import timm.models

    known = list_backbones()
    if name.split(".")[0] not in known:
        raise ModelError(
            f"unknown model '{name}'.{suggest(name, [*_OURS, *known])} A name is one of {', '.join(_OURS)}, a timm "
            "name, 'open_clip:ARCH/TAG', or 'ARCH@weights.safetensors'."
        )
    if not timm.models.is_model_pretrained(name):
        raise ModelError(
            f"there are no pretrained weights for '{name}'.{suggest(name, list(_OURS))} Name another model, or give a "
            f"checkpoint: '{name}@weights.safetensors'."
        )
    backbone = create_backbone(name, image_size=size or native_size(name), pretrained=True)
    if backbone.is_vit and size is not None:
        _check_patches(size, backbone.net.patch_embed.patch_size, name)
    return backbone


def _as_size(image_size: ImageSize) -> tuple[int, int] | None:
    if image_size is None:
        return None
    size = (image_size, image_size) if isinstance(image_size, int) else (int(image_size[0]), int(image_size[1]))
    if min(size) < 1:
        raise ModelError(f"image_size must be a side or (height, width) in pixels; found {image_size}.")
    return size


def _check_patches(size: tuple[int, int], patch: tuple[int, int], name: str) -> None:
    if size[0] % patch[0] or size[1] % patch[1]:
        near = tuple(max(1, round(side / p)) * p for side, p in zip(size, patch, strict=True))
        raise ModelError(
            f"'{name}' cuts images into patches of {patch[0]} x {patch[1]} px, so {size[0]} x {size[1]} does not fit; "
            f"use {near[0]} x {near[1]}."
        )
