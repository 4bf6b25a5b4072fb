"""A ViT that attends to selected patches only: what was not selected cannot influence its output."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from foveate import compat  # noqa: F401  (before timm)
from foveate.errors import ModelError
from foveate.extract.backbone import Backbone
from foveate.extract.key_gradient import KeyWeights
from foveate.extract.pruning import length_buckets

SOFT_FLOOR = 1e-10


@dataclass
class _Tokens:
    """What goes into the blocks: ``[n, T, D]``, rotary embeddings for its patches (or None), and who is visible."""

    x: Tensor
    rope: Tensor | None
    keep: Tensor  # [n, T], bool or float


class MaskedViT(nn.Module):
    """Wraps a timm ViT so that, in every block, only the prefix tokens and the selected patches can be read.

    ``masked(images, token_mask)`` gives logits. CLS and register tokens are always visible; queries are not
    masked, since what a hidden token computes is read by nobody (arXiv 2411.16370 and 2506.08915, stage 2, keys
    only). The mask decides the path:

    * boolean, or 0/1 floats without gradient: fused attention with a boolean mask. Hidden patches are set to zero
      before the first block, so that no pixel of theirs reaches the output, bit for bit.
    * 0/1 floats with a gradient (:func:`foveate.restrict.early_mask`): the same values, and the straight-through
      gradient of attention weights ``s[j] exp(q.k[j])`` into the mask, also where it is 0. Hidden patches are not
      zeroed here, since the gradient asks what they would have added; they enter with weight exactly 0.
    * ``soft=True``: any values in [0, 1]; ``log(mask + 1e-10)`` is added to the attention logits. An ablation: it
      dims patches and hides none.
    * ``prune=True``: hidden patches are not computed at all. Images are batched in buckets of similar length; the
      result is that of the boolean path up to rounding, whatever else is in the batch.

    An empty mask is allowed: the output is then the same for every image.

    Args:
        vit: a timm ``VisionTransformer`` or ``Eva`` (rotary) with at least one prefix token, or a
            :class:`~foveate.extract.Backbone` around one.
        head: applied to the features instead of the ViT's own classifier.
        max_buckets: at most so many passes when pruning; 1 pads to the longest image of the batch.
        bucket_overhead: what one more pass costs, in tokens; see :func:`~foveate.extract.pruning.length_buckets`.

    >>> from timm.models.vision_transformer import VisionTransformer
    >>> vit = VisionTransformer(img_size=8, patch_size=4, embed_dim=12, depth=2, num_heads=3, num_classes=5)
    >>> masked, images = MaskedViT(vit.eval()), torch.rand(2, 3, 8, 8)
    >>> mask = torch.tensor([[True, False, False, True], [False, False, False, True]])
    >>> logits = masked(images, mask)
    >>> images[:, :, :4, 4:] = 7.0  # the second patch, which is hidden in both
    >>> bool((masked(images, mask) == logits).all())
    True
    """

    vit: Any
    """timm's module: what ViTs have in common there is no type of."""

    def __init__(
        self,
        vit: nn.Module,
        head: nn.Module | None = None,
        *,
        max_buckets: int | None = None,
        bucket_overhead: float = 24.0,
    ):
        super().__init__()
        net: Any = vit.net if isinstance(vit, Backbone) else vit
        check_maskable(net)
        if head is None and hasattr(net, "head_dist"):
            raise ModelError(
                f"{type(net).__name__} averages two classifiers, on two tokens. Give the one to use: "
                "MaskedViT(vit, head=...)."
            )
        self.vit = net
        self.head = head
        self.max_buckets = max_buckets
        self.bucket_overhead = bucket_overhead
        self.prefix = int(net.num_prefix_tokens)
        self.dim = int(net.embed_dim)
        self.patch_size: tuple[int, int] = tuple(net.patch_embed.patch_size)

    def forward(self, images: Tensor, token_mask: Tensor, prune: bool = False, soft: bool = False) -> Tensor:
        """Logits ``[B, classes]`` of ``images [B, 3, H, W]`` under ``token_mask [B, N]`` (or ``[B, h, w]``)."""
        features = self.features(images, token_mask, prune, soft)
        return self.head(features) if self.head is not None else self.vit.head(features)

    def features(self, images: Tensor, token_mask: Tensor, prune: bool = False, soft: bool = False) -> Tensor:
        """What the classifier sees, ``[B, dim]``: CLS after the final norm (or the mean of the kept patches for a
        ViT that pools by averaging)."""
        mask = self._checked(images, token_mask, prune, soft)
        if not prune:
            tokens = self._dense(images, mask)
            return self._pool(self._blocks(tokens, soft), tokens.keep)
        parts, order = [], []
        for rows, tokens in self._pruned(images, mask):
            parts.append(self._pool(self._blocks(tokens), tokens.keep))
            order.append(rows)
        return torch.cat(parts)[torch.cat(order).argsort()]

    def tokens(self, images: Tensor, token_mask: Tensor, prune: bool = False, soft: bool = False) -> Tensor:
        """All tokens after the final norm, ``[B, prefix + N, dim]``; hidden patches are zero."""
        mask = self._checked(images, token_mask, prune, soft)
        if not prune:
            tokens = self._dense(images, mask)
            out = self._blocks(tokens, soft)
            return out if soft else out * tokens.keep[..., None].to(out.dtype)
        whole = images.new_zeros(len(images), self.prefix + mask.shape[1], self.dim)
        for rows, tokens in self._pruned(images, mask):
            out = self._blocks(tokens)
            visible = F.pad(mask[rows], (self.prefix, 0), value=True)
            bucket = whole.new_zeros(len(rows), *whole.shape[1:]).to(out.dtype)
            bucket[visible] = out[tokens.keep]
            whole = whole.to(out.dtype).index_copy(0, rows, bucket)
        return whole

    def grid(self, images: Tensor) -> tuple[int, int]:
        """Rows and columns of patches that ``images [B, 3, H, W]`` are cut into."""
        height, width = images.shape[-2:]
        patch_h, patch_w = self.patch_size
        if height % patch_h or width % patch_w:
            raise ModelError(
                f"the images are {height}x{width} px, which the patch size {patch_h}x{patch_w} does not divide. "
                f"Resize them, for instance to {round(height / patch_h) * patch_h}x{round(width / patch_w) * patch_w}."
            )
        built = self.vit.patch_embed.img_size
        if built is not None and not self._dynamic and tuple(built) != (height, width):
            raise ModelError(
                f"this ViT was built for images of {built[0]}x{built[1]} px and got {height}x{width}. "
                "Resize the images, or build the model with img_size=... or dynamic_img_size=True."
            )
        return height // patch_h, width // patch_w

    @property
    def _dynamic(self) -> bool:
        return bool(getattr(self.vit, "dynamic_img_size", False))

    def _checked(self, images: Tensor, mask: Tensor, prune: bool, soft: bool) -> Tensor:
        """The mask as ``[B, N]``: boolean, or float when a gradient or a soft mask asks for it."""
        rows, columns = self.grid(images)
        if mask.ndim == 3:
            mask = mask.flatten(1)
        if mask.shape != (len(images), rows * columns):
            raise ModelError(
                f"expected one mask value per patch, [{len(images)}, {rows * columns}] ({rows}x{columns} patches for "
                f"each image); got {list(mask.shape)}. Resize masks with foveate.restrict.early_mask(mask, grid=...)."
            )
        if soft:
            if prune:
                raise ModelError("a soft mask hides nothing, so nothing can be pruned: use prune=False.")
            if mask.dtype == torch.bool:
                mask = mask.float()
            if bool(((mask < 0) | (mask > 1)).any()):
                raise ModelError("soft masks must lie in [0, 1].")
            return mask
        if mask.dtype == torch.bool:
            return mask
        if bool(((mask != 0) & (mask != 1)).any()):
            raise ModelError(
                "the token mask holds values other than 0 and 1. Threshold it (foveate.restrict.early_mask), "
                "or pass soft=True to dim patches without hiding them."
            )
        if not (mask.requires_grad and torch.is_grad_enabled()):
            return mask.bool()
        if prune:
            raise ModelError(
                "pruning does not compute hidden patches, so no gradient can reach their mask. Use prune=False "
                "in training, or pass token_mask.detach()."
            )
        return mask if mask.is_floating_point() else mask.bool()

    def _dense(self, images: Tensor, mask: Tensor) -> _Tokens:
        """All tokens; under a boolean mask the hidden ones are zero."""
        embedded = self.vit._pos_embed(self.vit.patch_embed(images))
        x, rope = embedded if isinstance(embedded, tuple) else (embedded, None)
        keep = F.pad(mask, (self.prefix, 0), value=1)
        if mask.dtype == torch.bool:
            x = torch.where(keep[..., None], x, torch.zeros((), dtype=x.dtype, device=x.device))
        return _Tokens(self.vit.norm_pre(x), rope, keep)

    def _pruned(self, images: Tensor, mask: Tensor) -> list[tuple[Tensor, _Tokens]]:
        """Buckets of images with only their kept tokens, padded to the longest of the bucket."""
        rows, columns = self.grid(images)
        counts = mask.sum(1)
        shape = (1, rows, columns, self.dim) if self._dynamic else (1, rows * columns, self.dim)
        # an embedding of zeros gives the prefix tokens and every patch's position, whatever the model adds
        embedded = self.vit._pos_embed(torch.zeros(shape, dtype=images.dtype, device=images.device))
        base, rope = embedded if isinstance(embedded, tuple) else (embedded, None)
        prefix, positions = base[:, : self.prefix], base[0, self.prefix :]
        patches = images.unflatten(3, (columns, -1)).unflatten(2, (rows, -1)).permute(0, 2, 4, 1, 3, 5)
        found = []
        plan = length_buckets(
            counts.cpu().numpy() + self.prefix,
            dim=self.dim,
            overhead=self.bucket_overhead,
            max_buckets=self.max_buckets,
        )
        for bucket in plan:
            members = torch.as_tensor(bucket, device=images.device)
            image, patch = mask[members].nonzero(as_tuple=True)  # row by row, patches in order
            longest = int(counts[members].max())
            filled = torch.arange(longest, device=images.device) < counts[members, None]
            where = torch.zeros_like(filled, dtype=torch.long)
            where[filled] = patch
            kept = self._embed(patches[members[image], patch // columns, patch % columns]) + positions[patch]
            padded = kept.new_zeros(len(members), longest, self.dim)
            padded[filled] = kept
            x = torch.cat([prefix.to(kept.dtype).expand(len(members), -1, -1), padded], 1)
            x = self.vit.norm_pre(x)
            found.append((members, _Tokens(x, _gather_rope(rope, where), F.pad(filled, (self.prefix, 0), value=True))))
        return found

    def _embed(self, patches: Tensor) -> Tensor:
        """The patch embedding of single patches, ``[M, 3, ph, pw]`` to ``[M, dim]``: the same convolution as a
        matrix product."""
        stem = self.vit.patch_embed
        return stem.norm(F.linear(patches.flatten(1), stem.proj.weight.flatten(1), stem.proj.bias))

    def _blocks(self, tokens: _Tokens, soft: bool = False) -> Tensor:
        x, keep = tokens.x, tokens.keep
        straight_through = keep.dtype != torch.bool and not soft
        attn_mask: Tensor | None
        if soft:
            attn_mask = (keep + SOFT_FLOOR).log()[:, None, None, :].to(x.dtype)
        else:
            visible = keep.detach().bool()
            attn_mask = None if bool(visible.all()) else visible[:, None, None, :]

        def run(block: nn.Module, x: Tensor, depth: int) -> Tensor:
            rope = {} if tokens.rope is None else {"rope": tokens.rope[depth] if self._mixed_rope else tokens.rope}
            if not straight_through:
                return block(x, attn_mask=attn_mask, **rope)
            with KeyWeights(keep) as mode:
                x = block(x, attn_mask=attn_mask, **rope)
            if not mode.calls:
                raise ModelError(
                    "the gradient into the mask needs fused attention, which this model does not use. Call "
                    "timm.layers.set_fused_attn(True) before building it."
                )
            return x

        again = bool(getattr(self.vit, "grad_checkpointing", False)) and torch.is_grad_enabled()
        for depth, block in enumerate(self.vit.blocks):
            x = checkpoint(run, block, x, depth, use_reentrant=False) if again else run(block, x, depth)
        return self.vit.norm(x)

    @property
    def _mixed_rope(self) -> bool:
        return bool(getattr(self.vit, "rope_mixed", False))

    def _pool(self, x: Tensor, keep: Tensor) -> Tensor:
        if self.vit.global_pool == "token":
            pooled = x[:, 0]
        else:
            first = 0 if getattr(self.vit, "pool_include_prefix", False) else self.prefix
            weights = keep[:, first:, None].to(x.dtype)
            pooled = (x[:, first:] * weights).sum(1) / weights.sum(1).clamp(min=1)
        return self.vit.head_drop(self.vit.fc_norm(pooled))


def _gather_rope(rope: Tensor | None, where: Tensor) -> Tensor | None:
    """Rotary embeddings of the patches ``where [n, L]``: axial ``[N, d]``, or one per block and head ``[.., N, d]``."""
    if rope is None:
        return None
    if rope.ndim == 2:
        return rope[where][:, None]
    return rope[:, :, where].transpose(1, 2)


def check_maskable(net: nn.Module) -> None:
    """Raise a :class:`~foveate.errors.ModelError` unless hiding tokens of ``net`` hides their pixels."""
    from timm.layers import PatchEmbed

    name = type(net).__name__
    stem, blocks = getattr(net, "patch_embed", None), getattr(net, "blocks", None)
    if stem is None or blocks is None or not hasattr(net, "_pos_embed"):
        raise ModelError(
            f"{name} is not a plain ViT (timm's VisionTransformer or Eva), so its tokens cannot be "
            "masked. Use one, for instance create_backbone('vit_small_patch16_224'); for a CNN mask its features "
            "with foveate.restrict.late_mask."
        )
    if not all("attn_mask" in inspect.signature(block.forward).parameters for block in blocks):
        raise ModelError(
            f"the blocks of {name} ({type(blocks[0]).__name__}) take no attention mask. Use a plain ViT "
            "(timm's VisionTransformer or Eva), and timm 1.0.16 or newer."
        )
    if int(getattr(net, "num_prefix_tokens", 0)) < 1:
        raise ModelError(
            f"{name} has no CLS or register token, so nothing would be left under an empty mask. "
            "Use a ViT with a class token."
        )
    # a hybrid stem also ends in such a convolution, but after a CNN that has mixed the patches
    proj = stem.proj if isinstance(stem, PatchEmbed) else None
    if (
        not isinstance(proj, nn.Conv2d)
        or not proj.kernel_size == proj.stride == tuple(stem.patch_size)
        or proj.padding != (0, 0)
    ):
        raise ModelError(
            f"the patch embedding of {name} looks beyond its own patch, so pixels of hidden patches would leak into "
            "visible ones. Use a ViT whose patch embedding is one convolution with kernel = stride."
        )
    pooling = getattr(net, "global_pool", "token")
    if pooling not in ("token", "avg"):
        raise ModelError(f"{name} pools by '{pooling}'; only 'token' (CLS) and 'avg' can leave hidden patches out.")
    if not isinstance(getattr(net, "patch_drop", None) or nn.Identity(), nn.Identity):
        raise ModelError(f"{name} drops random patches in training; build it with patch_drop_rate=0.")
