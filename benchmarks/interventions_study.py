"""iFAM on critters: against its baselines, taken apart, and with its test-time interventions.

    python -m benchmarks.ifam_study methods                                # or go on where it stopped
    python -m benchmarks.ifam_study methods --seeds 0 --methods "ViT" "IFAM K=4"
    python -m benchmarks.ifam_study spurious                               # a part on a co-occurring thing
    python -m benchmarks.ifam_study objects                                # things never seen in training
    python -m benchmarks.ifam_study methods --table                        # Markdown, mean ± std over seeds

**Protocol.** Two species, 64 px (shown at 128), habitat strength 0.95 in 400 ``train`` images; ``val`` and ``test``
hold every group equally often. Every method starts from the same weights (``micro-vit``; "from scratch" apart) and
trains on ``train`` alone with the same epochs and batch. The epoch is chosen by average accuracy on ``val``: no group
label is used, though a balanced ``val`` favours models that do not lean on the habitat, for all methods alike.
``test`` is only measured.

**Results.** ``benchmarks/results/ifam-critters.csv`` (``ifam-spurious.csv``, ``ifam-objects.csv``): one row a
(seed, method) as soon as it is measured; a row that is there is not computed again. ``miou`` is the foreground mIoU
of the parts (or of the selected patches), ``kp`` the keypoint error in percent of the box (fitted on ``train``),
``mass`` the share of the foreground map that lies on the animal, ``coverage`` the share of patches selected. Fitted
models stay in ``RUNS/ifam-critters/SEED/METHOD``.
"""

from __future__ import annotations

import argparse
import csv
import json
import shlex
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import foveate as fv
from benchmarks.study import commit
from benchmarks.study_results import Row, read_rows
from foveate.data import Benchmark, GroupedDataset
from foveate.errors import FoveateError, suggest
from foveate.files import atomic_file
from foveate.intervene import leave_one_out
from foveate.measure import (
    ForegroundIoU,
    PartPoints,
    SmallGroupWarning,
    attention_mass,
    keypoint_error,
    part_points,
)
from foveate.systems.part_system import PartSystem

HERE = Path(__file__).parent
START = "micro-vit"
SIDE = 128
"""The ViTs see the 64 px images enlarged to this: a patch of 8 then covers 4 x 4 drawn pixels. At 64 px a selected
patch holds so much habitat that even true masks leave the shortcut in."""
DATA: dict[str, Any] = {"size": 64, "strength": 0.95, "train": 400, "target": 0, "val": 200, "test": 400}
TRAIN: dict[str, Any] = {"epochs": 8, "batch_size": 32, "image_size": SIDE, "progress": False}
FINE: dict[str, Any] = {"lr": 1e-3, "backbone_scale": 0.1, "optimizer": "adamw", "weight_decay": 0.01, "clip": 2.0}
"""Fine-tuning a ViT under a new head: the backbone at the rate that iFAM's backbones get."""
PARTS: dict[str, Any] = {"lr": 1e-4, "prototype_rate": 10.0, "head_rate": 10.0, "tune": "none"}


# -- methods ------------------------------------------------------------------------------


def _ifam(seed: int, start: str = START, **options: Any) -> fv.IFAM:
    return fv.IFAM(start, seed=seed, **{**TRAIN, **PARTS, "parts": 4, **options})


METHODS: dict[str, Callable[[int], fv.systems.System]] = {
    "ViT": lambda seed: fv.ERM(START, seed=seed, **TRAIN, **FINE),
    "frozen probe": lambda seed: fv.FullImage(START, embed_size=SIDE, seed=seed),
    "late mask, truth": lambda seed: fv.LateMask(START, masks="truth", seed=seed, **TRAIN, **FINE),
    "early mask, truth": lambda seed: fv.EarlyMask(START, masks="truth", seed=seed, **TRAIN, **FINE),
    "PDiscoFormer K=4": lambda seed: fv.PDiscoFormer(START, parts=4, seed=seed, **TRAIN, **PARTS),
    "IFAM K=1": lambda seed: _ifam(seed, parts=1),
    "IFAM K=4": _ifam,
    "IFAM K=8": lambda seed: _ifam(seed, parts=8),
    "IFAM K=4, no second stage": lambda seed: _ifam(seed, second_stage=False),
    "IFAM K=4, soft mask": lambda seed: _ifam(seed, mask="soft"),
    "IFAM K=4, no shaping": lambda seed: _ifam(seed, shaping=False),
    "IFAM K=1, no shaping": lambda seed: _ifam(seed, parts=1, shaping=False),
    "IFAM K=4, no stage-1 class": lambda seed: _ifam(seed, stage1_classify=False),
    "IFAM K=4, frozen stage 2": lambda seed: _ifam(seed, freeze_predictor=True),
    "IFAM K=4, part dropout 0": lambda seed: _ifam(seed, part_dropout=0.0),
    "IFAM K=4, part dropout 0.1": lambda seed: _ifam(seed, part_dropout=0.1),
    "IFAM K=4, part dropout 0.5": lambda seed: _ifam(seed, part_dropout=0.5),
    "IFAM K=4, boolean mask": lambda seed: _ifam(seed, mask="boolean"),
    "IFAM K=4, as released": lambda seed: _ifam(seed, released=True),
    "IFAM K=4, tokens tuned": lambda seed: _ifam(seed, tune="tokens"),
    "IFAM K=4, random prototypes": lambda seed: _ifam(seed, start="random"),
    "IFAM K=4, from scratch": lambda seed: _ifam(seed, "micro_vit", lr=1e-3, tune="all"),
}


