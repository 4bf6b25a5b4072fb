"""All experiments with one model: every cue by itself, what holds what, and marks that sit anywhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from foveate.report.discovery.cues import EXCHANGED, Cue
from foveate.report.discovery.cues.object_mark import find_mark, marked, object_mark
from foveate.report.discovery.experiments import (
    ERROR,
    Plan,
    Pull,
    Sheet,
    drawn_pairs,
    exchange,
    measure_pull,
    planned_looks,
    pull_of_pairs,
)
from foveate.report.discovery.judgement import HINT
from foveate.report.discovery.marks import MARK, Box, find_marks, mark_pairs, with_marks, without_marks
from foveate.report.discovery.nested import ADDS, COMPARED, STANDS, Nesting, disentangle, share_held, shared
from foveate.report.gaps import FOUND_GAP

TESTS = len(EXCHANGED) + 2
"""Experiments a model is put to: each cue, marks that sit anywhere, and a mark on the object."""


@dataclass
class Inquiry:
    """The experiments with one model.

    Attributes:
        sheet: the images.
        features: the cues in numbers for every row of the sheet, by key.
        logits: ``uint8 [B, 3, H, W]`` to the model's scores ``[B, K]``.
        named: scores to the classes they name ``[B]``, negative for none.
        estimated: whether masks are guesses, so that a tight cut needs a generous one to bear it out.
        deadline: a moment of :func:`time.monotonic` after which no further look is begun.
        pulls, nesting, marks: what was found.
    """

    sheet: Sheet
    features: Mapping[str, NDArray[np.float64]]
    logits: Callable[[Tensor], NDArray[np.float32]]
    named: Callable[[NDArray[np.float32]], NDArray[np.int64]]
    estimated: bool = False
    seed: int = 0
    deadline: float | None = None
    pulls: list[Pull] = field(default_factory=list)
    nesting: Nesting = field(default_factory=Nesting)
    marks: dict[int, Box] = field(default_factory=dict)

    def run(self) -> Inquiry:
        for cue in EXCHANGED:
            found = self._pull(cue)
            if found is not None:
                self.pulls.append(found)
        self._on_the_object()
        accused = [pull for pull in self.pulls if accuses(pull)]
        if len(accused) > 1:
            self.nesting = disentangle(self.sheet, self.predict, accused)
        whole = next((pull for pull in accused if pull.cue.key == "background"), None)
        if whole is not None and whole.cue.key not in self.nesting.explained:
            self._search(whole)
        return self

    def predict(self, batch: Tensor) -> NDArray[np.int64]:
        return self.named(self.logits(batch))

    def shown(self, cue: Cue, recipients: Sequence[int], donors: Sequence[int]) -> Tensor:
        """The exchange as it was made, ``uint8 [B, 3, H, W]``."""
        sheet = with_marks(self.sheet, self.marks) if cue.key == MARK.key else self.sheet
        return exchange(sheet, cue, recipients, donors)

    def _plan(self, cue: Cue, generous: bool = False) -> Plan:
        looks = planned_looks(len(self.sheet))
        return Plan(looks, TESTS, self.features.get(cue.key), generous, self._late)

    def _late(self) -> bool:
        return self.deadline is not None and time.monotonic() > self.deadline

    def _pull(self, cue: Cue) -> Pull | None:
        """One cue; where its cut is only estimated and turns answers, the generous cut too."""
        if cue.measure is not None and not shared(self.sheet, cue):
            cue = cue.outside()
        found = measure_pull(self.sheet, cue, self.predict, plan=self._plan(cue), seed=self.seed)
        if found is None or not (cue.cuts and self.estimated) or not accuses(found):
            return found
        plan = self._plan(cue, generous=True)
        wide = measure_pull(
            self.sheet, cue, self.predict, plan=plan, drawn=np.asarray(found.pairs, dtype=np.int64), seed=self.seed
        )
        return replace(found, generous=wide)

    def _on_the_object(self) -> None:
        """Look for a mark on the object in every second image; if there is one, exchange it in the others."""
        sheet = self.sheet
        half = np.arange(len(sheet)) % 2 == 0
        mark = find_mark(sheet.images[half], sheet.masks[half], sheet.labels[half], sheet.predictions[half])
        if mark is None:
            return
        cue = object_mark(mark)
        share = marked(sheet.images, sheet.masks, mark).mean((1, 2)).double().numpy()[:, None]
        plan = replace(self._plan(cue), features=share)
        drawn = drawn_pairs(sheet, cue, plan, self.seed)
        found = measure_pull(sheet, cue, self.predict, plan=plan, drawn=drawn[~half[drawn[:, 0]]], seed=self.seed)
        if found is not None:
            self.pulls.append(found)

    def _search(self, whole: Pull) -> None:
        """Look for a mark beside the object that explains the background's pull, or stands beside it."""
        self.marks = find_marks(self.sheet, self.logits)
        drawn = mark_pairs(self.sheet, self.marks, np.random.default_rng([self.seed, 4]))
        marked = with_marks(self.sheet, self.marks)
        found = measure_pull(marked, MARK, self.predict, plan=self._plan(MARK), drawn=drawn, seed=self.seed)
        if found is None:
            return
        self.pulls.append(found)
        if not accuses(found):
            return
        pairs = found.pairs[:COMPARED]
        full = pull_of_pairs(self.sheet, whole.cue, self.predict, pairs)
        rest = pull_of_pairs(without_marks(self.sheet, self.marks), whole.cue, self.predict, pairs)
        held = self.nesting.holds[MARK.key] = share_held(full, rest)
        if held < ADDS:
            self.nesting.explained[MARK.key] = whole.cue
        elif rest < max(STANDS * full, FOUND_GAP):
            self.nesting.explained[whole.cue.key] = MARK


def accuses(pull: Pull) -> bool:
    """Whether a pull is worth asking further about: surely above zero among so many tests, and not tiny."""
    return pull.p * TESTS < ERROR and pull.value >= HINT
