"""A progress bar with throughput and time left, on a terminal and in a notebook; silent elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as RichProgress

from foveate import notebook


class Progress:
    """``with Progress("training", total=1000) as bar: bar.advance(32, loss)``."""

    def __init__(self, title: str, total: int, shown: bool = True):
        self.title, self.total = title, total
        self.done, self.start, self.extra = 0, time.perf_counter(), ""
        self._bar: RichProgress | None = None
        self._page = notebook.PageBar(title, total) if shown and notebook.here() else None
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
        if self._bar is None and self._page is None:
            return
        rate = self.done / max(time.perf_counter() - self.start, 1e-9)
        note = self.extra if loss is None else f"loss {loss:.3f} {self.extra}"
        if self._bar is not None:
            self._bar.update(self._task, advance=items, rate=f"{rate:,.0f}/s", note=note)
        if self._page is not None:
            self._page.show(self.done, f"{rate:,.0f}/s {note}")

    def note(self, text: str) -> None:
        """Say ``text`` at the end of the bar."""
        self.extra = text
