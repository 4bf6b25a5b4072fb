"""Where does a ViT look? Attention on the object, layer by layer; accuracy by the object's distance from the middle.

    python -m benchmarks.localisation_study layers --data critters --model micro-vit
    python -m benchmarks.localisation_study layers --data runs/pets-scenes --model vit-s-focus --images 200
    python -m benchmarks.localisation_study distance --seeds 1 2 3

``layers`` prints mass, hit, area and concentration of the CLS attention for every block; ``distance`` fits A², the
centre crop and the full image with the micro ViT on small critters (the data of ``a2-critters.yaml``, off-centre) and
prints accuracy for the animals nearest to and furthest from the middle of the picture.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

import foveate as fv
from foveate.cli.inputs import open_data
from foveate.data.dataset import GroupedDataset
from foveate.extract import open_backbone
from foveate.measure import attention_concentration, attention_hit, attention_mass, by_centre_distance, centre_distance


def layers(data: GroupedDataset, model: str, size: int | None, images: int) -> list[dict[str, float]]:
    """Mass, hit, area share and concentration of every block's CLS attention on ``data``'s boxes."""
    backbone, preprocess = open_backbone(model, size)
    chosen = np.linspace(0, len(data) - 1, min(images, len(data))).round().astype(int)
    found: list[list[tuple[torch.Tensor, ...]]] = []
    for at in range(0, len(chosen), 16):
        samples = [data[int(i)] for i in chosen[at : at + 16]]
        inputs = preprocess.normalise(torch.stack([preprocess.prepare(s.image) for s in samples]))
        boxes = torch.stack([preprocess.prepare_box(s.box, *s.image.shape[-2:]) for s in samples if s.box is not None])
        height, width = inputs.shape[-2:]
        area = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]) / (height * width)
        gazes = fv.look.cls_attention(backbone.net, inputs, layer="all")
        for number, gaze in enumerate(gazes):
            close = attention_concentration(gaze.map)
            mass, hit = (f(gaze.map, boxes, (height, width)) for f in (attention_mass, attention_hit))
            row = (mass, hit.double(), area, *(close[k] for k in sorted(close)))
            if len(found) <= number:
                found.append([])
            found[number].append(row)
    names = ["mass", "hit", "area", *sorted(close)]
    return [{n: float(torch.cat([row[i] for row in rows]).mean()) for i, n in enumerate(names)} for rows in found]


def distance(seed: int) -> dict[str, list[str]]:
    """Accuracy in the nearest and furthest fifth of the test images for three ways to look, same embedder and head."""
    bench = fv.data.critters(seed=seed, object_scale=(0.22, 0.34))
    options: dict[str, Any] = {"seed": seed, "progress": False, "store": "runs/features"}
    systems = {
        "full image": fv.FullImage("micro-vit", **options),
        "centre crop": fv.CentreCrop("micro-vit", crops=24, image_size=64, **options),
        "A2": fv.A2("micro-vit", "micro-vit", crops=(24,), **options),
    }
    test = bench.test
    assert test.boxes is not None
    far = centre_distance(torch.as_tensor(test.boxes), test[0].image.shape[-1])
    table = {}
    for name, system in systems.items():
        right = system.fit(bench.train).predict(test) == test.labels
        strata = by_centre_distance(far, right, test.groups, shares=(0.2,))
        table[name] = [
            f"{s.name} (distance {s.distance:.2f}): {100 * s.average:.1f}, worst group {100 * (s.worst_group or 0):.1f}"
            for s in strata
        ]
    return table


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("layers", "distance"))
    parser.add_argument("--data", default="critters")
    parser.add_argument("--model", default="micro-vit")
    parser.add_argument("--size", type=int)
    parser.add_argument("--images", type=int, default=400)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    options = parser.parse_args(arguments)
    if options.what == "layers":
        rows = layers(open_data(options.data).test, options.model, options.size, options.images)
        print("| layer | " + " | ".join(rows[0]) + " |\n" + "|---" * (len(rows[0]) + 1) + "|")
        for number, row in enumerate(rows):
            print(f"| {number} | " + " | ".join(f"{v:.3f}" for v in row.values()) + " |")
        return
    for seed in options.seeds:
        for name, cells in distance(seed).items():
            print(f"seed {seed}, {name}: " + "; ".join(cells), flush=True)


if __name__ == "__main__":
    main()
