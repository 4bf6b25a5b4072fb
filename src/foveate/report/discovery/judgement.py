"""From experiments and probes to a judgement: which shortcut, how sure, on what evidence.

The experiment decides. A probe shows that the *data* hold a shortcut (a property tells the label); only an exchange
that turns the model's answers shows that the *model* uses it. The thresholds are those of the group report: a pull
counts as found from 10 points on, when the low end of its interval reaches 5 and its p-value, corrected for the number
of properties tested, is under 0.05.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

from foveate.report.discovery.cues import Cue
from foveate.report.discovery.experiments import HINT, OPEN, Pull
from foveate.report.discovery.nested import Nesting, wholes
from foveate.report.discovery.probes import PropertyProbe, holm
from foveate.report.gaps import FOUND_GAP, POWER, Z95
from foveate.report.levels import Level

BORNE_OUT = 0.4
"""What an object with a margin of its own background must leave of the pull of a tight cut: a model that reads the
background loses little by the margin, one that misses a cut-off tail or outline loses nearly all."""
OWN_SHARE = 0.6
"""A part whose pull reaches this share of the larger cue's counts by itself: a mark in a corner, not a bit of scene."""


@dataclass(frozen=True)
class Suspect:
    """One cue with all that is known about it.

    Attributes:
        level: ``UNTESTED`` where no experiment is possible.
        pull: what exchanging it did.
        explained_by: the cue whose pull this one's really is: a larger one that it is a bit of, or a part that holds
            most of it.
        holds: how much of the background's pull goes with this part of it, 0 to 1; None where that was not asked.
        label, answers: the probes of the label, and of the model's answers beyond the label.
    """

    cue: Cue
    level: Level
    pull: Pull | None = None
    explained_by: Cue | None = None
    label: PropertyProbe | None = None
    answers: PropertyProbe | None = None
    holds: float | None = None

    @property
    def key(self) -> str:
        return self.cue.key

    @property
    def name(self) -> str:
        return self.cue.name

    @property
    def strength(self) -> float:
        """The pull; -1 where there was no experiment."""
        return -1.0 if self.pull is None else self.pull.value


@dataclass(frozen=True)
class Judgement:
    """What discovery found about one model, by itself; :func:`foveate.report.verdict.join` makes the verdict.

    Attributes:
        suspects: every cue, worst first.
        objects: where the objects' places come from, in words.
    """

    suspects: tuple[Suspect, ...] = ()
    objects: str = ""

    def smallest_found(self, s: Suspect) -> float | None:
        """The smallest pull of a cue that its experiment would have found; None without an experiment."""
        return None if s.pull is None else smallest_found(s.pull, len(self.tested))

    @property
    def tested(self) -> list[Suspect]:
        """Those with an experiment."""
        return [s for s in self.suspects if s.pull is not None]

    @property
    def pulls(self) -> list[tuple[Suspect, Pull]]:
        """Those with an experiment, beside what it gave."""
        return [(s, s.pull) for s in self.suspects if s.pull is not None]

    @property
    def level(self) -> Level:
        """What the experiments say: the worst that one cue by itself allows to say."""
        if not self.tested and not self._at(Level.HINT):
            return Level.UNTESTED
        for level in (Level.FOUND, Level.HINT):
            if self._at(level):
                return level
        return Level.UNCLEAR if any(s.level is Level.UNCLEAR for s in self.tested) else Level.NONE

    @property
    def shortcuts(self) -> list[Suspect]:
        """What the model leans on by experiment, strongest first, leaving out what is part of another."""
        return self._at(Level.FOUND)

    @property
    def accused(self) -> list[Suspect]:
        """What it leans on, or, where nothing was found, may lean on."""
        return self._at(self.level) if self.level.accuses else []

    def _at(self, level: Level) -> list[Suspect]:
        return [s for s in self.suspects if s.level is level and s.explained_by is None]


def level_of(pull: Pull, adjusted: float) -> Level:
    """What one pull allows to say."""
    if adjusted < 0.05 and pull.value >= FOUND_GAP and pull.low >= pull.cue.least:
        return Level.FOUND
    if adjusted < 0.05 and pull.value >= HINT:
        return Level.HINT
    return Level.UNCLEAR if pull.high >= FOUND_GAP else Level.NONE


def borne_out(pull: Pull) -> float:
    """How large a pull the generous cut must show to bear out that of the tight one."""
    return max(HINT, BORNE_OUT * pull.value)


def of_both_cuts(level: Level, pull: Pull) -> Level:
    """What a pull allows to say when the object's place was estimated: a tight cut may miss a part of the object, so
    what it finds is found only if a generous cut shows it too, and not much less of it."""
    wide = pull.generous
    if wide is None or not level.accuses or (wide.p < 0.05 and wide.value >= borne_out(pull)):
        return level
    return Level.HINT if level is Level.FOUND else Level.UNCLEAR


