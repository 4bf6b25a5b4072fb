"""How far work is: a bar on a terminal and in a notebook; a plain line now and then where output goes to a file."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from foveate import notebook

FIRST, EVERY = 10.0, 30.0
"""Seconds until the first plain line, and between two of them: what is quick says nothing."""


class _Lines:
    """Lines for a log: share done, speed and time left."""

    def __init__(self, title: str, total: int):
        self.title, self.total = title, total
        self.due = time.perf_counter() + FIRST

    def show(self, done: int, rate: float, note: str) -> None:
        now = time.perf_counter()
        if now < self.due:
            return
        self.due = now + EVERY
        share = f"{100 * done / self.total:.0f} %" if self.total else f"{done:,}"
        left = f", {(self.total - done) / rate:.0f} s left" if self.total > done and rate > 0 else ""
        print(f"{self.title}: {share}, {rate:,.0f}/s{left} {note}".rstrip(), file=sys.stderr, flush=True)


class Progress:
    """``with Progress("training", total=1000) as bar: bar.advance(32, loss)``."""

    def __init__(self, title: str, total: int, shown: bool = True):
        self.title, self.total = title, total
        self.done, self.start, self.extra = 0, time.perf_counter(), ""
        self._bar: RichProgress | None = None
        self._page = notebook.PageBar(title, total) if shown and notebook.here() else None
        self._lines = _Lines(title, total) if shown and self._page is None and not sys.stderr.isatty() else None
        if shown and sys.stderr.isatty():
            self._bar = RichProgress(
                TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"),
                TextColumn("{task.fields[rate]}"), TimeRemainingColumn(), TextColumn("{task.fields[note]}"),
                console=Console(stderr=True), transient=True, speed_estimate_period=600,  # updates may be minutes apart
            )  # fmt: skip

    def __enter__(self) -> Progress:
        self.start = time.perf_counter()
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task(self.title, total=self.total, rate="", note="")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
        if self._page is not None:
            self._page.end()

    def advance(self, items: int, loss: float | None = None) -> None:
        """``items`` more are done."""
        self.done += items
        if self._bar is None and self._page is None and self._lines is None:
            return
        rate = self.done / max(time.perf_counter() - self.start, 1e-9)
        note = self.extra if loss is None else f"loss {loss:.3f} {self.extra}"
        if self._bar is not None:
            self._bar.update(self._task, advance=items, rate=f"{rate:,.0f}/s", note=note)
        if self._lines is not None:
            self._lines.show(self.done, rate, note)
        if self._page is not None:
            self._page.show(self.done, f"{rate:,.0f}/s {note}")

    def note(self, text: str) -> None:
        """Say ``text`` at the end of the bar."""
        self.extra = text
