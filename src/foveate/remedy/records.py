"""What a cure writes down: ``cure.json``, and the notes on finished remedies that a second call goes on from."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict, ValidationError

from foveate.assemble.saving import load
from foveate.assemble.system import System
from foveate.errors import FoveateError, ModelError, StorageError
from foveate.files import check_writable, read_text, write_json
from foveate.remedy.dividing import Division
from foveate.remedy.kinds import Attempt, Counted, Means, Remedy, Showing, State, Supply

SCHEMA = 1
RECORD, UNFINISHED = "cure.json", "unfinished"


class _Form(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class CountedRecord(_Form):
    """Some images counted together."""

    name: str
    n: int
    right: int


class ShowingRecord(_Form):
    """How a model does on the images that are chosen on; shares from 0 to 1."""

    real: float
    average: float
    worst: float
    worst_of: str
    follows: float | None
    cells: list[CountedRecord]

    @staticmethod
    def of(found: Showing | None) -> ShowingRecord | None:
        if found is None:
            return None
        return ShowingRecord(
            real=found.real, average=found.average, worst=found.worst.accuracy, worst_of=found.worst.name,
            follows=found.follows, cells=[CountedRecord(name=c.name, n=c.n, right=c.right) for c in found.cells],
        )  # fmt: skip

    def standing(self) -> Showing:
        return Showing(self.real, tuple(Counted(c.name, c.n, c.right) for c in self.cells), self.follows)


class AttemptRecord(_Form):
    """A remedy and what became of it."""

    remedy: str
    means: Means
    origin: Supply | None
    title: str
    state: State
    why: str
    standing: ShowingRecord | None
    supervision: str
    seconds: float
    allowed: bool
    notes: list[str]

    @staticmethod
    def of(found: Attempt) -> AttemptRecord:
        return AttemptRecord(
            remedy=found.remedy.key, means=found.remedy.means, origin=found.remedy.origin, title=found.remedy.title,
            state=found.state, why=found.why, standing=ShowingRecord.of(found.standing),
            supervision=found.supervision, seconds=round(found.seconds, 2), allowed=found.allowed, notes=found.notes,
        )  # fmt: skip

    def attempt(self) -> Attempt:
        return Attempt(
            Remedy(self.means, self.origin), self.state, self.why,
            None if self.standing is None else self.standing.standing(), self.supervision, self.seconds, self.allowed,
            list(self.notes),
        )  # fmt: skip


class MeasuredRecord(_Form):
    """A model on the images that nothing was chosen on."""

    average: float
    worst_class: float
    worst_group: float | None
    groups: list[CountedRecord]


class CureRecord(_Form):
    """``cure.json``.

    Attributes:
        key: what model, images and seed it is about.
        outcome: ``"cured"``, ``"left alone"`` (no shortcut found) or ``"kept"`` (nothing helped).
        chosen: key of the remedy; None where the original is handed back.
        before, after: on the images that are chosen on.
        measured_before, measured_after: on images apart, where there are some.
    """

    version: int = SCHEMA
    foveate: str
    date: str
    key: str
    outcome: str
    chosen: str | None
    headline: str
    sentences: list[str]
    model: str
    division: str
    rule: str
    cues: list[str]
    verdict_before: str
    verdict_after: str | None
    before: ShowingRecord | None
    after: ShowingRecord | None
    measured_on: str | None
    measured_before: MeasuredRecord | None
    measured_after: MeasuredRecord | None
    attempts: list[AttemptRecord]
    supervision: str
    export: str
    seconds: float
    minutes: float
    interrupted: bool
    notes: list[str]


def key_of(system: System, division: Division, seed: int, objects: str | None) -> str:
    """What must be the same for finished remedies to be used again: the model's answers, the images, the seed."""
    sample = division.choose.subset(np.arange(min(32, len(division.choose))))
    logits = np.round(system.predict_logits(sample).astype(np.float64), 2)
    hasher = hashlib.blake2b(logits.tobytes(), digest_size=12)
    parts = [division.fit, division.choose, *([] if division.target is None else [division.target])]
    told = (system.class_names_, system.preprocess_.to_dict(), seed, objects, [part.fingerprint for part in parts])
    hasher.update(repr(told).encode())
    return hasher.hexdigest()


class Desk:
    """The folder a cure works in: notes on finished remedies, and features, until it is done.

    Args:
        out: where the result goes.
        key: of :func:`key_of`; what was left by a cure of another model or of other images is thrown away.
    """

    def __init__(self, out: Path, key: str):
        self.place = out / UNFINISHED
        mark = self.place / "key.json"
        if self.place.is_dir() and _read_json(mark) != {"version": SCHEMA, "key": key}:
            shutil.rmtree(self.place, ignore_errors=True)
        if not mark.is_file():
            write_json(mark, {"version": SCHEMA, "key": key})

    @property
    def features(self) -> Path:
        return self.place / "features"

    def keep(self, found: Attempt, system: System) -> None:
        """Note that a remedy is finished, with the model it made: the model first, so that a note is never empty."""
        system.save(self.place / found.remedy.key)
        write_json(self.place / f"{found.remedy.key}.json", AttemptRecord.of(found).model_dump(mode="json"))

    def finished(self, remedy: Remedy) -> tuple[Attempt, System] | None:
        """What an earlier call noted about ``remedy``; None when there is nothing, or nothing that can be read."""
        try:
            told = AttemptRecord.model_validate_json(read_text(self.place / f"{remedy.key}.json"))
            return told.attempt(), load(self.place / remedy.key)
        except (OSError, UnicodeDecodeError, ValidationError, FoveateError):
            return None

    def clear(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)


def _read_json(path: Path) -> Any:
    import json

    try:
        return json.loads(read_text(path))
    except (OSError, ValueError):
        return None


def check_out(out: Path) -> None:
    """Raise unless a cure may be written to ``out``: a new or empty folder, or one of a cure."""
    check_writable(out / RECORD)
    taken = out.is_dir() and any(out.iterdir()) and not ((out / RECORD).is_file() or (out / UNFINISHED).is_dir())
    if taken:
        raise StorageError(f"{out} is there and is not of a cure; choose a new folder.")


def read_record(out: Path) -> CureRecord:
    """The ``cure.json`` of a folder."""
    try:
        return CureRecord.model_validate_json(read_text(out / RECORD))
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"{out} holds no cure ({RECORD} cannot be read: {error}).") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ModelError(f"{out / RECORD} cannot be read: {where}: {first['msg']}.") from error
