"""Interventions on iFAM at test time: a part on a co-occurring thing, and things never seen in training.

    python -m benchmarks.interventions_study spurious              # or go on where it stopped
    python -m benchmarks.interventions_study objects --seeds 0 1
    python -m benchmarks.interventions_study objects --table       # Markdown, mean ± std over seeds
    python -m benchmarks.interventions_study photos --pets FOLDER  # photographs with a planted thing
    python -m benchmarks.interventions_study spurious --seeds 0 --figure docs/figures/ifam-spurious-part.png

**spurious.** In ``train`` the class goes with a thing beside a small animal (95 %) and not with the habitat; K = 8 is
more than the animal needs, and prototypes start on whatever differs from the border, so parts sit on the thing too.
Leave-one-out and greedy removal choose, on ``val``, which parts to take away; ``test`` says whether it helped. Settled
on seed 10: small animals, where the thing misleads, and 600 images in ``val``, with fewer of which chance chooses.

**objects.** Four new things lie about in every test image. Tokens that are further from their part than the share q
of the training tokens are removed: from the mean of its training tokens, or, as in the paper, from its prototype.

**photos.** Both questions on photographs of cats and dogs with a thing planted beside them
(:mod:`benchmarks.planted_things`), of one iFAM with K = 8, trained as in ``benchmarks/specs/ifam-trained.yaml``. Three
smaller new things lie in every cluttered test image. The protocol is in ``docs/protocol.md``.

``benchmarks/results/STUDY.csv`` gets the rows of a seed as soon as they are measured; a seed that is there is not
computed again. ``miou`` is the foreground mIoU of the parts, ``kp`` the keypoint error in percent of the box (fitted
on ``train``), ``coverage`` the share of patches selected.
"""

from __future__ import annotations

import argparse
import csv
import json
import shlex
import sys
import warnings
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

import foveate as fv
from benchmarks.planted_things import Planted, pets_with_things
from foveate.assemble.parts_network import Intervention
from foveate.assess import part_quality, report_of
from foveate.bench.figures import minority_images
from foveate.bench.run import commit
from foveate.data import Benchmark
from foveate.data.critters import CritterImages
from foveate.data.dataset import GroupedDataset
from foveate.files import atomic_file
from foveate.intervene import Rehearsal, leave_one_out
from foveate.measure import SmallGroupWarning
from foveate.report.figures import part_panels, save_figure

HERE = Path(__file__).parent
Row = dict[str, Any]
COMMON: dict[str, Any] = {"train": 400, "target": 0, "val": 200, "test": 400}
SPURIOUS: dict[str, Any] = {
    **COMMON, "val": 600, "strength": 0.5, "second_strength": 0.95, "attribute": "second", "object_scale": (0.22, 0.34),
}  # fmt: skip
MODEL: dict[str, Any] = {
    "backbone": "micro-vit", "epochs": 5, "batch_size": 32, "image_size": 128, "progress": False, "lr": 1e-4,
    "prototype_rate": 10.0, "head_rate": 10.0, "tune": "none", "select": "average",
}  # fmt: skip
PHOTOS: dict[str, Any] = {
    "backbone": "vit-s-focus", "image_size": 140, "parts": 8, "epochs": 6, "batch_size": 16, "precision": "bf16-mixed",
    "lr": 2e-5, "prototype_rate": 50.0, "head_rate": 500.0, "tune": "tokens", "mask": "boolean", "optimizer": "adamw",
    "weight_decay": 0.05, "normalise_decay": True, "clip": 2.0, "select": "average", "progress": False,
}  # fmt: skip
PARTS = {"spurious": 8, "objects": 4}
QUANTILES = (0.99, 0.97)
MEASURED = 100
"""So many test images tell which part lies on the thing."""
MEASURES = {"centre": "", "distance": " of the prototype"}


def measure(system: fv.IFAM, bench: Benchmark) -> Row:
    """Accuracies on test and how good the parts are."""
    report = fv.evaluate(system, bench.test)
    row: Row = {n: round(float(getattr(report, n)), 4) for n in ("worst_group", "average", "minority", "majority")}
    found = part_quality(system, bench.test, bench.train).to_dict()
    return row | {name: round(value, 2 if name == "kp" else 4) for name, value in found.items()}


def fitted(bench: Benchmark, folder: Path, **settings: Any) -> fv.IFAM:
    """The model saved under ``folder``, or one that is trained and saved there."""
    for saved in sorted(folder.rglob("system.json")):
        found = fv.load(saved.parent)
        assert isinstance(found, fv.IFAM)
        return found
    system = fv.IFAM(**settings).fit(bench.train, val=bench.val)
    system.save(folder / "model")
    return system


def spurious(seed: int, runs: Path, _: Path | None = None) -> list[Row]:
    """As it is, after leave-one-out, after greedy removal, and without each part."""
    bench = fv.data.critters(seed=seed, **SPURIOUS)
    system = drawn(bench, runs, "spurious", seed)
    return without_parts(system, bench, on_things(system, bench.test, drawn_things(bench)))


