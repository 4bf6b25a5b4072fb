"""``foveate eval | systems``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.text import Text

from foveate.cli.completing import datasets
from foveate.cli.inputs import (
    DATA_HELP,
    DATA_OPTION,
    ON_BAD,
    SPLIT,
    chosen_split,
    comparison_table,
    group_table,
    models_and_data,
    open_data,
)
from foveate.cli.inputs import ROOT as _ROOT
from foveate.cli.opening import MODEL_HELP, OPENER, Opener, model_labels, opens_models
from foveate.cli.screen import console, echo, echo_json, plain_table
from foveate.registries import SYSTEMS

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from foveate.assemble.system import System
    from foveate.data.benchmark import Benchmark
    from foveate.data.dataset import GroupedDataset

_DATA = typer.Argument(help=DATA_HELP, autocompletion=datasets)


@opens_models
def evaluate(
    what: list[str] = typer.Argument(metavar="MODEL… DATA", help=f"Models ({MODEL_HELP}) Then the data: {_DATA.help}"),
    data: str | None = DATA_OPTION,
    split: str | None = SPLIT,
    as_json: bool = typer.Option(False, "--json", help="Print the figures for programs."),
    metric: str | None = typer.Option(None, help="Print this figure alone; fails when it cannot be computed."),
    opener: Opener = OPENER,
    root: Path | None = _ROOT,
    on_bad: str = ON_BAD,
) -> None:
    """Accuracy as a whole, by group, and of the worst group."""
    from foveate.assess import evaluate as run_evaluate
    from foveate.measure import described

    models, data = models_and_data(what, data)
    benchmark = open_data(data, root)
    dataset = chosen_split(benchmark, split)
    loaded = {label: opener.open(model, dataset) for label, model in zip(model_labels(models), models, strict=True)}
    reports = {
        name: run_evaluate(model, dataset, train_counts=_counts(model, benchmark, dataset), on_bad=on_bad)
        for name, model in loaded.items()
    }
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


def _counts(model: System, benchmark: Benchmark, dataset: GroupedDataset) -> NDArray[np.int64] | None:
    """Training images per group from the data's own train split, for a model that does not remember any."""
    from foveate.assemble.system import aligned

    train = benchmark.get("train")
    if model.train_counts_ is not None and model.attribute_names_ == dataset.attribute_names:
        return None
    if train is None or train is dataset or train.attributes is None:
        return None
    return aligned(model, train).group_counts


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
