"""``fv.cure``: audit a model, try the remedies that fit within the time, choose by a stated rule, hand back one."""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from foveate import assets
from foveate.assemble.system import System
from foveate.data.benchmark import Benchmark
from foveate.data.dataset import GroupedDataset
from foveate.data.preprocess import Preprocess
from foveate.errors import FoveateError, ModelError, first_line
from foveate.measure import NO_ANSWER
from foveate.remedy.choosing import REAL_DROP, Rule
from foveate.remedy.dividing import Division, divide
from foveate.remedy.exchanging import Cutouts, MadeSet, make_set
from foveate.remedy.kinds import Attempt, Means, Remedy, State, Supply
from foveate.remedy.records import Desk, check_out, key_of
from foveate.remedy.result import Cure
from foveate.remedy.sources import BalancedSet, available, drawn, in_memory
from foveate.remedy.trying import Speed, Validation, attempt, remedies_for
from foveate.report import Audit, Level, audit
from foveate.report.discovery import Discovery, Judgement
from foveate.report.discovery.cues import BY_KEY, Cue
from foveate.report.discovery.objects import find_objects

log = logging.getLogger("foveate")
MOST_FITTED, MOST_CHOSEN = 1200, 500
"""Images a set is made from at most: more would hardly change a last layer, and the time does not grow with them."""
MORE_THAN_A_PART = 0.15
"""How much more answers than a part the whole must turn for the whole to be exchanged."""
LARGE = 112
"""Side from which on the larger ViT is worth its time."""
MODEL, CURED = "The model", "The cured model"


@dataclass
class Clock:
    """How much time there is; says lines with what is left."""

    minutes: float
    say: Callable[[str], None]

    def __post_init__(self) -> None:
        self.began = time.perf_counter()

    @property
    def spent(self) -> float:
        return time.perf_counter() - self.began

    @property
    def left(self) -> float:
        return self.minutes * 60 - self.spent

    @property
    def end(self) -> float:
        return self.began + self.minutes * 60

    def __call__(self, line: str) -> None:
        self.say(f"[{_minutes(max(self.left, 0))} left] {line}")


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


def cure(
    model: System,
    data: Benchmark | GroupedDataset,
    *,
    out: str | Path | None = None,
    minutes: float = 20,
    allowed_drop: float = 0.03,
    real_drop: float | None = REAL_DROP,
    objects: str | None = None,
    on_bad: str = "raise",
    seed: int = 0,
    progress: Callable[[str], None] | None = None,
    show_progress: bool = False,
) -> Cure:
    """Audit ``model``; where it leans on a shortcut, try remedies within the time and hand back the best model.

    No attribute is needed: what the audit names is exchanged between classes, which makes images in which it says
    nothing about the class, to learn from and (of other images) to choose on.

    Args:
        model: a fitted system, or a model trained elsewhere (:func:`foveate.wrap`).
        data: a benchmark with some of train, val, test and target, or one dataset, which is divided by ``seed``.
        out: folder for the cured model, its export, ``report.html`` and ``cure.json``; without it nothing is written.
            A call that was interrupted goes on from what it finds there.
        minutes: for everything; a remedy that would take longer than what is left is not begun.
        allowed_drop: how far the average may fall, see :class:`~foveate.remedy.Rule`.
        real_drop: how far the average on the validation images as they come may fall; None sets no limit.
        objects: where objects are, as for :func:`foveate.audit`.
        on_bad: ``"raise"`` or ``"skip"`` unreadable images.
        progress: called with a line of text as the work goes on.
        show_progress: draw bars, on a terminal.

    >>> import foveate as fv
    >>> data = fv.data.critters(train=80, target=0, val=80, test=40, size=32)
    >>> model = fv.ERM("micro_resnet", epochs=1, progress=False).fit(data.train)
    >>> result = fv.cure(model, data, minutes=1)
    >>> result.outcome in ("cured", "kept", "left alone")
    True
    """
    _check(model, minutes, allowed_drop, real_drop, on_bad)
    clock = Clock(minutes, progress or (lambda line: None))
    place = None if out is None else Path(out)
    if place is not None:
        check_out(place)
    division = _small(divide(_read_only(data, on_bad), model, seed), seed)
    _check_answers(model, division.choose)
    with ExitStack() as stack:
        if place is None:
            place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        key = key_of(model, division, seed, objects)
        run = _Run(model, division, clock, Desk(place, key), key, seed, objects, show_progress)
        found = run.through(Rule(allowed_drop, real_drop, division.attributes))
        if out is not None:
            clock("writing")
            found.save(out)
            if not found.interrupted:
                run.desk.clear()
    return found


