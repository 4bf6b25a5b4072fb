"""How far a spec is: every slot it asks for, beside the row that the table has for it.

A cell (dataset, method, seed) has *slots*, one a trial. Those of a grid have their points from the start; those of a
random or TPE search draw theirs when a worker takes them; where the first seed's choice holds for the others, the one
slot of another seed has that choice, and is there to be taken only when the choice is final. Everybody who has to
judge this, the coordinator that queues, the worker that takes a trial, the table, asks a :class:`Standing` that is
made from one consistent reading of the rows.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from foveate.bench.records import OVER, Record, record_key
from foveate.bench.spec import Spec
from foveate.bench.trial import Cell, cells


@dataclass(frozen=True)
class TrialRow:
    """A row of the table without its figures; see :data:`~foveate.bench.records.QUEUE_COLUMNS`."""

    key: str
    digest: str
    cell: Cell
    point: dict[str, Any] | None
    state: str
    score: float | None
    slot: int | None
    search: str
    base: str
    worker: str
    heartbeat: float
    attempts: int
    reports: tuple[float, ...] = ()

    @property
    def over(self) -> bool:
        return self.state in OVER


@dataclass(frozen=True)
class Slot:
    """One trial that the spec asks for, and its row when there is one.

    Attributes:
        cell: what it belongs to.
        number: its place in the cell's search.
        key: of the record; for a point that is yet to be drawn, the slot's own.
        point: None when it is yet to be drawn.
        search: a mark of the search that draws; empty when points are given.
        base: key of the base model's record; empty when there is none, or it is not known yet.
    """

    cell: Cell
    number: int
    key: str
    point: dict[str, Any] | None
    search: str = ""
    base: str = ""
    row: TrialRow | None = None

    @property
    def outdated(self) -> bool:
        """Whether it was run on a base model that is no longer the chosen one."""
        return self.row is not None and bool(self.base and self.row.base) and self.row.base != self.base

    @property
    def over(self) -> bool:
        """Whether nothing is left to do for it."""
        return self.row is not None and (self.row.over or self.row.state == "same") and not self.outdated

    @property
    def doing(self) -> str:
        """What can be said of a slot that is not over."""
        if self.row is None:
            return "is not queued yet"
        if self.outdated:
            return "is to be run again, on the base model that is chosen now"
        return {"waiting": "waits", "running": f"is run by {self.row.worker}"}.get(self.row.state, self.row.state)

    def __str__(self) -> str:
        point = ", ".join(f"{k} {v}" for k, v in (self.point or {}).items())
        return f"{self.cell.dataset}, {self.cell.method}, seed {self.cell.seed}" + (f" ({point})" if point else "")


class Agenda:
    """What a spec asks for, whatever has been run of it.

    >>> from foveate.bench.spec import parse_spec
    >>> agenda = Agenda(parse_spec("{name: x, data: {name: critters}, seeds: [0, 1], network: {backbone: micro_resnet},"
    ...                            "methods: {ERM: {system: ERM, grid: {lr: [0.1, 0.2]}}}}"))
    >>> [str(cell) for cell in agenda.cells], [str(c) for c in agenda.waits_for(agenda.cells[1])]
    (['critters/ERM/0', 'critters/ERM/1'], ['critters/ERM/0'])
    """

    def __init__(self, spec: Spec):
        self.spec = spec
        self.cells = cells(spec)
        self.digests = {(d, m): spec.digest(d, m) for d in spec.sets() for m in spec.methods}
        self._marks = {name: "" if m.search == "grid" else _mark(m) for name, m in spec.methods.items()}
        self._chosen_at = {cell: self._first(cell) for cell in self.cells}
        self._post_hoc = {name: method.post_hoc for name, method in spec.methods.items()}
        self._points = {cell: self._grid(cell) for cell in self.cells}

    def _first(self, cell: Cell) -> Cell | None:
        method, first = self.spec.methods[cell.method], self.spec.seeds_of(cell.dataset)[0]
        return Cell(cell.dataset, cell.method, first) if method.searches_once and cell.seed != first else None

    def _grid(self, cell: Cell) -> dict[str, dict[str, Any]]:
        method = self.spec.methods[cell.method]
        drawn = method.search != "grid" or self._chosen_at[cell] is not None
        return {} if drawn else {self.key(cell, point): point for point in method.points()}

    def digest(self, cell: Cell) -> str:
        return self.digests[cell.dataset, cell.method]

    def key(self, cell: Cell, point: dict[str, Any]) -> str:
        return record_key(self.digest(cell), cell.dataset, cell.method, point, cell.seed)

    def chosen_at(self, cell: Cell) -> Cell | None:
        """The cell of the first seed, when its choice holds for this one."""
        return self._chosen_at[cell]

    def base_of(self, cell: Cell) -> Cell | None:
        """The cell of the base model, for systems that start from one."""
        return Cell(cell.dataset, "base", cell.seed) if self._post_hoc[cell.method] else None

    def waits_for(self, cell: Cell) -> list[Cell]:
        """The cells whose results this one needs; they come before it in :attr:`cells`."""
        return [needed for needed in (self.base_of(cell), self.chosen_at(cell)) if needed is not None]

    def points(self, cell: Cell) -> dict[str, dict[str, Any]]:
        """The points of a cell's grid by the keys of their records."""
        return self._points[cell]

    def mark(self, cell: Cell) -> str:
        """What tells the slots of a search that draws from those of an earlier one; empty when points are given."""
        return self._marks[cell.method] if self._chosen_at[cell] is None else ""

    def size(self, cell: Cell) -> int:
        """How many slots a cell has."""
        if self._chosen_at[cell] is not None:
            return 1
        return len(self._points[cell]) or self.spec.methods[cell.method].trials or 0

    def slot_of(self, row: TrialRow) -> int | None:
        """The slot that a row fills in the search of its cell, None when it is of another search."""
        if mark := self.mark(row.cell):
            return row.slot if row.search == mark else None
        return next((n for n, key in enumerate(self._points[row.cell]) if key == row.key), None)

    def asks(self, row: TrialRow) -> bool:
        """Whether a row's point is one of the search of its cell."""
        return row.point is not None and self.spec.methods[row.cell.method].asks(row.point)


