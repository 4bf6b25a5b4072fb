"""Speed of the whole of iFAM, as ratios measured in one run, and what its training costs beside a plain ViT.

* ``two_dense_over_ifam``: a selector and a predictor that are both dense ViT-B, against a ViT-S selector and a ViT-B
  predictor that is pruned (224 px, patches of 14, 25 % of the patches selected, random weights; wanted: at least 3);
* ``training: ... over plain``: seconds, and bytes kept for the backward pass, of one training step an image of iFAM
  over those of a plain ViT of the same size. Taken on the micro ViT at 64 px, with every loss of the papers (the
  equivariance loss runs stage 1 twice); once with stage 1 all trained and once with its tokens only.

The selected patches are set, since a random selector would select anything: stage 1 is computed all the same.

Run: ``python -m benchmarks ifam_speed``
"""

from __future__ import annotations

import json

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.pruned_vit import interleaved
from foveate.assemble.network import Network
from foveate.assemble.parts_network import PartsNetwork
from foveate.decide import PartLossWeights
from foveate.extract import create_backbone

SMALL, LARGE = "vit_small_patch14_dinov2", "vit_base_patch14_dinov2"
COVERAGE = 0.25


def network(selector: str, predictor: str | None, size: int, **options: object) -> PartsNetwork:
    """iFAM with random weights (PDiscoFormer without a predictor)."""
    torch.manual_seed(0)
    second = None if predictor is None else create_backbone(predictor, image_size=(size, size))
    return PartsNetwork(
        create_backbone(selector, image_size=(size, size)),
        10,
        predictor=second,
        **options,  # type: ignore[arg-type]
    )


def selected(batch: int, tokens: int, coverage: float = COVERAGE) -> Tensor:
    """Masks ``[batch, tokens]`` that keep ``coverage`` of the patches, somewhere else in every image."""
    scores = torch.rand(batch, tokens, generator=torch.Generator().manual_seed(0))
    masks = torch.zeros(batch, tokens, dtype=torch.bool)
    return masks.scatter_(1, scores.topk(round(coverage * tokens)).indices, True)


@torch.inference_mode()
def prediction(small: str, large: str, size: int, batch: int, repeats: int) -> dict[str, float]:
    """Seconds a batch of both, their ratio, and how far the pruned logits are from the masked ones."""
    mixed, dense = network(small, large, size).eval(), network(large, large, size).eval()
    images = torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(1))
    stage2 = mixed.stage2
    assert stage2 is not None
    rows, columns = stage2.grid(images)
    mask = selected(batch, rows * columns)

    def whole(net: PartsNetwork, prune: bool) -> Tensor:
        net.parts(images)
        return net.masked_logits(images, mask, prune=prune)

    seconds = interleaved({"two dense": lambda: whole(dense, False), "iFAM": lambda: whole(mixed, True)}, repeats)
    difference = mixed.masked_logits(images, mask, prune=True) - mixed.masked_logits(images, mask)
    return {
        "two_dense_over_ifam": seconds["two dense"] / seconds["iFAM"],
        "largest_difference": float(difference.abs().max()),
        "seconds: two dense": seconds["two dense"],
        "seconds: iFAM": seconds["iFAM"],
    }


def training(name: str, size: int, batch: int, repeats: int) -> dict[str, float]:
    """One training step an image: iFAM over a plain ViT."""
    images = torch.randn(batch, 3, size, size, generator=torch.Generator().manual_seed(1))
    labels = torch.arange(batch) % 10
    plain = Network.build(create_backbone(name, image_size=(size, size)), 10).train()
    nets: dict[str, nn.Module] = {"plain": plain}
    for tune in ("all", "tokens"):
        nets[f"iFAM, stage 1 {tune}"] = network(name, name, size, tune=tune).train()

    def loss(net: nn.Module) -> Tensor:
        if isinstance(net, PartsNetwork):
            return net.loss(images, labels, PartLossWeights())
        return F.cross_entropy(net(images), labels)

    def step(net: nn.Module) -> None:
        net.zero_grad()
        loss(net).backward()

    seconds = interleaved({label: lambda net=net: step(net) for label, net in nets.items()}, repeats)  # type: ignore
    kept = {label: kept_bytes(lambda net=net: loss(net)) for label, net in nets.items()}  # type: ignore[misc]
    found: dict[str, float] = {
        "training: plain, ms an image": 1000 * seconds["plain"] / batch,
        "training: plain, KB kept an image": kept["plain"] / 1000 / batch,
    }
    for label in nets:
        if label != "plain":
            found[f"training: seconds of {label} over plain"] = seconds[label] / seconds["plain"]
            found[f"training: memory of {label} over plain"] = kept[label] / kept["plain"]
    return found


def kept_bytes(forward: object) -> int:
    """Bytes of the tensors that autograd keeps for the backward pass, each storage once."""
    storages: dict[int, int] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        result = forward()  # type: ignore[operator]  # held until the count is done: its graph holds the storages
    del result
    return sum(storages.values())


def run(
    repeats: int = 3,
    batch: int = 16,
    size: int = 224,
    small: str = SMALL,
    large: str = LARGE,
    train_batch: int = 64,
) -> dict[str, float]:
    """Both comparisons."""
    return {**prediction(small, large, size, batch, repeats), **training("micro_vit", 64, train_batch, repeats)}


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
