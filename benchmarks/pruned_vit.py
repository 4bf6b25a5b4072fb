"""Speed of the pruned masked ViT, as ratios measured in one run (ViT-S, 224 px, patches of 14, batch 32).

* ``dense_over_pruned``: dense masked against pruned at 25 % coverage (wanted: at least 3.5);
* ``longest_over_buckets``: pruning to the longest image of the batch against buckets, coverage 5 to 60 %
  (wanted: at least 1.3).

Run: ``python benchmarks/pruned_vit.py``
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from foveate.extract import MaskedViT, create_backbone

BATCH, TOKENS = 32, 256


def masks(coverage: list[float], generator: torch.Generator) -> Tensor:
    """Random masks ``[B, 256]`` with the given share of tokens kept."""
    rows = torch.zeros(len(coverage), TOKENS, dtype=torch.bool)
    for row, share in zip(rows, coverage, strict=True):
        row[torch.randperm(TOKENS, generator=generator)[: round(share * TOKENS)]] = True
    return rows


def interleaved(calls: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Median seconds of each call, taken in turn so that a slow moment of the machine hits all alike."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repeats + 1):
        for name, call in calls.items():
            start = time.perf_counter()
            call()
            if turn:  # the first turn warms up
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(taken) for name, taken in times.items()}


@torch.inference_mode()
def run(repeats: int = 5) -> dict[str, float]:
    """The two ratios, the seconds behind them, and the largest difference between the logits."""
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    vit = create_backbone("vit_small_patch14_dinov2", image_size=(224, 224), num_classes=10).net.eval()
    # as built, the blocks do next to nothing, and logits would agree whatever was computed
    for name, parameter in vit.named_parameters():
        if name.endswith("gamma") or name == "head.weight":
            parameter.normal_(std=1.0 if name.endswith("gamma") else 0.05)
    masked, longest = MaskedViT(vit), MaskedViT(vit, max_buckets=1)
    images = torch.randn(BATCH, 3, 224, 224, generator=generator)
    equal = masks([0.25] * BATCH, generator)
    spread = masks(torch.linspace(0.05, 0.60, BATCH)[torch.randperm(BATCH, generator=generator)].tolist(), generator)
    seconds = interleaved(
        {
            "dense, 25 %": lambda: masked(images, equal),
            "pruned, 25 %": lambda: masked(images, equal, prune=True),
            "longest, 5-60 %": lambda: longest(images, spread, prune=True),
            "buckets, 5-60 %": lambda: masked(images, spread, prune=True),
        },
        repeats,
    )
    difference = max(
        float((masked(images, mask) - masked(images, mask, prune=True)).abs().max()) for mask in (equal, spread)
    )
    return {
        "dense_over_pruned": seconds["dense, 25 %"] / seconds["pruned, 25 %"],
        "longest_over_buckets": seconds["longest, 5-60 %"] / seconds["buckets, 5-60 %"],
        "largest_difference": difference,
        **{f"seconds: {name}": taken for name, taken in seconds.items()},
    }


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
