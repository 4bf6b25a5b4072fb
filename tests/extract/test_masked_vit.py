"""The masked ViT: what is hidden cannot be read, and pruning computes the same thing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from foveate import compat  # noqa: F401  (before timm)
from foveate.errors import ModelError
from foveate.extract import MaskedViT, create_backbone
from foveate.extract.key_gradient import KeyWeights
from foveate.extract.pruning import length_buckets, padded_tokens

from timm.models.eva import Eva  # isort: skip
from timm.models.vision_transformer import ParallelScalingBlock, ResPostBlock, VisionTransformer  # isort: skip

SIZE = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "num_heads": 4, "num_classes": 5}
N = 16
MAKERS: dict[str, Any] = {
    "plain": lambda: VisionTransformer(depth=3, **SIZE),
    "registers": lambda: VisionTransformer(depth=2, reg_tokens=4, no_embed_class=True, init_values=0.5, **SIZE),
    "qk-norm": lambda: VisionTransformer(depth=2, qk_norm=True, pre_norm=True, **SIZE),
    "average": lambda: VisionTransformer(depth=2, global_pool="avg", **SIZE),
    "post-norm": lambda: VisionTransformer(depth=2, block_fn=ResPostBlock, **SIZE),
    "parallel": lambda: VisionTransformer(depth=2, block_fn=ParallelScalingBlock, **SIZE),
    "dynamic": lambda: VisionTransformer(depth=2, dynamic_img_size=True, reg_tokens=1, **SIZE),
    "rotary": lambda: Eva(depth=2, use_rot_pos_emb=True, **SIZE),
    "rotary-mixed": lambda: Eva(
        depth=2, use_rot_pos_emb=True, rope_type="mixed", num_reg_tokens=2, attn_type="rope", **SIZE
    ),
}
_built: dict[str, MaskedViT] = {}


def build(kind: str) -> MaskedViT:
    if kind not in _built:
        torch.manual_seed(3)
        vit = MAKERS[kind]()
        with torch.no_grad():  # timm starts some of these at zero, which would hide mistakes
            for p in vit.parameters():
                if float(p.abs().max()) == 0 or p.std() == 0:
                    p.add_(torch.randn_like(p) * 0.1)
            for name in ("cls_token", "reg_token", "pos_embed"):
                if getattr(vit, name, None) is not None:
                    getattr(vit, name).copy_(torch.randn_like(getattr(vit, name)))
            vit.head.weight.copy_(torch.randn_like(vit.head.weight) * 0.2)
        _built[kind] = MaskedViT(vit.eval().requires_grad_(False))
    return _built[kind]


def pictures(batch: int, seed: int = 0) -> Tensor:
    return torch.randn(batch, 3, 32, 32, generator=torch.Generator().manual_seed(seed))


def random_mask(batch: int, seed: int) -> Tensor:
    """Rows of very different coverage; the first is empty and the last full when there are at least three."""
    generator = torch.Generator().manual_seed(seed)
    mask = torch.rand(batch, N, generator=generator) < torch.rand(batch, 1, generator=generator)
    if batch >= 3:
        mask[0], mask[-1] = False, True
        mask[1] = False
        mask[1, seed % N] = True
    return mask


def hidden_pixels(mask: Tensor) -> Tensor:
    return (~mask).reshape(-1, 1, 4, 4).repeat_interleave(8, 2).repeat_interleave(8, 3)


every_kind = pytest.mark.parametrize("kind", MAKERS)


@every_kind
def test_full_mask_is_the_plain_vit(kind: str) -> None:
    masked, images = build(kind), pictures(2)
    plain = masked.vit(images)
    assert plain.std(0).max() > 1e-3
    full = torch.ones(2, N, dtype=torch.bool)
    torch.testing.assert_close(masked(images, full), plain, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(masked(images, full, prune=True), plain, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(masked(images, full.float(), soft=True), plain, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(masked.tokens(images, full), masked.vit.forward_features(images), atol=1e-5, rtol=1e-5)


@every_kind
def test_empty_mask_is_finite_and_constant(kind: str) -> None:
    masked = build(kind)
    none = torch.zeros(3, N, dtype=torch.bool)
    for prune in (False, True):
        logits = masked(pictures(3), none, prune=prune)
        assert torch.isfinite(logits).all()
        assert torch.equal(logits, logits[:1].expand_as(logits))
        assert torch.equal(logits, masked(pictures(3, seed=9), none, prune=prune))


@every_kind
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(batch=st.integers(1, 4), seed=st.integers(0, 10_000))
def test_hidden_pixels_do_not_reach_the_logits(kind: str, batch: int, seed: int) -> None:
    masked, images, mask = build(kind), pictures(batch, seed), random_mask(batch, seed)
    hidden = hidden_pixels(mask)
    logits = masked(images, mask)
    pruned = masked(images, mask, prune=True)
    assert torch.isfinite(logits).all()
    for other in (
        pictures(batch, seed + 1),
        images.flip(0),
        torch.full_like(images, 3.4e38),
        -torch.full_like(images, 3.4e38),
    ):
        changed = torch.where(hidden, other, images)
        assert torch.equal(masked(changed, mask), logits)
        assert torch.equal(masked(changed, mask, prune=True), pruned)


@every_kind
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(batch=st.integers(1, 6), seed=st.integers(0, 10_000))
def test_pruned_is_masked_and_independent_of_the_batch(kind: str, batch: int, seed: int) -> None:
    masked, images, mask = build(kind), pictures(batch, seed), random_mask(batch, seed)
    pruned = masked(images, mask, prune=True)
    torch.testing.assert_close(pruned, masked(images, mask), atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(
        masked.tokens(images, mask, prune=True), masked.tokens(images, mask), atol=1e-5, rtol=1e-4
    )
    alone = torch.cat([masked(images[i : i + 1], mask[i : i + 1], prune=True) for i in range(batch)])
    torch.testing.assert_close(pruned, alone, atol=1e-6, rtol=1e-6)
    one_pass = MaskedViT(masked.vit, max_buckets=1)
    torch.testing.assert_close(one_pass(images, mask, prune=True), pruned, atol=1e-6, rtol=1e-6)


@every_kind
def test_gradient_to_hidden_pixels_is_zero_and_to_visible_ones_is_not(kind: str) -> None:
    masked, mask = build(kind), random_mask(4, 5)
    hidden = hidden_pixels(mask).expand(-1, 3, -1, -1)
    carried = mask.float().requires_grad_()
    for given_mask, prune in ((mask, False), (mask, True), (carried, False)):
        images = pictures(4).requires_grad_()
        masked(images, given_mask, prune=prune).square().sum().backward()
        assert images.grad is not None
        assert float(images.grad[hidden].abs().max()) == 0.0
        assert float(images.grad[~hidden].abs().max()) > 0.0


@every_kind
def test_straight_through_has_the_values_of_the_boolean_path(kind: str) -> None:
    masked, images, mask = build(kind), pictures(4), random_mask(4, 8)
    carried = mask.float().requires_grad_()
    logits = masked(images, carried)
    torch.testing.assert_close(logits.detach(), masked(images, mask), atol=1e-6, rtol=1e-6)
    logits.square().sum().backward()
    assert carried.grad is not None
    assert torch.isfinite(carried.grad).all()
    assert float(carried.grad[~mask].abs().max()) > 0  # also where nothing was selected
    assert float(carried.grad[mask].abs().max()) > 0
    assert not masked(images, mask).requires_grad


def test_key_gradient_is_that_of_weighted_attention() -> None:
    """Against the formula A[i, j] = s[j] exp(q.k) / sum, differentiated by autograd."""
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, 7, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    s = torch.tensor([[1, 1, 0, 0, 1, 0, 1], [1, 0, 0, 0, 0, 0, 0]], dtype=torch.float64, requires_grad=True)
    target = torch.randn(2, 3, 7, 4, dtype=torch.float64)

    weights = s[:, None, None] * (q @ k.transpose(-2, -1) / math.sqrt(4)).exp()
    direct = weights / weights.sum(-1, keepdim=True) @ v
    wanted = torch.autograd.grad((direct * target).sum(), (q, k, v, s))

    with KeyWeights(s) as mode:
        fused = F.scaled_dot_product_attention(q, k, v, attn_mask=s.detach().bool()[:, None, None])
    assert mode.calls == 1
    torch.testing.assert_close(fused, direct)
    for got, want in zip(torch.autograd.grad((fused * target).sum(), (q, k, v, s)), wanted, strict=True):
        torch.testing.assert_close(got, want)


def test_whole_model_gradient_into_the_mask_by_finite_differences() -> None:
    """One block, float64: logits of a model whose keys carry weight s, moved a little at one hidden token."""
    torch.manual_seed(1)
    vit = VisionTransformer(depth=1, **SIZE).double().eval().requires_grad_(False)
    vit.head.weight.normal_()
    masked, images, mask = MaskedViT(vit), pictures(1).double(), random_mask(1, 3)
    hidden = int((~mask[0]).nonzero()[0])
    carried = mask.double().requires_grad_()
    masked(images, carried)[0, 2].backward()
    assert carried.grad is not None

    def weighted(amount: float) -> float:
        s = torch.cat([torch.ones(1, dtype=torch.float64), mask[0].double()])
        s[1 + hidden] = amount
        tokens = vit._pos_embed(vit.patch_embed(images))
        return float(vit.forward_head(vit.norm(vit.blocks[0](tokens, attn_mask=s.log()[None, None, None])))[0, 2])

    slope = (weighted(1e-6) - weighted(0.0)) / 1e-6
    assert float(carried.grad[0, hidden]) == pytest.approx(slope, rel=1e-3)


def test_gradient_checkpointing_gives_the_same_gradient() -> None:
    torch.manual_seed(2)
    vit = VisionTransformer(depth=2, **SIZE)
    vit.head.weight.data.normal_()
    masked, images, mask = MaskedViT(vit), pictures(2), random_mask(2, 4)
    grads = []
    for again in (False, True):
        vit.set_grad_checkpointing(again)
        carried = mask.float().requires_grad_()
        masked(images, carried).square().sum().backward()
        grads.append(carried.grad)
    torch.testing.assert_close(grads[0], grads[1])


def test_soft_mask_approaches_the_hard_one_and_carries_gradient() -> None:
    masked, images, mask = build("registers"), pictures(3), random_mask(3, 2)
    soft = mask.float().requires_grad_()
    logits = masked(images, soft, soft=True)
    torch.testing.assert_close(logits.detach(), masked(images, mask), atol=1e-4, rtol=1e-4)
    logits.sum().backward()
    assert soft.grad is not None
    half = torch.full((3, N), 0.5)
    assert not torch.allclose(masked(images, half, soft=True), masked(images, half > 0, soft=True))


def test_head_backbone_and_grid_masks() -> None:
    backbone = create_backbone("micro_vit", image_size=(64, 64))
    head = nn.Sequential(nn.LayerNorm(96), nn.Linear(96, 3, bias=False))
    masked = MaskedViT(backbone, head=head).eval()
    images, mask = torch.randn(2, 3, 64, 64), torch.rand(2, 8, 8) > 0.5
    assert masked(images, mask).shape == (2, 3)
    assert torch.equal(masked(images, mask), masked(images, mask.flatten(1)))
    assert masked.features(images, mask).shape == (2, 96)
    assert torch.equal(masked(images, mask), masked(images, mask.float()))


def test_hidden_tokens_come_out_as_zero() -> None:
    masked, mask = build("registers"), random_mask(3, 1)
    tokens = masked.tokens(pictures(3), mask)
    assert tokens.shape == (3, 5 + N, 32)
    assert (tokens[:, 5:][~mask] == 0).all()
    assert (tokens[:, 5:][mask] != 0).any()


def test_clear_errors() -> None:
    masked, images = build("plain"), pictures(2)
    with pytest.raises(ModelError, match=r"\[2, 16\].*got \[2, 9\]"):
        masked(images, torch.ones(2, 9, dtype=torch.bool))
    with pytest.raises(ModelError, match=r"does not divide.*32x32"):
        masked(torch.zeros(1, 3, 33, 30), torch.ones(1, N, dtype=torch.bool))
    with pytest.raises(ModelError, match="built for images of 32x32 px and got 40x40"):
        masked(torch.zeros(1, 3, 40, 40), torch.ones(1, 25, dtype=torch.bool))
    with pytest.raises(ModelError, match="other than 0 and 1"):
        masked(images, torch.full((2, N), 0.3))
    with pytest.raises(ModelError, match="nothing can be pruned"):
        masked(images, torch.ones(2, N), prune=True, soft=True)
    with pytest.raises(ModelError, match="no gradient can reach"):
        masked(images, torch.ones(2, N, requires_grad=True), prune=True)
    with pytest.raises(ModelError, match=r"not a plain ViT.*late_mask"):
        MaskedViT(create_backbone("micro_resnet"))
    with pytest.raises(ModelError, match="no CLS or register"):
        MaskedViT(VisionTransformer(depth=1, class_token=False, global_pool="avg", **SIZE))
    with pytest.raises(ModelError, match="patch_drop_rate=0"):
        MaskedViT(VisionTransformer(depth=1, patch_drop_rate=0.2, **SIZE))
    with pytest.raises(ModelError, match="looks beyond its own patch"):
        MaskedViT(create_backbone("vit_tiny_r_s16_p8_224"))
    with pytest.raises(ModelError, match="two classifiers"):
        MaskedViT(create_backbone("deit_tiny_distilled_patch16_224"))
    with pytest.raises(ModelError, match="not a plain ViT"):
        MaskedViT(create_backbone("beit_base_patch16_224", depth=1))
    overlapping = VisionTransformer(depth=1, **SIZE)
    overlapping.patch_embed.proj = nn.Conv2d(3, 32, 10, stride=8, padding=1)
    with pytest.raises(ModelError, match="looks beyond its own patch"):
        MaskedViT(overlapping)


def brute_force_cost(lengths: list[int], dim: int, overhead: float) -> float:
    """The cheapest of all ways to cut the sorted lengths."""
    ordered = sorted(lengths)
    best = math.inf
    for cuts in range(2 ** (len(ordered) - 1)):
        total, start = 0.0, 0
        for i in range(len(ordered)):
            if i == len(ordered) - 1 or cuts >> i & 1:
                longest = ordered[i]
                total += (i + 1 - start) * longest * (1 + longest / (6 * dim)) + overhead
                start = i + 1
        best = min(best, total)
    return best


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 60), min_size=1, max_size=8),
    overhead=st.floats(0, 60),
    dim=st.sampled_from([8, 64, 384]),
)
def test_buckets_are_the_cheapest_split(lengths: list[int], overhead: float, dim: int) -> None:
    buckets = length_buckets(lengths, dim=dim, overhead=overhead)
    assert sorted(np.concatenate(buckets).tolist()) == list(range(len(lengths)))
    sizes = np.asarray(lengths)
    cost = sum(len(b) * sizes[b].max() * (1 + sizes[b].max() / (6 * dim)) + overhead for b in buckets)
    assert cost == pytest.approx(brute_force_cost(lengths, dim, overhead))


def test_bucket_limits() -> None:
    lengths = list(range(13, 154, 4))
    assert len(length_buckets(lengths, max_buckets=1)) == 1
    assert len(length_buckets(lengths, max_buckets=3, overhead=0)) == 3
    assert padded_tokens(lengths, length_buckets(lengths)) < 0.65 * padded_tokens(lengths, [np.arange(len(lengths))])
    assert len(length_buckets([64] * 32)) == 1
    assert length_buckets([]) == []
