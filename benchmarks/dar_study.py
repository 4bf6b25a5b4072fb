"""The DAR study: every CNN method on one dataset over several seeds, with CEP, as records and as a table.

    python -m benchmarks.dar_study run critters --seeds 0 1 2
    python -m benchmarks.dar_study table critters
    python -m benchmarks.dar_study page              # writes docs/results.md from all records

Each finished (seed, method) is one line in ``benchmarks/results/DATA.jsonl``; a second call goes on where the
first stopped. Fitted models stay in ``runs/`` (not committed). All epochs are chosen by minority accuracy on
validation, as in the paper; DFR's strength by worst-group accuracy on validation.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch

import foveate as fv
from foveate.data.benchmark import Benchmark
from foveate.measure import half_mask

HERE = Path(__file__).parent
NET = {"layers": [1, 1, 1], "stem_stride": 2}
_CRITTERS = {"train": 4000, "target": 200, "val": 600, "object_scale": (0.28, 0.42)}

# how each dataset is made, and the network and training every method shares on it
DATA: dict[str, dict[str, Any]] = {
    "dominoes": {
        "load": lambda seed: fv.data.dominoes(seed=seed),
        "core": half_mask(64, 32),
        "network": {**NET, "width": 24},
        "training": {"epochs": 3, "lr": 3e-3, "batch_size": 128},
    },
    "critters": {
        "load": lambda seed: fv.data.critters(seed=seed, **_CRITTERS),
        "network": {**NET, "width": 16},
        "training": {"epochs": 5, "lr": 2e-3, "batch_size": 32},
    },
    "cmnist": {
        "load": lambda seed: fv.data.cmnist(seed=seed),
        "network": {**NET, "width": 16},
        "training": {"epochs": 2, "lr": 3e-3, "batch_size": 128},
    },
    "critters-colour": {
        "load": lambda seed: fv.data.critters(seed=seed, strength=None, colour_strength=0.95, **_CRITTERS),
        "network": {**NET, "width": 16},
        "training": {"epochs": 5, "lr": 2e-3, "batch_size": 32},
    },
}

TRAINED = {
    "ERM": (fv.ERM, {}),
    "CVaRDRO": (fv.CVaRDRO, {"alpha": 0.2}),
    "SpectralDecoupling": (fv.SpectralDecoupling, {"penalty": 0.01}),
    "JTT": (fv.JTT, {"first_epochs": 1, "upweight": 20}),
    "CnC": (fv.CnC, {"first_epochs": 1, "samples": 32}),
    "Subsample": (fv.Subsample, {}),
    "Reweight": (fv.Reweight, {"by": "sampler"}),
    "GroupDRO": (fv.GroupDRO, {}),
}
# each post-hoc method with the grid its settings are chosen from, by minority accuracy on validation
_DAR = [{"copies": 4, "norm": norm, "lr": lr} for norm in (False, True) for lr in (1e-3, 3e-3)]
POST_HOC: dict[str, tuple[type, list[dict[str, Any]]]] = {
    "DFR": (fv.DFR, [{}]),
    "DFR gradient": (fv.DFR, [{"variant": "gradient", "l1": l1, "copies": 4} for l1 in (0.0, 1e-4, 1e-3)]),
    "DFR conv": (fv.DFR, [{"variant": "conv", "epochs": 20, "lr": lr} for lr in (1e-4, 1e-3)]),
    "DFR two-layer": (fv.DFR, [{"variant": "two-layer", "copies": 4, "epochs": 60, "lr": lr} for lr in (1e-4, 1e-3)]),
    "Jetley": (fv.DAR, [{"pool": "jetley", "copies": 4, "lr": lr} for lr in (1e-3, 1e-2)]),
    "DAR": (fv.DAR, _DAR),
    "DAR on spurious": (fv.DAR, [{"learn": "attribute", "copies": 4}]),
    "DAR 1 query": (fv.DAR, [{**o, "queries": 1} for o in _DAR]),
    "DAR 1 head": (fv.DAR, [{**o, "heads": 1} for o in _DAR]),
    "DAR 1 layer": (fv.DAR, [{**o, "depth": 1} for o in _DAR]),
    "DAR positional": (fv.DAR, [{**o, "positional": True} for o in _DAR]),
}
METHODS = ["base", *TRAINED, *POST_HOC]


def commit() -> str:
    """The commit the records were made with."""
    done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=HERE)
    return done.stdout.strip() or "unknown"


def fit(data: str, method: str, seed: int, bench: Benchmark, runs: Path) -> fv.systems.System:
    """The fitted system, from ``runs`` when it is there."""
    folder = runs / data / str(seed) / method.replace(" ", "-")
    if (folder / "system.json").exists():
        return fv.load(folder)
    if method == "base" or method in TRAINED:
        kind, options = (fv.ERM, {}) if method == "base" else TRAINED[method]
        training = dict(DATA[data]["training"])
        if method == "Subsample":  # as many steps as the others take
            smallest = int((bench.train + bench.target).group_counts.min())
            training["epochs"] = round(training["epochs"] * len(bench.train) / (smallest * bench.train.num_groups))
        system = kind(
            "micro_resnet", model_args=DATA[data]["network"], seed=seed, select="minority", progress=False,
            **training, **options,
        )  # fmt: skip
        system.fit(bench.train, None if method == "base" else bench.target, bench.val)
    else:
        base = fit(data, "base", seed, bench, runs)
        kind, grid = POST_HOC[method]
        tried = [
            kind(base, seed=seed, select="minority", progress=False, **options).fit(bench.target, val=bench.val)
            for options in grid
        ]
        system = max(tried, key=lambda s: fv.evaluate(s, bench.val).minority) if len(tried) > 1 else tried[0]
    system.save(folder)
    return system


def record(data: str, method: str, seed: int, bench: Benchmark, runs: Path) -> dict[str, Any]:
    """Fit, evaluate on test, and measure entanglement."""
    began = time.perf_counter()
    system = fit(data, method, seed, bench, runs)
    seconds = time.perf_counter() - began
    row: dict[str, Any] = {
        "data": data,
        "method": method,
        "seed": seed,
        "seconds": round(seconds, 1),
        "commit": commit(),
    }
    if system.class_names_ == bench.test.class_names:
        report = fv.evaluate(system, bench.test)
        names = ("average", "majority", "minority", "worst_group", "worst_class", "adjusted_average")
        row |= {n: round(float(getattr(report, n)), 4) for n in names}
    found = fv.entanglement(system, bench.test, core=DATA[data].get("core"), images=500, seed=seed)
    row |= {f"cep_{k}" if k not in ("cap", "cgp") else k: round(v, 4) for k, v in found.to_dict().items()}
    row |= {
        "supervision": system.supervision(),
        "settings": {k: v for k, v in system.get_params().items() if k != "base"},
    }
    return row


def extend(data: str, seeds: list[int], methods: list[str], out: Path, runs: Path) -> None:
    """Append a record for every (seed, method) that is not there yet."""
    out.parent.mkdir(parents=True, exist_ok=True)
    done = {(r["seed"], r["method"]) for r in read(out)}
    for seed in seeds:
        bench: Benchmark | None = None
        for method in methods:
            if (seed, method) in done:
                continue
            bench = bench or DATA[data]["load"](seed)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                row = record(data, method, seed, bench, runs)
            with open(out, "a", encoding="utf-8") as file:
                file.write(json.dumps(row, default=str) + "\n")
            shown = {
                k: row[k]
                for k in ("seed", "method", "average", "majority", "minority", "cep_output", "seconds")
                if k in row
            }
            print(json.dumps(shown), flush=True)


def read(out: Path) -> list[dict[str, Any]]:
    """The records so far."""
    return [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()] if out.exists() else []


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: mean ± standard deviation over seeds, in percent."""
    columns = ["average", "majority", "minority", "worst_group", "cep_feature", "cep_output", "cgp"]
    lines = ["| method | " + " | ".join(columns) + " | seeds |", "|---" * (len(columns) + 2) + "|"]
    for method in [m for m in METHODS if any(r["method"] == m for r in rows)]:
        mine = [r for r in rows if r["method"] == method]
        cells = []
        for column in columns:
            values = [100 * r[column] for r in mine if column in r]
            cells.append(f"{np.mean(values):.1f} ± {np.std(values):.1f}" if values else "–")
        name = "ERM, train only (base)" if method == "base" else method
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {len(mine)} |")
    return "\n".join(lines)


