"""``foveate audit``: any model in, one HTML report out; with limits it is a test for continuous integration."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from foveate.cli.inputs import (
    DATA_HELP,
    DATA_OPTION,
    OBJECTS,
    ON_BAD,
    ROOT,
    SPLIT,
    chosen_split,
    models_and_data,
    open_data,
    settings_of,
)
from foveate.cli.opening import MODEL_HELP, OPENER, Opener, model_labels, opens_models
from foveate.cli.screen import echo
from foveate.errors import FoveateError
from foveate.files import check_writable, write_rows
from foveate.parameters import MAX_SEED

if TYPE_CHECKING:
    from foveate.data.benchmark import Benchmark
    from foveate.data.dataset import GroupedDataset
    from foveate.report import Audit


@opens_models
def audit(
    what: list[str] = typer.Argument(
        metavar="MODEL… DATA",
        help=f"Models, compared side by side: {MODEL_HELP} Then the data: {DATA_HELP}",
    ),
    data: str | None = DATA_OPTION,
    split: str | None = SPLIT,
    out: Path = typer.Option(Path("audit.html"), "--out", "-o", help="The report: one HTML file."),
    as_json: bool = typer.Option(False, "--json", help="Print the findings for programs."),
    fail_under: list[str] | None = typer.Option(
        None, help="Exit with code 1 when a figure is lower: worst_group=0.8, average=0.9, shortcut=1 (none found)."
    ),
    attribute: str | None = typer.Option(None, help="What to call the attribute in the report, for instance habitat."),
    ignore_attributes: bool = typer.Option(False, "--ignore-attributes", help="Audit as if no attribute were known."),
    discover: bool = typer.Option(True, help="Look for shortcuts nobody named (experiments, probes, slices)."),
    objects: str | None = OBJECTS,
    groups_out: Path | None = typer.Option(
        None, help="CSV to write with pseudo-groups from the shortcut that was found."
    ),
    examples: int = typer.Option(9, help="Confident mistakes to show."),
    minutes: float | None = typer.Option(
        None, min=0, help="After so many minutes a doubtful experiment gets no further images. Default: no limit."
    ),
    opener: Opener = OPENER,
    seed: int = typer.Option(0, min=0, max=MAX_SEED, help="Draws the images for the experiments."),
    root: Path | None = ROOT,
    on_bad: str = ON_BAD,
    schema: bool = typer.Option(
        False,
        "--schema",
        is_eager=True,
        callback=lambda wanted: _print_schema() if wanted else None,
        help="Print the JSON schema of what --json prints, and end.",
    ),
) -> None:
    """Does the model lean on a shortcut, known or not? Writes one HTML file that opens anywhere."""
    from foveate.report import audit as run_audit

    models, data = models_and_data(what, data)
    limits = _limits(fail_under)
    for place in (out, groups_out):
        if place is not None:
            check_writable(place)
    benchmark = open_data(data, root)
    dataset = audited = chosen_split(benchmark, split)
    if ignore_attributes:
        dataset = dataset.without_attributes()
    loaded = {label: opener.open(model, dataset) for label, model in zip(model_labels(models), models, strict=True)}
    result = run_audit(
        loaded, dataset, attribute=attribute, examples=examples, seed=seed, discover=discover, objects=objects,
        minutes=minutes, show_progress=True, on_bad=on_bad,
    )  # fmt: skip
    failed = result.failures(limits)  # before writing: a mistyped metric should not leave a report behind
    result.save(out)
    if as_json:
        echo(json.dumps({**result.to_dict(), "failures": failed}, indent=2, ensure_ascii=False))
    else:
        echo(f"{result.verdict}\nreport: {out}")
    if groups_out is not None:
        _write_groups(result, benchmark, audited, groups_out, quiet=as_json)
    if failed:
        for sentence in failed:
            echo(sentence, err=True)
        raise typer.Exit(1)


def _print_schema() -> None:
    from foveate.report import Findings

    form = Findings.model_json_schema()
    form["properties"]["failures"] = {"type": "array", "items": {"type": "string"}}  # what --fail-under adds
    echo(json.dumps(form, indent=2))
    raise typer.Exit()


def _limits(pairs: list[str] | None) -> dict[str, float]:
    limits = {}
    for name, value in settings_of(pairs).items():
        if not isinstance(value, (int, float)) or not 0 <= value <= 1:
            raise FoveateError(f"--fail-under takes a share between 0 and 1, such as {name}=0.8; found '{value}'.")
        limits[name] = float(value)
    return limits


def _write_groups(result: Audit, benchmark: Benchmark, audited: GroupedDataset, out: Path, quiet: bool) -> None:
    """Every image of the data with what the shortcut says in it; with groups of errors alone, the audited ones."""
    rows: list[list[object]] = [["path", "label", "attribute", "split"]]
    own = result.pseudo_groups()
    by_shortcut = any(found.judgement.shortcuts for found in result.discoveries.values())
    for split, images in benchmark.splits.items():
        if images is audited:
            dataset = own
        elif by_shortcut:
            if not quiet:
                echo(f"groups: reading the shortcut off the {len(images)} images of {split}")
            dataset = result.pseudo_groups(images)
        else:
            continue
        names = dataset.attribute_names or []
        for i, attribute in enumerate(dataset.attributes if dataset.attributes is not None else ()):
            place = Path(dataset.where(i))
            label = dataset.class_names[dataset.labels[i]]
            rows.append([place.resolve() if place.exists() else place, label, names[attribute], split])
    write_rows(out, rows)
    if not quiet:
        echo(f"groups: {out}")
