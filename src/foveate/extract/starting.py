"""What a network that is to be trained starts from: trained weights where they can be had, and it is said which."""

from __future__ import annotations

import logging
import os
import socket
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from foveate import assets, compat  # noqa: F401  (compat before timm)
from foveate.data.preprocess import Preprocess
from foveate.errors import ModelError
from foveate.extract.backbone import INSTEAD, Backbone, create_backbone, default_preprocess, native_size
from foveate.extract.named import open_backbone

log = logging.getLogger("foveate.start")
IN_REGISTRIES = {
    "mobilenetv2_100": "mobilenet-v2",
    "resnet50": "resnet50-tfjs",
    "vit_small_patch14_dinov2": "vit-s-focus",
}
"""Architectures whose weights are among foveate's assets, for machines that do not reach the hub."""
OFFLINE = ("FOVEATE_OFFLINE", "HF_HUB_OFFLINE")
"""Environment variables that keep foveate from asking the network for weights nobody named."""
RANDOM = "random weights"
PATIENCE = 2.0
"""Seconds to find out whether the hub is there."""


@dataclass
class Start:
    """A backbone at its start.

    Attributes:
        backbone: with its first weights.
        view: how images must reach it; None for random weights, which fit any.
        origin: what the weights are, for people.
    """

    backbone: Backbone
    view: Preprocess | None
    origin: str


def started(
    name: str,
    size: tuple[int, int] | None,
    spare: tuple[int, int],
    *,
    pretrained: bool | None,
    small_stem: bool = False,
    checkpoint: str | Path | None = None,
    **args: Any,
) -> Start:
    """The backbone ``name`` to be trained.

    Args:
        name: a timm name.
        size: ``(height, width)`` asked for; None for its own.
        spare: the size to use where its own means nothing: random weights.
        pretrained: True insists on trained weights; None takes them when they can be had, from the hub's cache on this
            machine, the hub, or the registries that hold some; False starts from random weights.
        small_stem, args: change the architecture, so that no trained weights fit (unless insisted on).
        checkpoint: a local state dict, in place of everything else.
    """
    if checkpoint is not None:
        seen = size or native_size(name)
        backbone = create_backbone(name, image_size=seen, small_stem=small_stem, checkpoint=checkpoint, **args)
        return Start(backbone, default_preprocess(backbone, seen), f"the weights in {checkpoint}")
    if pretrained is False or (pretrained is None and (name.startswith("micro_") or small_stem or args)):
        return _random(name, size or spare, small_stem, args)
    if pretrained and (small_stem or args):
        seen = size or native_size(name)
        backbone = create_backbone(name, image_size=seen, small_stem=small_stem, pretrained=True, **args)
        return Start(backbone, default_preprocess(backbone, seen), "pretrained weights of timm")
    tried: list[str] = []
    found = _from_hub(name, size or native_size(name), tried) or _from_registry(name, size, tried)
    if found is not None:
        log.info("%s starts from %s.", name, found.origin)
        return found
    if pretrained:
        raise ModelError(f"cannot load pretrained weights of '{name}': {'; '.join(tried)}. {INSTEAD}")
    log.warning(
        "%s starts from random weights: trained ones could not be had (%s). %s (--scratch on the command line).",
        name, "; ".join(tried), INSTEAD.rstrip("."),
    )  # fmt: skip
    return Start(create_backbone(name, image_size=size or spare), None, RANDOM)


def _random(name: str, size: tuple[int, int], small_stem: bool, args: dict[str, Any]) -> Start:
    log.info("%s starts from random weights. Trained ones need fewer images.", name)
    return Start(create_backbone(name, image_size=size, small_stem=small_stem, **args), None, RANDOM)


def _from_hub(name: str, size: tuple[int, int], tried: list[str]) -> Start | None:
    import timm.models

    try:
        known = timm.models.get_pretrained_cfg(name) if timm.models.is_model_pretrained(name) else None
    except (RuntimeError, ValueError, KeyError):
        known = None
    if known is None:
        create_backbone(name, image_size=size)  # an unknown name is told by whoever knows the names
        tried.append("timm has none")
        return None
    kept = _kept(known)
    if not kept and (asked := [word for word in OFFLINE if os.environ.get(word, "0") not in ("", "0")]):
        tried.append(f"not on this machine, and {asked[0]} is set")
        return None
    if not kept and not _reachable():
        tried.append("not on this machine, and the hub is not reached")
        return None
    try:
        backbone = create_backbone(name, image_size=size, pretrained=True)
    except ModelError as error:
        tried.append(str(error).partition(":")[2].partition(". They are")[0].strip()[:200])
        return None
    where = "in the hub's cache on this machine" if kept else "from the hub"
    tag = getattr(known, "tag", "") or "default"
    return Start(backbone, default_preprocess(backbone, size), f"timm's pretrained weights '{tag}' {where}")


def _kept(known: Any) -> bool:
    """Whether the hub's weights are on this machine already."""
    if known.hf_hub_id:
        from huggingface_hub import try_to_load_from_cache

        names = ("model.safetensors", "pytorch_model.bin", known.hf_hub_filename or "model.safetensors")
        return any(isinstance(try_to_load_from_cache(known.hf_hub_id, file), str) for file in names)
    file = str(known.url or "").rpartition("/")[2]
    return bool(file) and (Path(torch.hub.get_dir()) / "checkpoints" / file).is_file()


@cache
def _reachable() -> bool:
    """Whether somebody answers for the hub; asked once, and a proxy is trusted to know."""
    if os.environ.get("HTTPS_PROXY") or os.environ.get("https_proxy"):
        return True
    host = os.environ.get("HF_ENDPOINT", "https://huggingface.co").partition("://")[2].partition("/")[0]
    try:
        socket.create_connection((host.partition(":")[0], int(host.partition(":")[2] or 443)), PATIENCE).close()
    except (OSError, ValueError):
        return False
    return True


def _from_registry(name: str, size: tuple[int, int] | None, tried: list[str]) -> Start | None:
    asset = IN_REGISTRIES.get(name.split(".")[0])
    if asset is None:
        tried.append("and foveate's assets have none")
        return None
    there = next((row.ready for row in assets.status() if row.name == asset), False)
    if not there and any(os.environ.get(word, "0") not in ("", "0") for word in OFFLINE):
        tried.append(f"the asset '{asset}' is not on this machine either")
        return None
    try:
        backbone, view = open_backbone(asset, size)
    except ModelError as error:
        tried.append(str(error)[:200])
        return None
    return Start(backbone, view, f"the weights of foveate's asset '{asset}'")
