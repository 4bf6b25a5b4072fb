"""All experiments with one model: every cue by itself, what holds what, and marks that sit anywhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from foveate.report.discovery.cues import BY_KEY, EXCHANGED, Cue
from foveate.report.discovery.cues.object_mark import OBJECT_MARK, find_mark, marked, object_mark
from foveate.report.discovery.donors import donor_pools, draw_donors, drawn_pairs, spoken_for
from foveate.report.discovery.experiments import (
    ERROR,
    FEWEST_TESTED,
    Pull,
    PullPlan,
    Sheet,
    Triple,
    exchange,
    measure_pull,
    planned_looks,
    pull_of_pairs,
)
from foveate.report.discovery.judgement import HINT, borne_out, level_of, of_both_cuts
from foveate.report.discovery.lookalikes import COLOURING, beside_a_mark, how_it_lies, whose_colour
from foveate.report.discovery.marks import (
    MARK,
    PUT,
    beyond_marks,
    box_masks,
    find_marks,
    mark_pairs,
    with_marks,
    without_marks,
)
from foveate.report.discovery.nested import (
    COMPARED,
    LEVELLED,
    STANDS,
    WORTH,
    Nesting,
    disentangle,
    from_closer,
    left_over,
    share_held,
    shared,
    wholes,
)
from foveate.report.discovery.patterns import find_things, in_steps, on_the_object, read_patches, regions, with_rim
from foveate.report.discovery.probes import probe_all
from foveate.report.gaps import FOUND_GAP, FOUND_LOW
from foveate.report.levels import Level

MIMICS = 0.75
"""A property of the whole picture that loses a quarter of its pull with the marks comes from them: windows seldom hold
a mark wholly."""
SHARPEST = 1.0
"""A window that pulls less than this share of the picture's sharpness is a sharp or a blurred bit of it; a line of
letters pulls more than the sharpness that it lends the picture, and is mostly found by its looks before."""
ALIKE = 0.6
"""A property of the whole picture with this share of a mark's pull makes the mark's colour."""
TAKES = 0.15
"""A mark that takes less than this share of the background's pull with it is a bit of the scene. Less than of a place
that does not move: where mark and scene speak for the same class, each turns answers without the other."""
ON_IT = 0.75
"""A thing is on the object when this share of it lies within the outlines."""
TOUCHES = 0.1
"""A picture gives a thing beside the object if at most this share of it lies on its object."""
LARGEST_PART = 0.6
"""What covers more of the object than this is the object."""
ANYWHERE = 0.5
"""A thing is a bit of the scene when any other place of the same pictures pulls this share of what it does."""
GOES_WITH = 0.02
"""What may belong to a class is exchanged only where chance would so rarely make the answers within it go with it."""
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
        pulls, nesting: what was found.
        marks: where marks are, ``uint8 [n, H, W]``, once they are found.
        thing: what these are called: a mark beside the object, or on it.
        sure: whether the masks are good enough to accuse on their ground.
    """

    sheet: Sheet
    features: Mapping[str, NDArray[np.float64]]
    logits: Callable[[Tensor], NDArray[np.float32]]
    named: Callable[[NDArray[np.float32]], NDArray[np.int64]]
    estimated: bool = False
    seed: int = 0
    deadline: float | None = None
    sure: bool = True
    pulls: list[Pull] = field(default_factory=list)
    nesting: Nesting = field(default_factory=Nesting)
    marks: Tensor | None = None
    thing: Cue = MARK

    def run(self) -> Inquiry:
        for cue in sorted(EXCHANGED, key=lambda cue: cue.part_of is not None):  # a whole before its parts
            found = self._pull(cue)
            if found is not None:
                self.pulls.append(found)
        self._on_the_object()
        accused = [pull for pull in self.pulls if accuses(pull)]
        if len(accused) > 1:
            self.nesting = disentangle(self.sheet, self.predict, accused, self.features)
            from_closer(self.sheet, self.predict, accused, self.nesting)
            how_it_lies(self.sheet, self.predict, accused, self.nesting)
            beside_a_mark(accused, self.nesting)
            whose_colour(self.sheet, self.predict, accused, self.nesting)
        self._colours_of_the_picture(accused)
        standing = [pull for pull in accused if pull.cue.key not in self.nesting.explained]
        whole = next((pull for pull in accused if pull.cue.key == "background"), None)
        if self._thing(accused):
            self._beside(whole, standing)
        elif whole is not None and of_both_cuts(Level.HINT, whole).accuses:
            by = self.nesting.explained.get(whole.cue.key)
            if by is None or by.aspect is not None:  # the marks of a text look like sharpness
                self._search(whole, standing)
        return self

    def predict(self, batch: Tensor) -> NDArray[np.int64]:
        return self.named(self.logits(batch))

    def shown(self, cue: Cue, recipients: Sequence[int], donors: Sequence[int]) -> Tensor:
        """The exchange as it was made, ``uint8 [B, 3, H, W]``."""
        if cue.key == self.thing.key and self.marks is not None:
            return exchange(with_marks(self.sheet, self.marks), PUT, recipients, donors)
        return exchange(self.sheet, cue, recipients, donors)

    def _plan(self, cue: Cue, generous: bool = False) -> PullPlan:
        looks = planned_looks(len(self.sheet))
        return PullPlan(looks, TESTS, self.features.get(cue.key), generous, self._late, small=self._small(cue))

    def _small(self, cue: Cue) -> float:
        """A pull surely under this needs no further look.

        Where the background is found, a part of it that pulls less than ``WORTH`` of that is a bit of it, however sure.
        """
        whole = next((pull for pull in self.pulls if pull.cue.key == "background" and self.sure), None)
        if whole is None or BY_KEY.get(cue.key) is None or whole.cue.key not in wholes(cue):
            return FOUND_GAP
        found = of_both_cuts(level_of(whole, whole.p * TESTS), whole) is Level.FOUND
        return max(FOUND_GAP, WORTH * whole.value) if found else FOUND_GAP

    def _late(self) -> bool:
        return self.deadline is not None and time.monotonic() > self.deadline

    def _pull(self, cue: Cue) -> Pull | None:
        """One cue; where its cut is only estimated and turns answers, the generous cut too."""
        if cue.within_class and (cue.key not in self.features or not self._goes_with(cue)):
            return None
        if cue.measure is not None and not shared(self.sheet, cue):
            cue = cue.outside()
        found = measure_pull(self.sheet, cue, self.predict, plan=self._plan(cue), seed=self.seed)
        if found is None or not (cue.cuts and self.estimated) or not accuses(found):
            return found
        plan = replace(self._plan(cue, generous=True), enough=borne_out(found))
        wide = measure_pull(
            self.sheet, cue, self.predict, plan=plan, drawn=np.asarray(found.pairs, dtype=np.int64), seed=self.seed
        )
        return replace(found, generous=wide)

    def _goes_with(self, cue: Cue) -> bool:
        """Whether the answers within the classes go with a cue in the images as they are."""
        probes = probe_all(
            {cue.key: self.features[cue.key]}, self.sheet.predictions, "answers", within=self.sheet.labels,
            seed=self.seed,
        )  # fmt: skip
        return bool(probes) and probes[0].p < GOES_WITH

    def _on_the_object(self) -> None:
        """Look for a mark on the object in every second image; if there is one, exchange it in the others.

        Within its outline: a margin of the surroundings would bring their colours along.
        """
        sheet = self.sheet
        if sheet.tight is not None:
            sheet = replace(sheet, masks=sheet.tight)
        half = np.arange(len(sheet)) % 2 == 0
        mark = find_mark(sheet.images[half], sheet.masks[half], sheet.labels[half], sheet.predictions[half])
        if mark is None:
            return
        cue = object_mark(mark)
        share = marked(sheet.images, sheet.masks, mark).mean((1, 2)).double().numpy()[:, None]
        plan = replace(self._plan(cue), features=share)
        drawn = drawn_pairs(sheet, cue, share, self.seed)
        found = measure_pull(sheet, cue, self.predict, plan=plan, drawn=drawn[~half[drawn[:, 0]]], seed=self.seed)
        if found is not None:
            self.pulls.append(found)

    def _colours_of_the_picture(self, accused: Sequence[Pull]) -> None:
        """Blur, JPEG or a cast make colours on the object that others do not have: no mark when they pull alike."""
        mark = next((pull for pull in accused if pull.cue.key == OBJECT_MARK.key), None)
        of_all = [p for p in accused if p.cue.aspect is not None and p.cue.key not in self.nesting.explained]
        strongest = max(of_all, key=lambda pull: pull.value, default=None)
        if mark is not None and strongest is not None and strongest.value >= ALIKE * mark.value:
            self.nesting.explained[mark.cue.key] = strongest.cue

    def _thing(self, accused: Sequence[Pull]) -> bool:
        """Look for a thing that comes along, by its looks, in every second image; exchange it in the others.

        Answers must follow it beyond what the accused cues, and the background, say in the same images.
        """
        sheet = self.sheet
        keys = dict.fromkeys(["background", *(pull.cue.key for pull in accused)])
        told = [in_steps(self.features[key]) for key in keys if key in self.features]
        if not told or len(sheet) < FEWEST_TESTED:
            return False
        half = np.arange(len(sheet)) % 2 == 0
        patches = sheet.measured("patches", lambda: read_patches(sheet.images))
        tried: list[tuple[Pull, Tensor]] = []
        for kind in find_things(patches, sheet.labels, sheet.predictions, np.concatenate(told, 1), half):
            marks = regions(patches.kinds, kind, *sheet.images.shape[-2:])
            found = self._of_that_kind(marks, half)
            if found is not None:
                tried.append((found, with_rim(marks)))
                if found.value >= FOUND_GAP and found.low >= found.cue.least:
                    break
        if not tried:
            return False
        found, self.marks = max(tried, key=lambda one: one[0].value)
        self.thing = OBJECT_MARK if found.cue.key == OBJECT_MARK.key else MARK
        if self.thing is OBJECT_MARK:
            self.nesting.explained.pop(OBJECT_MARK.key, None)  # that was said of another one
            self.pulls = [pull for pull in self.pulls if pull.cue.key != OBJECT_MARK.key]
        self.pulls.append(found)
        return True

    def _of_that_kind(self, marks: Tensor, half: NDArray[np.bool_]) -> Pull | None:
        """What a thing at ``marks`` ``[n, H, W]`` does, in the images outside the ``half`` ``[n]`` where it was found;
        None where it does nothing, or is the object."""
        sheet = self.sheet
        objects = sheet.masks if sheet.tight is None else sheet.tight
        on, of = on_the_object(marks, objects)
        if of > LARGEST_PART:
            return None
        marks, thing = with_rim(marks), OBJECT_MARK if on >= ON_IT else MARK
        put, share = replace(PUT, searched=True), marks.float().mean((1, 2)).double().numpy()[:, None]
        plan = replace(self._plan(put), features=share)
        drawn = self._who_gives(share, marks * (objects > 0.5), thing)
        found = measure_pull(
            with_marks(sheet, marks), put, self.predict, plan=plan, drawn=drawn[~half[drawn[:, 0]]], seed=self.seed
        )
        return replace(found, cue=replace(thing, searched=True)) if found is not None and accuses(found) else None

    def _who_gives(self, share: NDArray[np.float64], met: Tensor, thing: Cue) -> NDArray[np.int64]:
        """Recipients with their donors ``[n, 3]`` for a thing that covers ``share`` ``[n, 1]`` of the pictures and
        meets the objects in ``met`` ``[n, H, W]``.

        A bit of the donor's object would come along and speak for its class. So a thing beside the object is given by
        pictures in which it keeps off it, and a thing on the object only within a class.
        """
        sheet, everyone = self.sheet, np.ones(len(self.sheet), dtype=bool)
        speaks = spoken_for(share, sheet.predictions)
        clear = met.float().mean((1, 2)).numpy() <= TOUCHES * share[:, 0]
        lots = [(everyone, clear)] if thing is MARK else [(sheet.labels == k,) * 2 for k in np.unique(sheet.labels)]
        rng = np.random.default_rng([self.seed, 6])
        order = rng.permutation(len(sheet))
        drawn = np.concatenate(
            [np.stack(draw_donors(sheet, to, rng, donor_pools(sheet, of, speaks)), 1) for to, of in lots]
        )
        return drawn[np.argsort(order[drawn[:, 0]])]

    def _beside(self, whole: Pull | None, others: Sequence[Pull]) -> None:
        """What a thing that was found in all images explains: the other cues are exchanged again without it."""
        if self.marks is None:
            return
        beyond, explained = beyond_marks(self.sheet, self.marks), self.nesting.explained
        there, mine = with_marks(self.sheet, self.marks), self.pulls[-1].pairs[:COMPARED]
        own = pull_of_pairs(there, PUT, self.predict, mine)
        for place in (pull.cue for pull in others if pull.cue.region is not None):
            if pull_of_pairs(there, PUT.without(place), self.predict, mine) < STANDS * own:
                explained[self.thing.key] = place
                return
        for aspect in (pull.cue for pull in others if pull.cue.aspect is not None and pull.cue.key in COLOURING):
            # a dark patch of a dark picture: no thing of its own if it says nothing once its picture is as light
            if pull_of_pairs(there, PUT.levelled(aspect), self.predict, mine) < LEVELLED * own:
                explained[self.thing.key] = aspect
                return
        everywhere = [pull for pull in others if pull is whole or pull.cue.aspect is not None]
        if everywhere and self._anywhere(mine) >= ANYWHERE * own:
            explained[self.thing.key] = max(everywhere, key=lambda pull: pull.value).cue
            return
        for pull in others:
            if pull is whole or pull.cue.key == self.thing.key:
                continue
            pairs = pull.pairs[:COMPARED]
            own = pull_of_pairs(self.sheet, pull.cue, self.predict, pairs)
            if pull_of_pairs(beyond, pull.cue, self.predict, pairs) < max(STANDS * own, FOUND_GAP / 2):
                explained[pull.cue.key] = self.thing
        if whole is not None:
            scene = self._scene(whole, beyond)
            if scene is not None and scene.value >= FOUND_GAP and scene.low >= FOUND_LOW:
                self.nesting.holds[self.thing.key] = share_held(whole.value, scene.value)
                if (by := explained.get(whole.cue.key)) is not None and by.key in explained:
                    del explained[whole.cue.key]  # what seemed to explain it was the thing, and the scene still pulls
            elif whole.cue.key not in explained:
                self.nesting.holds[self.thing.key] = 1.0 if scene is None else share_held(whole.value, scene.value)
                explained[whole.cue.key] = self.thing
        self.nesting.follow_up()

    def _anywhere(self, pairs: Sequence[Triple]) -> float:
        """The pull of what donors have half a picture away from their marks: any bit of a scene has that."""
        if self.marks is None:
            return 0.0
        height, width = self.marks.shape[-2:]
        away = self.marks.roll((height // 2, width // 2), (1, 2))
        return pull_of_pairs(with_marks(self.sheet, away), PUT, self.predict, pairs)

    def _scene(self, whole: Pull, beyond: Sheet) -> Pull | None:
        """The background's pull without the thing: donors are those whose surroundings speak for their answer where the
        thing does not."""
        if self.marks is None or "background" not in self.features:
            return None
        sheet, there = self.sheet, self.marks.amax((1, 2)).numpy()
        by = sheet.labels * 2 + there
        speaks = spoken_for(self.features["background"], sheet.predictions, by)
        usable = np.ones(len(sheet), dtype=bool)
        rng = np.random.default_rng([self.seed, 5])
        order = rng.permutation(len(sheet))
        drawn = np.stack(draw_donors(sheet, usable, rng, donor_pools(sheet, usable, speaks)), 1)
        drawn = drawn[np.argsort(order[drawn[:, 0]])]
        return measure_pull(beyond, whole.cue, self.predict, plan=self._plan(whole.cue), drawn=drawn, seed=self.seed)

    def _search(self, whole: Pull, others: Sequence[Pull]) -> None:
        """Look for a mark beside the object that explains the background's pull, or stands beside it.

        ``others`` are the cues that stand so far: a mark in a known place is that place's, and what donors lose with
        their marks was the marks'.
        """
        boxes = find_marks(self.sheet, self.logits)
        self.marks = box_masks(boxes, self.sheet.images) * (self.sheet.masks <= 0.5)  # nothing of the donor's object
        drawn = mark_pairs(self.sheet, boxes, np.random.default_rng([self.seed, 4]))
        there = with_marks(self.sheet, self.marks)
        found = measure_pull(there, PUT, self.predict, plan=self._plan(PUT), drawn=drawn, seed=self.seed)
        if found is None:
            return
        self.pulls.append(replace(found, cue=MARK))
        if not accuses(found):
            return
        pairs, explained = found.pairs[:COMPARED], self.nesting.explained
        own = pull_of_pairs(there, PUT, self.predict, pairs)
        for place in (pull.cue for pull in others if pull.cue.region is not None):
            if pull_of_pairs(there, PUT.without(place), self.predict, pairs) < STANDS * own:
                explained[MARK.key] = place
                return
        bare = without_marks(self.sheet, self.marks)

        def with_and_without(cue: Cue) -> tuple[float, float]:
            full = pull_of_pairs(self.sheet, cue, self.predict, pairs)
            return full, pull_of_pairs(bare, cue, self.predict, pairs)

        full, rest = with_and_without(whole.cue)
        held = self.nesting.holds[MARK.key] = share_held(full, rest)
        if held < TAKES:
            explained[MARK.key] = explained.get(whole.cue.key, whole.cue)
            return
        stands = left_over(full, rest)
        sharp = next((pull for pull in others if pull.cue.key == "sharpness"), None)
        if sharp is not None and found.value < SHARPEST * sharp.value:
            explained[MARK.key] = sharp.cue
            return
        for pull in others:
            if pull.cue.aspect is not None:
                full, rest = with_and_without(pull.cue)
                if pull is sharp or rest < max(MIMICS * full, FOUND_GAP / 2):
                    explained[pull.cue.key] = MARK
        if not stands:
            explained[whole.cue.key] = MARK
        elif (by := explained.get(whole.cue.key)) is not None and by.key in explained:
            del explained[whole.cue.key]  # what seemed to explain it was the mark, and without that it still pulls


def accuses(pull: Pull) -> bool:
    """Whether a pull is worth asking further about: surely above zero among so many tests, and not tiny."""
    return pull.p * TESTS < ERROR and pull.value >= HINT
