"""CLS attention of any ViT, read while the model runs as it always does.

Fused attention never writes its weights down, and a full attention matrix grows with the square of the
tokens. The CLS row alone needs neither: it is ``softmax(q_CLS Kᵀ / √d)`` of the block's normalised input, which
a hook sees on its way into ``block.attn``. Everything else in the model stays untouched.

Reference: methods of A² (Attending on Attention): joint softmax over CLS, registers and patches, then the
patch columns, averaged raw over heads.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, overload

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveate import compat  # noqa: F401  (before timm)
from foveate.errors import ModelError
from foveate.look.gaze import Gaze
from foveate.measure.localisation import attention_shares

HOW = ("mean", "max", "entropy", "lowest-entropy-k")
INSTEAD = "Use a ViT with a class token as attention model, for instance 'vit_small_patch14_dinov2' or 'micro_vit'"
# What these modules compute is not softmax(QKᵀ/√d) alone, so the CLS row would be wrong.
NOT_PLAIN = (
    "relative_position_bias_table", "rel_pos", "rel_pos_h", "lambda_init", "temperature", "logit_scale", "proj_l",
    "window_size",
)  # fmt: skip


@overload
def cls_attention(
    vit: nn.Module, images: Tensor, layer: int = -1, heads: str | None = "mean", *, k: int = 6,
    return_features: bool = False,
) -> Gaze: ...  # fmt: skip
@overload
def cls_attention(
    vit: nn.Module, images: Tensor, layer: Sequence[int] | Literal["all"], heads: str | None = "mean", *, k: int = 6,
    return_features: bool = False,
) -> list[Gaze]: ...  # fmt: skip
def cls_attention(
    vit: nn.Module,
    images: Tensor,
    layer: int | Sequence[int] | Literal["all"] = -1,
    heads: str | None = "mean",
    *,
    k: int = 6,
    return_features: bool = False,
) -> Gaze | list[Gaze]:
    """Where the CLS token of a ViT looks: its attention over the patches.

    Works on timm ViTs (DINO, DINOv2 with and without registers, DINOv3 and EVA with rotary positions, MAE,
    CLIP, DeiT) and on open_clip models or their visual towers. Fused attention stays on; only the CLS row is
    computed, so memory is heads × tokens a layer. The pass ends at the last wanted layer unless features are
    wanted too. The model runs in evaluation mode without gradients and is left as it was.

    Args:
        vit: the model; a CNN or a window transformer is refused with a sentence.
        images: normalised images ``[B, 3, H, W]``; any shape the model accepts, square or not.
        layer: a block, counted from 0 or from the end (-1); a list of them, or ``"all"``, gives a list.
        heads: how heads are put together, see :func:`aggregate_heads`; None (or ``"none"``) also keeps every
            head, as ``scores["heads"]`` of shape ``[B, heads, h, w]``, with their mean as the map.
        k: heads kept by ``"lowest-entropy-k"``.
        return_features: run through and add ``scores["features"]``, the final tokens after the last norm,
            ``[B, prefix + h * w, D]`` (CLS first); on the last gaze when there are several.

    Returns:
        A gaze, or one per layer. ``map`` is ``[B, h, w]``, raw (it sums to the share on patches);
        ``scores["cls"]``, ``["registers"]``, ``["patches"]`` are the shares of attention ``[B]``, summing to 1.
        The distillation token of DeiT counts as a register.

    >>> from timm.models.vision_transformer import VisionTransformer
    >>> vit = VisionTransformer(img_size=(16, 24), patch_size=8, embed_dim=12, depth=2, num_heads=3)
    >>> gaze = cls_attention(vit, torch.rand(2, 3, 16, 24))
    >>> tuple(gaze.map.shape), [len(cls_attention(vit, torch.rand(2, 3, 16, 24), layer="all"))]
    ((2, 2, 3), [2])
    """
    if heads not in (*HOW, None, "none"):
        raise ModelError(f"unknown way to put heads together: '{heads}'; known: {', '.join(HOW)}, or None.")
    tower = _tower(vit)
    wanted = _layers(layer, len(tower.blocks))
    weight = next(vit.parameters())
    if images.ndim != 4 or not images.is_floating_point():
        raise ModelError(
            f"expected normalised float images [B, 3, H, W]; found {images.dtype} {tuple(images.shape)}. "
            "Normalise them first (fv.data.Preprocess)."
        )
    rows, features = _run(tower, images.to(weight), wanted, return_features)
    height, width = tower.grid(images)
    gazes = [_gaze(rows[i], (height, width), heads, k, type(vit).__name__) for i in wanted]
    if return_features:
        gazes[-1].scores["features"] = features
    return gazes[0] if isinstance(layer, int) else gazes


def aggregate_heads(maps: Tensor, how: str = "mean", k: int = 6) -> Tensor:
    """Attention of several heads as one map.

    Args:
        maps: raw attention over patches, ``[B, H, h, w]`` or ``[B, H, N]``.
        how: ``"mean"``; ``"max"``, element by element; ``"entropy"``, a mean with weights
            ``log N - entropy`` (focused heads count more); ``"lowest-entropy-k"``, the mean of the ``k`` heads
            with the smallest entropy (of all heads if there are fewer). Entropies are of each head's attention
            renormalised over the patches; what is averaged is the raw attention.
        k: how many heads ``"lowest-entropy-k"`` keeps.

    Returns:
        ``[B, h, w]`` or ``[B, N]``.

    Reference: A², section on head aggregation (the exact weights of ``"entropy"`` are our choice: the paper
    leaves them open).

    >>> heads = torch.tensor([[[0.5, 0.5], [1.0, 0.0]]])             # one image, two heads, two patches
    >>> for how in ("mean", "max", "entropy"):
    ...     print(aggregate_heads(heads, how).tolist())
    [[0.75, 0.25]]
    [[1.0, 0.5]]
    [[1.0, 0.0]]
    >>> aggregate_heads(heads, "lowest-entropy-k", k=1).tolist()
    [[1.0, 0.0]]
    """
    if maps.ndim not in (3, 4):
        raise ModelError(f"expected attention [B, heads, h, w] or [B, heads, N]; found {tuple(maps.shape)}.")
    if how == "mean":
        return maps.mean(1)
    if how == "max":
        return maps.amax(1)
    entropy = _entropy(maps.flatten(2))  # [B, H]
    if how == "entropy":
        weights = torch.log(torch.tensor(maps[0, 0].numel())) - entropy
        weights = weights.clamp(min=0)
        total = weights.sum(1, keepdim=True)
        weights = torch.where(total > 1e-9, weights / total.clamp(min=1e-9), 1 / maps.shape[1])
    elif how == "lowest-entropy-k":
        if k < 1:
            raise ModelError(f"lowest-entropy-k keeps at least one head; got k={k}.")
        order = entropy.argsort(dim=1, stable=True)[:, :k]
        weights = torch.zeros_like(entropy).scatter_(1, order, 1 / order.shape[1])
    else:
        raise ModelError(f"unknown way to put heads together: '{how}'; known: {', '.join(HOW)}.")
    return (maps * weights.to(maps).reshape(weights.shape + (1,) * (maps.ndim - 2))).sum(1)


def _entropy(attention: Tensor) -> Tensor:
    """Entropy over the last axis after renormalising it; a head without any mass counts as uniform."""
    attention = attention.float()
    total = attention.sum(-1, keepdim=True)
    p = torch.where(total > 0, attention / total.clamp(min=1e-30), 1 / attention.shape[-1])
    return torch.special.entr(p).sum(-1)


# -- what kind of model it is ------------------------------------------------------------------------------


@dataclass
class _Tower:
    """The parts of a model the tap needs, whatever library it comes from."""

    blocks: list[nn.Module]
    forward: Callable[[Tensor], Any]
    grid: Callable[[Tensor], tuple[int, int]]
    tokens: Callable[[Any, Any], Any]
    """Final tokens ``[B, T, D]`` from what ``forward`` and the last block gave."""
    root: nn.Module


def _tower(model: nn.Module) -> _Tower:
    inner: nn.Module = model
    for name in ("visual", "trunk"):  # an open_clip model; the timm model inside its tower
        inside = getattr(inner, name, None)
        inner = inside if isinstance(inside, nn.Module) else inner
    name = type(inner).__name__
    transformer = getattr(inner, "transformer", None)
    if isinstance(getattr(transformer, "resblocks", None), nn.ModuleList) and hasattr(inner, "conv1"):
        if getattr(inner, "class_embedding", None) is None:
            raise ModelError(f"{name} has no class token. {INSTEAD}.")
        return _check(_open_clip(inner), name)
    blocks = getattr(inner, "blocks", None)
    if not isinstance(blocks, (nn.ModuleList, nn.Sequential)) or not hasattr(inner, "patch_embed"):
        raise ModelError(_refusal(inner, name))
    if getattr(inner, "cls_token", None) is None:
        raise ModelError(f"{name} has no class token, so there is no CLS attention to read. {INSTEAD}.")
    return _check(_timm(inner), name)


def _refusal(model: nn.Module, name: str) -> str:
    if any(isinstance(m, nn.MultiheadAttention) or hasattr(m, "qkv") for m in model.modules()):
        return f"the attention of {name} cannot be tapped: it has no global attention of one class token. {INSTEAD}."
    return (
        f"{name} has no attention to read: it is not a vision transformer. {INSTEAD}; "
        "to see where a CNN looks, use fv.look.gradcam."
    )


def _check(tower: _Tower, name: str) -> _Tower:
    for block in tower.blocks:
        attn = getattr(block, "attn", None)
        if not isinstance(attn, nn.Module) or any(getattr(attn, a, None) is not None for a in NOT_PLAIN):
            kind = type(attn if isinstance(attn, nn.Module) else block).__name__
            raise ModelError(f"the attention of {name} ({kind}) is of a kind that cannot be tapped. {INSTEAD}.")
    return tower


def _timm(vit: Any) -> _Tower:
    def grid(images: Tensor) -> tuple[int, int]:
        size = (images.shape[-2], images.shape[-1])
        if hasattr(vit.patch_embed, "dynamic_feat_size"):
            height, width = vit.patch_embed.dynamic_feat_size(size)
            return int(height), int(width)
        patch = vit.patch_embed.patch_size
        ph, pw = patch if isinstance(patch, (tuple, list)) else (patch, patch)
        return size[0] // ph, size[1] // pw

    return _Tower(
        blocks=list(vit.blocks),
        forward=getattr(vit, "forward_features", vit),
        grid=grid,
        tokens=lambda output, _: output,
        root=vit,
    )


def _open_clip(visual: Any) -> _Tower:
    patch = visual.conv1.kernel_size
    return _Tower(
        blocks=list(visual.transformer.resblocks),
        forward=visual,
        grid=lambda images: (images.shape[-2] // patch[0], images.shape[-1] // patch[1]),
        tokens=lambda _, last: visual.ln_post(last),
        root=visual,
    )


def _layers(layer: int | Sequence[int] | str, depth: int) -> list[int]:
    if isinstance(layer, str):
        if layer != "all":
            raise ModelError(f"layer must be a number, a list of numbers or 'all'; found '{layer}'.")
        return list(range(depth))
    asked = [layer] if isinstance(layer, int) else [int(i) for i in layer]
    if not asked:
        raise ModelError("layer is an empty list; name at least one layer, or 'all'.")
    for i in asked:
        if not -depth <= i < depth:
            raise ModelError(
                f"there is no layer {i}: the model has {depth} blocks, 0 to {depth - 1} (or -1 to -{depth})."
            )
    return [i % depth for i in asked]


# -- reading the row ---------------------------------------------------------------------------------------


class _Seen(Exception):
    """Ends the forward pass after the last wanted layer."""


def _run(tower: _Tower, images: Tensor, wanted: list[int], through: bool) -> tuple[dict[int, Tensor], Any]:
    """The CLS row ``[B, heads, tokens]`` of every wanted layer, and the final tokens when ``through``."""
    rows: dict[int, Tensor] = {}
    last: list[Tensor] = []

    def tap(index: int) -> Callable[..., None]:
        def read(attn: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            x, rope = _arguments(attn, args, kwargs)
            rows[index] = _cls_row(attn, x, rope)
            if not through and len(rows) == len(set(wanted)):
                raise _Seen

        return read

    def keep(block: nn.Module, args: Any, output: Any) -> None:
        output = output[0] if isinstance(output, tuple) else output
        last.append(output if getattr(block.attn, "batch_first", True) else output.transpose(0, 1))

    features = None
    handles = []
    try:
        for i in set(wanted):
            attn: Any = tower.blocks[i].attn
            handles.append(attn.register_forward_pre_hook(tap(i), with_kwargs=True))
        if through:
            handles.append(tower.blocks[-1].register_forward_hook(keep))
        with torch.no_grad(), _evaluating(tower.root), contextlib.suppress(_Seen):
            output = tower.forward(images)
            features = tower.tokens(output, last[-1]) if through else None
    except AssertionError as error:  # timm's check of the image size
        raise ModelError(
            f"the model does not take images of {tuple(images.shape[-2:])}: {error} "
            "Resize them, or create the model with dynamic_img_size=True."
        ) from error
    finally:
        for handle in handles:
            handle.remove()
    if through and not (isinstance(features, Tensor) and features.ndim == 3):
        raise ModelError("this model does not give its final tokens as [B, T, D]; leave return_features off.")
    return rows, features


def _arguments(attn: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, Tensor | None]:
    """The normalised tokens ``[B, T, D]`` an attention module was called with, and its rotary embedding."""
    x = args[0] if args else kwargs.get("query", kwargs.get("x"))
    if not isinstance(x, Tensor) or x.ndim != 3:
        raise ModelError(f"{type(attn).__name__} does not read tokens [B, T, D], so it cannot be tapped. {INSTEAD}.")
    rope = kwargs.get("rope")
    if rope is None and hasattr(attn, "num_prefix_tokens") and len(args) > 1:
        rope = args[1]
    return (x if getattr(attn, "batch_first", True) else x.transpose(0, 1)), rope


def _cls_row(attn: Any, x: Tensor, rope: Tensor | None) -> Tensor:
    """``softmax(q_CLS Kᵀ / √d)`` of one attention module, ``[B, heads, T]``, from its input ``x [B, T, D]``."""
    with torch.autocast(x.device.type, enabled=False):
        x = x if x.dtype == torch.float64 else x.float()
        (wq, bq), (wk, bk) = ((w.to(x), None if b is None else b.to(x)) for w, b in _query_and_key(attn))
        batch, heads = len(x), int(attn.num_heads)
        d = len(wq) // heads
        q_norm, k_norm = (getattr(attn, f"{s}_norm", getattr(attn, f"ln_{s}", None)) for s in "qk")
        q = F.linear(x[:, 0], wq, bq).view(batch, heads, d)
        q = q if q_norm is None else q_norm(q).to(x)
        if rope is None and (k_norm is None or isinstance(k_norm, nn.Identity)) and len(wk) == len(wq):
            # q·(W x + b): moving W to the query's side never forms the keys, and b shifts a whole row,
            # which a softmax does not see.
            logits = torch.einsum("bhd,hdc->bhc", q, wk.view(heads, d, -1)) @ x.transpose(1, 2)
        else:
            keys = F.linear(x, wk, bk).view(batch, x.shape[1], -1, d).transpose(1, 2)
            keys = keys if k_norm is None else k_norm(keys).to(x)
            if rope is not None:
                keys = _rotate(keys, rope, attn)
            keys = keys.repeat_interleave(heads // keys.shape[1], dim=1)  # grouped queries share keys
            logits = (keys @ q.unsqueeze(-1)).squeeze(-1)
        scale = getattr(attn, "scale", None)
        return (logits * (d**-0.5 if scale is None else float(scale))).softmax(-1)


def _rotate(keys: Tensor, rope: Tensor, attn: Any) -> Tensor:
    """Rotary positions on the patches; prefix tokens have none."""
    from timm.layers import apply_rot_embed_cat

    prefix = int(attn.num_prefix_tokens)
    turned = apply_rot_embed_cat(keys[:, :, prefix:], rope.to(keys), half=getattr(attn, "rotate_half", False))
    return torch.cat([keys[:, :, :prefix], turned], dim=2)


def _query_and_key(attn: Any) -> tuple[tuple[Tensor, Tensor | None], tuple[Tensor, Tensor | None]]:
    """Weight and bias of the query and of the key projection, however the module stores them."""
    in_proj = getattr(attn, "in_proj_weight", None)
    if in_proj is not None:
        return _thirds(in_proj, getattr(attn, "in_proj_bias", None))
    fused = getattr(attn, "qkv", None)
    if getattr(fused, "weight", None) is not None:
        bias = getattr(fused, "bias", None)
        if bias is None and getattr(attn, "q_bias", None) is not None:
            keyless = getattr(attn, "k_bias", None)
            bias = torch.cat([attn.q_bias, torch.zeros_like(attn.q_bias) if keyless is None else keyless, attn.v_bias])
        return _thirds(fused.weight, bias)  # type: ignore[union-attr]
    q, k = getattr(attn, "q_proj", None), getattr(attn, "k_proj", None)
    if q is None or k is None or not hasattr(q, "weight") or not hasattr(k, "weight"):
        raise ModelError(f"no query and key projection found in {type(attn).__name__}. {INSTEAD}.")
    return (q.weight, q.bias), (k.weight, k.bias)


def _thirds(weight: Tensor, bias: Tensor | None) -> tuple[tuple[Tensor, Tensor | None], tuple[Tensor, Tensor | None]]:
    wq, wk, _ = weight.chunk(3)
    bq, bk, _ = (None, None, None) if bias is None else bias.chunk(3)
    return (wq, bq), (wk, bk)


def _gaze(row: Tensor, grid: tuple[int, int], heads: str | None, k: int, name: str) -> Gaze:
    height, width = grid
    prefix = row.shape[-1] - height * width
    if prefix < 1:
        raise ModelError(
            f"{name}: its blocks see {row.shape[-1]} tokens for a grid of {height} x {width} patches, so the class "
            f"token is not among them. {INSTEAD}."
        )
    maps = row[..., prefix:].unflatten(-1, (height, width))
    scores = attention_shares(row.mean(1), prefix - 1)
    if heads in (None, "none"):
        scores["heads"] = maps
        return Gaze(maps.mean(1), scores=scores)
    return Gaze(aggregate_heads(maps, str(heads), k), scores=scores)


@contextlib.contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode (no dropout of tokens or paths), every module back as it was afterwards."""
    training = [m for m in model.modules() if m.training]
    for module in training:
        module.training = False
    try:
        yield
    finally:
        for module in training:
            module.training = True
