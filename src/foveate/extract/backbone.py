"""Backbones by timm name: any CNN or ViT, with feature maps, pooled features and a small-image stem."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from foveate import compat  # noqa: F401  (before timm)
from foveate.data.preprocess import Preprocess
from foveate.errors import ModelError, first_line, suggest
from foveate.extract.safe_args import check_args

INSTEAD = (
    "Give a local file of them (weights='FILE' of a system, --set weights=FILE on the command line), take a network "
    "that foveate fetches itself (mobilenet-v2, resnet50-tfjs), or start from random weights with pretrained=False."
)
"""What to do without pretrained weights."""


@dataclass(frozen=True)
class BackboneSpec:
    """All that is needed to build the same backbone again; saved with every model.

    Args:
        name: a timm model name, or one of foveate's own small nets (``micro_resnet``, ``micro_vit``).
        image_size: ``(height, width)`` it will see; ViTs are built for it.
        small_stem: for small images (CIFAR, critters at 64 px): the first convolution keeps the resolution
            and the first max-pooling is left out. CNNs only.
        args: further arguments for ``timm.create_model``.
    """

    name: str
    image_size: tuple[int, int] | None = None
    small_stem: bool = False
    args: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> BackboneSpec:
        """The spec that :meth:`to_dict` gave, read from a file: only arguments that shape a network are let in."""
        name, size, stem = values["name"], values.get("image_size"), values.get("small_stem", False)
        if not isinstance(name, str) or not isinstance(stem, bool):
            raise ModelError(f"expected a network's name and whether its stem is small; found {name!r}, {stem!r}.")
        if size is not None and not (
            isinstance(size, (list, tuple)) and len(size) == 2 and all(type(s) is int and 0 < s <= 8192 for s in size)
        ):
            raise ModelError(f"the images of a saved network have two sides in pixels; found {size!r}.")
        return cls(name, None if size is None else (size[0], size[1]), stem, check_args(values.get("args", {})))


class Backbone(nn.Module):
    """A network without its head.

    ``backbone(x)`` gives pooled features ``[B, dim]`` (the model's own pooling: GAP, or the CLS token after
    the final norm); ``backbone.maps(x)`` gives what lies before the pooling as ``[B, map_dim, h, w]``, for CNNs
    and for ViTs (patch tokens after the final norm).

    >>> net = create_backbone("micro_resnet", image_size=(32, 32))
    >>> x = torch.zeros(2, 3, 32, 32)
    >>> tuple(net(x).shape), tuple(net.maps(x).shape)
    ((2, 128), (2, 128, 4, 4))
    """

    net: Any
    """timm's module: what networks have in common there is no type of."""

    def __init__(self, net: nn.Module, spec: BackboneSpec):
        super().__init__()
        self.net = net
        self.spec = spec
        self.is_vit = hasattr(net, "patch_embed") and hasattr(net, "blocks")
        self.prefix_tokens = int(getattr(net, "num_prefix_tokens", 0)) if self.is_vit else 0
        self.map_dim = int(self.net.num_features)
        # some families (MobileNetV3) widen after the pooling; heads see that width
        self.dim = int(getattr(self.net, "head_hidden_size", None) or self.map_dim)
        self._channels_last = str(getattr(net, "output_fmt", "NCHW")).upper().endswith("NHWC")

    @property
    def pools_maps(self) -> bool:
        """Whether the pooled features are made from the maps alone (not so for a ViT that reads its CLS token)."""
        return not self.is_vit

    @property
    def patch(self) -> int:
        """Side in pixels of a ViT's patches."""
        return int(self.net.patch_embed.patch_size[0])

    def forward(self, x: Tensor) -> Tensor:
        return self.net.forward_head(self.net.forward_features(x), pre_logits=True)

    def maps(self, x: Tensor) -> Tensor:
        """Features before pooling, ``[B, map_dim, h, w]``."""
        features = self.net.forward_features(x)
        if self.is_vit:
            return self.as_grid(features, x.shape[-2:])
        if features.ndim == 4 and self._channels_last:
            features = features.permute(0, 3, 1, 2)
        if features.ndim != 4 or features.shape[1] != self.map_dim:
            raise ModelError(
                f"'{self.spec.name}' gives features {tuple(features.shape)}, not maps [B, {self.map_dim}, h, w];"
                " use a CNN or a plain ViT where maps are needed."
            )
        return features

    def pooled(self, maps: Tensor) -> Tensor:
        """The model's own pooling applied to maps from :meth:`maps`, ``[B, dim]`` (CNNs)."""
        if self.is_vit:
            raise ModelError(f"'{self.spec.name}' is a ViT: what it pools (a CLS token, say) is not part of its maps.")
        maps = maps.permute(0, 2, 3, 1) if self._channels_last else maps
        return self.net.forward_head(maps, pre_logits=True)

    def as_grid(self, tokens: Tensor, image_size: tuple[int, ...] | torch.Size) -> Tensor:
        """ViT tokens ``[B, prefix + N, dim]`` as patch maps ``[B, dim, h, w]``."""
        patch_h, patch_w = self.net.patch_embed.patch_size
        h, w = image_size[-2] // patch_h, image_size[-1] // patch_w
        patches = tokens[:, self.prefix_tokens :]
        if tokens.ndim != 3 or patches.shape[1] != h * w:
            raise ModelError(
                f"'{self.spec.name}' gives tokens of shape {tuple(tokens.shape)} for a {h}x{w} grid; its tokens cannot "
                "be told apart. Use another ViT, or a CNN."
            )
        return patches.transpose(1, 2).reshape(len(tokens), -1, h, w)

    def attention_tap(self, size: torch.Size) -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
        """Where Grad-CAM looks into a ViT, and what makes maps ``[B, dim, h, w]`` of the tokens it finds there."""
        block = self.net.blocks[-1]
        norm = block.norm1 if hasattr(block, "norm1") else block.ln_1  # the towers of open_clip call it so
        return norm, lambda tokens: self.as_grid(tokens, size)

    def weights_hash(self) -> str:
        """A hash of every weight and buffer, for cache keys and records."""
        hasher = hashlib.blake2b(digest_size=16)
        for name, tensor in self.state_dict().items():
            hasher.update(name.encode())
            hasher.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        return hasher.hexdigest()


