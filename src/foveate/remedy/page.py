"""The report of a cure as one HTML file, in the looks of the audit's page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import TYPE_CHECKING

from jinja2 import DictLoader, Environment, StrictUndefined
from markupsafe import Markup
from torch import Tensor

from foveate.assemble.system import System
from foveate.measure import name_of
from foveate.remedy.kinds import Counted
from foveate.remedy.records import CureRecord
from foveate.remedy.sentences import outcome_of
from foveate.report.abilities import gaze_at
from foveate.report.charts import bar
from foveate.report.examples import data_uri, looked_at, overlay, small_picture
from foveate.report.sentences import percent

if TYPE_CHECKING:
    from foveate.remedy.result import Cure

PICTURES = 4


@dataclass(frozen=True)
class Said:
    """What one model says to a picture, and where it looked (a ``data:`` address, or None)."""

    answer: str
    right: bool
    looked: str | None


@dataclass(frozen=True)
class Pair:
    """A picture with another class's cue, and what the model said before and says after."""

    label: str
    picture: str
    before: Said
    after: Said


def render(found: Cure) -> str:
    """The whole page as text. Names from the data are escaped: they cannot add markup."""
    own = {entry.name: entry.read_text("utf-8") for entry in files("foveate.remedy").joinpath("looks").iterdir()}
    shared = files("foveate.report").joinpath("looks")
    head, style = (shared.joinpath(name).read_text("utf-8") for name in ("head.html", "style.css"))
    environment = Environment(
        loader=DictLoader({**own, "head.html": head}), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.filters.update(percent=percent)
    record = found.record()
    return environment.get_template("cure.html").render(
        title=record.headline, style=Markup(style + own["cure.css"]), script_hash="", r=record, bar=bar,
        pairs=pictures(found), rows=rows(found),
        cells=cells_of(record), measured=measured_of(record), cured=found.chosen is not None,
        sets=[cue.name for cue in found.cues],
    )  # fmt: skip


@dataclass(frozen=True)
class Row:
    """A remedy in the table: its title, what became of it, and its figures where it was tried."""

    title: str
    does: str
    outcome: str
    chosen: bool
    worst: float | None
    average: float | None
    real: float | None
    seconds: float
    supervision: str
    notes: str


def rows(found: Cure) -> list[Row]:
    """The original first, then what was tried, the best first, then the rest."""
    before = found.before
    out = []
    if before is not None:
        out.append(
            Row("the original", "as it was given", "chosen" if found.chosen is None else "", found.chosen is None,
                before.worst.accuracy, before.average, before.real, 0.0, found.original.supervision(), "")
        )  # fmt: skip
    ranked = sorted(found.attempts, key=lambda a: -(a.standing.worst.accuracy if a.standing is not None else -1.0))
    for entry in ranked:
        s = entry.standing
        worst, average, real = (None, None, None) if s is None else (s.worst.accuracy, s.average, s.real)
        out.append(
            Row(entry.remedy.title, entry.remedy.means.words, outcome_of(entry, found.chosen), entry is found.chosen,
                worst, average, real, entry.seconds, entry.supervision, "; ".join(entry.notes))
        )  # fmt: skip
    return out


@dataclass(frozen=True)
class CountedPair:
    """Some images before and after: shares from 0 to 1."""

    name: str
    n: int
    before: float
    after: float


def cells_of(record: CureRecord) -> list[CountedPair]:
    """The cells of the choice, before and after."""
    if record.before is None or record.after is None:
        return []
    return _pairs(
        [Counted(c.name, c.n, c.right) for c in record.before.cells],
        [Counted(c.name, c.n, c.right) for c in record.after.cells],
    )


def measured_of(record: CureRecord) -> list[CountedPair]:
    """The groups (or classes) of the images apart, before and after."""
    if record.measured_before is None or record.measured_after is None:
        return []
    return _pairs(
        [Counted(c.name, c.n, c.right) for c in record.measured_before.groups],
        [Counted(c.name, c.n, c.right) for c in record.measured_after.groups],
    )


def _pairs(before: Sequence[Counted], after: Sequence[Counted]) -> list[CountedPair]:
    return [CountedPair(b.name, b.n, b.accuracy, a.accuracy) for b, a in zip(before, after, strict=True) if b.n]


def pictures(found: Cure) -> list[Pair]:
    """The exchanges that turned the original's answer, and what the model that is handed back says to them."""
    discovery = next(iter(found.audit_before.discoveries.values()), None)
    if discovery is None or not discovery.turned:
        return []
    shown = discovery.turned[:PICTURES]
    images = [entry.edited for entry in shown]
    before, after = said_to(found.original, images), said_to(found.model, images)
    return [
        Pair(
            entry.label, data_uri(small_picture(entry.edited)), _said(b, entry.label), _said(a, entry.label)
        )
        for entry, b, a in zip(shown, before, after, strict=True)
    ]  # fmt: skip


def said_to(system: System, images: Sequence[Tensor]) -> list[tuple[str, str | None]]:
    """The answer to each image, and where the model looked."""
    answers = [name_of(int(k), list(system.class_names_)) for k in system.predict(list(images))]
    gazes = gaze_at(system, images)
    if gazes is None:
        return [(answer, None) for answer in answers]
    drawn = [data_uri(overlay(g, looked_at(system, g, image))) for g, image in zip(gazes, images, strict=True)]
    return list(zip(answers, drawn, strict=True))


def _said(told: tuple[str, str | None], label: str) -> Said:
    return Said(told[0], told[0] == label, told[1])