def smallest_found(pull: Pull, tests: int) -> float:
    """The smallest pull that this experiment would call found in four of five repeats.

    An experiment that stopped early would have gone on to the last of its looks, had it been doubtful.

    Args:
        pull: what it gave: its images and the noise in them.
        tests: how many cues were tested; each has to be surer the more there are (Bonferroni, the first step of Holm).

    >>> from foveate.report.discovery.cues import BY_KEY
    >>> few, many = (Pull(BY_KEY["background"], n, 0.0, -1.96 / n, 1.96 / n, 0.5, 0.9, 0.9) for n in (40, 240))
    >>> round(smallest_found(few, 9), 2), round(smallest_found(many, 9), 2)
    (0.3, 0.12)
    """
    noise = max(0.0, ((pull.high - pull.low) / (2 * Z95)) ** 2 * pull.n - OPEN / pull.n)
    sure = NormalDist().inv_cdf(1 - 0.05 / tests)
    value, n = FOUND_GAP, max(pull.n, pull.planned)
    for _ in range(20):  # a larger pull spreads more: the two are settled together
        error = math.sqrt(max(noise, value * (1 - value)) / n + OPEN / n**2)
        value = min(1.0, max(FOUND_GAP, pull.cue.least + Z95 * error, sure * error) + POWER * error)
    return value


def judge(
    pulls: Sequence[Pull],
    label_probes: Sequence[PropertyProbe],
    answer_probes: Sequence[PropertyProbe],
    cues: Mapping[str, Cue],
    *,
    objects: str,
    sure: bool = True,
    estimated: bool = False,
    nesting: Nesting | None = None,
) -> Judgement:
    """Put the evidence together.

    Args:
        pulls: what the experiments gave.
        label_probes, answer_probes: which properties tell the label, and the answers beyond the label.
        cues: every cue that was read or exchanged, by key.
        objects: where the masks come from, in words.
        sure: whether the masks are good enough to accuse on their ground.
        estimated: whether they are guesses of a network: then moving or enlarging an object, or a mark on it, must turn
            10 of 100 answers surely, unless it also explains another cue's pull.
        nesting: which cue explains which; by default a part is taken for a bit of its whole unless it pulls alike.
    """
    told = {probe.key: probe for probe in label_probes}
    follow = {probe.key: probe for probe in answer_probes}
    adjusted = holm([pull.p for pull in pulls])
    explaining = set() if nesting is None else {by.key for by in nesting.explained.values()}
    suspects: list[Suspect] = []
    for pull, q in zip(pulls, adjusted, strict=True):
        level = of_both_cuts(level_of(pull, float(q)), pull)
        moved = estimated and not pull.cue.cuts and pull.cue.key not in explaining and pull.low < FOUND_GAP
        if pull.cue.needs_objects and level is Level.FOUND and (moved or not sure):
            level = Level.HINT
        pull, key = replace(pull, adjusted=float(q)), pull.cue.key
        suspects.append(Suspect(pull.cue, level, pull, label=told.get(key), answers=follow.get(key)))
    suspects = _explained(suspects) if nesting is None else _nested(suspects, nesting)
    tested = {pull.cue.key for pull in pulls}
    leads: list[Suspect] = []
    for key, cue in cues.items():
        if key in tested or (key not in told and key not in follow):
            continue
        # without an experiment, answers that follow a property beyond the label are a hint and never more
        # (a given attribute is left to the group report, which tests it; what may rightly make a class is no lead)
        followed = key in follow and follow[key].tells and not cue.given and not cue.within_class
        level = Level.HINT if followed else Level.UNTESTED
        leads.append(Suspect(cue, level, label=told.get(key), answers=follow.get(key)))
    # a corner holds a bit of the background and follows it: the whole is named first, then what is followed most
    leads.sort(key=lambda s: (s.cue.part_of is not None, -(s.answers.score - s.answers.chance) if s.answers else 0.0))
    suspects += leads
    suspects.sort(key=lambda s: (s.level.rank, s.explained_by is not None, -s.strength))
    return Judgement(tuple(suspects), objects)


def _nested(suspects: list[Suspect], nesting: Nesting) -> list[Suspect]:
    levels = {s.key: s.level for s in suspects}
    out = []
    for s in suspects:
        by = nesting.explained.get(s.key)
        if s.level.accuses:
            # what explains must be as sure as what it explains: else nothing would be left of a finding
            by = by if by is not None and levels[by.key].rank <= s.level.rank else None
            s = replace(s, explained_by=by, holds=nesting.holds.get(s.key))
        out.append(s)
    return out


def _explained(suspects: list[Suspect]) -> list[Suspect]:
    """Mark what is only a part of a larger cue: the background's colour, and what of it reaches into the corners."""
    accused = {s.key: s for s in suspects if s.level.accuses}
    out = []
    for s in suspects:
        whole = next((accused[key] for key in wholes(s.cue) if key in accused), None)
        if whole is not None and s.level.accuses and (s.cue.aspect or s.strength < OWN_SHARE * whole.strength):
            s = replace(s, explained_by=whole.cue)
        out.append(s)
    return out
