"""What reading the CLS attention costs, as ratios taken in one run, on one thread.

1. Tapping the last layer against a plain forward pass of the same model (ViT-S/14, 224 px, batch 8); both with
   features (the pass runs through) and without (it ends where the attention is).
2. At 518 px against an eager model that returns full attention, the usual way to get at it.
3. Memory the tap adds, and what full attention needs, at two numbers of tokens.

    python benchmarks/attention_tap.py
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from foveate import compat  # noqa: F401
from foveate.look import cls_attention

from timm.models.vision_transformer import VisionTransformer  # isort: skip

ROUNDS = 7
PATCH, HEADS = 14, 6


def vit_small() -> VisionTransformer:
    """The shape of DINOv2-S. Time does not depend on weights; queries are large so that attention is not flat."""
    torch.manual_seed(0)
    vit = VisionTransformer(
        img_size=224, patch_size=PATCH, embed_dim=384, depth=12, num_heads=HEADS, init_values=1e-5, num_classes=0,
        dynamic_img_size=True,
    ).eval()  # fmt: skip
    with torch.no_grad():
        for block in vit.blocks:
            block.attn.qkv.weight.mul_(8)
    return vit


def eager_attention(vit: Any, images: Tensor) -> Tensor:
    """The last block's full attention ``[B, heads, T, T]`` from an unfused pass, then its CLS row."""
    kept: list[Tensor] = []
    handle = vit.blocks[-1].attn.attn_drop.register_forward_pre_hook(lambda _, x: kept.append(x[0]))
    for block in vit.blocks:
        block.attn.fused_attn = False
    try:
        with torch.no_grad():
            vit.forward_features(images)
    finally:
        handle.remove()
        for block in vit.blocks:
            block.attn.fused_attn = True
    return kept[0][:, :, 0]


def in_turn(ways: dict[str, Callable[[], Any]], rounds: int = ROUNDS) -> dict[str, list[float]]:
    """CPU seconds of each way in every round, on one thread.

    CPU time and not wall time: on a busy machine the latter says who had to wait. The order turns round every
    time, so that being first or last favours nobody.
    """
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for way in ways.values():
        way()
    for i in range(rounds):
        for name in list(ways)[:: 1 if i % 2 else -1]:
            began = time.process_time()
            ways[name]()
            seconds[name].append(time.process_time() - began)
    return seconds


def ratio(above: list[float], below: list[float]) -> float:
    """Median over rounds of the ratio within a round."""
    return statistics.median(a / b for a, b in zip(above, below, strict=True))


def largest_allocation(way: Callable[[], Any]) -> float:
    """The largest single tensor ``way`` allocates, in MiB."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        way()
    sizes = [e.self_cpu_memory_usage for e in profile.events() or []]  # type: ignore[attr-defined]
    return max(sizes) / 2**20


def run(rounds: int = ROUNDS) -> dict[str, float]:
    """All three comparisons, printed and returned."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    vit = vit_small()
    result: dict[str, float] = {}

    small = torch.randn(8, 3, 224, 224)

    def plain(images: Tensor) -> Tensor:
        with torch.no_grad():
            return vit.forward_features(images)

    seconds = in_turn(
        {
            "plain": lambda: plain(small),
            "plain again": lambda: plain(small),
            "tap with features": lambda: cls_attention(vit, small, return_features=True),
            "tap": lambda: cls_attention(vit, small),
        },
        rounds,
    )
    for name in ("plain again", "tap with features", "tap"):
        result[f"{name} / plain"] = ratio(seconds[name], seconds["plain"])
    print(
        f"224 px, batch 8: plain {1e3 * statistics.median(seconds['plain']):.0f} ms; tap with features "
        f"{result['tap with features / plain']:.3f}x, attention alone {result['tap / plain']:.3f}x (target 1.05x); "
        f"plain against itself {result['plain again / plain']:.3f}x: differences of that size are noise"
    )

    large = torch.randn(2, 3, 518, 518)
    heads = cls_attention(vit, large, heads=None).scores["heads"].flatten(2)
    truth = eager_attention(vit, large)[..., 1:]
    result["largest difference at 518 px"] = float((heads - truth).abs().max())
    seconds = in_turn(
        {"eager": lambda: eager_attention(vit, large), "tap": lambda: cls_attention(vit, large)}, max(2, rounds // 2)
    )
    result["eager / tap at 518 px"] = ratio(seconds["eager"], seconds["tap"])
    print(
        f"518 px, batch 2: eager {1e3 * statistics.median(seconds['eager']):.0f} ms, tap "
        f"{1e3 * statistics.median(seconds['tap']):.0f} ms, {result['eager / tap at 518 px']:.2f}x (target 1.3x); "
        f"largest difference {result['largest difference at 518 px']:.1e} of attention up to {truth.max():.2f}"
    )

    sides = (224, 448)
    for name, way in (("tap", lambda x: cls_attention(vit, x)), ("eager", lambda x: eager_attention(vit, x))):
        low, high = (largest_allocation(lambda s=s, way=way: way(torch.randn(1, 3, s, s))) for s in sides)
        result[f"memory growth, {name}"] = high / low
        at = f"{low:.1f} MiB at {sides[0]} px, {high:.1f} MiB at {sides[1]} px"
        print(f"largest tensor, {name}: {at}, {high / low:.1f}x")
    print("tokens grow 4x between them: 4x is linear, 16x is quadratic")
    torch.set_num_threads(threads)
    return result


if __name__ == "__main__":
    run()
