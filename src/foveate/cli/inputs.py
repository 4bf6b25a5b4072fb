"""What commands share: a dataset or a model from what was typed, and tables for people."""

from __future__ import annotations

import sys
import typing
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Group
from rich.text import Text

from foveate.cli.screen import console, echo, plain_table
from foveate.errors import FoveateError

if TYPE_CHECKING:  # these load torch, which a listing or a mistyped command can do without
    from foveate.data.benchmark import Benchmark
    from foveate.data.dataset import GroupedDataset
    from foveate.measure import GroupReport

__all__ = [
    "DATA_HELP",
    "DATA_OPTION",
    "IMPORT",
    "OBJECTS",
    "ON_BAD",
    "ROOT",
    "SPLIT",
    "check_settings",
    "chosen_split",
    "comparison_table",
    "console",
    "group_table",
    "labels_of",
    "models_and_data",
    "needed_data",
    "one_data",
    "open_data",
    "settings_of",
]

ROOT = typer.Option(None, help="Folder with a named dataset's files, or what the paths in a CSV file are relative to.")


def open_data(what: str, root: Path | None = None, seed: int | None = None) -> Benchmark:
    """A benchmark from what was typed; see :func:`foveate.data.typed.open_data`."""
    from foveate.data import typed

    return typed.open_data(what, root, seed)


ON_BAD = typer.Option("raise", help="What an unreadable image does: raise or skip.")
OBJECTS = typer.Option(
    None,
    help="Where objects are: masks, boxes, centre, or a ViT (vit-s-focus, micro-vit). Default: the best there is.",
)
IMPORT = typer.Option(None, "--import", help="Modules to import first (systems of your own).")
SPLIT = typer.Option(None, help="train, target, val or test; by default test, or all of data without splits.")


def chosen_split(benchmark: Benchmark, split: str | None) -> GroupedDataset:
    """The split asked for; by default ``test``, and all images of data that were never split (which is said)."""
    if split is None and "test" not in benchmark and "hint" in benchmark.notes and len(benchmark.splits) == 1:
        (dataset,) = benchmark.splits.values()
        dataset.name = benchmark.name
        echo(f"{benchmark.name} has no splits: all of its {len(dataset)} images are used.", err=True)
        return dataset
    return benchmark["test" if split is None else split]


def settings_of(pairs: list[str] | None) -> dict[str, Any]:
    """``["lr=0.1", "epochs=3"]`` as a dictionary; see :func:`foveate.data.typed.settings_of`."""
    from foveate.data import typed

    return typed.settings_of(pairs)


DATA_HELP = "A CSV file, a folder, or a dataset name with options: critters:strength=0.9."
DATA_OPTION = typer.Option(None, "--data", "-d", help="The data, where they are not the last argument.")


def models_and_data(words: Sequence[str], data: str | None) -> tuple[list[str], str]:
    """Models and then the data, as typed; the data may also have been given as ``--data``.

    >>> models_and_data(["erm", "dar", "photos.csv"], None)
    (['erm', 'dar'], 'photos.csv')
    >>> models_and_data(["erm", "dar"], "photos.csv")
    (['erm', 'dar'], 'photos.csv')
    """
    models = list(words)
    if data is None:
        *models, data = models
        if not models or (Path(data).expanduser() / "system.json").is_file():
            raise FoveateError("expected models and then the data: foveate … MODEL [MODEL2 …] DATA.")
    return models, data


def one_data(argument: str | None, option: str | None) -> str | None:
    """The data of a command that takes one: its argument, or ``--data``; None when neither was given."""
    if argument is not None and option is not None:
        raise FoveateError("the data are given twice: as an argument and as --data. Leave one out.")
    return argument if option is None else option


def needed_data(argument: str | None, option: str | None) -> str:
    """The same where data must be given."""
    if (data := one_data(argument, option)) is None:
        raise FoveateError(f"expected the data as the last argument. {DATA_HELP}")
    return data


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
    from pydantic import ConfigDict, TypeAdapter, ValidationError
    from pydantic.errors import PydanticUserError

    for name, value in settings.items():
        declared, owner = _declared(kind, name)
        if owner is None:
            continue
        try:
            # by itself: beside it may stand a type that is only known to type checkers
            alone = SimpleNamespace(__annotations__={name: declared})
            hint = typing.get_type_hints(alone, globalns=vars(sys.modules[owner.__module__]))[name]
            TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True)).validate_python(value)
        except ValidationError as error:
            raise FoveateError(f"{kind.__name__} takes {name} as {declared}; found {value!r}.") from error
        except (NameError, PydanticUserError, TypeError):  # such a type itself
            pass


def _declared(kind: type[Any], name: str) -> tuple[Any, type[Any] | None]:
    """How a setting is declared, as a field or in a constructor that was written out, and in which class."""
    for owner in kind.__mro__:
        if "__dataclass_fields__" in vars(owner):  # its constructor also repeats the fields of other modules' classes
            found = vars(owner).get("__annotations__", {})
        else:
            found = getattr(vars(owner).get("__init__"), "__annotations__", {})
        if name in found:
            return found[name], owner
    return None, None


def group_table(report: GroupReport, title: str) -> None:
    """Print a group report with rich."""
    console.print(Text(title, "bold"))
    console.print(Text(str(report)))


def comparison_table(rows: dict[str, GroupReport], supervision: dict[str, str]) -> Group:
    """Several systems side by side, and below which of them used which labels."""
    from foveate.measure import columns

    shown = columns("compare")
    heads = [metric.title if metric.unit == "%" else metric.axis for metric in shown]
    table = plain_table("system", *heads, title="Test accuracy, %", right=heads)
    for name, report in rows.items():
        table.add_row(Text(name), *(metric.text(report.figures.get(metric.name)) for metric in shown))
    users: dict[str, list[str]] = {}
    for name, labels in supervision.items():
        users.setdefault(labels, []).append(name)
    told = "\n".join(f"  {labels}: {', '.join(names)}" for labels, names in users.items())
    return Group(table, Text(f"labels used, and by which:\n{told}"))
