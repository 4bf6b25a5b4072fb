"""Glimpse against A² with one crop: images embedded a second, same ViT-S, same images, one run.

Both embed images of 224 px with one ViT-S/14 (random weights: the time does not depend on them). A² enlarges one
crop of 64 px to 224 px and computes all 256 tokens of it; Glimpse computes the 26 most attended tokens of the image.
Where to look is the same for both and known beforehand, so that only the embedding stage is timed: for A² cutting and
enlarging the crops and the forward pass, for Glimpse choosing the tokens and the pruned forward pass.
``with_looking`` is the same ratio with the attention model's pass, another ViT-S, added to both.

    python -m benchmarks glimpse_speed
"""

from __future__ import annotations

import argparse
from typing import Any

import torch

from benchmarks.pruned_vit import interleaved
from foveate.extract import FrozenModel, MaskedViT, create_backbone
from foveate.look import attended
from foveate.restrict import attended_tokens, extract_crops, greedy_crops

TARGET = 4.0


@torch.inference_mode()
def run(
    images: int = 64, repeats: int = 5, model: str = "vit_small_patch14_dinov2", size: int = 224, crop: int = 64,
    keep: float = 0.1,
) -> dict[str, Any]:  # fmt: skip
    """Measure both; prints one line and returns its numbers."""
    torch.manual_seed(0)
    embedder = FrozenModel.open(create_backbone(model, image_size=(size, size)))
    masked = MaskedViT(embedder.backbone)
    pictures = torch.rand(images, 3, size, size)
    maps = attended(embedder, pictures).map

    def a2() -> torch.Tensor:
        boxes = greedy_crops(maps, [crop], size)
        return embedder.embed(extract_crops(pictures, boxes, size).flatten(0, 1))

    def glimpse() -> torch.Tensor:
        parts = zip(pictures.split(32), maps.split(32), strict=True)
        return torch.cat([masked.features(embedder.prepare(x), attended_tokens(m, keep), prune=True) for x, m in parts])

    assert a2().shape == glimpse().shape
    seconds = interleaved({"a2": a2, "glimpse": glimpse, "looking": lambda: attended(embedder, pictures)}, repeats)
    result = {
        "name": "glimpse_speed",
        "ratio": seconds["a2"] / seconds["glimpse"],
        "target": TARGET,
        "with_looking": (seconds["a2"] + seconds["looking"]) / (seconds["glimpse"] + seconds["looking"]),
        "images": images,
        "tokens": int(attended_tokens(maps[:1], keep).sum()),
        **{f"{name}_images_per_second": images / taken for name, taken in seconds.items()},
        "threads": torch.get_num_threads(),
    }
    print(
        f"glimpse_speed: ratio {result['ratio']:.1f} (target {TARGET:.0f}): {images / seconds['glimpse']:.1f} images/s "
        f"with {result['tokens']} tokens, {images / seconds['a2']:.1f} with one crop; with the attention model's pass "
        f"{result['with_looking']:.1f}"
    )
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    run(images=given.images, repeats=given.repeats)