@dataclass
class _Run:
    """One cure from audit to choice."""

    model: System
    division: Division
    clock: Clock
    desk: Desk
    key: str
    seed: int
    objects: str | None
    show: bool

    def through(self, rule: Rule) -> Cure:
        self.clock(f"auditing on {len(self.division.choose)} images")
        began = time.perf_counter()
        report = self._audit(MODEL, self.model)
        found = next(iter(report.discoveries.values()), None)
        cues = [] if found is None else whole_cues(found.judgement)
        accused = bool(cues) or report.verdicts[MODEL].level is Level.FOUND
        result = Cure(
            self.model, self.model, self.division, rule, report, cues=cues, key=self.key, minutes=self.clock.minutes
        )
        if not accused:
            return self._measured(result)
        audited = time.perf_counter() - began
        try:
            self._cure(result, found)
        except KeyboardInterrupt:
            if result.before is None or not result.tried:
                raise  # nothing to hand back yet
            result.interrupted = True
        chosen = None if result.before is None else rule.choose(result.tried, result.before)
        if chosen is not None:
            result.chosen, result.model = chosen, result.models[chosen.remedy.key]
            if not result.interrupted and self.clock.left > audited:
                self.clock(f"auditing the result of {chosen.remedy.title}")
                result.audit_after = self._audit(CURED, result.model)
        return self._measured(result)

    def _audit(self, name: str, system: System) -> Audit:
        return audit(
            {name: system}, self.division.choose, examples=0, seed=self.seed, objects=self.objects,
            show_progress=self.show,
        )  # fmt: skip

    def _cure(self, result: Cure, found: Discovery | None) -> None:
        """Make the sets, list the remedies, and try them, cheapest first."""
        fit, choose = self.division.fit, self.division.choose
        speed = Speed.of(self.model, choose)
        held: MadeSet | None = None
        made: MadeSet | None = None
        if result.cues:
            self.clock(f"exchanging {' and '.join(cue.name for cue in result.cues)} between classes")
            started = time.perf_counter()
            held = self._made(choose, result, "validation")
            making = (time.perf_counter() - started) / len(choose)
            made = self._made(drawn(fit, self._affordable(speed, making), self.seed), result, "made")
        validation = Validation(choose, None if held is None else held.other, self._select(held))
        result.before = validation.standing(self.model)
        sets, missing = available(self.division, made, found, self.seed)
        remedies, result.attempts = remedies_for(self.model, sets, missing)
        order = {remedy: self._estimate(remedy, sets, speed, validation) for remedy in remedies}
        for remedy in sorted(remedies, key=lambda r: (list(Means).index(r.means), order[r])):
            self._try(remedy, speed, result, sets, validation)

    def _estimate(self, remedy: Remedy, sets: dict[Supply, BalancedSet], speed: Speed, validation: Validation) -> float:
        given, held = sets[remedy.origin] if remedy.origin is not None else None, len(validation.select)
        if given is not None and remedy.means is Means.DAR:
            return speed.estimate(remedy, min(len(given.balanced), speed.attended(self.clock.left, held)), held)
        return speed.estimate(remedy, 0 if given is None else len(given.grouped), held)

    def _affordable(self, speed: Speed, making: float) -> int:
        """Images to make sets from: making them (seconds each) and reading their features may take a third of the time
        that is left."""
        return int(np.clip(self.clock.left / 3 / max(6 * speed.predict + making, 1e-6), 100, MOST_FITTED))

    def _made(self, data: GroupedDataset, result: Cure, name: str) -> MadeSet:
        view = getattr(self.model, "preprocess_", None) or Preprocess((224, 224))
        cutouts = Cutouts.of(data, find_objects(data, self.objects), view)
        made = make_set(cutouts, result.cues, self.model.predict(data), seed=self.seed, name=name)
        return replace(made, alike=in_memory(made.alike), other=in_memory(made.other))

    def _select(self, held: MadeSet | None) -> GroupedDataset:
        if self.division.attributes or held is None:
            return self.division.choose
        return held.together

    def _try(
        self, remedy: Remedy, speed: Speed, result: Cure, sets: dict[Supply, BalancedSet], validation: Validation
    ) -> None:
        assert result.before is not None
        cost = self._estimate(remedy, sets, speed, validation)
        earlier = self.desk.finished(remedy)
        if earlier is not None:
            said, system = earlier
            self.clock(f"{remedy.title}: finished before")
        elif cost > self.clock.left:
            result.attempts.append(Attempt(remedy, State.NO_TIME, f"it would take about {_minutes(cost)}"))
            return
        else:
            self.clock(f"trying {remedy.title} (about {_minutes(cost)})")
            try:
                said, system = attempt(
                    remedy, self.model, None if remedy.origin is None else sets[remedy.origin], validation,
                    attention=self._looker(), store=self.desk.features, until=self.clock.end, seed=self.seed,
                    shown=self.show, epochs=speed.epochs,
                    most=speed.attended(self.clock.left, len(validation.select)),
                )  # fmt: skip
            except Exception as error:  # whatever a network from elsewhere does in training: the others can still help
                if not isinstance(error, FoveateError):
                    log.info("%s failed", remedy.title, exc_info=True)
                result.attempts.append(Attempt(remedy, State.FAILED, first_line(error)))
                return
            try:
                self.desk.keep(said, system)
            except ModelError as error:  # around a black box: it is here as long as this call is
                said.notes.append(first_line(error))
        said.allowed = said.standing is not None and result.rule.allows(said.standing, result.before)
        result.attempts.append(said)
        result.models[remedy.key] = system

    def _looker(self) -> str:
        """The ViT that says where to look: the one asked for; else the better one, where it is here and images are
        large enough for it."""
        if self.objects is not None and self.objects not in ("masks", "boxes", "centre"):
            return self.objects
        ready = any(entry.name == "vit-s-focus" and entry.ready for entry in assets.status())
        return "vit-s-focus" if ready and min(self.model.preprocess_.size) >= LARGE else "micro-vit"

    def _measured(self, result: Cure) -> Cure:
        result.measure()
        result.seconds = self.clock.spent
        return result


