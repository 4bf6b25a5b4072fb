"""What settings do on seed 10, which settles a study before it is run: validation images only, a row a setting.

    python -m benchmarks.seed10 benchmarks/specs/pets-glimpse.yaml -m Glimpse --try '{"keep": 0.1}'
    python -m benchmarks.seed10 --page    # the tables of docs/protocol.md, from the rows

A method of the spec is fitted to seed 10 as the study would fit it, with the settings of ``--try`` in place of its
own, and asked about the validation images. Test images are not looked at. ``benchmarks/results/seed10.csv`` gets the
row with the settings that were tried, what every epoch reached where there are epochs, the command, the commit and
the seconds; a setting that is there is not tried again.
"""

from __future__ import annotations

import argparse
import csv
import json
import re
import shlex
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import foveate as fv
from foveate.assemble.parted import Parted
from foveate.assemble.system import System
from foveate.assess import part_quality
from foveate.bench.run import commit
from foveate.bench.spec import Method, Spec, read_spec
from foveate.bench.trial import Bench, Cell, all_settings
from foveate.engine import EpochEnd
from foveate.files import atomic_file, write_text

HERE = Path(__file__).parent
SEED = 10
SHOWN = ("average", "majority", "minority", "worst_group")
COLUMNS = ("study", "dataset", "method", "tried", "seed", *SHOWN, "miou", "epochs", "settings", "seconds", "command",
           "commit")  # fmt: skip
MARKED = r"(?<=<!-- seed-10 {study} -->\n).*?(?=<!-- /seed-10 -->)"


def trial(spec: Spec, named: Path, dataset: str, method: str, tried: dict[str, Any], runs: Path) -> dict[str, Any]:
    """Fit a method of the spec (its file is ``named``) with the settings of ``tried`` on seed 10; measure it on val."""
    began = time.perf_counter()
    again = ["python", "-m", "benchmarks.seed10", str(named), "-d", dataset, "-m", method, "--try", json.dumps(tried)]
    asked = spec.methods[method]
    changed = asked.model_copy(update={"settings": {**asked.settings, **tried}, "grid": {}})
    bench = Bench(spec.model_copy(update={"methods": {**spec.methods, method: changed}}), runs)
    cell, epochs = Cell(dataset, method, SEED), list[dict[str, float]]()

    def tell(end: EpochEnd) -> None:
        """An epoch's figures, into the log and into the row."""
        known = {k.removeprefix("val_"): round(v, 4) for k, v in end.metrics.items()}
        epochs.append({k: known[k] for k in SHOWN if k in known})
        print(f"{method} {json.dumps(tried)}: epoch {end.epoch} of {end.epochs}: {epochs[-1]}", flush=True)

    base = _base(bench, dataset) if changed.post_hoc else None
    system = bench.build(cell, {})
    bench.fit(system, cell, base, [tell])
    val = bench.data(dataset, SEED)["val"]
    report = fv.evaluate(system, val)
    found: dict[str, Any] = {name: round(report.value(name), 4) for name in SHOWN}
    if isinstance(system, Parted) and val.masks is not None:
        found["miou"] = round(part_quality(system, val).miou, 4)
    return {
        "study": spec.name, "dataset": dataset, "method": method, "tried": json.dumps(tried), "seed": SEED, **found,
        "epochs": json.dumps(epochs) if epochs else "", "settings": json.dumps(all_settings(system), sort_keys=True),
        "seconds": round(time.perf_counter() - began), "commit": commit(),
        "command": shlex.join(again),
    }  # fmt: skip


def _base(bench: Bench, dataset: str) -> System:
    """The base that a method adapts, fitted as the study fits it; its only setting, or the first."""
    cell = Cell(dataset, "base", SEED)
    method: Method = bench.spec.methods["base"]
    return bench.base_of(cell, method.points()[0], "seed10")


def read_rows(path: Path) -> list[dict[str, str]]:
    """The rows so far; none where there is no file yet."""
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def add_row(path: Path, row: dict[str, Any]) -> None:
    """Write the file again with one row more, whole or not at all."""
    rows = [*read_rows(path), row]
    with atomic_file(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def table(rows: Sequence[dict[str, str]]) -> str:
    """The settings tried for one study, as Markdown: what val said at the epoch that it chose, and at the last one."""
    epochs, parts = any(row["epochs"] for row in rows), any(row["miou"] for row in rows)
    head = ["method", "tried", "average", "majority", "minority", "worst group"]
    head += ["mIoU"] * parts + ["average and majority after the last epoch"] * epochs
    lines = [head, ["---"] * len(head)]
    for row in rows:
        shown = [f"{100 * float(row[name]):.1f}" for name in SHOWN]
        if parts:
            shown.append(f"{100 * float(row['miou']):.1f}" if row["miou"] else "–")
        if epochs:
            last = json.loads(row["epochs"])[-1] if row["epochs"] else {}
            known = [f"{100 * last[k]:.1f}" for k in ("average", "majority") if k in last]
            shown.append(", ".join(known) or "–")  # val was not asked where the last epoch is kept anyway
        tried = ", ".join(f"{k} {json.dumps(v)}" for k, v in json.loads(row["tried"]).items())
        lines.append([row["method"], tried.replace('"', "") or "as the spec has it", *shown])
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def filled(page: str, rows: Sequence[dict[str, str]]) -> str:
    """The page with every marked table made from the rows."""
    for study in re.findall(r"<!-- seed-10 ([\w-]+) -->", page):
        mine = table([row for row in rows if row["study"] == study])
        page = re.sub(MARKED.format(study=study), lambda _, mine=mine: mine, page, count=1, flags=re.S)  # type: ignore[misc]
    return page


def main(arguments: Sequence[str] | None = None) -> None:
    """Try settings, or write the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spec", type=Path, nargs="?")
    parser.add_argument("-d", "--dataset", help="by default the spec's first")
    parser.add_argument("-m", "--method", action="append", default=[])
    parser.add_argument("--try", dest="tries", type=json.loads, action="append", help="settings as JSON")
    parser.add_argument("--root", help="a folder of images in place of the spec's, with {seed} in it")
    parser.add_argument("--out", type=Path, default=HERE / "results" / "seed10.csv")
    parser.add_argument("--page", nargs="?", type=Path, const=HERE.parent / "docs" / "protocol.md")
    given = parser.parse_args(arguments)
    if given.page:
        write_text(given.page, filled(given.page.read_text(encoding="utf-8"), read_rows(given.out)))
        return
    if given.spec is None or not given.method:
        parser.error("name a spec and at least one method of it (-m), or --page")
    torch.set_num_threads(1)
    spec = read_spec(given.spec)
    dataset = given.dataset or next(iter(spec.sets()))
    if given.root:
        spec.sets()[dataset].root = given.root
    with tempfile.TemporaryDirectory() as runs:
        for method in given.method:
            for tried in given.tries or [{}]:
                known = {(r["study"], r["dataset"], r["method"], r["tried"]) for r in read_rows(given.out)}
                if (spec.name, dataset, method, json.dumps(tried)) in known:
                    print(f"{method} {json.dumps(tried)}: is there")
                    continue
                row = trial(spec, given.spec, dataset, method, tried, Path(runs))
                add_row(given.out, row)
                print(
                    f"{method} {json.dumps(tried)}: { ({k: row[k] for k in SHOWN}) } in {row['seconds']} s", flush=True
                )


if __name__ == "__main__":
    main()
