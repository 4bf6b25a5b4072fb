"""``foveate export | card``."""

from __future__ import annotations

from pathlib import Path

import typer

from foveate.cli.inputs import DATA_OPTION, ON_BAD, SPLIT, chosen_split, one_data, open_data
from foveate.cli.inputs import ROOT as _ROOT
from foveate.cli.opening import MODEL_HELP, OPENER, Opener, opens_models
from foveate.cli.screen import echo
from foveate.files import check_writable


@opens_models
def export(
    model: str = typer.Argument(help=f"The model: {MODEL_HELP}"),
    out: Path = typer.Argument(help="Folder to write."),
    format: str = typer.Option("onnx", help="onnx or torch-export."),
    data: str | None = typer.Option(
        None, "--data", "-d", help="Compare on images of this dataset, not on noise, and measure it."
    ),
    split: str | None = SPLIT,
    images: int = typer.Option(16, min=1, help="How many images to compare on; with --data."),
    tolerance: float = typer.Option(1e-3, min=0.0, help="Largest difference let pass (1 = the largest logit)."),
    opener: Opener = OPENER,
    root: Path | None = _ROOT,
) -> None:
    """Write a model as ONNX or torch.export graphs, and check that they compute the same."""
    from foveate.export import to_folder

    check_writable(out)
    dataset = None if data is None else chosen_split(open_data(data, root), split)
    system = opener.open(model, dataset)
    given = None
    if dataset is not None:
        given = [dataset[i].image for i in range(min(images, len(dataset)))]
    parity = to_folder(system, out, format, images=given, tolerance=tolerance, data=dataset)
    files = ", ".join(sorted(p.name for p in out.iterdir()))
    echo(f"wrote {out} ({files})\nchecked: {parity}")


def card(
    model: Path = typer.Argument(help="A saved model."),
    data: str | None = typer.Argument(None, help="Measure it on this: a CSV file, a folder, or a dataset name."),
    data_option: str | None = DATA_OPTION,
    split: str | None = SPLIT,
    out: Path | None = typer.Option(None, "--out", "-o", help="Markdown file to write; without it, the screen."),
    root: Path | None = _ROOT,
    on_bad: str = ON_BAD,
) -> None:
    """A model card in Markdown: groups, labels used, interventions, limits."""
    from foveate.assemble.saving import load
    from foveate.export import model_card
    from foveate.files import write_text

    data = one_data(data, data_option)
    dataset = None if data is None else chosen_split(open_data(data, root), split)
    text = model_card(load(model), dataset, on_bad=on_bad)
    if out is None:
        echo(text, nl=False)
    else:
        write_text(out, text)
        echo(f"wrote {out}")
