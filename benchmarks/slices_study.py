"""Do error slices hold what was planted? Precision at 10 of the audit's slices and of an error-aware mixture.

A slice is planted in every setting: part of one class is darkened, blurred, marked, or is the part in an unusual
habitat, and a made-up model is right on 92 of 100 images but only on 35 of 100 in the slice (as the synthetic models of
Eyuboglu et al. 2022). Both slicers get the same embeddings, labels and answers; the
audit's also the properties it reads off every image. Precision at 10 is theirs too: the
share of planted images among the ten most typical of a slice, the best slice counted. A slice found where nothing was
planted is a false alarm.

    python -m benchmarks.slices_study --out benchmarks/results/slices.csv
    python -m benchmarks.slices_study --pets FOLDER --out pets.csv
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

import foveate as fv
from benchmarks.pets import composed
from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages
from foveate.extract import open_backbone
from foveate.files import write_rows
from foveate.report.discovery.objects import Objects
from foveate.report.discovery.observations import observe
from foveate.report.discovery.slices import find_slices

KINDS = ("dark", "blurred", "marked", "habitat", "none")
SHARE = 0.15
"""Of a class that is in the slice."""
RIGHT, RIGHT_IN_SLICE = 0.92, 0.35
COLUMNS = (
    "data", "images", "planted", "seed", "slicer", "slices", "precision_at_10", "size_of_best", "false_alarm",
    "seconds",
)  # fmt: skip


def planted(pixels: NDArray[np.uint8], rows: NDArray[np.int64], kind: str) -> NDArray[np.uint8]:
    """The images ``[N, H, W, 3]`` with those in ``rows`` changed."""
    out = pixels.copy()
    side = pixels.shape[1]
    if kind == "dark":
        out[rows] = (out[rows] * 0.45).astype(np.uint8)
    elif kind == "blurred":
        x = torch.from_numpy(out[rows]).permute(0, 3, 1, 2).float()
        reach = max(1, side // 24)
        soft = F.avg_pool2d(F.pad(x, (reach,) * 4, mode="replicate"), 2 * reach + 1, 1)
        out[rows] = soft.round().to(torch.uint8).permute(0, 2, 3, 1).numpy()
    elif kind == "marked":
        out[rows, side // 32 : side // 5, -side // 5 : -side // 32] = (250, 30, 200)
    return out


def answers(
    labels: NDArray[np.int64], inside: NDArray[np.bool_], classes: int, rng: np.random.Generator
) -> NDArray[np.int64]:
    """What the made-up model says."""
    right = rng.random(len(labels)) < np.where(inside, RIGHT_IN_SLICE, RIGHT)
    return np.where(right, labels, (labels + rng.integers(1, classes, len(labels))) % classes)


def mixture(
    embeddings: NDArray[np.float64],
    labels: NDArray[np.int64],
    said: NDArray[np.int64],
    *,
    slices: int = 25,
    dims: int = 24,
    weight: float = 10.0,
    rounds: int = 60,
    seed: int = 0,
) -> NDArray[np.float64]:
    """Responsibilities ``[N, slices]`` of an error-aware mixture.

    Components are a Gaussian (diagonal) of the embedding and two categorical distributions, of label and of answer,
    whose log-likelihoods count ``weight`` times; they start from the cells of the confusion matrix. Reference:
    Eyuboglu et al. 2022, "Domino: discovering systematic errors with cross-modal embeddings", section 5.2 (own
    implementation; there 128 principal components and CLIP, here as many as the audit's slicer has).
    """
    from sklearn.decomposition import PCA

    rng = np.random.default_rng(seed)
    x = (embeddings - embeddings.mean(0)) / np.maximum(embeddings.std(0), 1e-9)
    x = PCA(min(dims, *x.shape), random_state=seed).fit_transform(x)
    classes = int(max(labels.max(), said.max())) + 1
    y, z = np.eye(classes)[labels], np.eye(classes)[said]
    cells = y[:, :, None] * z[:, None]  # [N, C, C]
    start = rng.integers(0, classes * classes, slices)
    start[: min(slices, classes**2)] = np.arange(min(slices, classes**2))
    held = cells.reshape(len(x), -1)[:, start] + 0.1 * rng.random((len(x), slices))
    held /= held.sum(1, keepdims=True)
    for _ in range(rounds):
        total = held.sum(0) + 1e-6
        mean = held.T @ x / total[:, None]
        spread = held.T @ x**2 / total[:, None] - mean**2 + 1e-3 * x.var(0)
        of_label, of_answer = (held.T @ y + 1e-3) / total[:, None], (held.T @ z + 1e-3) / total[:, None]
        away = ((x[:, None] - mean[None]) ** 2 / spread[None]).sum(2) + np.log(spread).sum(1)[None]
        log = np.log(total / len(x))[None] - away / 2 + weight * (y @ np.log(of_label).T + z @ np.log(of_answer).T)
        log -= log.max(1, keepdims=True)
        held = np.exp(log)
        held /= held.sum(1, keepdims=True)
    return np.asarray(held)


def best_of_mixture(
    held: NDArray[np.float64], wrong: NDArray[np.bool_], inside: NDArray[np.bool_]
) -> tuple[int, float, int]:
    """Slices with more errors than the average (as many as the audit shows), and precision at 10 of the best."""
    rates = (held * wrong[:, None]).sum(0) / np.maximum(held.sum(0), 1e-6)
    shown = [k for k in np.argsort(-rates) if rates[k] > wrong.mean() + 0.1 and held[:, k].sum() >= 5][:6]
    tops = [np.argsort(-held[:, k])[:10] for k in shown]
    scores = [float(inside[top].mean()) for top in tops]
    best = int(np.argmax(scores)) if scores else -1
    return len(shown), max(scores, default=0.0), 0 if best < 0 else int(held[:, shown[best]].sum())


def embedded(pixels: NDArray[np.uint8], network: str) -> NDArray[np.float64]:
    """``[N, D]``."""
    backbone, view = open_backbone(network, 140 if network == "vit-s-focus" else None)
    out = []
    with torch.no_grad():
        for start in range(0, len(pixels), 32):
            images = [view.prepare(torch.from_numpy(p).permute(2, 0, 1)) for p in pixels[start : start + 32]]
            out.append(backbone(view.normalise(torch.stack(images))).float())
    return torch.cat(out).double().numpy()


def cues(pixels: NDArray[np.uint8], data: GroupedDataset) -> dict[str, NDArray[np.float64]]:
    """What the audit reads off the images beside their embedding."""
    images = GroupedDataset(ArrayImages(pixels), data.labels, data.class_names)
    return observe(images, np.arange(len(images)), Objects(images, "centre")).features


def source(root: Path | None, images: int, seed: int) -> tuple[str, GroupedDataset, str]:
    """Balanced images with their habitats."""
    if root is None:
        data = fv.data.critters(seed=seed, size=64, classes=3, strength=1 / 3, train=0, target=0, val=0, test=images)
        return "critters", data.test, "micro-vit"
    data = composed(
        root, strength={"train": 0.5}, size=112, seed=seed, counts={"train": 4, "test": images},
        fractions={"val": 0, "target": 0},
    )  # fmt: skip
    return "pets-scenes", data.test, "vit-s-focus"


def rows(root: Path | None, images: int, seeds: range) -> Iterator[dict[str, Any]]:
    """One row for every kind, seed and slicer."""
    for seed in seeds:
        name, data, network = source(root, images, seed)
        pixels = np.stack([data.images.read(i) for i in range(len(data))])
        assert data.attributes is not None
        for kind in KINDS:
            rng = np.random.default_rng([seed, KINDS.index(kind)])
            label = int(rng.integers(data.num_classes))
            mine = np.flatnonzero(data.labels == label)
            inside = np.zeros(len(data), dtype=bool)
            if kind == "habitat":
                inside = (data.labels == label) & (data.attributes == int(rng.integers(data.num_attributes)))
            elif kind != "none":
                inside[rng.permutation(mine)[: round(SHARE * len(mine))]] = True
            said = answers(data.labels, inside, data.num_classes, rng)
            shown_pixels = planted(pixels, np.flatnonzero(inside), kind)
            features, read = embedded(shown_pixels, network), cues(shown_pixels, data)
            common = {"data": name, "images": len(data), "planted": kind, "seed": seed}
            began = time.process_time()
            found = find_slices(features, data.labels, said, properties=read, seed=seed)
            scores = [float(inside[list(s.members[:10])].mean()) for s in found]
            best = int(np.argmax(scores)) if scores else -1
            yield {
                **common, "slicer": "audit", "slices": len(found), "precision_at_10": max(scores, default=0.0),
                "size_of_best": found[best].n if found else 0, "false_alarm": int(kind == "none" and bool(found)),
                "seconds": round(time.process_time() - began, 2),
            }  # fmt: skip
            began = time.process_time()
            shown, precision, size = best_of_mixture(
                mixture(features, data.labels, said, seed=seed), said != data.labels, inside
            )
            yield {
                **common, "slicer": "error-aware mixture", "slices": shown, "precision_at_10": precision,
                "size_of_best": size, "false_alarm": int(kind == "none" and shown > 0),
                "seconds": round(time.process_time() - began, 2),
            }  # fmt: skip


def main() -> None:
    """Run the study, write one CSV and print a summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--images", type=int, default=900)
    parser.add_argument("--pets", type=Path, default=None, help="folder with cut-out pets and scenes")
    parser.add_argument("--out", type=Path, default=Path("slices.csv"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    done: list[dict[str, Any]] = []
    for row in rows(given.pets, given.images, range(given.first, given.first + given.seeds)):
        done.append(row)
        print(", ".join(f"{k} {v}" for k, v in row.items()), flush=True)
        write_rows(given.out, [list(COLUMNS), *([row[c] for c in COLUMNS] for row in done)])
    for slicer in dict.fromkeys(row["slicer"] for row in done):
        for kind in KINDS:
            some = [row for row in done if row["slicer"] == slicer and row["planted"] == kind]
            print(
                f"{slicer}, {kind}: precision at 10 {np.mean([r['precision_at_10'] for r in some]):.2f}, slices "
                f"{np.mean([r['slices'] for r in some]):.1f}, false alarms {sum(r['false_alarm'] for r in some)}"
            )


if __name__ == "__main__":
    main()
