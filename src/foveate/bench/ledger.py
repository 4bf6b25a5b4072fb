"""The ledger: every figure the papers print, as facts, and what it takes to make each one here.

``published.csv`` has one row a printed number. A row is addressed by its table, ``paper/table``.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from importlib.resources import files
from pathlib import Path

from foveate.errors import FoveateError, suggest

PAPERS = {
    "dar": "Deep Attention Reweighting, arXiv 2605.20732",
    "a2": "Attending on Attention, arXiv 2606.03148",
    "ifam_v1": "Inherently Faithful Attention Maps, arXiv 2506.08915v1",
    "ifam_v2": "Two-stage ViTs and Hard Masking, arXiv 2506.08915v2",
}
QUOTED = ("prior-work value", "larger-capacity row")
"""Notes on figures a paper took over from others: not its own runs."""


@dataclass(frozen=True)
class FigurePlace:
    """What a number belongs to; a published figure and ours for it share the place."""

    paper: str
    table: str
    dataset: str
    split: str
    method: str
    backbone_attn: str
    backbone_embed: str
    setting: str
    metric: str

    @property
    def key(self) -> tuple[str, ...]:
        return tuple(getattr(self, f.name) for f in fields(FigurePlace))


@dataclass(frozen=True)
class Published(FigurePlace):
    """One printed number and what it belongs to; empty where nothing is printed."""

    value: str
    std: str
    needs_group_labels: str
    note: str

    @property
    def id(self) -> str:
        return f"{self.paper}/{self.table}"

    @property
    def settings(self) -> dict[str, str]:
        """``K=8;q=97`` as a dictionary; a part without ``=`` counts as switched on."""
        pairs = (part.partition("=") for part in self.setting.split(";") if part)
        return {name.strip(): value.strip() if equals else "yes" for name, equals, value in pairs}

    @property
    def quoted(self) -> bool:
        """Whether the paper took the figure over from an earlier one."""
        return any(self.note.startswith(note) for note in QUOTED)

    def name(self) -> str:
        """What the row is called in a table."""
        models = "×".join(m for m in (self.backbone_attn, self.backbone_embed) if m)
        parts = [self.dataset, self.method, models, self.setting, self.metric]
        return ", ".join(p for p in parts if p)


@dataclass(frozen=True)
class TableStanding:
    """A published table: how many figures it has, and how many can be run on this machine as it is."""

    id: str
    figures: int
    runnable: int
    datasets: tuple[str, ...]


class Ledger:
    """Published rows, in printed order.

    >>> ledger = Ledger.published()
    >>> rows = ledger.rows("a2/T13")
    >>> len(rows), rows[0].method, rows[0].value
    (16, 'a2_lr', '80.4')
    """

    def __init__(self, rows: Sequence[Published]):
        self.all = list(rows)

    @staticmethod
    @lru_cache(maxsize=1)
    def published() -> Ledger:
        """The ledger that comes with the package."""
        text = files("foveate.bench").joinpath("published.csv").read_text(encoding="utf-8")
        names = [f.name for f in fields(Published)]
        return Ledger([Published(**{n: row[n] or "" for n in names}) for row in csv.DictReader(text.splitlines())])

    def ids(self) -> list[str]:
        """``paper/table`` of every table."""
        return list(dict.fromkeys(row.id for row in self.all))

    def rows(self, what: str) -> list[Published]:
        """The rows of one table; a name that is not there is an error with a suggestion."""
        found = [row for row in self.all if row.id.lower() == what.lower()]
        if not found:
            known = self.ids()
            raise FoveateError(
                f"there is no published table '{what}'.{suggest(what, known)} "
                f"Papers: {', '.join(PAPERS)}; see foveate reproduce --list."
            )
        return found

    def standings(self, root: Path | None = None) -> list[TableStanding]:
        """Every table: what it holds and how much of it can be run here, its data's files included."""
        from foveate.bench.needs import obstacle

        found = []
        for what in self.ids():
            rows = self.rows(what)
            free = sum(obstacle(row, root) is None for row in rows)
            found.append(TableStanding(what, len(rows), free, tuple(dict.fromkeys(r.dataset for r in rows))))
        return found

    def listing(self, root: Path | None = None) -> str:
        """All tables, what they hold and how much of each can be run here; for the screen."""
        lines = []
        standings = self.standings(root)
        for paper, title in PAPERS.items():
            lines.append(f"{paper}: {title}")
            for table in standings:
                if table.id.startswith(f"{paper}/"):
                    sets = ", ".join(table.datasets)
                    lines.append(f"  {table.id:<16} {f'{table.runnable} of {table.figures} can be run':<24} {sets}")
        lines.append("What stands in the way of a table: foveate reproduce TABLE --dry.")
        return "\n".join(lines)


def format_rows(rows: Sequence[Sequence[str]]) -> str:
    """Aligned columns for a terminal.

    >>> print(format_rows([["a", "bb"], ["ccc", "d"]]))
    a    bb
    ccc  d
    """
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in rows)