def drawn(bench: Benchmark, runs: Path, study: str, seed: int) -> fv.IFAM:
    """The iFAM of a study on drawn animals."""
    start = {"start": "tokens"} if study == "spurious" else {}
    return fitted(bench, runs / study / str(seed), **{**MODEL, "parts": PARTS[study], "seed": seed, **start})


def without_parts(system: fv.IFAM, bench: Benchmark, things: Sequence[float], every: bool = True) -> list[Row]:
    """Rows of test as trained, with the parts gone that leave-one-out and the greedy search name on val, and without
    each part alone (``every``), or without the one that lies most on the thing; ``things`` has how much each does."""
    parts = len(things)
    rows = [{"method": "as trained", **measure(system, bench)}]
    rehearsal = Rehearsal(system, bench.val)

    @cache
    def without(gone: frozenset[int]) -> float:
        return report_of(system, bench.val, rehearsal.predict(Intervention(tuple(sorted(gone))))).worst_group

    for name, greedy in (("leave-one-out", False), ("greedy", True)):
        found = leave_one_out(lambda gone: without(frozenset(gone)), parts, greedy)
        note = {"removed": found.removed, "val": found.baseline, "val_after": found.after, "val_without": found.scores}
        changed = system.with_parts_removed(found.removed)
        rows.append({"method": name, **measure(changed, bench), "note": json.dumps(note)})
    for k in range(parts) if every else [int(np.argmax(things))]:
        note = {"share of the part on the thing": round(things[k], 3)}
        alone = fv.evaluate(system.with_parts_removed([k]), bench.test)
        rows.append({"method": f"without part {k}", "worst_group": round(alone.worst_group, 4),
                     "average": round(alone.average, 4), "note": json.dumps(note)})  # fmt: skip
    return rows


def picture(study: str, seed: int, runs: Path, path: Path, pets: Path | None, rows: Sequence[Row]) -> Path:
    """Parts on test images of a model that the study fitted, with all of them and with those gone that lie on the thing
    (spurious) or that the greedy search named (photos)."""
    if study == "photos":
        bench = planted(pets, seed).bench
        system = fitted(bench, runs / study / str(seed), **PHOTOS, seed=seed)
        (note,) = (r["note"] for r in rows if r["method"] == "greedy" and r["seed"] == str(seed))
        gone = json.loads(note)["removed"]
        name = "without those that the greedy search removes"
    else:
        bench = fv.data.critters(seed=seed, **SPURIOUS)
        system = drawn(bench, runs, "spurious", seed)
        gone = [int(np.argmax(on_things(system, bench.test, drawn_things(bench))))]
        name = f"without part {gone[0]}"
    systems = {"all parts": system, name: system.with_parts_removed(gone)}
    return save_figure(part_panels(systems, bench.test, minority_images(bench.train, bench.test)), path)


def drawn_things(bench: Benchmark) -> NDArray[np.bool_]:
    """Where the thing beside the animal is in the first test images: where the picture drawn without it differs."""
    source = bench.test.images
    assert isinstance(source, CritterImages)
    count = min(len(bench.test), MEASURED)
    images = np.stack([source.read(i) for i in range(count)]).astype(int)
    without = np.stack([source.redraw(i, second=None)[0] for i in range(count)])
    return np.asarray(np.abs(images - without).max(3) > 12)


def on_things(system: fv.IFAM, test: GroupedDataset, where: NDArray[np.bool_]) -> list[float]:
    """Of every part's mass on the first test images, the share that lies on the thing, which is ``where [N, H, W]``."""
    thing = torch.from_numpy(where[:MEASURED]).float()
    maps = system.part_maps(torch.stack([test[i].image for i in range(len(thing))]))[:, :-1]
    maps = F.interpolate(maps, thing.shape[-2:], mode="bilinear", align_corners=False)
    return ((maps * thing[:, None]).sum((0, 2, 3)) / maps.sum((0, 2, 3)).clamp(min=1e-9)).tolist()


def objects(seed: int, runs: Path, _: Path | None = None) -> list[Row]:
    """With and without new things, as trained and with tokens removed."""
    bench = fv.data.critters(seed=seed, **COMMON)
    strange = fv.data.critters(seed=seed, **{**COMMON, "train": 0, "val": 0}, distractors=4)
    cluttered = Benchmark("critters", {"train": bench.train, "val": bench.val, "test": strange.test}, {})
    system = drawn(bench, runs, "objects", seed)
    rows = [{"method": "no new things", **measure(system, bench)},
            {"method": "new things", **measure(system, cluttered)}]  # fmt: skip
    return rows + without_tokens(system, bench, cluttered, MEASURES, QUANTILES)


def without_tokens(
    system: fv.IFAM, bench: Benchmark, cluttered: Benchmark, measures: dict[str, str], quantiles: Sequence[float]
) -> list[Row]:
    """Rows of test and of test with new things, far tokens removed by each of ``measures`` and shares."""
    rows: list[Row] = []
    for name, label in measures.items():
        changed = system.with_parts_removed([])
        changed.token_measure = name  # type: ignore[assignment]
        for q in quantiles:
            changed.calibrate(bench.train, q)
            rows.append({"method": f"no new things, q={q}{label}", **measure(changed, bench)})
            rows.append({"method": f"new things, q={q}{label}", **measure(changed, cluttered)})
    return rows


