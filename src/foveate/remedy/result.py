"""What a cure hands back: the model, what was tried, before and after; and how it is written to a folder."""

from __future__ import annotations

import datetime
import logging
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from foveate.assemble.system import System
from foveate.assess.evaluate import evaluate
from foveate.errors import FoveateError, ModelError, first_line
from foveate.export import to_folder
from foveate.files import write_json, write_text
from foveate.measure import GroupReport
from foveate.remedy import sentences
from foveate.remedy.choosing import Rule
from foveate.remedy.dividing import Division
from foveate.remedy.kinds import Attempt, Showing, State
from foveate.remedy.records import (
    RECORD,
    AttemptRecord,
    CountedRecord,
    CureRecord,
    MeasuredRecord,
    ShowingRecord,
)
from foveate.report import Audit, Cue

log = logging.getLogger("foveate")


@dataclass
class Cure:
    """The result of :func:`foveate.cure`.

    Attributes:
        model: the cured model; the original where nothing had to be cured or nothing helped.
        original: the model that was given.
        division: which images were for what.
        rule: how the choice was made.
        audit_before, audit_after: the audits of both models; the second only of a cured one, where time allowed.
        cues: what was exchanged.
        before: how the original does on the images that are chosen on; None when there was nothing to cure.
        chosen: the remedy that made ``model``.
        attempts: every remedy, tried or not, with its figures or the reason.
        models: what the remedies made, by the key of the remedy.
        measured: group reports of original and cured model on images that nothing was chosen on.
        interrupted: whether Ctrl-C ended it; ``model`` is then the best so far.
    """

    model: System
    original: System
    division: Division
    rule: Rule
    audit_before: Audit
    audit_after: Audit | None = None
    cues: list[Cue] = field(default_factory=list)
    before: Showing | None = None
    chosen: Attempt | None = None
    attempts: list[Attempt] = field(default_factory=list)
    models: dict[str, System] = field(default_factory=dict)
    measured: tuple[GroupReport, GroupReport] | None = None
    interrupted: bool = False
    key: str = ""
    seconds: float = 0.0
    minutes: float = 0.0
    exported: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def tried(self) -> list[Attempt]:
        """The remedies that made a model."""
        return [a for a in self.attempts if a.state is State.TRIED]

    @property
    def outcome(self) -> str:
        """``"left alone"`` without a shortcut, ``"cured"``, or ``"kept"`` when nothing helped."""
        if self.chosen is not None:
            return "cured"
        return "left alone" if self.before is None else "kept"

    @property
    def after(self) -> Showing | None:
        """How the model that is handed back does on the images that are chosen on."""
        return self.before if self.chosen is None else self.chosen.standing

    @property
    def supervision(self) -> str:
        """Which labels the model that is handed back used."""
        return self.original.supervision() if self.chosen is None else self.chosen.supervision

    def measure(self) -> None:
        """Compare both models on the images that nothing was chosen on, where there are some."""
        if self.division.apart:
            import warnings

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                before = evaluate(self.original, self.division.measure)
                after = before if self.chosen is None else evaluate(self.model, self.division.measure)
            self.measured = before, after

    def record(self) -> CureRecord:
        """Everything as types, as it is written to ``cure.json``."""
        from foveate import __version__

        measured = [None, None] if self.measured is None else [_measured(report) for report in self.measured]
        said = sentences.about(self)
        return CureRecord(
            foveate=__version__, date=datetime.date.today().isoformat(), key=self.key, outcome=self.outcome,
            chosen=None if self.chosen is None else self.chosen.remedy.key, headline=said[0], sentences=said[1:],
            model=type(self.original).__name__, division=self.division.told, rule=self.rule.words,
            cues=[cue.key for cue in self.cues], verdict_before=self.audit_before.verdict,
            verdict_after=None if self.audit_after is None else self.audit_after.verdict,
            before=ShowingRecord.of(self.before), after=ShowingRecord.of(self.after),
            measured_on=self.division.measure.name if self.division.apart else None,
            measured_before=measured[0], measured_after=measured[1],
            attempts=[AttemptRecord.of(a) for a in self.attempts], supervision=self.supervision, export=self.exported,
            seconds=round(self.seconds, 1), minutes=self.minutes, interrupted=self.interrupted, notes=self.notes,
        )  # fmt: skip

    def html(self) -> str:
        """The report as one page."""
        from foveate.remedy.page import render

        return render(self)

    def save(self, out: str | Path) -> Path:
        """Write model, export, report and record to the folder ``out``; the record last, so that it is never early."""
        place = Path(out)
        self._save_model(place)
        write_text(place / "report.html", self.html())
        write_json(place / RECORD, self.record().model_dump(mode="json"))
        return place

    def _save_model(self, place: Path) -> None:
        if self.chosen is None:  # what a cure before this one handed back must not pass as this one's
            for old in ("model", "export"):
                shutil.rmtree(place / old, ignore_errors=True)
            self.exported = "the original is handed back; its own file stays as it is"
            return
        try:
            self.model.save(place / "model")
        except ModelError as error:  # a black box inside: its own file stays where it is
            shutil.rmtree(place / "model", ignore_errors=True)
            self.notes.append(f"The cured model could not be saved: {first_line(error)} Make it anew in Python with "
                              "fv.cure(...).model.")  # fmt: skip
        try:
            parity = to_folder(self.model, place / "export", images=_some(self))
            self.exported = f"ONNX, {parity}"
        except FoveateError as error:
            self.exported = f"not exported: {first_line(error)}"
            log.info("%s", self.exported)

    def __str__(self) -> str:
        return " ".join(sentences.about(self))


def _some(found: Cure) -> list[object]:
    data = found.division.choose
    return [data[i].image for i in range(min(4, len(data)))]


def _measured(report: GroupReport) -> MeasuredRecord:
    cells = [CountedRecord(name=g.name, n=g.n, right=g.correct) for g in report.groups] or [
        CountedRecord(name=name, n=n, right=round(n * accuracy)) for name, n, accuracy in report.classes
    ]
    return MeasuredRecord(
        average=report.average, worst_class=report.worst_class, worst_group=report.worst_group, groups=cells
    )
