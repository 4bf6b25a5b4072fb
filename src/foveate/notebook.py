"""How results show themselves in a notebook: all HTML of ``_repr_html_`` is made here, and the progress bar there.

Text has the notebook's own colour (``currentColor``), so that light and dark both work.
Nothing here knows what it shows.
"""

from __future__ import annotations

import base64
import io
import sys
import time
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from foveate.errors import visible

_FAINT = "border:1px solid rgba(128,128,128,.35)"
_CELL = f"{_FAINT};padding:3px 9px;text-align:left"


def text(value: object) -> str:
    """Any text as HTML: nothing in it is obeyed.

    >>> text("<b> & co")
    '&lt;b&gt; &amp; co'
    """
    return escape(visible(value))


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; cells are HTML already (see :func:`text`), headings are plain text.

    >>> table(["a"], [["1"]]).count("<td")
    1
    """
    top = "".join(f'<th style="{_CELL}">{text(name)}</th>' for name in head)
    lines = ("".join(f'<td style="{_CELL}">{cell}</td>' for cell in row) for row in rows)
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    style = "border-collapse:collapse;margin:4px 0"
    return f'<table style="{style}"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>'


def card(title: str, *parts: str) -> str:
    """A title, and under it what belongs to it."""
    return f'<div style="margin:4px 0 8px"><div style="font-weight:600">{text(title)}</div>{"".join(parts)}</div>'


def share_bar(value: float | None, low: float | None = None, high: float | None = None) -> str:
    """A share as a bar with its percentage; the interval from ``low`` to ``high`` is drawn over it.

    >>> "75.0" in share_bar(0.75), share_bar(None)
    (True, '–')
    """
    if value is None:
        return "–"
    span = ""
    if low is not None and high is not None:
        span = (
            f'<span style="position:absolute;left:{100 * low:.1f}%;width:{100 * (high - low):.1f}%;top:5px;height:2px;'
            'background:currentColor;opacity:.6"></span>'
        )
    bar = (
        '<span style="display:inline-block;position:relative;width:120px;height:12px;vertical-align:middle;'
        f'background:rgba(128,128,128,.18)"><span style="position:absolute;width:{100 * value:.1f}%;height:12px;'
        f'background:{colour_of(value)}"></span>{span}</span>'
    )
    return f"{bar} {100 * value:.1f}"


def colour_of(share: float) -> str:
    """Red below a half, green from four fifths on."""
    return "#c2452d" if share < 0.5 else "#c98a1b" if share < 0.8 else "#3a8f5f"


def badge(word: str, colour: str) -> str:
    """A word on a coloured ground."""
    style = f"background:{colour};color:#fff;border-radius:4px;padding:1px 7px;font-size:90%"
    return f'<span style="{style}">{text(word)}</span>'


def picture(pixels: Any, caption: str = "", side: int = 96) -> str:
    """An image ``uint8 [H, W, 3]`` (or ``[H, W]``) with words under it; enlarged or shrunk to ``side`` for the eye."""
    from PIL import Image

    image = Image.fromarray(pixels)
    if max(image.size) > 2 * side:
        image.thumbnail((2 * side, 2 * side))
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    address = base64.b64encode(buffer.getvalue()).decode()
    words = f'<div style="font-size:85%">{text(caption)}</div>' if caption else ""
    return (
        f'<div style="display:inline-block;margin:3px 6px 3px 0;text-align:center"><img alt="{text(caption)}" '
        f'width="{side}" src="data:image/png;base64,{address}">{words}</div>'
    )


def here() -> bool:
    """Whether this runs in a notebook, where output is a page and not a terminal."""
    shell = sys.modules.get("IPython")
    found = None if shell is None else shell.get_ipython()
    return type(found).__name__ == "ZMQInteractiveShell"


def figure(width: float, height: float) -> Any:
    """A Matplotlib figure of no window; a notebook is told to show such figures as pictures."""
    from matplotlib.figure import Figure

    if here():
        from IPython.core.pylabtools import select_figure_formats

        select_figure_formats(sys.modules["IPython"].get_ipython(), {"png"})
    return Figure(figsize=(width, height), layout="constrained")


class PageBar:
    """A progress bar that stays one line of a notebook's output: the same place is written again, then emptied."""

    def __init__(self, title: str, total: int):
        self.title, self.total, self.last = title, max(total, 1), 0.0
        self._place: Any = None

    def show(self, done: int, words: str = "") -> None:
        """At most five times a second, and at the end."""
        now = time.monotonic()
        if now - self.last < 0.2 and done < self.total:
            return
        self.last = now
        share = min(done / self.total, 1.0)
        line = (
            f'<div style="font-size:90%">{text(self.title)} <progress value="{share:.3f}" max="1"></progress> '
            f"{100 * share:.0f} % {text(words)}</div>"
        )
        self._write(line)

    def end(self) -> None:
        """Empty the place."""
        if self._place is not None:
            self._write("")

    def _write(self, line: str) -> None:
        from IPython.display import HTML, display

        if self._place is None:
            self._place = display(HTML(line), display_id=True)
        else:
            self._place.update(HTML(line))
