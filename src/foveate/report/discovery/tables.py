"""What the page shows of the discoveries: rows for its bars and tables, and small pictures, by model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import islice

from foveate.report.discovery.discover import Discovery
from foveate.report.discovery.experiments import Pull
from foveate.report.discovery.judgement import Suspect
from foveate.report.discovery.probes import PropertyProbe
from foveate.report.examples import data_uri, small_picture
from foveate.report.reading import readable
from foveate.report.sentences import sections

SLICE_PICTURES = 6
MOST_PROBES = 14
_TESTS = (
    ("plain", "the images as they are"), ("object_only", "objects alone, on one colour"),
    ("same_background", "on backgrounds of the same class"), ("random_background", "on backgrounds of any class"),
    ("background_only", "backgrounds alone, the object painted over"),
)  # fmt: skip

Discoveries = Mapping[str, Discovery]
"""What was found about each model, by its name."""


@dataclass
class ExperimentRow:
    """A cue that was exchanged, with one bar a model: its name, the pull, and a tag where it counts."""

    name: str
    bars: list[tuple[str, Pull, str]] = field(default_factory=list)
    most: float = 0.0


def experiments(discoveries: Discoveries) -> list[ExperimentRow]:
    """One row a cue that was exchanged, one bar a model; strongest first."""
    rows: dict[str, ExperimentRow] = {}
    for model, found in discoveries.items():
        for s, pull in found.judgement.pulls:
            row = rows.setdefault(s.key, ExperimentRow(s.name))
            row.bars.append((model, pull, _tag(s)))
            row.most = max(row.most, pull.value * (1.0 if s.explained_by is None else 0.5))
    return sorted(rows.values(), key=lambda row: -row.most)


def _tag(s: Suspect) -> str:
    if not s.level.accuses:
        return ""
    return s.level.value if s.explained_by is None else f"part of {s.explained_by.name}"


def experiment_sentence(discoveries: Discoveries) -> str:
    """The strongest pull of every model, in one sentence."""
    parts = []
    for model, found in discoveries.items():
        tested = found.judgement.tested
        if tested:
            top = max(tested, key=lambda s: (s.explained_by is None, s.strength))
            parts.append(sections.strongest(model, top))
    return "; ".join(parts) + "." if parts else ""


def mask_rows(discoveries: Discoveries) -> tuple[list[tuple[str, list[tuple[str, float]]]], list[str]]:
    """Accuracy with objects and backgrounds taken apart: the name of each test, and ``(model, share)`` of each bar;
    and a sentence a model."""
    tests = {model: found.masks for model, found in discoveries.items() if found.masks is not None}
    rows = [(name, [(m, getattr(t, key)) for m, t in tests.items()]) for key, name in _TESTS if tests]
    return rows, [sections.taken_apart(model, found) for model, found in tests.items()]


@dataclass
class ProbeRow:
    """A cue with what it tells about the label, and which of each model's answers and errors follow it."""

    name: str
    label: PropertyProbe
    models: list[tuple[str, list[str]]] = field(default_factory=list)


@dataclass(frozen=True)
class ProbeTable:
    """The cues that tell most about the label, how many more there are, and what they say together."""

    rows: list[ProbeRow]
    hidden: int
    sentence: str


def probe_table(discoveries: Discoveries) -> ProbeTable:
    """What each cue tells about the label (the data), and about each model's answers and errors."""
    rows: dict[str, ProbeRow] = {}
    for model, found in discoveries.items():
        errors = {probe.key: probe for probe in found.error_probes}
        for s in found.judgement.suspects:
            if s.label is None:
                continue
            probes = {"answers": s.answers, "errors": errors.get(s.key)}
            follow = [what for what, probe in probes.items() if probe is not None and probe.tells]
            rows.setdefault(s.key, ProbeRow(s.name, s.label)).models.append((model, follow))
    kept = sorted(rows.values(), key=lambda row: -(row.label.score - row.label.chance))
    sentence = sections.given_away([(row.name, row.label) for row in kept if row.label.tells])
    return ProbeTable(kept[:MOST_PROBES], max(0, len(kept) - MOST_PROBES), sentence)


@dataclass(frozen=True)
class SliceCard:
    """An error slice of one model with some of its images, as ``data:`` addresses."""

    model: str
    number: int
    name: str
    pictures: list[str]
    sentence: str


def slice_cards(discoveries: Discoveries) -> list[SliceCard]:
    """The error slices of every model with some of their images."""
    cards = []
    for model, found in discoveries.items():
        for number, s in enumerate(found.slices, start=1):
            images = islice(readable(found.base.dataset, s.positions[: 3 * SLICE_PICTURES]), SLICE_PICTURES)
            pictures = [data_uri(small_picture(image, 120)) for _, image in images]
            cards.append(SliceCard(model, number, s.name, pictures, sections.error_slice(s)))
    return cards


def turned_pictures(discoveries: Discoveries) -> list[tuple[str, str, list[tuple[list[str], str]]]]:
    """Images whose answer turned in the strongest experiment: model, name of the cue, and for each the ``data:``
    addresses of image, donor and edited image, with the answer to the last."""
    out = []
    for model, found in discoveries.items():
        names = [s.name for s in found.judgement.tested if s.level.accuses]
        shots = [
            ([data_uri(small_picture(image, 150)) for image in (t.image, t.donor, t.edited)], t.answer)
            for t in found.turned
        ]
        if shots:
            out.append((model, names[0], shots))
    return out