def rebuilt(values: Mapping[str, Any]) -> Backbone:
    """The backbone that ``spec.to_dict()`` described, read from a file: its architecture, untrained."""
    if "program" in values:
        from foveate.extract.traced.traced_backbone import TracedBackbone

        return TracedBackbone.from_dict(values)
    return create_backbone(BackboneSpec.from_dict(values))


def freeze(module: nn.Module) -> nn.Module:
    """Stop every change: no gradients, and evaluation mode so that BatchNorm statistics do not move."""
    module.requires_grad_(False)
    return module.eval()


@cache
def _known() -> list[str]:
    import timm

    from foveate.extract import clip, micro, tfjs_weights  # noqa: F401  (register our own nets)

    return timm.list_models()


def list_backbones(pattern: str = "*") -> list[str]:
    """Names that :func:`create_backbone` takes, by shell pattern, e.g. ``"resnet*"``."""
    import fnmatch

    return fnmatch.filter(_known(), pattern)


def create_backbone(
    name: str | BackboneSpec,
    *,
    image_size: tuple[int, int] | None = None,
    small_stem: bool = False,
    pretrained: bool = False,
    checkpoint: str | Path | None = None,
    **args: Any,
) -> Backbone:
    """Build a backbone by timm name.

    Args:
        name: a timm name (``"resnet18"``, ``"vit_small_patch14_dinov2"``), or a :class:`BackboneSpec`.
        image_size: ``(height, width)`` it will see. ViTs are built for it; CNNs take any size.
        small_stem: keep the resolution in the first layers (CIFAR-type images; CNNs only).
        pretrained: load timm's weights (from the local hub cache or the network).
        checkpoint: a local ``.safetensors`` or ``.pth`` state dict instead; never unpickles code.
        args: passed on to ``timm.create_model``.

    >>> create_backbone("resnet18", small_stem=True).maps(torch.zeros(1, 3, 32, 32)).shape
    torch.Size([1, 512, 4, 4])
    """
    spec = name if isinstance(name, BackboneSpec) else BackboneSpec(name, image_size, small_stem, dict(args))
    if pretrained and spec.name.startswith("micro_"):
        raise ModelError(
            f"'{spec.name}' has no weights on a hub; open_backbone('micro-vit') is the one that comes with us."
        )
    net = _build(spec, pretrained)
    if spec.small_stem:
        _keep_resolution(net, spec.name)
    backbone = Backbone(net, spec)
    if checkpoint is not None:
        load_weights(net, checkpoint, spec.name)
    return backbone


def _build(spec: BackboneSpec, pretrained: bool) -> nn.Module:
    import timm

    known = _known()
    if spec.name.split(".")[0] not in known:
        raise ModelError(
            f"unknown model '{spec.name}'.{suggest(spec.name, known)} "
            "List names with: python -c \"import foveate as fv; print(fv.extract.list_backbones('resnet*'))\""
        )
    args: dict[str, Any] = {"num_classes": 0, **spec.args}
    sizes: list[dict[str, Any]] = [{}]
    if spec.image_size is not None:  # networks built for one size take img_size; CNNs do not know the word
        sizes.insert(0, {"img_size": tuple(spec.image_size)})
    try:
        for size in sizes:
            try:
                return timm.create_model(spec.name, pretrained=pretrained, **{**size, **args})
            except TypeError as error:
                if not size or "img_size" not in str(error):
                    raise
    except (OSError, RuntimeError, ConnectionError) as error:
        if not pretrained:
            raise ModelError(f"cannot build '{spec.name}' with {args}: {error}") from error
        raise ModelError(
            f"cannot load pretrained weights of '{spec.name}': {error}. They are not on this machine and the hub "
            f"could not be reached. {INSTEAD}"
        ) from error
    except (TypeError, AssertionError) as error:
        raise ModelError(f"cannot build '{spec.name}' with {args}: {error}") from error
    raise AssertionError("unreachable: the last size tried either returns or raises")


