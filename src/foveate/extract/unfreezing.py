"""What of a pretrained network is trained on: all of it, its last stage, or nothing."""

from __future__ import annotations

from typing import Literal, get_args

from foveate.errors import ModelError
from foveate.extract.backbone import Backbone

Unfreeze = Literal["all", "last-stage", "none"]
UNFREEZE: tuple[str, ...] = get_args(Unfreeze)


def unfreeze(backbone: Backbone, what: Unfreeze) -> Backbone:
    """Let ``what`` of ``backbone`` be trained and keep the rest as it is, normalisation statistics included.

    ``"last-stage"`` is the last of the stages that timm tells apart (of a ViT the last block) and all that follows it.

    >>> from foveate.extract import create_backbone
    >>> net = unfreeze(create_backbone("micro_resnet", image_size=(32, 32)), "last-stage")
    >>> sorted({name.split(".")[1] for name, value in net.named_parameters() if value.requires_grad})
    ['layer4']
    """
    if what not in UNFREEZE:
        raise ModelError(f"what is trained of a network is one of {', '.join(UNFREEZE)}; found '{what}'.")
    if what == "all":
        return backbone
    learns = last_stage(backbone) if what == "last-stage" else set()
    for name, value in backbone.named_parameters():
        value.requires_grad_(name in learns)
    return backbone


def last_stage(backbone: Backbone) -> set[str]:
    """Names of the parameters of a network's last stage, and of what follows it up to the pooling."""
    net = getattr(backbone, "net", None)
    known = list(getattr(net, "feature_info", None) or ())
    stage = str(known[-1]["module"]) if known else ""
    names = [name for name, _ in backbone.named_parameters()]
    inside = [i for i, name in enumerate(names) if name.startswith(f"net.{stage}.")] if stage else []
    if not inside:
        raise ModelError(
            f"timm does not tell the stages of '{backbone.spec.name}' apart, so its last one is not known; train all "
            "of it with a small backbone_scale, or nothing but the head."
        )
    return set(names[inside[0] :])  # timm lists modules in the order in which they are passed
