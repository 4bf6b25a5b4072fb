"""``foveate data …`` and ``foveate assets``."""

from __future__ import annotations

import json
from pathlib import Path

import typer
from rich.table import Table

from foveate.cli.inputs import ROOT as _ROOT
from foveate.cli.inputs import console, open_data
from foveate.errors import DataError, suggest

data_app = typer.Typer(help="List, prepare, check, compose and export datasets.", no_args_is_help=True)


@data_app.command("list")
def list_data() -> None:
    """Datasets by name, and whether they are ready on this machine."""
    from foveate import assets
    from foveate.data.registry import LOADERS

    ready = {row.name: row.ready for row in assets.status()}
    needs = {"dominoes": ["mnist", "cifar10"], "cmnist": ["mnist"]}
    table = Table("name", "needs", "ready", "what it is")
    for name, make in sorted(LOADERS.items()):
        wanted = needs.get(name, [])
        here = all(ready.get(w, False) for w in wanted)
        first = (make.__doc__ or "").strip().splitlines()[0]
        table.add_row(name, ", ".join(wanted) or "nothing", "yes" if here else f"foveate data prepare {name}", first)
    console.print(table)


@data_app.command()
def check(
    path: str = typer.Argument(help="A CSV file, a folder, or a dataset name."),
    root: Path | None = _ROOT,
    as_json: bool = typer.Option(False, "--json", help="Print the findings for programs."),
    strict: bool = typer.Option(False, "--strict", help="Let warnings count as errors."),
    tiny: int = typer.Option(10, help="Warn about groups with fewer images."),
) -> None:
    """Look for everything that is wrong with a dataset. Exit code 1 when something is."""
    from foveate.data.check import check as run_check
    from foveate.data.registry import LOADERS

    source = open_data(path, root) if path.partition(":")[0] in LOADERS and not Path(path).exists() else path
    report = run_check(source, root=root, tiny=tiny)
    if as_json:
        typer.echo(json.dumps(report.to_dict(), indent=2, ensure_ascii=False))
    else:
        report.print(console)
    if not report.ok or (strict and report.problems):
        raise typer.Exit(1)


@data_app.command()
def prepare(
    name: str = typer.Argument(help="A dataset name, for instance dominoes."),
    root: Path | None = typer.Option(None, help="Folder with files you already have, or where to put them."),
) -> None:
    """Fetch and verify what a dataset is made of, and count its groups."""
    from foveate.data.cmnist import prepare as prepare_cmnist
    from foveate.data.dominoes import prepare as prepare_dominoes

    preparers = {"dominoes": prepare_dominoes, "cmnist": prepare_cmnist}
    if name == "critters":
        typer.echo("critters are drawn when asked for; there is nothing to prepare.")
        return
    if name not in preparers:
        raise DataError(
            f"unknown dataset '{name}'.{suggest(name, list(preparers))} Can be prepared: {', '.join(preparers)}."
        )
    preparers[name](root, tell=typer.echo)
    benchmark = open_data(name, root)
    for split, ds in benchmark.splits.items():
        typer.echo(f"{split:<7} {len(ds):>7,} images, {ds.num_classes} classes, {ds.num_attributes} attributes")


@data_app.command()
def export(
    data: str = typer.Argument(help="A dataset name with options, for instance critters:size=96,strength=0.9."),
    out: Path = typer.Argument(help="Folder to write."),
    overwrite: bool = typer.Option(False, "--overwrite", help="Replace what is there."),
    root: Path | None = _ROOT,
) -> None:
    """Write a dataset as image files with a benchmark.csv."""
    from foveate.data.tables import write_csv

    written = write_csv(open_data(data, root), out, overwrite)
    typer.echo(f"wrote {written}")


@data_app.command()
def compose(
    foregrounds: Path = typer.Option(..., help="CSV of the objects: one row an image."),
    backgrounds: Path = typer.Option(..., help="CSV of the scenes: one row an image."),
    out: Path = typer.Option(..., help="Folder to write."),
    fg_path: str = typer.Option("{path}", help="Image path from the row's columns, e.g. 'photos/{name}.jpg'."),
    fg_mask: str = typer.Option("{mask}", help="Mask path from the row's columns."),
    fg_label: str = typer.Option("label", help="Column with the class."),
    bg_path: str = typer.Option("{path}", help="Scene path from the row's columns."),
    bg_label: str = typer.Option("label", help="Column with the scene."),
    size: int = typer.Option(224, help="Pixels of a side."),
    strength: float = typer.Option(0.95, help="How often class and scene go together in train."),
    scale: tuple[float, float] = typer.Option((0.5, 0.8), help="Object size as a share of the picture."),
    centre_bias: float = typer.Option(0.0, help="1 = always in the middle, 0 = anywhere."),
    train: int | None = typer.Option(None, help="Training images."),
    target: int | None = typer.Option(None, help="Images in the small balanced set."),
    val: int | None = typer.Option(None, help="Validation images."),
    test: int | None = typer.Option(None, help="Test images."),
    mask_threshold: int = typer.Option(255, help="Mask values from here up are object."),
    soft_edge: float = typer.Option(1.0, help="Width of the soft edge in output pixels."),
    image_format: str = typer.Option("png", help="png (exact) or jpg (a quarter of the space)."),
    on_bad: str = typer.Option("skip", help="What an unreadable picture does: raise or skip."),
    reuse: bool = typer.Option(False, "--reuse", help="Let an object appear several times within its split."),
    overwrite: bool = typer.Option(False, "--overwrite", help="Replace what is there."),
    seed: int = typer.Option(0, help="Same seed, same pictures."),
) -> None:
    """Paste objects on scenes, Waterbirds-style, with a spurious correlation of the strength you choose."""
    from foveate.data.compose import compose as run_compose

    counts = {k: v for k, v in (("train", train), ("target", target), ("val", val), ("test", test)) if v is not None}
    benchmark = run_compose(
        foregrounds, backgrounds, out,
        fg_path=fg_path, fg_mask=fg_mask, fg_label=fg_label, bg_path=bg_path, bg_label=bg_label,
        size=size, strength=strength, scale=scale, position=centre_bias, counts=counts or None, seed=seed,
        mask_threshold=mask_threshold, soft_edge=soft_edge, image_format=image_format, on_bad=on_bad,
        reuse=reuse, overwrite=overwrite,
    )  # fmt: skip
    typer.echo(f"wrote {out}: {benchmark}")


def assets_command(
    fetch: str | None = typer.Argument(None, help="Fetch this one; without it, list what there is."),
    root: Path | None = typer.Option(None, help="Folder to look in and to write to."),
) -> None:
    """Weights and raw data: where they come from, their size and licence, and whether they are here."""
    from foveate import assets

    if fetch is not None:
        typer.echo(f"{fetch}: {assets.fetch(fetch, root, tell=typer.echo)}")
        return
    table = Table("name", "size", "licence", "ready", "sources")
    for row in assets.status(root):
        table.add_row(
            row.name, f"{row.size / 1e6:.1f} MB", row.licence, "yes" if row.ready else "no", ", ".join(row.sources)
        )
    console.print(table)
