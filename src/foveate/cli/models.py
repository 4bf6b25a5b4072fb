"""``foveate fit | eval | systems``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.text import Text

from foveate.cli.completing import datasets, metrics
from foveate.cli.completing import systems as system_names
from foveate.cli.inputs import (
    DATA_HELP,
    DATA_OPTION,
    SPLIT,
    check_settings,
    chosen_split,
    comparison_table,
    group_table,
    models_and_data,
    open_data,
    settings_of,
)
from foveate.cli.inputs import ROOT as _ROOT
from foveate.cli.opening import (
    CLASSES,
    LAYER,
    MEAN,
    MODEL_HELP,
    SIZE,
    STD,
    TRUST,
    WEIGHTS,
    Opener,
    is_elsewhere,
    model_labels,
)
from foveate.cli.screen import console, echo, echo_json, plain_table
from foveate.errors import DataError
from foveate.files import check_writable
from foveate.parameters import MAX_SEED
from foveate.registries import SYSTEMS

if TYPE_CHECKING:
    from foveate.data.benchmark import Benchmark

_DATA = typer.Argument(help=DATA_HELP, autocompletion=datasets)
_ON_BAD = typer.Option("raise", help="What an unreadable image does: raise or skip.")


def fit(
    data: str = _DATA,
    out: Path = typer.Option(..., "--out", "-o", help="Folder to save the model in."),
    system: str = typer.Option("ERM", help="Which system; see `foveate systems`.", autocompletion=system_names),
    backbone: str | None = typer.Option(None, help="A timm model name."),
    epochs: int | None = typer.Option(None),
    lr: float | None = typer.Option(None),
    batch_size: int | None = typer.Option(None),
    seed: int | None = typer.Option(None, min=0, max=MAX_SEED),
    select: str | None = typer.Option(None, help="Metric on val that chooses the epoch.", autocompletion=metrics),
    base: str | None = typer.Option(None, help=f"A model to start from (DFR, DAR): {MODEL_HELP}"),
    settings: list[str] | None = typer.Option(None, "--set", help="Any further setting as name=value."),
    val_share: float | None = typer.Option(None, help="Hold this share of the training images out as val."),
    target_size: int | None = typer.Option(None, help="Move a group-balanced target of about this many out of val."),
    scratch: bool = typer.Option(False, "--scratch", help="Start from random weights, also where trained ones exist."),
    with_target: bool = typer.Option(False, "--with-target", help="Train on the target images too (not for a base)."),
    classes: str | None = CLASSES,
    size: int | None = SIZE,
    mean: str | None = MEAN,
    std: str | None = STD,
    trust: bool = TRUST,
    weights: Path | None = WEIGHTS,
    layer: str | None = LAYER,
    root: Path | None = _ROOT,
    on_bad: str = _ON_BAD,
) -> None:
    """Train a system on a dataset's train images (DFR and DAR: on its target images), choose on val, and save it."""
    from foveate.assemble.saving import check_folder
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
    if scratch:
        chosen["pretrained"] = False
    check_settings(kind, chosen)
    opener, benchmark = Opener(classes, size, mean, std, trust, weights, layer), None
    if base is not None:
        if is_elsewhere(base):  # it may take its classes from the data
            benchmark = _with_splits(open_data(data, root), val_share, target_size)
        chosen["base"] = opener.open(base, None if benchmark is None else benchmark.target)
    try:
        model = kind(**chosen)
    except TypeError as error:
        raise DataError(f"{system} does not take these settings: {error}.") from error
    benchmark = benchmark or _with_splits(open_data(data, root), val_share, target_size)
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
    what: list[str] = typer.Argument(metavar="MODEL… DATA", help=f"Models ({MODEL_HELP}) Then the data: {_DATA.help}"),
    data: str | None = DATA_OPTION,
    split: str | None = SPLIT,
    as_json: bool = typer.Option(False, "--json", help="Print the figures for programs."),
    metric: str | None = typer.Option(None, help="Print this figure alone; it fails when it cannot be had."),
    classes: str | None = CLASSES,
    size: int | None = SIZE,
    mean: str | None = MEAN,
    std: str | None = STD,
    trust: bool = TRUST,
    weights: Path | None = WEIGHTS,
    root: Path | None = _ROOT,
    on_bad: str = _ON_BAD,
) -> None:
    """Accuracy as a whole, by group, and of the worst group."""
    from foveate.assess import evaluate as run_evaluate
    from foveate.measure import described

    models, data = models_and_data(what, data)
    dataset = chosen_split(open_data(data, root), split)
    opener = Opener(classes, size, mean, std, trust, weights)
    loaded = {label: opener.open(model, dataset) for label, model in zip(model_labels(models), models, strict=True)}
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
        group_table(report, f"{name} on {split or dataset.name}")
    used = {name: model.supervision() for name, model in loaded.items()}
    if len(reports) > 1:
        console.print(comparison_table(reports, used))
    else:
        console.print(Text(f"labels used: {', '.join(used.values())}"))


def systems(as_json: bool = typer.Option(False, "--json", help="Print the table for programs.")) -> None:
    """Systems by name, and what labels each needs."""
    from foveate.systems import get_system, list_systems

    kinds = {name: get_system(name) for name in list_systems()}
    told = SYSTEMS.summaries()
    if as_json:
        echo_json([{"name": name, "needs": str(kinds[name].needs), "summary": told[name]} for name in kinds])
        return
    table = plain_table("system", "labels it needs", "what it is")
    for name, kind in kinds.items():
        table.add_row(Text(name), Text(str(kind.needs)), Text(told[name]))
    console.print(table)
