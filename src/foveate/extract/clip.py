"""CLIP models by open_clip name: the image tower as a backbone, the text tower as a function.

Names: ``"open_clip:ViT-B-32/openai"`` (architecture and weights, from the hub or its local cache),
``"open_clip:ViT-B-32@weights.safetensors"`` (a local file), and a JSON file of an own configuration in place of
the architecture. A tower is registered with timm as ``open_clip_visual``, so a saved system is built again
like any other.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveate import compat  # noqa: F401  (before timm and open_clip)
from foveate.data.preprocess import Preprocess
from foveate.errors import MissingExtra, ModelError, first_line, suggest
from foveate.extract.backbone import Backbone, BackboneSpec

from timm.models import register_model  # isort: skip

PREFIX = "open_clip:"
NO_TEXT = {"context_length": 1, "vocab_size": 1, "width": 8, "heads": 1, "layers": 1}
"""The smallest text tower: a saved image tower is built again without the real one."""


def import_open_clip() -> Any:
    """The module ``open_clip``, or an error that names the extra."""
    try:
        import open_clip
    except ImportError as error:
        raise MissingExtra("open_clip_torch", "clip", "a CLIP model") from error
    return open_clip


@dataclass(frozen=True)
class Clip:
    """A CLIP model in the parts that zero-shot classification uses.

    Attributes:
        visual: ``visual(x)`` gives image embeddings ``[B, D]`` in the space of the texts.
        preprocess: the geometry and normalisation it was trained with.
        encode_text: a list of texts to embeddings ``[n, D]``.
        scale: of the cosine, as trained (at most 100).
        name: what it was opened as.
    """

    visual: Backbone
    preprocess: Preprocess
    encode_text: Callable[[Sequence[str]], Tensor]
    scale: float
    name: str


def open_clip_model(name: str, image_size: int | tuple[int, int] | None = None, *, pretrained: bool = True) -> Clip:
    """A CLIP model with its weights.

    Args:
        name: ``"open_clip:ARCH/TAG"``, ``"open_clip:ARCH@FILE"``; ARCH may be a JSON configuration file.
        image_size: side, or ``(height, width)``; positions are interpolated when it is not the model's own.
        pretrained: False builds ``"open_clip:ARCH"`` with random weights, for tests.
    """
    library = import_open_clip()
    arch, tag, file = parse_name(name)
    config = _config(library, arch)
    if pretrained and tag is None and file is None:
        tags = ", ".join(library.list_pretrained_tags_by_model(arch)) or "none"
        raise ModelError(f"'{name}' names no weights. Write '{PREFIX}ARCH/TAG' (tags of {arch}: {tags}) or ARCH@FILE.")
    known = library.get_pretrained_cfg(arch, tag) if tag else {}
    if tag and not known:
        tags = library.list_pretrained_tags_by_model(arch)
        raise ModelError(f"{arch} has no weights '{tag}'.{suggest(tag, tags)} It has: {', '.join(tags) or 'none'}.")
    if known.get("quick_gelu"):  # the weights' activation; the plain architecture's name stands for another one
        config["quick_gelu"] = True
    if image_size is not None:
        side = (image_size, image_size) if isinstance(image_size, int) else image_size
        config["vision_cfg"]["image_size"] = list(side)
    file = str(_weights(library, known, name)) if tag and pretrained else file
    model = _build(library, config)
    if pretrained:
        _load(library, model, Path(str(file)), name)
    model.eval().requires_grad_(False)
    tokenise = _tokeniser(library, arch, config)

    @torch.no_grad()
    def encode_text(texts: Sequence[str]) -> Tensor:
        parts = [model.encode_text(tokenise(list(texts[i : i + 256]))) for i in range(0, len(texts), 256)]
        return torch.cat(parts)

    size = model.visual.image_size
    height, width = (size, size) if isinstance(size, int) else size
    seen = Preprocess((height, width), mean=_three(known.get("mean"), library.OPENAI_DATASET_MEAN),
                      std=_three(known.get("std"), library.OPENAI_DATASET_STD))  # fmt: skip
    spec = BackboneSpec("open_clip_visual", (height, width), args={"config": _visual_config(config)})
    visual = Backbone(ClipVisual(model.visual, int(config["embed_dim"])), spec)
    return Clip(visual, seen, encode_text, float(model.logit_scale.exp().clamp(max=100)), name)


def open_visual(name: str, image_size: int | tuple[int, int] | None = None) -> tuple[Backbone, Preprocess]:
    """The image tower of a CLIP model as a backbone, and its preprocessing.

    ``backbone(x)`` is the image embedding in the joint space; ``backbone.maps(x)`` are the patch tokens after the
    tower's last norm, in its own width.
    """
    clip = open_clip_model(name, image_size)
    return clip.visual, clip.preprocess


class ClipVisual(nn.Module):
    """An open_clip image tower that answers to the names timm models have.

    Args:
        visual: the tower.
        dim: width of the joint space.
    """

    visual: Any

    def __init__(self, visual: Any, dim: int):
        super().__init__()
        self.visual = visual
        self.head_hidden_size = dim
        # a class token that is normed, then projected; other towers (ResNets, timm's, attention pools) pool as they do
        plain = hasattr(visual, "ln_post") and visual.attn_pool is None and visual.pool_type == "tok"
        plain = plain and not visual.final_ln_after_pool
        self.num_features = int(visual.ln_post.normalized_shape[0]) if plain else dim
        self.num_prefix_tokens = 1
        if plain:
            # shown as attributes that are no modules: the tower owns the blocks
            self.__dict__["patch_embed"] = SimpleNamespace(patch_size=visual.conv1.kernel_size)
            self.__dict__["blocks"] = visual.transformer.resblocks

    def tokens(self, x: Tensor) -> Tensor:
        """Class and patch tokens after the last norm, ``[B, 1 + N, width]``."""
        if "blocks" not in self.__dict__:
            kind = type(self.visual).__name__
            raise ModelError(f"this CLIP image tower ({kind}) gives no patch tokens; use a plain one such as ViT-B-16.")
        found: list[Tensor] = []
        last = self.visual.transformer.resblocks[-1]
        handle = last.register_forward_hook(lambda _, __, output: found.append(output))
        try:
            self.visual(x)
        finally:
            handle.remove()
        out = found[0]
        return self.visual.ln_post(out if getattr(last.attn, "batch_first", True) else out.transpose(0, 1))

    def project(self, tokens: Tensor) -> Tensor:
        """Tokens ``[..., width]`` after the last norm into the joint space ``[..., D]``."""
        return tokens if self.visual.proj is None else tokens @ self.visual.proj

    def forward_features(self, x: Tensor) -> Tensor:
        return self.tokens(x) if "blocks" in self.__dict__ else self.visual(x)

    def forward_head(self, features: Tensor, pre_logits: bool = True) -> Tensor:
        return self.project(features[:, 0]) if "blocks" in self.__dict__ else features

    def forward(self, x: Tensor) -> Tensor:
        return self.visual(x)


@register_model
def open_clip_visual(
    pretrained: bool = False, config: Mapping[str, Any] | None = None, img_size: Any = None, **args: Any
) -> nn.Module:
    """An image tower from an open_clip configuration, with random weights (saved systems load their own)."""
    if config is None:
        raise ModelError("open_clip_visual is built from a configuration; name a CLIP model as 'open_clip:ARCH/TAG'.")
    values = json.loads(json.dumps(config))
    if img_size is not None:
        values["vision_cfg"]["image_size"] = list(img_size)
    return ClipVisual(_build(import_open_clip(), values).visual, int(values["embed_dim"]))


def class_embeddings(encoded: Tensor, counts: Sequence[int]) -> Tensor:
    """Text embeddings ``[sum(counts), D]`` as one unit vector a class, ``[C, D]``.

    >>> class_embeddings(torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, 3.0]]), [2, 1])
    tensor([[0.7071, 0.7071],
            [0.0000, 1.0000]])
    """
    if encoded.ndim != 2 or len(encoded) != sum(counts):
        raise ModelError(f"expected text embeddings [{sum(counts)}, D]; the text encoder gave {tuple(encoded.shape)}.")
    means = [part.mean(0) for part in F.normalize(encoded.float(), dim=-1).split(list(counts))]
    return F.normalize(torch.stack(means), dim=-1)


def parse_name(name: str) -> tuple[str, str | None, str | None]:
    """Architecture (or JSON file), tag and weights file of a name.

    >>> parse_name("open_clip:ViT-B-32/openai")
    ('ViT-B-32', 'openai', None)
    >>> parse_name("open_clip:models/own.json@models/own.safetensors")
    ('models/own.json', None, 'models/own.safetensors')
    """
    if not name.startswith(PREFIX) or name == PREFIX:
        raise ModelError(f"a CLIP model is named '{PREFIX}ARCH/TAG' or '{PREFIX}ARCH@FILE'; found '{name}'.")
    arch, at, file = name.removeprefix(PREFIX).partition("@")
    if arch.endswith(".json") or at:
        return arch, None, file or None
    arch, _, tag = arch.rpartition("/") if "/" in arch else (arch, "", "")
    return arch, tag or None, None


def _config(library: Any, arch: str) -> dict[str, Any]:
    if arch.endswith(".json"):
        try:
            config = json.loads(Path(arch).expanduser().read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ModelError(f"{arch} is not a readable CLIP configuration: {error}") from error
        config = config.get("model_cfg", config)
        if not {"embed_dim", "vision_cfg", "text_cfg"} <= set(config):
            raise ModelError(f"{arch} is not a CLIP configuration: embed_dim, vision_cfg and text_cfg are expected.")
        return config
    config = library.get_model_config(arch)
    if config is None:
        known = library.list_models()
        raise ModelError(
            f"open_clip knows no architecture '{arch}'.{suggest(arch, known)} "
            'List them with: python -c "import open_clip; print(open_clip.list_models())"'
        )
    return json.loads(json.dumps(config))  # a copy: building a model changes it


def _build(library: Any, config: Mapping[str, Any]) -> Any:
    values = json.loads(json.dumps(config))
    custom = values.pop("custom_text", False) or "hf_model_name" in values["text_cfg"]
    if "multimodal_cfg" in values:
        raise ModelError("CoCa models are not supported; use a CLIP model, for instance 'open_clip:ViT-B-32/openai'.")
    for tower in ("vision_cfg", "text_cfg"):  # never fetch a part on its own
        for key in ("timm_model_name", "hf_model_name"):
            if key in values[tower]:
                values[tower][key.replace("_name", "_pretrained")] = False
    try:
        return (library.CustomTextCLIP if custom else library.CLIP)(**values)
    except (TypeError, RuntimeError, AssertionError, OSError, ImportError) as error:
        raise ModelError(f"this CLIP configuration cannot be built: {error}") from error


def _visual_config(config: Mapping[str, Any]) -> dict[str, Any]:
    kept = {k: v for k, v in config.items() if k in ("embed_dim", "vision_cfg", "quick_gelu")}
    return {**kept, "text_cfg": NO_TEXT}


def _weights(library: Any, known: Mapping[str, Any], name: str) -> Path:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Path(library.download_pretrained(dict(known)))
    except Exception as error:  # whatever the hub, the network or the disk raises
        raise ModelError(
            f"the weights of '{name}' are not on this machine and could not be fetched "
            f"({first_line(error)[:200]}). Connect to the network once, or name a local file: "
            f"'{name.rpartition('/')[0]}@FILE.safetensors'."
        ) from error


def _load(library: Any, model: nn.Module, file: Path, name: str) -> None:
    file = file.expanduser()
    if not file.is_file():
        raise ModelError(f"there is no checkpoint file {file} (from '{name}'). Check the path.")
    try:
        library.load_checkpoint(model, str(file), strict=True, weights_only=True)
    except Exception as error:
        raise ModelError(
            f"{file} does not hold weights of '{name}', or cannot be read without executing code from it: "
            f"{first_line(error)[:200]}"
        ) from error


def _tokeniser(library: Any, arch: str, config: Mapping[str, Any]) -> Callable[[list[str]], Tensor]:
    if not arch.endswith(".json"):
        return library.get_tokenizer(arch)
    if config["text_cfg"].get("hf_tokenizer_name"):
        raise ModelError(f"{arch} asks for a tokeniser from a hub; use a built-in architecture for such a model.")
    return library.SimpleTokenizer(context_length=int(config["text_cfg"].get("context_length", 77)))


def _three(given: Sequence[float] | None, usual: Sequence[float]) -> tuple[float, ...]:
    return tuple(float(v) for v in (given or usual))