ABOUT = {
    "dominoes": "MNIST over CIFAR-10, 10 classes, 43,960 training images (4,180 / 24 per cell), strength 0.95",
    "critters": "drawn animals, 2 classes on 2 habitats, 4,000 training and 200 target images, strength 0.95, 64 px, small animals",
    "cmnist": "coloured MNIST, 10 digits in 10 colours, strength 0.95: the shortcut covers the object",
    "critters-colour": "critters whose coat colour is the shortcut: it covers the object",
}


def page() -> str:
    """docs/results.md, from the records alone."""
    parts = [
        "# Results",
        "Made by `python -m benchmarks.dar_study page` from the records in `benchmarks/results/`; every record names "
        "the commit, the settings and the seconds it took. Percent, mean ± standard deviation over seeds. CEP and CGP "
        "run from 0 (spurious) to 100 (core). The network is `micro_resnet`, three stages, random start; epochs and "
        "settings are chosen by minority accuracy on validation.",
    ]
    for data, about in ABOUT.items():
        rows = read(HERE / "results" / f"{data}.jsonl")
        if rows:
            seeds = " ".join(str(s) for s in sorted({r["seed"] for r in rows}))
            command = f"python -m benchmarks.dar_study run {data} --seeds {seeds}"
            how = f"width {DATA[data]['network']['width']}, " + ", ".join(
                f"{k} {v}" for k, v in DATA[data]["training"].items()
            )
            parts += [f"## {data}", f"{about}. Network: {how}. `{command}`", table(rows)]
    notes = HERE / "results" / "notes.md"
    if notes.exists():
        parts.append(notes.read_text(encoding="utf-8").strip())
    return "\n\n".join(parts) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["run", "table", "page"])
    parser.add_argument("data", choices=sorted(DATA), nargs="?", default="critters")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--methods", nargs="+", default=METHODS, choices=METHODS)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    chosen = parser.parse_args()
    out = HERE / "results" / f"{chosen.data}.jsonl"
    if chosen.what == "page":
        (HERE.parent / "docs" / "results.md").write_text(page(), encoding="utf-8")
        return
    if chosen.what == "table":
        print(table(read(out)))
        return
    torch.manual_seed(0)
    extend(chosen.data, chosen.seeds, chosen.methods, out, chosen.runs)


if __name__ == "__main__":
    main()
