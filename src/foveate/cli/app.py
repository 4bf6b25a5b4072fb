"""``foveate app``: the interactive page."""

from __future__ import annotations

from pathlib import Path

import typer

from foveate.cli.inputs import DATA_HELP, DATA_OPTION, models_and_data, open_data
from foveate.cli.inputs import ROOT as _ROOT
from foveate.cli.opening import MODEL_HELP, OPENER, Opener, model_labels, opens_models
from foveate.cli.screen import echo


@opens_models
def app(
    what: list[str] = typer.Argument(
        metavar="MODEL… DATA", help=f"One or two models: {MODEL_HELP} Then the data: {DATA_HELP}"
    ),
    data: str | None = DATA_OPTION,
    host: str = typer.Option("127.0.0.1", help="Address to serve on; the default is this machine alone."),
    port: int | None = typer.Option(None, help="Port; without it, the first free one from 7860."),
    share: bool = typer.Option(False, "--share", help="Make a public link. Everyone who has it sees your images."),
    browser: bool = typer.Option(False, "--browser", help="Open the page in a browser."),
    limit: int = typer.Option(1000, min=8, help="At most this many images of a split, so that changes show at once."),
    opener: Opener = OPENER,
    root: Path | None = _ROOT,
) -> None:
    """Browse images, see where a model looks, switch parts off, paint masks, compare two models."""
    from foveate.app.page import Page
    from foveate.app.serving import check_place, ending_on_terminate
    from foveate.app.state import Session
    from foveate.errors import FoveateError

    named, data = models_and_data(what, data)
    if len(named) > 2:
        raise FoveateError("expected one or two models and then the data: foveate app MODEL [MODEL2] DATA.")
    check_place(host, port)  # before minutes of preparing
    with ending_on_terminate():
        paths = [Path(p) for p in named]
        labels, benchmark = model_labels(named), open_data(data, root)
        shown = next(iter(benchmark.splits.values()), None)
        models = {label: opener.open(name, shown) for label, name in zip(labels, named, strict=True)}
        echo("preparing the page …")
        session = Session(models, benchmark, folders=dict(zip(labels, paths, strict=True)), limit=limit)
        Page(session).launch(host=host, port=port, share=share, browser=browser)