def _mark(method: Any) -> str:
    search = json.dumps(method.model_dump(include={"grid", "space", "search", "prune"}), default=str)
    return hashlib.blake2b(search.encode(), digest_size=4).hexdigest()


class Standing:
    """Slots and rows side by side, as of one reading.

    Args:
        agenda: what is asked for.
        rows: all rows of the spec.

    Attributes:
        slots: of every cell; none where they depend on a choice that nothing can be said about yet.
        ready: cells whose trials may be run: what they need is finished and was successful.
        complete: cells that are finished.
        blocked: cells that cannot be run, because what they need has failed; and what that is.
    """

    def __init__(self, agenda: Agenda, rows: Iterable[TrialRow]):
        self.agenda = agenda
        self.rows: dict[Cell, list[TrialRow]] = {cell: [] for cell in agenda.cells}
        for row in rows:
            if row.cell in self.rows and row.digest == agenda.digest(row.cell):
                self.rows[row.cell].append(row)
        self.slots: dict[Cell, list[Slot]] = {}
        self.ready: set[Cell] = set()
        self.complete: set[Cell] = set()
        self.blocked: dict[Cell, Cell] = {}
        self._best: dict[Cell, TrialRow | None] = {}
        for cell in agenda.cells:
            self._judge(cell)

    def _judge(self, cell: Cell) -> None:
        needed = self.agenda.waits_for(cell)
        over = [n for n in needed if n in self.complete or n in self.blocked]
        failed = [n for n in over if self._best[n] is None]
        final = len(over) == len(needed)
        if final and failed:
            self.blocked[cell] = failed[0]
        elif final:
            self.ready.add(cell)
        self.slots[cell] = slots = self._slots(cell)
        if cell in self.ready and slots and all(slot.over for slot in slots):
            self.complete.add(cell)
        self._best[cell] = best_of([row for row in self.belonging(cell) if row.state == "done"])

    def _slots(self, cell: Cell) -> list[Slot]:
        agenda, base, based = self.agenda, "", self.agenda.base_of(cell)
        if based is not None and cell in self.ready:
            chosen = self._best[based]
            base = "" if chosen is None else chosen.key
        if mark := agenda.mark(cell):
            return self._drawn(cell, mark, base)
        points, first = agenda.points(cell), agenda.chosen_at(cell)
        if first is not None:
            best = self._best[first]
            points = {} if best is None or best.point is None else {agenda.key(cell, best.point): best.point}
        there = {row.key: row for row in self.rows[cell]}
        return [Slot(cell, n, key, points[key], base=base, row=there.get(key)) for n, key in enumerate(points)]

    def _drawn(self, cell: Cell, mark: str, base: str) -> list[Slot]:
        rows = self.rows[cell]
        mine = {row.slot: row for row in rows if row.search == mark}
        # records of a version that had no slots: they fill the first ones that are free
        older = iter([row for row in rows if row.slot is None and row.over and self.agenda.asks(row)])
        found = []
        for n in range(self.agenda.size(cell)):
            row = mine.get(n) or next(older, None)
            own = record_key(self.agenda.digest(cell), cell.dataset, cell.method, {"slot": n, "of": mark}, cell.seed)
            key, point = (own, None) if row is None else (row.key, row.point)
            found.append(Slot(cell, n, key, point, mark, base, row))
        return found

    # -- what can be asked ------------------------------------------------------------------

    @property
    def over(self) -> bool:
        """Whether nothing is left that could be run."""
        return len(self.complete) + len(self.blocked) == len(self.agenda.cells)

    def best(self, cell: Cell) -> TrialRow | None:
        """What the selection metric chose among a cell's trials, so far; None when none was successful."""
        return self._best[cell]

    def belonging(self, cell: Cell) -> list[TrialRow]:
        """The finished rows that count for a cell.

        Of a drawn search all that lie in its space; otherwise those of its slots: not what was once chosen at the
        first seed, and not what was taken out of the grid.
        """
        if not self.agenda.mark(cell):
            return [s.row for s in self.slots[cell] if s.row is not None and s.row.over and not s.outdated]
        outdated = {slot.key for slot in self.slots[cell] if slot.outdated}
        return [r for r in self.rows[cell] if r.over and r.key not in outdated and self.agenda.asks(r)]

    def waiting(self) -> Iterator[Slot]:
        """The slots a worker may take, in the order of the spec."""
        for cell in self.agenda.cells:
            if cell in self.ready:
                yield from (s for s in self.slots[cell] if s.row is not None and s.row.state == "waiting")

    def missing(self) -> list[str]:
        """What the spec asks for and is not there, a line each; and why, where it cannot be run."""
        found = []
        for cell in self.agenda.cells:
            whole = Slot(cell, 0, "", None)
            if cell in self.blocked:
                needed = self.blocked[cell]
                found.append(f"{whole}: cannot be run, for no trial of {needed.method}, seed {needed.seed}, succeeded")
            elif not self.slots[cell]:
                found.append(f"{whole}: waits for the choice at the first seed")
            found += [
                f"{slot}: {slot.doing}" for slot in self.slots[cell] if not slot.over and cell not in self.blocked
            ]
        return found


class _Scored(Protocol):
    @property
    def point(self) -> Any: ...

    @property
    def score(self) -> float | None: ...


_S = TypeVar("_S", bound=_Scored)


def best_of(rows: Sequence[_S]) -> _S | None:
    """The row with the best validation score; of equally good ones the first point in alphabetical order."""
    ordered = sorted(rows, key=lambda r: json.dumps(r.point, sort_keys=True, default=str))
    return max(ordered, key=lambda r: -math.inf if r.score is None or math.isnan(r.score) else r.score, default=None)


def choose(rows: Sequence[Record], cell: Cell, digest: str | None = None) -> Record | None:
    """The best finished record of a cell by its validation score (the first point of equally good ones)."""
    mine = (r for r in rows if r.cell == (cell.dataset, cell.method, cell.seed) and r.state == "done")
    return best_of([r for r in mine if digest is None or r.digest == digest])
