"""What an audit writes: its findings as types, with the version of their form. Everything in the JSON is here.

Other than the types it is made from, a record holds words too, for people and programs that read the file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict

from foveate.errors import DataError, suggest
from foveate.measure import GroupRow, reported
from foveate.report import sentences
from foveate.report.discovery.before_after import BeforeAfter
from foveate.report.discovery.cues import Cue
from foveate.report.discovery.discover import Discovery
from foveate.report.discovery.judgement import Judgement, Suspect
from foveate.report.discovery.leaks import Leak
from foveate.report.discovery.mask_tests import MaskTests
from foveate.report.gaps import Gap, Share
from foveate.report.heat import HeatOnObject
from foveate.report.levels import Agreement, Evidence, Level
from foveate.report.sentences.advice import Advice
from foveate.report.sentences.limits import leak
from foveate.report.verdict import Verdict

SHORTCUT = "shortcut"
"""The verdict as a metric: 1 without and 0 with a shortcut found."""


class Written(BaseModel):
    """A part of the findings: read-only, and made from the type of the same content."""

    model_config = ConfigDict(frozen=True, from_attributes=True, extra="forbid")


Key = Annotated[str, BeforeValidator(lambda cue: cue.key if isinstance(cue, Cue) else cue)]
"""A cue, written as its key."""


class SideRecord(Written):
    """One side of a comparison of groups."""

    name: str
    correct: int
    n: int
    accuracy: float | None
    low: float
    high: float

    @staticmethod
    def of(name: str, share: Share) -> SideRecord:
        accuracy = share.value if share.n else None
        return SideRecord(
            name=name, correct=share.correct, n=share.n, accuracy=accuracy, low=share.low, high=share.high
        )  # fmt: skip


class VerdictRecord(Written):
    """The verdict on one model.

    Attributes:
        level, evidence, agreement: see :mod:`foveate.report.levels`.
        headline: a few words.
        sentences: plain words with the numbers; the first one is the verdict.
        sides: the two sides the groups compared.
        gap: between them, or None.
        measured: what the groups showed, as part of a sentence; empty without groups.
        levels: what groups and experiments say by themselves.
        compared: what the groups compared, whatever decided in the end.
        cues: keys of the cues it names against the model.
        guessing: whether the model hardly beats guessing.
        plain: the verdict as one would say it, in one sentence.
        numbers: how often it is right where the shortcut helps and where it does not; empty where nothing was compared.
        smallest_gap: the smallest gap that the groups would have found; None without groups.
    """

    level: Level
    headline: str
    sentences: list[str]
    evidence: Evidence
    sides: list[SideRecord]
    gap: Gap | None
    measured: str
    agreement: Agreement
    levels: dict[str, Level]
    compared: Evidence
    cues: list[str]
    guessing: bool
    plain: str
    numbers: list[SideRecord]
    smallest_gap: float | None

    @staticmethod
    def of(v: Verdict, shown: BeforeAfter | None = None) -> VerdictRecord:
        """``shown`` is the exchange that shows the verdict (:func:`foveate.report.sentences.plain.example_of`)."""
        gap = v.groups.comparison.gap
        return VerdictRecord(
            level=v.level, headline=sentences.headline(v), sentences=sentences.sentences(v), evidence=v.evidence,
            sides=[SideRecord.of(name, share) for name, share in sentences.sides(v.groups, v.attribute)],
            gap=gap, measured=sentences.measured(v.groups, v.attribute), agreement=v.agreement,
            levels=v.levels, compared=v.groups.evidence, cues=[s.key for s in v.accused], guessing=v.guessing,
            plain=sentences.plain(v, shown), numbers=[SideRecord.of(*side) for side in sentences.two_numbers(v)],
            smallest_gap=None if gap is None else gap.smallest_found,
        )  # fmt: skip


class ProbeRecord(Written):
    """How well a cue alone tells something."""

    key: str
    target: str
    score: float
    chance: float
    p: float
    adjusted: float
    n: int
    tells: bool


class PullRecord(Written):
    """What exchanging a cue did; ``adjusted`` is its p-value corrected for the number of cues.

    ``n`` images were enough of the ``planned`` ones; ``generous`` is the pull when the object keeps a margin of its own
    background, asked where its place was only estimated.
    """

    cue: Key
    n: int
    value: float
    low: float
    high: float
    p: float
    same: float
    other: float
    adjusted: float | None
    planned: int
    generous: Annotated[float | None, BeforeValidator(lambda pull: getattr(pull, "value", pull))]


class SuspectRecord(Written):
    """One cue with all that is known about it.

    Attributes:
        explained_by: key of the cue whose pull this one's really is: a larger one, or a part that holds most of it.
        holds: how much of the background's pull goes with it, 0 to 1; None where that was not asked.
        smallest_found: the smallest pull that its experiment would have found (four times in five).
    """

    key: str
    name: str
    level: Level
    explained_by: Key | None
    holds: float | None
    pull: PullRecord | None
    label: ProbeRecord | None
    answers: ProbeRecord | None
    smallest_found: float | None

    @staticmethod
    def of(found: Judgement, s: Suspect) -> SuspectRecord:
        return SuspectRecord.model_validate(
            {
                "key": s.key, "name": s.name, "level": s.level, "explained_by": s.explained_by, "pull": s.pull,
                "holds": s.holds,
                "label": s.label, "answers": s.answers, "smallest_found": found.smallest_found(s),
            }
        )  # fmt: skip


class BeforeAfterRecord(Written):
    """An image before and after an exchange, by its places in the dataset, and what the model says to both."""

    cue: Key
    position: int
    donor_position: int
    label: str
    donor_label: str
    donor_attribute: str | None
    before: str
    answer: str


class SliceRecord(Written):
    """A bunch of similar images that the model gets wrong; ``positions`` are places in the dataset."""

    label: int
    n: int
    correct: int
    accuracy: float
    low: float
    high: float
    average: float
    p: float
    adjusted: float
    name: str
    mistaken_for: str | None
    unlike: Annotated[list[str], BeforeValidator(lambda found: [w if isinstance(w, str) else w[1] for w in found])]
    positions: list[int]


class DiscoveryRecord(Written):
    """What was found about one model without attributes: the evidence. Its words are left to the verdict.

    Attributes:
        shortcuts: keys of the cues it leans on, strongest first.
        suspects: every cue, worst first.
        objects: where the objects' places come from.
        errors, attribute: which cues tell where the model errs, and which tell the given attribute.
        turned, held: exchanges that turned an answer; where nothing did, one that did not.
    """

    level: Level
    shortcuts: list[str]
    suspects: list[SuspectRecord]
    objects: str
    mask_tests: MaskTests | None
    errors: list[ProbeRecord]
    attribute: list[ProbeRecord]
    slices: list[SliceRecord]
    turned: list[BeforeAfterRecord]
    held: list[BeforeAfterRecord]

    @staticmethod
    def of(found: Discovery) -> DiscoveryRecord:
        judged = found.judgement
        return DiscoveryRecord.model_validate(
            {
                "level": judged.level, "shortcuts": [s.key for s in judged.shortcuts],
                "suspects": [SuspectRecord.of(judged, s) for s in judged.suspects],
                "objects": found.base.objects.source, "mask_tests": found.masks, "errors": found.error_probes,
                "attribute": found.base.attribute_probes, "slices": found.slices,
                "turned": found.turned, "held": found.held,
            }
        )  # fmt: skip


@dataclass(frozen=True)
class GazeRecord(HeatOnObject):
    """How much of the heat lies on the object, for right and for wrong predictions; in words too."""

    sentence: str


class ClassRecord(Written):
    name: str
    n: int
    accuracy: float


class ModelRecord(Written):
    """Everything about one model: the metrics of its group report by name, and what follows from them.

    ``unanswered_images`` are those it said NaN to, which count as wrong; ``confusion`` counts images, ``[C][A][K]``,
    without them; ``gaze`` and ``discovery`` are None where they were not run.
    """

    model_config = ConfigDict(extra="allow")  # a metric that is new to the group report comes along by itself

    name: str
    needs: str
    average: float
    worst_group: float | None
    worst_class: float
    majority: float | None
    minority: float | None
    n: int
    skipped: int
    unanswered: int
    unanswered_by_class: dict[str, int]
    unanswered_images: list[str]
    groups: list[GroupRow]
    classes: list[ClassRecord]
    empty_groups: list[str]
    worst: str | None
    confusion: list[list[list[int]]]
    verdict: VerdictRecord
    gaze: GazeRecord | None
    discovery: DiscoveryRecord | None

    @property
    def figures(self) -> dict[str, float | None]:
        """Every metric of the group report by name, None where it cannot be had."""
        there = {**vars(self), **(self.model_extra or {})}
        return {name: there[name] for name in reported() if name in there}

    def figure(self, metric: str) -> float:
        """A metric by name; ``shortcut`` is 1 without and 0 with a shortcut found."""
        if metric == SHORTCUT:
            return 0.0 if self.verdict.level is Level.FOUND else 1.0
        figures = self.figures
        if metric not in figures:
            known = (SHORTCUT, *figures)
            raise DataError(f"unknown metric '{metric}'.{suggest(metric, known)} Known: {', '.join(known)}.")
        value = figures[metric]
        if value is None:
            raise DataError(
                f"{self.name}: '{metric}' cannot be computed from these images; it needs attributes (groups)."
            )
        return float(value)


class AnswerRecord(Written):
    """What one model says about an example; ``kind`` is that of its heat map, None without one."""

    model: str
    prediction: str
    probability: float
    right: bool
    kind: str | None


class ExampleRecord(Written):
    """An image of the report with what every model says about it."""

    index: int
    where: str
    label: str
    attribute: str | None
    answers: list[AnswerRecord]


class DatasetRecord(Written):
    """What was audited on; ``read`` images could be read, ``object`` says what tells where objects are."""

    name: str
    images: int
    read: int
    classes: list[str]
    predicted_classes: list[str]
    attributes: list[str] | None
    object: Literal["masks", "boxes"] | None


class TrainingRecord(Written):
    """The training counts ``[C][A]``, whose they are, and how much of a class its most frequent attribute makes up."""

    counts: list[list[int]]
    source: str
    usual_share: float


class WarningRecord(Written):
    """A warning about the data: a cue that alone tells the class. ``levels``: what may be said about each model and
    this cue."""

    cue: Key
    name: str
    score: float
    chance: float
    exchanged: bool
    levels: dict[str, Level]
    sentence: str

    @staticmethod
    def of(found: Leak) -> WarningRecord:
        cue, probe = found.cue, found.probe
        return WarningRecord(
            cue=cue.key, name=cue.name, score=probe.score, chance=probe.chance, exchanged=cue.exchange is not None,
            levels=dict(found.levels), sentence=leak(found),
        )  # fmt: skip


class Findings(Written):
    """The findings of an audit, ready for JSON; :meth:`model_json_schema` tells their form.

    ``schema_version`` goes up when a key goes away or changes its meaning; new keys come without. ``verdict`` is one
    sentence a model; ``examples_by`` is the model whose mistakes the examples are.
    """

    schema_version: Literal[2] = 2
    title: str
    foveate: str
    date: str
    attribute: str
    dataset: DatasetRecord
    training: TrainingRecord | None
    models: list[ModelRecord]
    verdict: str
    examples_by: str
    examples: list[ExampleRecord]
    unreadable: list[str]
    notes: list[str]
    advice: list[Advice]
    warnings: list[WarningRecord]
