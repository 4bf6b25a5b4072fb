"""``foveate fit | eval | predict``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.text import Text

from foveate.cli.inputs import ROOT as _ROOT
from foveate.cli.inputs import check_settings, comparison_table, group_table, labels_of, open_data, settings_of
from foveate.cli.screen import console, echo, echo_csv
from foveate.errors import DataError
from foveate.files import check_writable, write_rows
from foveate.parameters import MAX_SEED

if TYPE_CHECKING:
    from foveate.data.benchmark import Benchmark

_DATA = typer.Argument(help="A CSV file, a folder, or a dataset name with options: critters:strength=0.9.")
_ON_BAD = typer.Option("raise", help="What an unreadable image does: raise or skip.")


def fit(
    data: str = _DATA,
    out: Path = typer.Option(..., "--out", "-o", help="Folder to save the model in."),
    system: str = typer.Option("ERM", help="Which system; see `foveate systems`."),
    backbone: str | None = typer.Option(None, help="A timm model name."),
    epochs: int | None = typer.Option(None),
    lr: float | None = typer.Option(None),
    batch_size: int | None = typer.Option(None),
    seed: int | None = typer.Option(None, min=0, max=MAX_SEED),
    select: str | None = typer.Option(None, help="Metric on val that chooses the epoch."),
    base: Path | None = typer.Option(None, help="A saved model to start from (DFR, DAR)."),
    settings: list[str] | None = typer.Option(None, "--set", help="Any further setting as name=value."),
    val_share: float | None = typer.Option(None, help="Hold this share of the training images out as val."),
    target_size: int | None = typer.Option(None, help="Move a group-balanced target of about this many out of val."),
    with_target: bool = typer.Option(False, "--with-target", help="Train on the target images too (not for a base)."),
    root: Path | None = _ROOT,
    on_bad: str = _ON_BAD,
) -> None:
    """Train a system on a dataset's train images (DFR and DAR: on its target images), choose on val, and save it."""
    from foveate.assemble.saving import check_folder, load
    from foveate.systems import get_system

    check_folder(check_writable(out))  # before hours of work, not after
    kind = get_system(system)
    given = {
        "epochs": epochs,
        "lr": lr,
        "batch_size": batch_size,
        "seed": seed,
        "select": select,
        "backbone": backbone,
    }
    chosen = {k: v for k, v in given.items() if v is not None} | settings_of(settings) | {"on_bad": on_bad}
    check_settings(kind, chosen)
    if base is not None:
        chosen["base"] = load(base)
    try:
        model = kind(**chosen)
    except TypeError as error:
        raise DataError(f"{system} does not take these settings: {error}.") from error
    benchmark = _with_splits(open_data(data, root), val_share, target_size)
    val = benchmark.get("val")
    if base is not None:  # systems on a fitted base adapt on the small balanced set
        model.fit(benchmark.target, val=val)
    else:
        model.fit(benchmark.train, target=benchmark.target if with_target else None, val=val)
    model.save(out)
    echo(f"saved {type(model).__name__} to {out} ({model.supervision()})")
    if val is not None and set(val.class_names) <= set(model.class_names_):  # not when it learned the attribute
        from foveate.assess import evaluate as run_evaluate

        group_table(run_evaluate(model, val, on_bad=on_bad), "validation")


def _with_splits(benchmark: Benchmark, val_share: float | None, target_size: int | None) -> Benchmark:
    """The benchmark with the splits that were asked for; one that is there already is not replaced."""
    for split, wanted, option in (("val", val_share, "--val-share"), ("target", target_size, "--target-size")):
        if wanted is not None and split in benchmark:
            raise DataError(f"{benchmark.name} has a '{split}' split already; leave {option} out.")
    if val_share is not None:
        benchmark = benchmark.with_val(val_share)
    return benchmark if target_size is None else benchmark.with_target(target_size)


def evaluate(
    models: list[Path] = typer.Argument(help="Saved models."),
    data: str = typer.Option(..., "--data", "-d", help=str(_DATA.help)),
    split: str = typer.Option("test", help="train, target, val or test."),
    as_json: bool = typer.Option(False, "--json", help="Print the figures for programs."),
    metric: str | None = typer.Option(None, help="Print this figure alone; it fails when it cannot be had."),
    root: Path | None = _ROOT,
    on_bad: str = _ON_BAD,
) -> None:
    """Accuracy as a whole, by group, and of the worst group."""
    from foveate.assemble.saving import load
    from foveate.assess import evaluate as run_evaluate
    from foveate.measure import described

    loaded = {label: load(path) for label, path in zip(labels_of(models), models, strict=True)}
    dataset = open_data(data, root)[split]
    reports = {name: run_evaluate(model, dataset, on_bad=on_bad) for name, model in loaded.items()}
    if metric is not None:
        for name, report in reports.items():
            echo(f"{name} {metric} {described(metric).text(report.value(metric))}")
            for remark in report.remarks():  # beside the figure, not in what a program reads
                echo(f"{name}: {remark}", err=True)
        return
    if as_json:
        echo(json.dumps({name: report.to_dict() for name, report in reports.items()}, indent=2))
        return
    for name, report in reports.items():
        group_table(report, f"{name} on {split}")
    used = {name: model.supervision() for name, model in loaded.items()}
    if len(reports) > 1:
        console.print(comparison_table(reports, used))
    else:
        console.print(Text(f"labels used: {', '.join(used.values())}"))


def predict(
    model: Path = typer.Argument(help="A saved model."),
    data: str = _DATA,
    split: str = typer.Option("test", help="train, target, val or test."),
    out: Path | None = typer.Option(None, "--out", "-o", help="CSV file to write; without it, the screen."),
    root: Path | None = _ROOT,
    on_bad: str = _ON_BAD,
) -> None:
    """Predicted class and probability of every image, as CSV.

    The class is 'unreadable' for an image that was skipped, and 'no answer' where the model gave NaN.
    """
    from foveate.assemble.saving import load
    from foveate.assemble.system import aligned
    from foveate.measure import NO_ANSWER, decided_by_shares, name_of

    if out is not None:
        check_writable(out)
    system = load(model)
    dataset = aligned(system, open_data(data, root)[split])
    chances = system.predict_proba(dataset, on_bad=on_bad)
    answers = decided_by_shares(chances)
    rows: list[list[str]] = [["image", "label", "prediction", "probability"]]
    for i, answer in enumerate(answers):
        chance = "" if answer < 0 else f"{chances[i, answer]:.4f}"
        told = [name_of(int(answer), system.class_names_), chance]
        rows.append([dataset.where(i), dataset.class_names[dataset.labels[i]], *told])
    if silent := int((answers == NO_ANSWER).sum()):
        echo(f"no answer for {silent} of {len(answers)} images: the model gave NaN.", err=True)
    if out is None:
        echo_csv(rows)
        return
    write_rows(out, rows)
    echo(f"wrote {out}")


def systems() -> None:
    """Systems by name, and what labels each needs."""
    from rich.table import Table

    from foveate.systems import get_system, list_systems

    table = Table("system", "labels it needs", "what it is")
    for name in list_systems():
        kind = get_system(name)
        table.add_row(name, str(kind.needs), (kind.__doc__ or "").strip().splitlines()[0])
    console.print(table)
