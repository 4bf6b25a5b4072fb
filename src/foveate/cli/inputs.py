"""What commands share: a dataset or a model from what was typed, and tables for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
from rich.table import Table

from foveate.cli.screen import console
from foveate.data.typed import open_data, settings_of, value_of
from foveate.errors import FoveateError
from foveate.measure import GroupReport

__all__ = [
    "ROOT",
    "check_settings",
    "comparison_table",
    "console",
    "group_table",
    "labels_of",
    "open_data",
    "settings_of",
    "value_of",
]

ROOT = typer.Option(None, help="Folder with a named dataset's files, or what the paths in a CSV file are relative to.")


def labels_of(paths: Sequence[Path]) -> list[str]:
    """What to call saved models in a table: the folder's name, or the path as typed where names repeat.

    >>> labels_of([Path("runs/0/dar"), Path("runs/1/dar"), Path("runs/0/erm")])
    ['runs/0/dar', 'runs/1/dar', 'erm']
    """
    names = [path.name for path in paths]
    return [n if n and names.count(n) == 1 else str(path) for n, path in zip(names, paths, strict=True)]


def check_settings(kind: type[Any], settings: Mapping[str, Any]) -> None:
    """Raise for a setting whose value is of another type than the system's constructor says, before anything runs.

    >>> from foveate.systems import get_system
    >>> check_settings(get_system("ERM"), {"backbone": 7})
    Traceback (most recent call last):
    foveate.errors.FoveateError: ERM takes backbone as str; found 7.
    """
    import typing

    from pydantic import ConfigDict, TypeAdapter, ValidationError
    from pydantic.errors import PydanticUserError

    for name, value in settings.items():
        for owner in kind.__mro__:
            made = vars(owner).get("__init__")
            declared = getattr(made, "__annotations__", {})
            if name not in declared:
                continue
            try:
                hint = typing.get_type_hints(made)[name]
                TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True)).validate_python(value)
            except ValidationError as error:
                raise FoveateError(f"{kind.__name__} takes {name} as {declared[name]}; found {value!r}.") from error
            except (NameError, PydanticUserError, TypeError):  # a type that is only known to type checkers
                pass
            break


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