def _keep_resolution(net: nn.Module, name: str) -> None:
    """Make the stem of a CNN fit for small images: stride 1 in its first convolution, no max-pooling."""
    parent, child, first = next(
        ((net.get_submodule(path.rpartition(".")[0]), path.rpartition(".")[2], m)
         for path, m in net.named_modules() if isinstance(m, nn.Conv2d)),
        (None, "", None),
    )  # fmt: skip
    if parent is None or first is None or hasattr(net, "patch_embed"):
        raise ModelError(f"small_stem is for CNNs; '{name}' has no convolutional stem. Use a smaller patch size.")
    kernel = min(first.kernel_size[0], 3)
    same = nn.Conv2d(first.in_channels, first.out_channels, kernel, 1, kernel // 2, bias=first.bias is not None)
    nn.init.kaiming_normal_(same.weight, mode="fan_out", nonlinearity="relu")
    setattr(parent, child, same)
    for path, module in list(net.named_modules()):
        if isinstance(module, nn.MaxPool2d):
            owner, _, leaf = path.rpartition(".")
            setattr(net.get_submodule(owner), leaf, nn.Identity())
            break


def load_weights(net: nn.Module, checkpoint: str | Path | Mapping[str, Tensor], name: str) -> None:
    """Load a state dict, or a local file of one, strictly (a classifier head in it is ignored); executes no code."""
    given = isinstance(checkpoint, Mapping)
    state = dict(checkpoint) if isinstance(checkpoint, Mapping) else read_state(checkpoint)
    wanted = net.state_dict()
    state = {k: v for k, v in state.items() if k in wanted or not k.startswith(("head.", "fc.", "classifier."))}
    missing = [k for k in wanted if k not in state]
    extra = [k for k in state if k not in wanted]
    shapes = [k for k in wanted if k in state and wanted[k].shape != state[k].shape]
    if missing or extra or shapes:
        example = (missing or extra or shapes)[0]
        raise ModelError(
            f"{'this state dict' if given else checkpoint} is a checkpoint of another architecture than '{name}': "
            f"{len(missing)} tensors are missing, "
            f"{len(extra)} unknown, {len(shapes)} of another shape (for instance '{example}'). "
            "Name the model the checkpoint was made with."
        )
    net.load_state_dict(state)


def read_state(checkpoint: str | Path) -> dict[str, Tensor]:
    """Read a state dict from ``.safetensors`` or a PyTorch file (``weights_only``; no code is executed)."""
    path = Path(checkpoint)
    if not path.is_file():
        raise ModelError(f"there is no checkpoint file {path}. Check the path.")
    if path.suffix == ".safetensors":
        from safetensors import SafetensorError
        from safetensors.torch import load_file

        try:
            return load_file(str(path))
        except (SafetensorError, OSError) as error:
            raise ModelError(f"{path} is not a readable safetensors file: {error}") from error
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ModelError(
            f"{path} cannot be loaded without executing code from the file, which foveate never does: "
            f"{first_line(error)}. Save its state_dict() as .safetensors."
        ) from error
    for key in ("state_dict", "model", "module"):
        if isinstance(state, dict) and isinstance(state.get(key), dict):
            state = state[key]
    if not isinstance(state, dict) or not all(isinstance(v, Tensor) for v in state.values()):
        raise ModelError(f"{path} does not hold a state dict (names and tensors).")
    return state


def native_size(name: str) -> tuple[int, int]:
    """``(height, width)`` a timm model was made for; 224 when it does not say."""
    import timm.models

    if name.startswith("micro_"):
        return 64, 64
    model = name.split(".")[0]
    try:
        known = timm.models.get_pretrained_cfg(name) if model in _known() else None
    except RuntimeError as error:  # the name of a model, with weights it does not have
        weights = ", ".join(timm.models.list_models(f"{model}.*", pretrained=True)) or f"none of '{model}'"
        raise ModelError(f"unknown weights '{name}'. Known: {weights}.") from error
    height, width = (known.input_size if known is not None else (3, 224, 224))[-2:]
    return int(height), int(width)


def default_preprocess(backbone: Backbone, image_size: tuple[int, int]) -> Preprocess:
    """The mean and standard deviation a pretrained model was trained with, at ``image_size``."""
    import timm.data

    config = timm.data.resolve_model_data_config(backbone.net)
    return Preprocess(image_size, mean=tuple(config["mean"]), std=tuple(config["std"]))