def whole_cues(judgement: Judgement) -> list[Cue]:
    """The cues an audit named, as they are exchanged here: each as a whole.

    The cue of an experiment may leave alone what has a pull of its own, and that would still tell the class; so the cue
    itself is taken, or what holds it where it has no exchange of its own. Where a part was named (the frame) in place
    of the whole it belongs to (the background), and the exchange of the whole turns clearly more answers, the whole is
    exchanged with it.
    """
    pulls = {s.key: s for s in judgement.suspects if s.level is Level.FOUND}
    named = {s.key: s.cue for s in judgement.shortcuts}
    for s in judgement.shortcuts:
        above = s.cue.part_of
        while above is not None:
            whole = pulls.get(above)
            by = None if whole is None else whole.explained_by
            if (
                whole is not None
                and by is not None
                and by.key == s.key
                and whole.strength > s.strength + MORE_THAN_A_PART
            ):
                named[whole.key] = whole.cue
            above = BY_KEY[above].part_of if above in BY_KEY else None
    cues = {
        cue.key: cue for cue in (_exchangeable(BY_KEY.get(key, cue)) for key, cue in named.items()) if cue is not None
    }
    # what the object shares comes first: once the surroundings are another's, its own brightness cannot be told
    return sorted(cues.values(), key=lambda cue: cue.needs_objects)


def _exchangeable(cue: Cue) -> Cue | None:
    """The cue itself or the nearest that holds it: a mark that sits anywhere goes with the background around it."""
    while cue.exchange is None:
        if cue.part_of not in BY_KEY:
            return None
        cue = BY_KEY[cue.part_of]
    return cue


def _check(model: System, minutes: float, allowed_drop: float, real_drop: float | None, on_bad: str) -> None:
    if not isinstance(model, System):
        raise ModelError(
            f"expected a fitted system, found {type(model).__name__}; wrap a model trained elsewhere first: "
            "fv.wrap(model, class_names)."
        )
    model._require_fit()
    if not 0 < minutes < 1e5:
        raise FoveateError(f"minutes is the time for everything, above 0; found {minutes}.")
    for name, value in (("allowed_drop", allowed_drop), ("real_drop", real_drop)):
        if value is not None and not 0 <= value <= 1:
            raise FoveateError(f"{name} is a share from 0 to 1 (0.03 is 3 points); found {value}.")
    if on_bad not in ("raise", "skip"):
        raise FoveateError(f"on_bad is 'raise' or 'skip'; found '{on_bad}'.")


def _read_only(data: Benchmark | GroupedDataset, on_bad: str) -> Benchmark | GroupedDataset:
    """``data`` without the images that cannot be read, when those are to be skipped."""
    if on_bad == "raise":
        return data
    if isinstance(data, GroupedDataset):
        return data.subset(data.readable()[0])
    return Benchmark(data.name, {k: v.subset(v.readable()[0]) for k, v in data.splits.items()}, data.notes)


def _small(division: Division, seed: int) -> Division:
    """``division`` with as many images to choose on as the time should go into."""
    choose = drawn(division.choose, MOST_CHOSEN, seed)
    return replace(division, choose=choose, measure=division.measure if division.apart else choose)


def _check_answers(system: System, data: GroupedDataset) -> None:
    """Raise when ``system`` has no answer to most of the images."""
    silent = int((system.predict(data) == NO_ANSWER).sum())
    if 2 * silent > len(data):
        raise ModelError(
            f"the model gives NaN or infinite logits for {silent} of {len(data)} images of {data.name}; mend that "
            "first (another preprocessing, or a checkpoint from before training went wrong)."
        )
