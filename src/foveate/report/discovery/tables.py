"""What the page shows of the discoveries: rows for its bars and tables, and small pictures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

from foveate.report.discovery.before_after import BeforeAfter
from foveate.report.discovery.discover import Discovery
from foveate.report.discovery.experiments import Pull
from foveate.report.discovery.judgement import Suspect
from foveate.report.discovery.nested import wholes
from foveate.report.discovery.probes import PropertyProbe
from foveate.report.examples import LEAD_SIDE, data_uri, small_picture
from foveate.report.levels import Level
from foveate.report.reading import readable
from foveate.report.sentences import sections

SLICE_PICTURES = 6
MOST_PROBES = 14
MASK_TESTS = {
    "plain": "the images as they are", "object_only": "objects alone, on one colour",
    "same_background": "on backgrounds of the same class", "random_background": "on backgrounds of any class",
    "background_only": "backgrounds alone, the object painted over",
}  # fmt: skip


@dataclass(frozen=True)
class ExperimentRow:
    """A cue that was exchanged: the pull, a tag where it counts, and the smallest pull that would have been found."""

    key: str
    name: str
    pull: Pull
    level: Level
    tag: str
    smallest: float


def experiments(found: Discovery) -> list[ExperimentRow]:
    """One row a cue that was exchanged; strongest first, a part after its whole."""
    judged = found.judgement
    rows = sorted(judged.pulls, key=lambda entry: -entry[1].value * (1.0 if entry[0].explained_by is None else 0.5))
    return [
        ExperimentRow(s.key, s.name, pull, s.level, _tag(s), judged.smallest_found(s) or 1.0) for s, pull in rows
    ]  # fmt: skip


def _tag(s: Suspect) -> str:
    if not s.level.accuses:
        return ""
    if s.explained_by is None:
        return s.level.value
    return f"{'part of' if s.explained_by.key in wholes(s.cue) else 'through'} {s.explained_by.name}"


@dataclass
class ProbeRow:
    """A cue with what it tells about the label, and the models whose answers or errors follow it."""

    name: str
    label: PropertyProbe
    answers: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class ProbeTable:
    """The cues that tell most about the label, how many more there are, and what they say together."""

    rows: list[ProbeRow]
    hidden: int
    sentence: str


def probe_table(discoveries: Mapping[str, Discovery]) -> ProbeTable:
    """What each cue tells about the label (the data), and which models' answers and errors follow it."""
    rows: dict[str, ProbeRow] = {}
    for model, found in discoveries.items():
        wrong = {probe.key for probe in found.error_probes if probe.tells}
        for s in found.judgement.suspects:
            if s.label is None:
                continue
            row = rows.setdefault(s.key, ProbeRow(s.name, s.label))
            if s.answers is not None and s.answers.tells:
                row.answers.append(model)
            if s.key in wrong:
                row.errors.append(model)
    kept = sorted(rows.values(), key=lambda row: -(row.label.score - row.label.chance))
    sentence = sections.given_away([(row.name, row.label) for row in kept if row.label.tells])
    return ProbeTable(kept[:MOST_PROBES], max(0, len(kept) - MOST_PROBES), sentence)


@dataclass(frozen=True)
class SliceCard:
    """An error slice with some of its images, as ``data:`` addresses."""

    number: int
    name: str
    pictures: list[str]
    sentence: str


def slice_cards(found: Discovery, most: int) -> list[SliceCard]:
    """Up to ``most`` error slices with some of their images."""
    cards = []
    for number, s in enumerate(found.slices[:most], start=1):
        images = islice(readable(found.base.dataset, s.positions[: 3 * SLICE_PICTURES]), SLICE_PICTURES)
        pictures = [data_uri(small_picture(image, 96)) for _, image in images]
        cards.append(SliceCard(number, s.name, pictures, sections.error_slice(s)))
    return cards


@dataclass(frozen=True)
class ExchangeShots:
    """An exchange in pictures, as ``data:`` addresses; ``looked`` is None where the model shows no map."""

    about: BeforeAfter
    image: str
    donor: str
    edited: str
    looked: str | None


def shots(about: BeforeAfter, side: int = LEAD_SIDE) -> ExchangeShots:
    """The pictures of an exchange, their longer side at ``side`` pixels."""
    image, donor, edited = (data_uri(small_picture(p, side)) for p in (about.image, about.donor, about.edited))
    return ExchangeShots(about, image, donor, edited, None if about.looked is None else data_uri(about.looked))
