"""Shortcut discovery without attributes: masks, experiments, probes, slices and pseudo-groups, for any model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from foveate.assemble.system import System
from foveate.data.dataset import GroupedDataset
from foveate.errors import DataError
from foveate.export.swift import Swift
from foveate.measure import decided, decided_by_shares
from foveate.report.abilities import classes_of, view_of
from foveate.report.discovery.before_after import BeforeAfter, before_and_after
from foveate.report.discovery.cues import EXCHANGED, Cue
from foveate.report.discovery.cues.object_mark import OBJECT_MARK
from foveate.report.discovery.experiments import FIRST_LOOK
from foveate.report.discovery.inquiry import Inquiry
from foveate.report.discovery.judgement import Judgement, judge
from foveate.report.discovery.marks import MARK
from foveate.report.discovery.mask_tests import TESTED, MaskTests, mask_tests
from foveate.report.discovery.objects import Objects, find_objects
from foveate.report.discovery.observations import Observations, observe
from foveate.report.discovery.pictures import KEPT
from foveate.report.discovery.probes import PropertyProbe, probe_all
from foveate.report.discovery.pseudo import groups_by_cue, groups_by_slice
from foveate.report.discovery.sheets import Sheets
from foveate.report.discovery.slices import Slice, embeddings_of, find_slices

OBSERVED = 1000
"""Most images whose properties are probed, drawn at random; a probe of more would hardly be surer."""
EXPERIMENTED = 768
"""Most images the experiments exchange properties between, when a cue is doubtful to the end: a pull is then known to
about 4 of 100. Most cues are settled after 56 to 112."""

Tick = Callable[[int], None]


def asked_about(images: int) -> int:
    """About how many edited images a model is asked about, of a dataset of so many: two looks for every cue, and the
    mask tests. Most models need less, and a bar then jumps; one that leans on several things needs more.

    >>> asked_about(60) < asked_about(500) == asked_about(5000)
    True
    """
    looked_at = min(images, 2 * FIRST_LOOK)
    return 2 * len(EXCHANGED) * looked_at + 6 * min(images, TESTED)


@dataclass
class Groundwork:
    """What is the same for all models: where the objects are, the images' properties, what tells the label.

    ``attribute_probes`` say which properties tell the given attribute; empty without one. ``keep`` is how many bytes of
    exchanged pictures are kept for the next model.
    """

    dataset: GroupedDataset
    objects: Objects
    seen: Observations
    label_probes: list[PropertyProbe]
    seed: int = 0
    attribute_probes: list[PropertyProbe] = field(default_factory=list)
    sheets: dict[int, Sheets] = field(default_factory=dict)
    keep: int = 0

    def sheets_of(self, images: int) -> Sheets:
        """Up to ``images`` images for the experiments, shared by all models."""
        return self.sheets.setdefault(images, Sheets(self.objects, self.seen.positions, images, self.seed, self.keep))

    @property
    def cues(self) -> dict[str, Cue]:
        """Every cue that was read off the images or can be exchanged, by key."""
        return {**{cue.key: cue for cue in (*EXCHANGED, MARK, OBJECT_MARK)}, **self.seen.cues}


def prepare(
    dataset: GroupedDataset,
    readable: NDArray[np.bool_],
    *,
    objects: str | None = None,
    images: int = OBSERVED,
    attribute: str = "attribute",
    seed: int = 0,
    tick: Tick | None = None,
    models: int = 1,
) -> Groundwork:
    """Look at the images once, for all models: up to ``images`` of them, drawn at random.

    ``attribute`` is what to call the dataset's attribute in a sentence. For several ``models`` exchanged pictures are
    kept; for one they would only take memory.
    """
    there = np.flatnonzero(readable)
    chosen = np.sort(np.random.default_rng([seed, 1]).permutation(there)[:images])
    found = find_objects(dataset, objects)
    seen = observe(dataset, chosen, found, attribute=attribute, tick=tick)
    probes = probe_all(seen.features, dataset.labels[seen.positions], "label", seed=seed)
    of_attribute: list[PropertyProbe] = []
    if dataset.attributes is not None:
        properties = {key: values for key, values in seen.features.items() if not seen.cues[key].given}
        of_attribute = probe_all(properties, dataset.attributes[seen.positions], "attribute", seed=seed)
    return Groundwork(dataset, found, seen, probes, seed, of_attribute, keep=KEPT if models > 1 else 0)


@dataclass(frozen=True)
class ErrorSlice(Slice):
    """A bunch of similar images that a model gets wrong, as people can find it.

    Attributes:
        name: of the class.
        mistaken_for: the class named most often instead.
        unlike: cues in which it differs from the rest of its class, each with the word for how ("darker").
        positions: of its images in the dataset.
    """

    name: str
    mistaken_for: str | None
    unlike: tuple[tuple[Cue, str], ...]
    positions: tuple[int, ...]


@dataclass
class Discovery:
    """What was found about one model.

    Attributes:
        judgement: the suspects with their evidence.
        masks: accuracy on objects alone and backgrounds alone, CEP, and the swap test, or None.
        error_probes: which properties tell where the model errs.
        slices: bunches of similar images it gets wrong.
        turned: answers that turned in the strongest experiment, the clearest first.
        held: where nothing turned, an answer that stayed right.
    """

    judgement: Judgement
    masks: MaskTests | None
    error_probes: list[PropertyProbe]
    slices: list[ErrorSlice]
    base: Groundwork
    predictions: NDArray[np.int64]
    class_names: list[str]
    turned: list[BeforeAfter] = field(default_factory=list)
    held: list[BeforeAfter] = field(default_factory=list)

    def pseudo_groups(self, dataset: GroupedDataset | None = None) -> GroupedDataset:
        """``dataset`` (by default the audited one) with attributes made from what was found.

        The attribute of an image is the class that the strongest shortcut speaks for in it, read by a probe of the
        model's answers to other images; so no group label is needed, and group metrics and group-aware systems can be
        used (:mod:`foveate.report.discovery.pseudo`).
        Without a shortcut but with error slices, the audited images that were looked at come back with their slice.
        """
        seen = self.base.seen
        leading = [s for s in self.judgement.shortcuts if s.key in seen.features]
        if leading:
            answers = self.predictions[seen.positions]
            return groups_by_cue(leading[0].cue, seen, answers, self.class_names, self.base.objects, dataset)
        if self.slices and dataset is None:
            return groups_by_slice(self.slices, seen, self.base.dataset)
        raise DataError("the audit found no shortcut to make groups from; there is nothing to balance.")


def discover(
    system: System,
    base: Groundwork,
    probabilities: NDArray[np.float64],
    class_names: Sequence[str],
    *,
    images: int = EXPERIMENTED,
    seed: int = 0,
    tick: Tick | None = None,
    deadline: float | None = None,
    swift: Swift | None = None,
) -> Discovery:
    """Look for shortcuts of ``system`` without knowing any attribute.

    Args:
        system: a fitted or wrapped model.
        base: from :func:`prepare`.
        probabilities: of the model on the whole dataset, ``[N, K]``, as ``predict_proba`` gives them.
        class_names: of the K columns.
        images: how many images the experiments use at most.
        deadline: a moment of :func:`time.monotonic` after which a doubtful experiment gets no further images.
        swift: asks the model; made here when not given.
    """
    names = list(class_names)
    place = np.asarray([names.index(c) for c in classes_of(system, base.dataset)])
    say, left = tick or (lambda n: None), asked_about(len(base.dataset))
    asked_of = swift or Swift(system, left)

    def ahead(asked: int) -> None:
        """Move the bar, but not beyond what was foreseen."""
        nonlocal left
        say(min(asked, left))
        left -= min(asked, left)

    def logits(batch: Tensor) -> NDArray[np.float32]:
        ahead(len(batch))
        return asked_of.predict_logits(batch)

    def named(scores: NDArray[np.float32]) -> NDArray[np.int64]:
        chosen = decided(scores)
        return np.where(chosen < 0, chosen, place[chosen])

    predictions = decided_by_shares(probabilities)
    sheet = base.sheets_of(images).of(view_of(system), probabilities)
    rows = {int(position): row for row, position in enumerate(base.seen.positions)}
    at = [rows[int(position)] for position in sheet.positions]
    features = {key: values[at] for key, values in base.seen.features.items()}
    asked = Inquiry(sheet, features, logits, named, base.objects.estimated, seed, deadline, base.objects.sure).run()
    labels, seen = base.dataset.labels[base.seen.positions], base.seen
    answers = predictions[seen.positions]
    right = (answers == labels).astype(np.int64)
    answer_probes = probe_all(seen.features, answers, "answers", within=labels, seed=seed)
    error_probes = probe_all(seen.features, right, "errors", seed=seed) if (1 - right).sum() >= 5 else []
    judgement = judge(
        asked.pulls, base.label_probes, answer_probes, base.cues, objects=base.objects.words, sure=base.objects.sure,
        estimated=base.objects.estimated,
        nesting=asked.nesting,
    )  # fmt: skip
    embeddings = embeddings_of(system, base.objects, seen.positions, say, asked_of)
    slices = find_slices(embeddings, labels, answers, properties=seen.features, seed=seed)
    apart = mask_tests(sheet, logits, named, source=base.objects.source, seed=seed)
    ahead(left)
    return Discovery(
        judgement, apart, error_probes,
        [_described(s, base, predictions, names) for s in slices], base, predictions, names,
        *before_and_after(system, base.dataset, asked, judgement, names),
    )  # fmt: skip


def _described(s: Slice, base: Groundwork, predictions: NDArray[np.int64], class_names: Sequence[str]) -> ErrorSlice:
    seen = base.seen
    answers = predictions[seen.positions[list(s.members)]]
    wrong = answers[(answers != s.label) & (answers >= 0)]  # no answer is a mistake for nothing
    return ErrorSlice(
        **vars(s),
        name=class_names[s.label],
        mistaken_for=class_names[int(np.bincount(wrong).argmax())] if len(wrong) else None,
        unlike=unlike_the_rest(seen, s, base.dataset.labels[seen.positions]),
        positions=tuple(int(seen.positions[i]) for i in s.members),
    )


def unlike_the_rest(seen: Observations, s: Slice, labels: NDArray[np.int64]) -> tuple[tuple[Cue, str], ...]:
    """In which simple cues a slice differs from the rest of its class by more than a standard deviation, and how."""
    rest = np.setdiff1d(np.flatnonzero(labels == s.label), s.members)
    found: list[tuple[Cue, str]] = []
    for key, cue in seen.cues.items():
        if cue.comparatives is None or len(rest) < 5:
            continue
        column = seen.features[key][:, 0]
        away = (column[list(s.members)].mean() - column[rest].mean()) / max(float(column.std()), 1e-9)
        if abs(away) > 1:
            found.append((cue, cue.comparatives[int(away > 0)]))
    return tuple(found)
