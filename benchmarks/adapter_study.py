"""Does a learned adapter find a label that default attention misses? A² with and without one on ``critters-cue``.

The label is a small thing off to the side, the animal that draws attention is the shortcut. All rows share the
attention model, the embedder and the head; only where they look differs:

* ``full image``: the embedder sees everything;
* ``default greedy``: A², the crop that holds most attention;
* ``default``: the candidate crop with most attention (the adapter before any step);
* ``adapter``: the same after training, on plain labels;
* ``adapter, groups``: the held-out loss counts groups equally (more supervision, printed as such);
* ``true place``: the candidate that covers the thing best, from its box: what looking could give at most.

Run: ``python -m benchmarks.adapter_study --seeds 0 1 2`` (see ``--help``). Rows are appended to ``--out``.
"""

from __future__ import annotations

import argparse
import csv
import io
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import foveate as fv
from foveate.data.benchmark import Benchmark
from foveate.files import write_text
from foveate.look import candidate_grid
from foveate.measure import group_report
from foveate.systems.a2_adapter import A2Adapter

RESULTS = Path(__file__).parent / "results" / "adapter.csv"
COLUMNS = (
    "system", "seed", "worst_group", "average", "on_thing", "supervision", "attention", "embedder", "strength",
    "train", "grids", "settings", "seconds", "commit", "command",
)  # fmt: skip
METHODS = ("full image", "default greedy", "default", "adapter", "adapter, groups", "true place")


def build(name: str, args: argparse.Namespace, store: str, seed: int) -> Any:
    grids = [tuple(g) for g in args.grids]
    common: dict[str, Any] = {"store": store, "seed": seed, "progress": False}
    if args.embed_size:
        common["embed_size"] = args.embed_size
    if name == "full image":
        return fv.FullImage(args.embedder, **common)
    looking = {**common, "attention_size": args.attention_size}
    if name == "default greedy":
        return fv.A2(args.attention, args.embedder, crops=(grids[0][0],), **looking)
    settings = dict(pair.split("=") for pair in args.set)
    steps = {k: float(v) if "." in v or "e" in v else int(v) for k, v in settings.items()}
    if name == "default":
        steps["steps"] = 0
    weigh = "groups" if name == "adapter, groups" else "images"
    return fv.A2Adapter(args.attention, args.embedder, grids=grids, weigh=weigh, adapter=steps, **looking)


def on_thing(system: Any, test: Any, images: int = 200) -> float:
    """Share of test images whose first crop holds the middle of the thing."""
    rows = np.linspace(0, len(test) - 1, min(images, len(test))).astype(int)
    pictures = [test[int(i)].image for i in rows]
    boxes = system.look(pictures).boxes[:, 0].float()
    scale = system.preprocess_.size[0] / pictures[0].shape[-1]
    x0, y0, x1, y1 = (torch.from_numpy(test.boxes[rows]) * scale).unbind(1)
    x, y = (x0 + x1) / 2, (y0 + y1) / 2
    held = (boxes[:, 0] <= x) & (x < boxes[:, 0] + boxes[:, 2]) & (boxes[:, 1] <= y) & (y < boxes[:, 1] + boxes[:, 2])
    return float(held.float().mean())


def true_place(adapter: Any, data: Benchmark) -> tuple[float, float]:
    """Worst-group and average accuracy of the same head on the candidate that covers the thing best."""
    boxes = candidate_grid(adapter._frame(), adapter._grids())

    def best(split: Any) -> Any:
        scale = adapter._frame() / split.images.scenes[0].size
        truth = split.boxes * scale
        x, y, s = (boxes[:, k].numpy() for k in range(3))
        wide = np.minimum(truth[:, 2:3], x + s) - np.maximum(truth[:, 0:1], x)
        tall = np.minimum(truth[:, 3:4], y + s) - np.maximum(truth[:, 1:2], y)
        cover = np.clip(wide, 0, None) * np.clip(tall, 0, None) - 1e-3 * s * s  # the smallest that covers it
        found = adapter._all("candidates", split, lambda images: adapter._embed_all(images, boxes))
        return np.asarray(found.array)[np.arange(len(split)), cover.argmax(1)]

    head = fv.decide.LinearHead().fit(best(data.train), data.train.labels)
    report = group_report(head.predict(best(data.test)), data.test.labels, data.test.attributes)
    return report.worst_group, report.average


