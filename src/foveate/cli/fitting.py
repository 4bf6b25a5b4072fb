"""``foveate fit``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from foveate.cli.completing import datasets, metrics, systems
from foveate.cli.inputs import DATA_HELP, IMPORT, ON_BAD, ROOT, check_settings, group_table, open_data, settings_of
from foveate.cli.opening import MODEL_HELP, OPENER, Opener, is_elsewhere, opens_models
from foveate.cli.screen import confirmed, echo, echo_json, on_screen
from foveate.errors import DataError
from foveate.files import check_writable
from foveate.parameters import MAX_SEED

if TYPE_CHECKING:
    from foveate.assemble.system import System
    from foveate.data.benchmark import Benchmark
    from foveate.data.dataset import GroupedDataset
    from foveate.measure import GroupReport


@opens_models
def fit(
    data: str = typer.Argument(help=DATA_HELP, autocompletion=datasets),
    out: Path = typer.Option(..., "--out", "-o", help="Folder to save the model in."),
    system: str = typer.Option("ERM", help="Which system; see `foveate systems`.", autocompletion=systems),
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
    force: bool = typer.Option(False, "--force", help="Replace a model that is saved at --out without asking."),
    as_json: bool = typer.Option(False, "--json", help="Print what was saved and its figures on val for programs."),
    opener: Opener = OPENER,
    imports: list[str] | None = IMPORT,
    root: Path | None = ROOT,
    on_bad: str = ON_BAD,
) -> None:
    """Train a system on a dataset's train images (DFR and DAR: on its target images), choose on val, and save it."""
    from foveate.assemble.saving import check_folder
    from foveate.assemble.worth import measured_elsewhere
    from foveate.bench.run import import_modules
    from foveate.systems import get_system

    check_folder(check_writable(out))  # before hours of work, not after
    if not may_replace(out, force):
        echo(f"{out} was left as it is; choose another --out.")
        raise typer.Exit(2)
    import_modules(imports or ())
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
    start, benchmark = None, None
    if base is not None:
        if is_elsewhere(base):  # it may take its classes from the data
            benchmark = _with_splits(open_data(data, root), val_share, target_size)
        chosen["base"] = start = opener.open(base, None if benchmark is None else benchmark.target)
    try:
        model: Any = kind(**chosen)
    except TypeError as error:
        raise DataError(f"{system} does not take these settings: {error}.") from error
    benchmark = benchmark or _with_splits(open_data(data, root), val_share, target_size)
    val = benchmark.get("val")
    with on_screen("foveate.start"), measured_elsewhere():  # what a network starts from; the report is below
        if base is not None:  # systems on a fitted base adapt on the small balanced set
            model.fit(benchmark.target, val=val)
        else:
            model.fit(benchmark.train, target=benchmark.target if with_target else None, val=val)
    model.save(out)
    told = {"system": type(model).__name__, "folder": str(out), "supervision": model.supervision()}
    echo(f"saved {told['system']} to {out} ({told['supervision']})", err=as_json)
    report = None
    if val is not None and set(val.class_names) <= set(model.class_names_):  # not when it learned the attribute
        report = _report(model, val, start, on_bad, as_json)
    if as_json:
        echo_json({**told, "validation": None if report is None else report.to_dict()})


def _report(model: System, val: GroupedDataset, base: System | None, on_bad: str, quiet: bool) -> GroupReport:
    """How good it is on ``val``, as a table unless ``quiet``; and when it is not, a word on it."""
    from foveate.assess import evaluate, misgivings

    report = evaluate(model, val, on_bad=on_bad)
    if not quiet:
        group_table(report, "validation")
    for sentence in misgivings(model, val, base, report=report, on_bad=on_bad):
        echo(f"warning: {sentence}", err=True)
    return report


def may_replace(out: Path, force: bool) -> bool:
    """Whether a model that is saved at ``out`` may be written over; where there is none, of course."""
    if not (out / "system.json").is_file():
        return True
    return confirmed(f"{out} holds a saved model. Replace it?", force, "--force")


def _with_splits(benchmark: Benchmark, val_share: float | None, target_size: int | None) -> Benchmark:
    """The benchmark with the splits that were asked for; one that is there already is not replaced."""
    for split, wanted, option in (("val", val_share, "--val-share"), ("target", target_size, "--target-size")):
        if wanted is not None and split in benchmark:
            raise DataError(f"{benchmark.name} has a '{split}' split already; leave {option} out.")
    if val_share is not None:
        benchmark = benchmark.with_val(val_share)
    return benchmark if target_size is None else benchmark.with_target(target_size)
