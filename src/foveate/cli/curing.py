"""``foveate cure``: a model with a shortcut in, a folder with a cured one out; or the original, and why."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from foveate.cli.inputs import DATA_HELP, DATA_OPTION, OBJECTS, ON_BAD, ROOT, needed_data, open_data
from foveate.cli.interrupts import STOPPED
from foveate.cli.opening import MODEL_HELP, OPENER, Opener, opens_models
from foveate.cli.screen import echo
from foveate.errors import FoveateError
from foveate.parameters import MAX_SEED


@opens_models
def cure(
    model: str = typer.Argument(help=f"The model: {MODEL_HELP}"),
    images: str | None = typer.Argument(None, metavar="DATA", help=DATA_HELP),
    data: str | None = DATA_OPTION,
    out: Path = typer.Option(
        Path("cured"), "--out", "-o", help="Folder for the model, its export, report.html and cure.json."
    ),
    minutes: float = typer.Option(20, help="Time for everything; what would take longer is not begun."),
    allowed_drop: float = typer.Option(3, help="Points that the average may fall, every group counted alike."),
    real_drop: float = typer.Option(
        15, help="Points that the average on the validation images as they come may fall; 100 sets no limit."
    ),
    ignore_attributes: bool = typer.Option(False, "--ignore-attributes", help="Cure as if no attribute were known."),
    objects: str | None = OBJECTS,
    as_json: bool = typer.Option(False, "--json", help="Print the record (cure.json) for programs."),
    opener: Opener = OPENER,
    seed: int = typer.Option(0, min=0, max=MAX_SEED, help="Divides and draws the images."),
    root: Path | None = ROOT,
    on_bad: str = ON_BAD,
) -> None:
    """Audit a model, try the remedies that fit, and write the best one with a report of before and after.

    No attributes are needed. A model without a shortcut is left alone. Ctrl-C leaves the best so far; the same call
    goes on.
    """
    from foveate.remedy import cure as run_cure
    from foveate.remedy.records import check_out

    limits = {"--allowed-drop": allowed_drop, "--real-drop": real_drop}
    for name, points in limits.items():
        if not 0 <= points <= 100:
            raise FoveateError(f"{name} is in points from 0 to 100; found {points:g}.")
    check_out(out)
    benchmark = open_data(needed_data(images, data), root)
    if ignore_attributes:
        benchmark = benchmark.without_attributes()
    first = next(iter(benchmark.splits.values()))
    opened = opener.open(model, first)
    found = run_cure(
        opened, benchmark, out=out, minutes=minutes, allowed_drop=allowed_drop / 100,
        real_drop=real_drop / 100, objects=objects, on_bad=on_bad, seed=seed,
        progress=lambda line: echo(line, err=True), show_progress=True,
    )  # fmt: skip
    record = found.record()
    if as_json:
        echo(json.dumps(record.model_dump(mode="json"), indent=2, ensure_ascii=False))
    else:
        echo("\n".join([record.headline, *record.sentences]))
        if found.chosen is not None:
            echo(f"model: {out / 'model'}")
        echo(f"report: {out / 'report.html'}")
    if found.interrupted:
        raise typer.Exit(STOPPED)