# -- measuring ----------------------------------------------------------------------------


def look(system: PartSystem, data: GroupedDataset) -> dict[str, Any]:
    """Foreground mIoU, mass on the animal and coverage of a part system, and its part points."""
    overlap, masses, kept, points = ForegroundIoU(), [], [], []
    assert data.boxes is not None
    assert data.keypoints is not None
    for at in range(0, len(data), 100):
        rows = range(at, min(at + 100, len(data)))
        gaze = system.look(torch.stack([data[i].image for i in rows]))
        masks = torch.stack([data[i].mask for i in rows])  # type: ignore[misc]
        assert gaze.parts is not None
        assert gaze.mask is not None
        overlap.update(gaze.parts, masks)
        masses.append(attention_mass(gaze.map, masks))
        kept.append(gaze.mask.float().mean((1, 2)))
        points.append(part_points(gaze.parts, data.keypoints[list(rows)], data.boxes[list(rows)], masks.shape[1:]))  # type: ignore[arg-type]
    return {
        "miou": overlap.compute(),
        "mass": float(torch.cat(masses).nanmean()),
        "coverage": float(torch.cat(kept).mean()),
        "points": PartPoints.join(points),
    }


def measure(system: Any, bench: Benchmark, kp: bool = True) -> Row:
    """One row: accuracies on test and, for part systems, how good the parts are."""
    report = fv.evaluate(system, bench.test)
    row: Row = {n: round(float(getattr(report, n)), 4) for n in ("worst_group", "average", "minority", "majority")}
    if isinstance(system, PartSystem):
        found = look(system, bench.test)
        row |= {n: round(found[n], 4) for n in ("miou", "mass", "coverage")}
        if kp:
            row["kp"] = round(keypoint_error(look(system, bench.train)["points"], found["points"]), 2)
    return row


def methods(seed: int, label: str, runs: Path) -> list[Row]:
    """Fit one method and measure it."""
    bench = fv.data.critters(seed=seed, **DATA)
    system, seconds = fitted(METHODS[label](seed), bench, runs / "ifam-critters" / str(seed) / label.replace(" ", "-"))
    return [{"method": label, **measure(system, bench), "seconds": seconds, "settings": settings(system)}]


def fitted(system: Any, bench: Benchmark, folder: Path) -> tuple[Any, float]:
    """``system`` after fitting, or as it was saved in ``folder``; and the seconds its training took."""
    if (folder / "system.json").exists():
        found = fv.load(folder)
        history = getattr(found, "history_", None)
        return found, 0.0 if history is None else round(history.seconds, 1)
    began = time.perf_counter()
    system.fit(bench.train, val=bench.val)
    seconds = round(time.perf_counter() - began, 1)
    system.save(folder)
    return system, seconds


def settings(system: Any) -> str:
    return json.dumps(system.get_params(), default=str)


# -- a part on a co-occurring thing -------------------------------------------------------

SPURIOUS: dict[str, Any] = {**DATA, "strength": 0.5, "second_strength": 0.95, "attribute": "second"}


def spurious(seed: int, label: str, runs: Path) -> list[Row]:
    """The class goes with a thing beside the animal, and K is too large: one part sits on the thing. Leave-one-out on
    validation finds what to remove; test says whether it helped."""
    bench = fv.data.critters(seed=seed, **SPURIOUS)
    parts = int(label.split("=")[1])
    system, seconds = fitted(_ifam(seed, parts=parts), bench, runs / "ifam-spurious" / str(seed) / f"K{parts}")
    rows = [{"method": label, **measure(system, bench), "seconds": seconds, "settings": settings(system)}]

    def score(gone: set[int]) -> float:
        return fv.evaluate(system.with_parts_removed(gone), bench.val).worst_group

    for name, greedy in (("leave-one-out", False), ("greedy", True)):
        found = leave_one_out(score, parts, greedy)
        changed = system.with_parts_removed(found.removed)
        note = {"removed": found.removed, "val": found.baseline, "val_after": found.after, "val_without": found.scores}
        rows.append({"method": f"{label}, {name}", **measure(changed, bench), "note": json.dumps(note)})
    alone = [{"method": f"{label}, without part {k}", **measure(system.with_parts_removed([k]), bench, kp=False)}
             for k in range(parts)]  # fmt: skip
    return rows + alone