def run_seed(seed: int, args: argparse.Namespace, store: str) -> list[dict[str, Any]]:
    data = fv.data.cue_critters(
        seed=seed, strength=args.strength, train=args.train, target=0, val=0, test=args.test, size=args.size,
        cue_size=tuple(args.cue_size), contrast=args.contrast,
    )  # fmt: skip
    rows = []
    fitted = None
    for name in args.methods:
        start = time.perf_counter()
        if name == "true place":
            if fitted is None:
                fitted = build("default", args, store, seed).fit(data.train)
            worst, average = true_place(fitted, data)
            row = {"worst_group": worst, "average": average, "on_thing": 1.0, "supervision": "boxes of the thing"}
        else:
            system = build(name, args, store, seed).fit(data.train)
            fitted = system if isinstance(system, A2Adapter) else fitted
            report = fv.evaluate(system, data.test)
            row = {"worst_group": report.worst_group, "average": report.average, "supervision": system.supervision()}
            row["on_thing"] = float("nan") if name == "full image" else on_thing(system, data.test)
        row |= {"system": name, "seed": seed, "seconds": round(time.perf_counter() - start, 1)}
        rows.append(row)
        print(
            f"seed {seed}  {name:16s} worst {100 * row['worst_group']:5.1f}  average {100 * row['average']:5.1f}  "
            f"on the thing {row['on_thing']:.2f}  {row['seconds']:.0f} s",
            flush=True,
        )
    return rows


def append(out: Path, rows: list[dict[str, Any]]) -> None:
    """Add rows to the CSV file, whole or not at all."""
    text = io.StringIO()
    writer = csv.DictWriter(text, COLUMNS, lineterminator="\n")
    if not out.is_file():
        writer.writeheader()
    writer.writerows(rows)
    write_text(out, (out.read_text(encoding="utf-8") if out.is_file() else "") + text.getvalue())


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=METHODS)
    parser.add_argument("--attention", default="micro-vit")
    parser.add_argument("--attention-size", type=int, default=None)
    parser.add_argument("--embedder", default="micro-vit")
    parser.add_argument("--embed-size", type=int, default=None)
    parser.add_argument("--strength", type=float, default=0.95)
    parser.add_argument("--train", type=int, default=1000)
    parser.add_argument("--test", type=int, default=400)
    parser.add_argument("--size", type=int, default=64, help="side of the drawings")
    parser.add_argument("--cue-size", type=float, nargs=2, default=[0.14, 0.18])
    parser.add_argument("--contrast", type=float, default=1.0)
    parser.add_argument("--grids", type=lambda t: [int(v) for v in t.split("x")], nargs="+", default=[[16, 7]],
                        help="candidates as SIDExPER-ROW, in pixels of the attention image")  # fmt: skip
    parser.add_argument("--set", nargs="*", default=[], help="settings of the adapter's training, name=value")
    parser.add_argument("--store", default=None, help="folder for embeddings; by default a temporary one")
    parser.add_argument("--out", type=Path, default=RESULTS)
    args = parser.parse_args(arguments)
    torch.set_num_threads(1)
    typed = sys.argv[1:] if arguments is None else arguments
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, cwd=Path(__file__).parent, check=False
    ).stdout.strip()
    shared = {
        "attention": args.attention, "embedder": args.embedder, "strength": args.strength, "train": args.train,
        "grids": " ".join(f"{s}x{n}" for s, n in args.grids), "settings": " ".join(args.set), "commit": commit,
        "command": shlex.join(["python", "-m", "benchmarks.adapter_study", *typed]),
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as temporary:
        for seed in args.seeds:
            rows = run_seed(seed, args, args.store or temporary)
            append(args.out, [{**{k: _short(v) for k, v in row.items()}, **shared} for row in rows])


def _short(value: Any) -> Any:
    return round(value, 4) if isinstance(value, float) else value


if __name__ == "__main__":
    main()
