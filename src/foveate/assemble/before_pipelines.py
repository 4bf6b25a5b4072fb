"""What systems learned before they were pipelines, read as the parts of one: folders saved in format 1."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from foveate.assemble.parts import SLOTS, Parts
from foveate.errors import ModelError
from foveate.extract import BackboneSpec, create_backbone

OLD_PROBE = {"embedder": "extract", "attention": "look", "adapter": "look.adapter", "head": "decide"}
OLD_NETWORK = {"backbone": "extract", "pool": "pool", "head": "decide"}


def as_parts(
    system: Any, config: dict[str, Any], tensors: dict[str, Tensor]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """``learned`` and tensors of a system saved in format 1 as format 2 has them.

    The parts and their settings are those the system's own settings give; only what was learned is in the old files.
    """
    parts: Parts = system.parts()
    told = {
        slot: {"kind": SLOTS[slot].name_of(type(part)), "settings": part.plain(), "learned": {}}
        for slot, part in parts.items()
    }
    if "models" in config:
        return _probe(told, config), _renamed(tensors, OLD_PROBE)
    if "network" in config:
        return _network(system, told, config, tensors), _renamed(tensors, OLD_NETWORK)
    raise ModelError("this folder was written by a foveate older than this one can read.")


def _renamed(tensors: dict[str, Tensor], names: dict[str, str]) -> dict[str, Tensor]:
    found = {}
    for key, value in tensors.items():
        first, _, rest = key.partition(".")
        found[f"{names[first]}.{rest}" if first in names else f"look.{key}"] = value
    return found


def _probe(told: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    models = config["models"]
    told["extract"]["learned"] = {"model": models["embedder"]}
    if "attention" in models:
        look = models["attention"]
        told["look"]["learned"] = {"model": "extract" if isinstance(look, str) else look}
    elif told["look"]["kind"] == "clusters":
        told["look"]["learned"] = {"model": "extract"}
    if "zoom" in config:
        size = config["models"].get("attention", "embedder")
        seen = models["embedder"] if isinstance(size, str) else size
        frame = told["restrict"]["settings"].get("frame") or seen["view"]["size"][0]
        told["restrict"]["learned"] = {"frame": frame, "zoom": config["zoom"]}
    if told["decide"]["kind"] == "prompts":
        told["decide"]["learned"] = {"texts": config["chosen"].get("texts", [])}
    else:
        told["decide"]["learned"] = {"one_vs_rest": config["one_vs_rest"]}
    kept: dict[str, Any] = {k: config[k] for k in ("views", "chosen", "scores", "fitted_on", "history") if k in config}
    return {"parts": told, **kept}


def _network(system: Any, told: dict[str, Any], config: dict[str, Any], tensors: dict[str, Tensor]) -> dict[str, Any]:
    network = config["network"]
    told["extract"]["learned"] = {"model": {"backbone": network["backbone"], "view": system.preprocess_.to_dict()}}
    last = next(v for k, v in reversed(tensors.items()) if k.startswith("head.") and v.ndim == 2)
    first = next(v for k, v in tensors.items() if k.startswith("head.") and v.ndim == 2)
    if told["pool"]["kind"] == "learned":
        channels = create_backbone(BackboneSpec.from_dict(network["backbone"])).map_dim
        told["pool"]["learned"] = {"channels": channels}
    if told["decide"]["kind"] == "cross-entropy":
        told["decide"]["learned"] = {
            "features": first.shape[1], "classes": last.shape[0], "history": config["history"]
        }  # fmt: skip
    else:
        told["decide"]["learned"] = {"one_vs_rest": False}
    rest = {
        "views": [0],
        "chosen": {"views": "all"},
        "scores": [],
        "fitted_on": "target" if system.post_hoc else "train",
    }
    return {"parts": told, **rest, "base_supervision": config.get("base_supervision", "")}
