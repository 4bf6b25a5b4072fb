"""Small networks for small images and two cores, registered with timm under their own names."""

from __future__ import annotations

from typing import Any

from torch import nn

from foveate import compat  # noqa: F401  (before timm)

from timm.models import register_model  # isort: skip
from timm.models.resnet import BasicBlock, ResNet  # isort: skip
from timm.models.vision_transformer import VisionTransformer  # isort: skip


def _config(**extra: Any) -> dict[str, Any]:
    return {
        "url": "", "num_classes": 1000, "input_size": (3, 64, 64), "pool_size": None,
        "mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225), **extra,
    }  # fmt: skip


def _without_hub(args: dict[str, Any]) -> dict[str, Any]:
    """timm hands hub settings to every model function; these nets have nothing on a hub."""
    return {k: v for k, v in args.items() if not k.startswith("pretrained_cfg") and k != "cache_dir"}


@register_model
def micro_resnet(
    pretrained: bool = False,
    width: int = 16,
    layers: tuple[int, ...] = (1, 1, 1, 1),
    stem_stride: int = 1,
    **args: Any,
) -> nn.Module:
    """A ResNet for images of 32 to 64 px: a 3x3 stem without max-pooling, ``width`` channels doubling over stages.

    ``stem_stride=2`` with three stages gives the same 8x8 map for 64 px at a fifth of the cost.
    """
    channels = tuple(width * 2**i for i in range(len(layers)))
    net: Any = ResNet(BasicBlock, list(layers), channels=channels, **_without_hub(args))  # type: ignore[arg-type]
    net.conv1 = nn.Conv2d(3, width, 3, stem_stride, 1, bias=False)
    net.bn1 = nn.BatchNorm2d(width)
    net.maxpool = nn.Identity()
    first = net.layer1[0]  # built for the standard 64-channel stem
    first.conv1 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
    first.downsample = None
    for stage in range(len(layers) + 1, 5):  # timm's forward pass names four stages
        setattr(net, f"layer{stage}", nn.Identity())
    for convolution in (net.conv1, first.conv1):
        nn.init.kaiming_normal_(convolution.weight, mode="fan_out", nonlinearity="relu")
    net.default_cfg = net.pretrained_cfg = _config(first_conv="conv1", classifier="fc")
    return net


@register_model
def micro_vit(pretrained: bool = False, **args: Any) -> nn.Module:
    """A ViT for images of 64 px: patches of 8, width 96, 6 blocks, 3 heads."""
    settings: dict[str, Any] = {"img_size": 64, "patch_size": 8, "embed_dim": 96, "depth": 6, "num_heads": 3}
    net: Any = VisionTransformer(**{**settings, **_without_hub(args)})
    net.default_cfg = net.pretrained_cfg = _config(first_conv="patch_embed.proj", classifier="head")
    return net
