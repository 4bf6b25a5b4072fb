"""What reaches the screen: names and labels of strangers are shown, never obeyed by the terminal.

Everything the commands print goes through here (a test sees to that).
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
import logging
import sys
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import typer
from rich import box
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table

from foveate.errors import FoveateError, visible
from foveate.files import csv_cell

__all__ = [
    "WIDE", "aside", "can_ask", "confirmed", "console", "echo", "echo_csv", "echo_json", "plain_table",
    "settle_logging", "settle_screen", "on_screen",
]  # fmt: skip

WIDE = 140
"""Columns a screen needs for tables that show everything; on others they show what is asked for most."""


def echo(text: object = "", *, err: bool = False, nl: bool = True) -> None:
    """Print a line with everything in it that a terminal would obey written out."""
    typer.echo(visible(text), err=err, nl=nl)


def echo_csv(rows: Iterable[Sequence[object]]) -> None:
    """Print rows as CSV, for the screen or a pipe; text that looks like a formula is made harmless."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([csv_cell(cell) for cell in row] for row in rows)
    echo(buffer.getvalue(), nl=False)


def echo_json(what: object) -> None:
    """Print ``what`` for programs."""
    echo(json.dumps(what, indent=2, ensure_ascii=False))


def plain_table(*headers: str, title: str | None = None, right: Sequence[str] = ()) -> Table:
    """A table without frames, so that 80 columns are room enough; columns named in ``right`` are numbers."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, title=title, title_justify="left")
    for header in headers:
        table.add_column(header, justify="right" if header in right else "left", no_wrap=header in right)
    return table


def confirmed(question: str, already: bool, flag: str) -> bool:
    """Whether the person agrees; ``already`` when ``flag`` was given. Where nobody can be asked, it is an error."""
    if already:
        return True
    if not can_ask():
        raise FoveateError(f"{question} Nobody can be asked here: give {flag} to go on.")
    return typer.confirm(visible(question), err=True)


def can_ask() -> bool:
    """Whether somebody sits at the keyboard."""
    return sys.stdin.isatty() and sys.stderr.isatty()


class _Visible(Console):
    """Rich's console; its own codes (colours, the cursor) are apart from the text and stay what they are."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(visible(segment.text), segment.style)


console = _Visible(markup=False, emoji=False)  # a label may look like markup


@contextlib.contextmanager
def aside(wanted: bool = True) -> Iterator[None]:
    """What the console shows goes to the error stream: the other one is for programs."""
    before, console.stderr = console.stderr, wanted
    try:
        yield
    finally:
        console.stderr = before


def settle_screen(debug: bool = False) -> None:
    """A character that the screen has no sign for is written out instead of ending the program; a warning is a line.

    With ``debug`` warnings also say where they come from.
    """
    if not debug:
        warnings.showwarning = _show_warning
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return visible(super().format(record))


def settle_logging(verbose: bool) -> None:
    """Reports as plain lines."""
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines("%(message)s"))
    logging.basicConfig(level=logging.INFO if verbose else logging.WARNING, handlers=[handler])
    # the engine's own reports are enough; Fabric's banner about devices is noise here
    logging.getLogger("lightning_fabric").setLevel(logging.WARNING)


class _Echo(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        echo(record.getMessage(), err=True)


@contextlib.contextmanager
def on_screen(name: str) -> Iterator[None]:
    """What a logger says is a line on the error stream, whether the run is verbose or not."""
    log, handler = logging.getLogger(name), _Echo()
    level, passes = log.level, log.propagate
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
        log.propagate = passes


def _show_warning(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
    echo(f"warning: {message}", err=True)