def planted(pets: Path | None, seed: int) -> Planted:
    """The photographs with things, or an end that says what is missing."""
    if pets is None or not (pets / "foregrounds.csv").is_file():
        raise SystemExit("photos: skipped, for it needs --pets FOLDER with foregrounds.csv and backgrounds.csv.")
    return pets_with_things(pets, seed)


def photos(seed: int, runs: Path, pets: Path | None = None) -> list[Row]:
    """Photographs with a planted thing: parts removed, and tokens removed where new things lie about."""
    made = planted(pets, seed)
    bench = made.bench
    system = fitted(bench, runs / "photos" / str(seed), **PHOTOS, seed=seed)
    rows = without_parts(system, bench, on_things(system, bench.test, made.things), every=False)
    cluttered = Benchmark(bench.name, {**bench.splits, "test": made.cluttered}, {})
    rows.append({"method": "new things", **measure(system, cluttered)})
    return rows + without_tokens(system, bench, cluttered, {"centre": ""}, QUANTILES[1:])


STUDIES: dict[str, Callable[[int, Path, Path | None], list[Row]]] = {
    "spurious": spurious, "objects": objects, "photos": photos,
}  # fmt: skip
SHARES = ("worst_group", "average", "minority", "majority", "miou", "mass", "coverage")
COLUMNS = ("method", "seed", *SHARES, "kp", "note", "command", "commit")


def read_rows(path: Path) -> list[Row]:
    """The rows of a CSV, as text; none when it is not there."""
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def extend(name: str, seeds: Sequence[int], runs: Path, path: Path, command: str, pets: Path | None = None) -> None:
    """Compute every seed that has no rows yet."""
    for seed in seeds:
        done = read_rows(path)
        if str(seed) in {r["seed"] for r in done}:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SmallGroupWarning)
            rows = STUDIES[name](seed, runs, pets)
        made = [{"seed": seed, "command": command, "commit": commit(), **row} for row in rows]
        with atomic_file(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writeheader()
            writer.writerows([*done, *made])
        for row in made:
            print(json.dumps({k: v for k, v in row.items() if k not in ("command", "commit")}), flush=True)


def table(rows: Sequence[Row]) -> str:
    """Markdown: mean ± standard deviation over seeds, in percent."""
    rows = [r for r in rows if not r["method"].startswith("without part")] + _on_the_thing(rows)
    lines = ["| | " + " | ".join([*SHARES, "kp"]).replace("_", " ") + " | seeds |", "|---" * (len(SHARES) + 3) + "|"]
    for label in dict.fromkeys(r["method"] for r in rows):
        mine, cells = [r for r in rows if r["method"] == label], []
        for column in (*SHARES, "kp"):
            values = [(1 if column == "kp" else 100) * float(r[column]) for r in mine if r.get(column)]
            spread = f" ± {np.std(values, ddof=1):.1f}" if len(values) > 1 else ""
            cells.append(f"{np.mean(values):.1f}{spread}" if values else "–")
        lines.append(f"| {label} | " + " | ".join(cells) + f" | {len(mine)} |")
    return "\n".join(lines)


def _on_the_thing(rows: Sequence[Row]) -> list[Row]:
    """Of the rows without a single part, for each seed the one whose part lies most on the thing."""
    best: dict[str, tuple[float, Row]] = {}
    for row in rows:
        if row["method"].startswith("without part"):
            share = float(json.loads(row["note"])["share of the part on the thing"])
            if share > best.get(row["seed"], (0.0, row))[0]:
                best[row["seed"]] = share, row
    return [{**row, "method": "without the part on the thing"} for _, row in best.values()]


def main(argv: Sequence[str] | None = None) -> None:
    """Run one of the studies, or print its table."""
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=list(STUDIES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of the fitted models")
    parser.add_argument("--results", type=Path, default=HERE / "results", help="folder of the CSVs")
    parser.add_argument("--pets", type=Path, help="folder of cut-out animals and scenes (photos)")
    parser.add_argument("--table", action="store_true", help="print the table of the rows so far")
    parser.add_argument("--figure", type=Path, help="picture of the parts of the first seed (spurious, photos)")
    chosen = parser.parse_args(argv)
    path = chosen.results / f"{chosen.study}.csv"
    if chosen.table:
        print(table(read_rows(path)))
    elif chosen.figure:
        if chosen.study == "objects":
            parser.error("--figure draws what spurious and photos remove; objects has none.")
        rows = read_rows(path)
        print(f"wrote {picture(chosen.study, chosen.seeds[0], chosen.runs, chosen.figure, chosen.pets, rows)}")
    else:
        command = "python -m benchmarks.interventions_study " + shlex.join(argv)
        extend(chosen.study, chosen.seeds, chosen.runs, path, command, chosen.pets)


if __name__ == "__main__":
    main()
