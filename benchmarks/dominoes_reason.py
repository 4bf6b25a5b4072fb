"""Why is DAR no better than DFR on full-size Dominoes? What the base's maps hold, half by half.

``python -m benchmarks.dominoes_reason --runs runs/dominoes-full/dominoes --out dominoes_reason.csv`` reads the base
networks that ``foveate bench run benchmarks/specs/dominoes-full.yaml -d dominoes`` left, and asks for every seed, in
minority accuracy on test (chosen by minority accuracy on val, as in the study):

- *probe*: logistic regression on the mean of the maps, L2, seven strengths, fitted to target: over the whole map, over
  the lower half (the photograph: what an oracle would look at), over the upper half (the digit);
- *attention*: DAR's pool and a linear head on the maps, three rates, fitted to target: on the whole map and with the
  upper half taken away (DAR with an oracle mask); and how much of its attention lies on the lower half.

If the oracle gains little over the whole map, looking elsewhere cannot help: what is missing is not in the maps.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn

import foveate as fv
from foveate.assemble.capabilities import network_of
from foveate.bench.run import commit
from foveate.files import atomic_file
from foveate.pool import AttentionPool

STRENGTHS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
RATES = (3e-4, 1e-3, 3e-3)
EPOCHS, BATCH, DECAY = 60, 64, 0.1
COLUMNS = ("method", "seed", "minority", "attention_below", "command", "commit")


@torch.no_grad()
def maps_of(base: Any, data: Any) -> Tensor:
    """The base's feature maps of a dataset, ``[N, C, h, w]``."""
    network = network_of(base)
    if network is None:
        raise ValueError("the base has no network")
    network = network.cpu().eval()
    found = []
    for start in range(0, len(data), 250):
        images = [data[i].image for i in range(start, min(start + 250, len(data)))]
        found.append(network.maps(base.inputs(images)))
    return torch.cat(found)


def minority(answers: NDArray[np.int64], data: Any) -> float:
    """Accuracy where the digit is not the one that the class goes with in training."""
    rare = data.attributes != data.labels
    return float((answers == data.labels)[rare].mean())


def probe(vectors: Sequence[Tensor], splits: Sequence[Any]) -> float:
    """Test accuracy of the logistic regression that val chooses; target, val and test."""
    target, val, test = (v.double().numpy() for v in vectors)
    mean, spread = target.mean(0), target.std(0) + 1e-6
    best = (-1.0, 0.0)
    for strength in STRENGTHS:
        fitted = LogisticRegression(C=strength, max_iter=2000).fit((target - mean) / spread, splits[0].labels)
        scores = [
            minority(fitted.predict((x - mean) / spread), split) for x, split in ((val, splits[1]), (test, splits[2]))
        ]
        best = max(best, (scores[0], scores[1]))
    return best[1]


def attentive(maps: Sequence[Tensor], splits: Sequence[Any], seed: int) -> tuple[float, float]:
    """Test accuracy of DAR's pool on these maps, rate and epoch chosen on val; and its attention on the lower half."""
    best, share = (-1.0, 0.0), 0.0
    labels = torch.from_numpy(splits[0].labels)
    for rate in RATES:
        torch.manual_seed(seed)
        pool, head = AttentionPool(maps[0].shape[1]), nn.Linear(maps[0].shape[1], 10)
        optimiser = torch.optim.AdamW([*pool.parameters(), *head.parameters()], lr=rate, weight_decay=DECAY)
        plan = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, EPOCHS)

        def answers(x: Tensor, pool: nn.Module = pool, head: nn.Module = head) -> NDArray[np.int64]:
            with torch.no_grad():
                return torch.cat([head(pool(part)).argmax(1) for part in x.split(500)]).numpy()

        for _ in range(EPOCHS):
            for rows in torch.randperm(len(labels)).split(BATCH):
                loss = nn.functional.cross_entropy(head(pool(maps[0][rows])), labels[rows])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
            plan.step()
            on_val = minority(answers(maps[1]), splits[1])
            if on_val > best[0]:
                best = (on_val, minority(answers(maps[2]), splits[2]))
                with torch.no_grad():
                    weights = pool.attention(maps[2][:2000])[-1].flatten(1, -3).mean(1)
                share = float(weights[:, weights.shape[1] // 2 :].sum((1, 2)).mean())
    return best[1], share


def reason(seed: int, folder: Path) -> list[dict[str, Any]]:
    """What the maps of one seed's base hold: a row for every way to read them."""
    bench = fv.data.dominoes(seed=seed)
    splits = [bench.target, bench.val, bench.test]
    base = fv.load(folder)
    maps = [maps_of(base, split) for split in splits]
    half = maps[0].shape[-2] // 2
    parts = {
        "whole map": maps, "lower half": [m[:, :, half:] for m in maps], "upper half": [m[:, :, :half] for m in maps],
    }  # fmt: skip
    rows: list[dict[str, Any]] = []
    for name, part in parts.items():
        right = probe([m.mean((2, 3)) for m in part], splits)
        rows.append({"method": f"probe of the {name}", "minority": right})
    for name in ("whole map", "lower half"):
        right, below = attentive(parts[name], splits, seed)
        rows.append({"method": f"attention on the {name}", "minority": right})
        if name == "whole map":
            rows[-1]["attention_below"] = below
    return [{**row, "seed": seed} for row in rows]


def main(arguments: Sequence[str] | None = None) -> None:
    """Write one row a seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs/dominoes-full/dominoes"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--out", type=Path, default=Path("dominoes_reason.csv"))
    given = parser.parse_args(arguments)
    torch.set_num_threads(1)
    rows: list[dict[str, Any]] = []
    for seed in given.seeds:
        folders = sorted(p for p in (given.runs / "base" / str(seed)).glob("*") if p.is_dir())
        if not folders:
            print(f"skipped seed {seed}: no base under {given.runs}; run the spec dominoes-full first.")
            continue
        made_by = {"command": "python -m benchmarks.dominoes_reason", "commit": commit()}
        found = [{**row, **made_by} for row in reason(seed, folders[0])]
        rows += found
        print(*(f"{r['seed']}, {r['method']}: {r['minority']:.3f}" for r in found), sep="\n", flush=True)
        with atomic_file(given.out) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
