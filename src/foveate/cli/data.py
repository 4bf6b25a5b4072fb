"""``foveate data …`` and ``foveate assets``."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.text import Text

from foveate.cli.inputs import ROOT as _ROOT
from foveate.cli.inputs import open_data
from foveate.cli.screen import WIDE, console, echo, echo_json, plain_table
from foveate.errors import DataError, suggest
from foveate.parameters import MAX_SEED
from foveate.registries import DATASETS

if TYPE_CHECKING:
    from foveate.data.check import CheckReport

data_app = typer.Typer(help="List, prepare, check, compose and export datasets.", no_args_is_help=True)


@data_app.command("list")
def list_data(
    root: Path | None = typer.Option(None, help="Folder to look in; by default where foveate keeps its files."),
    as_json: bool = typer.Option(False, "--json", help="Print the table for programs."),
) -> None:
    """Datasets by name: size, what they need, and whether they are ready on this machine."""
    from foveate.assets.catalogue import entries, kept_facts

    facts, titles = kept_facts(), DATASETS.summaries()
    if set(facts) != set(DATASETS.names()):  # other packages' datasets are known to their modules alone
        from foveate.data.registry import facts as ask

        facts = ask()
    rows = entries(facts, titles, root)
    if as_json:
        echo_json([asdict(row) for row in rows])
        return
    wide = console.width >= WIDE
    more = ("needs", "licence") if wide else ()
    table = plain_table("name", "images", "ready", "what it is", *more, right=("images",))
    for row in rows:
        size = "–" if row.images is None else f"{row.images:,}"
        told = (row.needs, row.licence) if wide else ()
        table.add_row(Text(row.name), size, "yes" if row.ready else "no", Text(row.title), *map(Text, told))
    console.print(table)
    console.print(
        "Where to get one and where to put it: foveate data prepare NAME, and docs/datasets/NAME.md.\n"
        "Licences and what each needs: on a wider screen, or with --json."
        if not wide
        else "Where to get one and where to put it: foveate data prepare NAME, and docs/datasets/NAME.md."
    )


@data_app.command()
def check(
    path: str = typer.Argument(help="A CSV file, a folder, or a dataset name."),
    root: Path | None = _ROOT,
    as_json: bool = typer.Option(False, "--json", help="Print the findings for programs."),
    strict: bool = typer.Option(False, "--strict", help="Let warnings count as errors."),
    tiny: int = typer.Option(10, help="Warn about groups with fewer images."),
    shortcuts: bool = typer.Option(
        True,
        "--shortcuts/--no-shortcuts",
        help="Ask what else than the object tells the class in training images.",
    ),
    objects: str | None = typer.Option(
        None, help="Where objects are, for that: masks, boxes, centre, or a ViT. Default: masks, boxes, else centre."
    ),
) -> None:
    """Look for everything that is wrong with a dataset. Exit code 1 when something is."""
    from foveate.data.benchmark import Benchmark
    from foveate.data.check import check as run_check
    from foveate.data.sources import SOURCES
    from foveate.data.sources.layout import check_counts

    source = open_data(path, root) if path.partition(":")[0] in DATASETS and not Path(path).exists() else path
    report = run_check(source, root=root, tiny=tiny)
    if path in SOURCES and isinstance(source, Benchmark):  # with options the published counts do not apply
        report.add(check_counts(source, SOURCES[path].expected, SOURCES[path].exact))
    if shortcuts:
        _check_shortcuts(report, objects)
    if as_json:
        echo(json.dumps(report.to_dict(), indent=2, ensure_ascii=False))
    else:
        report.print(console)
    if not report.ok or (strict and report.problems):
        raise typer.Exit(1)


def _check_shortcuts(report: CheckReport, objects: str | None) -> None:
    """Add what the training images give away."""
    from foveate.report.data_shortcuts import data_shortcuts

    train = None if report.checked is None else report.checked.get("train")
    found = None if train is None else data_shortcuts(train, objects=objects)
    if found is not None:
        report.add(found.problems("train"))
        report.notes.update(shortcuts=found.note(), shortcut_properties=found.to_dict())


@data_app.command()
def prepare(
    name: str = typer.Argument(help="A dataset name, for instance dominoes."),
    root: Path | None = typer.Option(None, help="Folder with files you already have, or where to put them."),
    as_json: bool = typer.Option(False, "--json", help="Print the counts of every split for programs."),
) -> None:
    """Fetch and verify what a dataset is made of, and count its groups."""
    from foveate.data.cmnist import prepare as prepare_cmnist
    from foveate.data.dominoes import prepare as prepare_dominoes
    from foveate.data.sources import SOURCES, refuse_ambiguous
    from foveate.data.sources import prepare as prepare_source

    def tell(line: str) -> None:
        echo(line, err=as_json)

    preparers = {"dominoes": prepare_dominoes, "cmnist": prepare_cmnist}
    if name == "critters":
        tell("critters are drawn when asked for; there is nothing to prepare.")
        if as_json:
            echo_json({})
        return
    refuse_ambiguous(name)
    if name in SOURCES:
        prepare_source(name, root, tell)
    elif name in preparers:
        preparers[name](root, tell=tell)
    else:
        known = [*preparers, *SOURCES]
        raise DataError(f"unknown dataset '{name}'.{suggest(name, known)} Can be prepared: {', '.join(known)}.")
    benchmark = open_data(name, root)
    counts = {
        split: {"images": len(ds), "classes": ds.num_classes, "attributes": ds.num_attributes}
        for split, ds in benchmark.splits.items()
    }
    if as_json:
        echo_json(counts)
        return
    for split, found in counts.items():
        images, classes, attributes = found.values()
        echo(f"{split:<7} {images:>7,} images, {classes} classes, {attributes} attributes")


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
    echo(f"wrote {written}")


@data_app.command()
def compose(
    foregrounds: Path = typer.Option(..., help="CSV of the objects: one row per image."),
    backgrounds: Path = typer.Option(..., help="CSV of the scenes: one row per image."),
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
    seed: int = typer.Option(0, min=0, max=MAX_SEED, help="Same seed, same pictures."),
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
    echo(f"wrote {out}: {benchmark}")


def assets_command(
    fetch: str | None = typer.Argument(None, help="Fetch this one; without it, list what there is."),
    root: Path | None = typer.Option(None, help="Folder to look in and to write to."),
    as_json: bool = typer.Option(False, "--json", help="Print the table for programs."),
) -> None:
    """Weights and raw data: where they come from, their size and licence, and whether they are here."""
    from foveate import assets

    if fetch is not None:
        folder = assets.fetch(fetch, root, tell=lambda line: echo(line, err=as_json))
        if as_json:
            echo_json({"name": fetch, "folder": str(folder)})
        else:
            echo(f"{fetch}: {folder}")
        return
    rows = assets.status(root)
    if as_json:
        echo_json([asdict(row) | {"folder": str(row.folder)} for row in rows])
        return
    wide = console.width >= WIDE
    table = plain_table("name", "size", "ready", "licence", *(("sources",) if wide else ()), right=("size",))
    for row in rows:
        told = (", ".join(row.sources),) if wide else ()
        table.add_row(row.name, f"{row.size / 1e6:.1f} MB", "yes" if row.ready else "no", row.licence, *told)
    console.print(table)
    console.print("Fetch one: foveate assets NAME. Where each comes from: with --json.")
