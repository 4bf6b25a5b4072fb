"""What commands share: a dataset or a model from what was typed, and tables for people."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table

from foveate.data.benchmark import Benchmark
from foveate.data.registry import LOADERS, load
from foveate.data.tables import from_csv, from_path
from foveate.errors import DataError, FoveateError
from foveate.measure import GroupReport

console = Console()
ROOT = typer.Option(None, help="Folder with a named dataset's files, or what the paths in a CSV file are relative to.")


def value_of(text: str) -> Any:
    """A number, list, None or truth value when ``text`` reads as one, otherwise the text itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {"true": True, "false": False, "none": None}.get(text.lower(), text)


def settings_of(pairs: list[str] | None) -> dict[str, Any]:
    """``["lr=0.1", "epochs=3"]`` as a dictionary."""
    settings = {}
    for pair in pairs or []:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise FoveateError(f"expected name=value, found '{pair}'.")
        settings[name.strip().replace("-", "_")] = value_of(text.strip())
    return settings


def open_data(what: str, root: Path | None = None) -> Benchmark:
    """A benchmark from a path (CSV or folder), or a name with options: ``critters:strength=0.9,size=48``.

    ``root`` is the folder with a named dataset's files, or what the paths in a CSV file are relative to.
    """
    name, _, options = what.partition(":")
    if name in LOADERS and not Path(what).exists():
        return load(name, root, **settings_of([o for o in options.split(",") if o]))
    place = Path(what).expanduser()
    if root is not None and place.is_dir():
        raise DataError("--root goes with a CSV file or a named dataset; paths in a folder are where they are.")
    if root is not None and place.is_file():
        return from_csv(place, root)
    if place.exists() or "/" in what or what.endswith(".csv"):
        return from_path(what)
    return load(name, root)  # raises with the known names


def labels_of(paths: Sequence[Path]) -> list[str]:
    """What to call saved models in a table: the folder's name, or the path as typed where names repeat.

    >>> labels_of([Path("runs/0/dar"), Path("runs/1/dar"), Path("runs/0/erm")])
    ['runs/0/dar', 'runs/1/dar', 'erm']
    """
    names = [path.name for path in paths]
    return [n if n and names.count(n) == 1 else str(path) for n, path in zip(names, paths, strict=True)]


def group_table(report: GroupReport, title: str) -> None:
    """Print a group report with rich."""
    from rich.text import Text

    console.print(Text(title, "bold"))
    console.print(Text(str(report)))


def comparison_table(rows: dict[str, GroupReport], supervision: dict[str, str]) -> Table:
    """Several systems side by side."""
    table = Table("system", title="Test accuracy, %", title_justify="left")
    for column in ("average", "majority", "minority", "worst group"):
        table.add_column(column, justify="right")
    table.add_column("labels used")
    for name, report in rows.items():
        figures = [report.average, report.majority, report.minority, report.worst_group]
        shown = ["–" if f is None else f"{100 * f:.1f}" for f in figures]
        table.add_row(name, *shown, supervision[name])
    return table
