"""What a study found: the rows of its CSV, and the table, the page and the figures made from them."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import foveate as fv
from benchmarks.study_spec import Spec
from foveate.files import atomic_file
from foveate.measure import minority_groups

if TYPE_CHECKING:
    from benchmarks.study import Study

ACCURACIES = ("average", "majority", "minority", "worst_group", "worst_class", "adjusted_average")
SHARES = ("cep_map", "cep_pixel", "cep_feature", "cep_output", "cap", "cgp")
COLUMNS = (
    "method", "seed", *ACCURACIES, *SHARES, "seconds", "reused", "command", "commit", "settings", "supervision",
)  # fmt: skip
TABLE = ("average", "majority", "minority", "worst_group", "cep_feature", "cep_output", "cgp")
FIGURES = {
    "cep": "CEP of the units of each level, by method",
    "gradcam": "Grad-CAM of each method on test images of minority groups",
    "queries": "Where the queries of DAR look",
    "ablation": "DAR and its variants, minority accuracy of every seed",
}
Row = dict[str, Any]


def read_rows(path: Path) -> list[Row]:
    """The rows of a CSV, as text; none when it is not there."""
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """The whole CSV, or the old one when something fails."""
    with atomic_file(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def table(rows: Sequence[Row], labels: Sequence[str]) -> str:
    """Markdown: mean ± standard deviation over seeds, in percent, methods in the order of ``labels``."""
    lines = ["| method | " + " | ".join(TABLE) + " | seeds |", "|---" * (len(TABLE) + 2) + "|"]
    for label in labels:
        mine = [r for r in rows if r["method"] == label]
        if not mine:
            continue
        cells = []
        for column in TABLE:
            values = [100 * float(r[column]) for r in mine if r.get(column) not in (None, "")]
            cells.append(f"{np.mean(values):.1f} ± {np.std(values):.1f}" if values else "–")
        name = "ERM, train only (base)" if label == "base" else label
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {len(mine)} |")
    return "\n".join(lines)


def page(specs: Sequence[Spec], results: Path, docs: Path) -> str:
    """docs/results.md, from the CSVs alone; the studies with most methods first."""
    parts = [
        "# Results",
        "Made by `python -m benchmarks.study --page` from the CSVs in `benchmarks/results/`; every row there names the "
        "command, the commit, the settings and the seconds it took. Percent, mean ± standard deviation over seeds. "
        "CEP and CGP run from 0 (spurious) to 100 (core). Epochs and settings are chosen by the named metric on "
        "validation.",
    ]
    for spec in sorted(specs, key=lambda s: (-len(s.methods), s.name)):
        rows = read_rows(results / f"{spec.name}.csv")
        if not rows:
            continue
        shared = {**spec.network.model_args, **spec.training}
        how = f"`{spec.network.backbone}`, " + ", ".join(f"{k} {v}" for k, v in shared.items())
        commands = "\n".join(dict.fromkeys(r["command"] for r in rows))
        parts += [
            f"## {spec.name}",
            f"{spec.about.rstrip('.')}. Network and training: {how}; selected on {spec.select}.",
            table(rows, list(spec.methods)),
            f"```sh\n{commands}\n```",
        ]
        files = {what: f"figures/{spec.name}-{what}.png" for what in FIGURES}
        parts += [f"![{FIGURES[what]}]({file})" for what, file in files.items() if (docs / file).exists()]
    notes = results / "notes.md"
    if notes.exists():
        parts.append(notes.read_text(encoding="utf-8").strip())
    return "\n\n".join(parts) + "\n"


def figures(study: Study, seed: int, folder: Path) -> list[Path]:
    """The figures that the saved models of ``seed`` and the CSV allow, as ``folder/NAME-*.png``."""
    from foveate.report.figures import ablation_bars, cep_histograms, gradcam_panels, query_maps, save_figure

    drawn, spec = {}, study.spec
    shown = [m for m in ("base", "DFR", "DAR", "DAR on spurious") if m in spec.methods]
    missing = [m for m in shown if not (study.folder(seed, m) / "system.json").exists()]
    if missing:
        print(f"no saved model of seed {seed} for {', '.join(missing)}: left out of the figures")
    systems: dict[str, Any] = {
        "ERM" if m == "base" else m: fv.load(study.folder(seed, m)) for m in shown if m not in missing
    }
    if systems:
        bench = study.bench(seed)
        few = minority_groups(bench.train.group_counts.reshape(bench.train.num_classes, -1)).ravel()
        places = np.flatnonzero(few[bench.test.require_groups("figures")])
        four = [int(i) for i in places[np.linspace(0, len(places) - 1, min(4, len(places))).astype(int)]]
        if spec.core != "none":
            drawn["cep"] = cep_histograms({n: study.entanglement(s, seed) for n, s in systems.items()})
        if four:
            drawn["gradcam"] = gradcam_panels(systems, bench.test, four)
            if "DAR" in systems:
                drawn["queries"] = query_maps(systems["DAR"], bench.test, four)
    values = {
        label: [100 * float(r["minority"]) for r in read_rows(study.csv) if r["method"] == label and r["minority"]]
        for label, m in spec.methods.items()
        if m.kind is fv.DAR and not {"learn", "pool"} & {*m.settings, *m.grid}
    }
    values = {label: seeds for label, seeds in values.items() if seeds}
    if "DAR" in values and len(values) > 1:
        ordered = {"DAR": values.pop("DAR"), **{k.removeprefix("DAR "): v for k, v in values.items()}}
        drawn["ablation"] = ablation_bars(ordered, f"{spec.name}: DAR and its variants")
    return [save_figure(figure, folder / f"{spec.name}-{what}.png") for what, figure in drawn.items()]