# -- things never seen in training --------------------------------------------------------


def objects(seed: int, label: str, runs: Path) -> list[Row]:
    """New things lie about in the test images only; tokens unlike their part's training tokens are removed."""
    bench = fv.data.critters(seed=seed, **DATA)
    strange = fv.data.critters(seed=seed, **{**DATA, "train": 0, "val": 0}, distractors=4)
    cluttered = Benchmark("critters", {"train": bench.train, "val": bench.val, "test": strange.test}, {})
    parts = int(label.split("=")[1])
    name = f"IFAM K={parts}"
    system, seconds = fitted(METHODS[name](seed), bench, runs / "ifam-critters" / str(seed) / name.replace(" ", "-"))
    rows = [
        {"method": f"{label}, no new things", **measure(system, bench), "seconds": seconds},
        {"method": label, **measure(system, cluttered), "settings": settings(system)},
    ]
    for q in (0.99, 0.97, 0.9):
        changed = system.with_parts_removed([]).calibrate(bench.train, q)
        rows.append({"method": f"{label}, q={q}", **measure(changed, cluttered)})
        rows.append({"method": f"{label}, no new things, q={q}", **measure(changed, bench)})
    return rows


# -- command line -------------------------------------------------------------------------

COLUMNS = ("method", "seed", "worst_group", "average", "minority", "majority", "miou", "kp", "mass", "coverage",
           "seconds", "command", "commit", "settings", "note")  # fmt: skip
TABLE = ("worst_group", "average", "minority", "miou", "mass", "coverage")
Study = Callable[[int, str, Path], list[Row]]
STUDIES: dict[str, tuple[str, Study, list[str]]] = {
    "methods": ("ifam-critters", methods, list(METHODS)),
    "spurious": ("ifam-spurious", spurious, ["K=8"]),
    "objects": ("ifam-objects", objects, ["K=4", "K=8"]),
}


def extend(path: Path, study: Study, seeds: Sequence[int], labels: Sequence[str], runs: Path, command: str) -> None:
    """Compute every (seed, method) that has no row yet."""
    for seed in seeds:
        for label in labels:
            if (str(seed), label) in {(r["seed"], r["method"]) for r in read_rows(path)}:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SmallGroupWarning)
                rows = study(seed, label, runs)
            made = [{"seed": seed, "command": command, "commit": commit(), **row} for row in rows]
            new = {(str(seed), r["method"]) for r in made}
            # read again: another process may have added rows meanwhile
            others = [r for r in read_rows(path) if (r["seed"], r["method"]) not in new]
            with atomic_file(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
                writer.writeheader()
                writer.writerows([*others, *made])
            for row in made:
                shown = (
                    "seed",
                    "method",
                    "worst_group",
                    "average",
                    "miou",
                    "kp",
                    "mass",
                    "coverage",
                    "seconds",
                    "note",
                )
                print(json.dumps({k: row[k] for k in shown if k in row}), flush=True)


def table(rows: Sequence[Row]) -> str:
    """Markdown: mean ± standard deviation over seeds, in percent (Kp and seconds as they are)."""
    lines = ["| method | " + " | ".join([*TABLE, "kp", "seconds"]) + " | seeds |", "|---" * (len(TABLE) + 4) + "|"]
    for label in dict.fromkeys(r["method"] for r in rows):
        mine, cells = [r for r in rows if r["method"] == label], []
        for column in (*TABLE, "kp", "seconds"):
            scale = 100 if column in TABLE else 1
            values = [scale * float(r[column]) for r in mine if r.get(column)]
            cells.append(f"{np.mean(values):.1f} ± {np.std(values):.1f}" if values else "–")
        lines.append(f"| {label} | " + " | ".join(cells) + f" | {len(mine)} |")
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one of the studies; a user's mistake is one sentence and exit code 2."""
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=list(STUDIES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--methods", nargs="+", help="by default all")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of the fitted models")
    parser.add_argument("--results", type=Path, default=HERE / "results", help="folder of the CSVs")
    parser.add_argument("--table", action="store_true", help="print the table of the rows so far")
    chosen = parser.parse_args(argv)
    name, study, known = STUDIES[chosen.study]
    path = chosen.results / f"{name}.csv"
    try:
        for label in chosen.methods or []:
            if label not in known:
                raise FoveateError(f"unknown method '{label}'.{suggest(label, known)} Known: {', '.join(known)}.")
        if chosen.table:
            print(table(read_rows(path)))
        else:
            command = "python -m benchmarks.ifam_study " + shlex.join(argv)
            extend(path, study, chosen.seeds, chosen.methods or known, chosen.runs, command)
    except FoveateError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
