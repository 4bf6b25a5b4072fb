"""``foveate fit``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from foveate.cli.completing import datasets, metrics, systems
from foveate.cli.inputs import DATA_HELP, IMPORT, ROOT, check_settings, group_table, open_data, settings_of
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
)
from foveate.cli.screen import confirmed, echo, on_screen
from foveate.errors import DataError
from foveate.files import check_writable
from foveate.parameters import MAX_SEED

if TYPE_CHECKING:
    from foveate.assemble.system import System
    from foveate.data.benchmark import Benchmark
    from foveate.data.dataset import GroupedDataset


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
    classes: str | None = CLASSES,
    size: int | None = SIZE,
    mean: str | None = MEAN,
    std: str | None = STD,
    trust: bool = TRUST,
    weights: Path | None = WEIGHTS,
    layer: str | None = LAYER,
    imports: list[str] | None = IMPORT,
    root: Path | None = ROOT,
    on_bad: str = typer.Option("raise", help="What an unreadable image does: raise or skip."),
) -> None:
    """Train a system on a dataset's train images (DFR and DAR: on its target images), choose on val, and save it."""
    from foveate.assemble.saving import check_folder
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
        opener = Opener(classes, size, mean, std, trust, weights, layer)
        chosen["base"] = start = opener.open(base, None if benchmark is None else benchmark.target)
    try:
        model: Any = kind(**chosen)
    except TypeError as error:
        raise DataError(f"{system} does not take these settings: {error}.") from error
    benchmark = benchmark or _with_splits(open_data(data, root), val_share, target_size)
    val = benchmark.get("val")
    if "select" not in chosen:
        _select_what_is_possible(model, val)
    with on_screen("foveate.start"):  # what a network starts from
        if base is not None:  # systems on a fitted base adapt on the small balanced set
            model.fit(benchmark.target, val=val)
        else:
            model.fit(benchmark.train, target=benchmark.target if with_target else None, val=val)
    model.save(out)
    echo(f"saved {type(model).__name__} to {out} ({model.supervision()})")
    if val is not None and set(val.class_names) <= set(model.class_names_):  # not when it learned the attribute
        _report(model, val, start, on_bad)


def _report(model: System, val: GroupedDataset, base: System | None, on_bad: str) -> None:
    from foveate.assess import evaluate, misgivings

    report = evaluate(model, val, on_bad=on_bad)
    group_table(report, "validation")
    for sentence in misgivings(model, val, base, report=report, on_bad=on_bad):
        echo(f"warning: {sentence}", err=True)


def may_replace(out: Path, force: bool) -> bool:
    """Whether a model that is saved at ``out`` may be written over; where there is none, of course."""
    if not (out / "system.json").is_file():
        return True
    return confirmed(f"{out} holds a saved model. Replace it?", force, "--force")


def _select_what_is_possible(model: Any, val: GroupedDataset | None) -> None:
    """Where nobody chose and groups are not known, choose by the worst class instead, and say so."""
    from foveate.measure import USES_GROUPS

    usual = getattr(model, "select", None)
    if val is None or val.attributes is not None or usual not in USES_GROUPS:
        return
    model.set_params(select="worst_class")
    echo(
        f"{type(model).__name__} chooses by {usual} where groups are known. {val.name} has no attributes, so it "
        "chooses by worst_class here; --select takes another metric.",
        err=True,
    )


def _with_splits(benchmark: Benchmark, val_share: float | None, target_size: int | None) -> Benchmark:
    """The benchmark with the splits that were asked for; one that is there already is not replaced."""
    for split, wanted, option in (("val", val_share, "--val-share"), ("target", target_size, "--target-size")):
        if wanted is not None and split in benchmark:
            raise DataError(f"{benchmark.name} has a '{split}' split already; leave {option} out.")
    if val_share is not None:
        benchmark = benchmark.with_val(val_share)
    return benchmark if target_size is None else benchmark.with_target(target_size)
