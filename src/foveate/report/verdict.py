"""One verdict from two kinds of evidence: the groups of a given attribute, and the experiments of discovery.

The groups count real images, so with attributes they lead in what concerns the attribute. The experiments speak of
properties of the image; a probe says which of those tell the attribute. Where the two disagree about the same thing,
one sentence says what each measured and why they can differ; a shortcut of another kind than the attribute stands
beside what the groups say. The words are made in :mod:`foveate.report.sentences`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from foveate.report.discovery.judgement import Judgement, Suspect
from foveate.report.discovery.probes import PropertyProbe
from foveate.report.groups import GroupVerdict
from foveate.report.levels import Agreement, Evidence, Level, Word


class Case(Word):
    """Who said what; each case has its own words."""

    GROUPS_ALONE = "groups alone"
    """No experiments, or none was possible."""
    EXPERIMENTS_ALONE = "experiments alone"
    """No attributes, or nothing to compare by them."""
    GROUPS_LEAD = "groups lead"
    """Both accuse, the groups at least as surely."""
    EXPERIMENTS_SURER = "experiments surer"
    """The groups hint, and the experiments found something."""
    GROUPS_CANNOT_TELL = "groups cannot tell"
    """The experiments accuse, and there are too few images in the groups."""
    ANOTHER_THING = "another thing"
    """The groups acquit the attribute, and the experiments accuse something else."""
    WITHOUT_COST = "without cost"
    """The experiments accuse what tells the attribute, and the groups show no cost of it."""
    EXPERIMENTS_CANNOT_TELL = "experiments cannot tell"
    MISSED = "missed"
    """The groups accuse, and the experiments found nothing."""
    NOTHING = "nothing"
    """The experiments found nothing, and the groups accuse of nothing."""


@dataclass(frozen=True)
class Verdict:
    """What may be said about one model.

    Attributes:
        model, attribute: what to call them in a sentence.
        groups: what the groups say by themselves.
        experiments: what the experiments say by themselves; None where there were none.
        case: who said what.
        level: how sure the verdict is.
        evidence: what decided.
        agreement: how groups and experiments stand to each other.
        same, other: what the experiments accuse: cues that tell the attribute, and cues that do not.
        telling: the probes of cues that tell the attribute, by key.
        estimated: where the objects' places come from, in words, when they are only estimated.
    """

    model: str
    attribute: str
    groups: GroupVerdict
    experiments: Judgement | None = None
    case: Case = Case.GROUPS_ALONE
    level: Level = Level.UNTESTED
    evidence: Evidence = Evidence.CLASSES
    agreement: Agreement = Agreement.GROUPS
    same: tuple[Suspect, ...] = ()
    other: tuple[Suspect, ...] = ()
    telling: Mapping[str, PropertyProbe] = field(default_factory=dict)
    estimated: str | None = None

    @property
    def levels(self) -> dict[str, Level]:
        """What each of the two says by itself."""
        said = {"groups": self.groups.level}
        return said if self.experiments is None else {**said, "experiments": self.experiments.level}

    @property
    def accused(self) -> list[Suspect]:
        """The cues that the verdict names against the model, in the order it names them."""
        if self.case is Case.EXPERIMENTS_ALONE or self.case is Case.GROUPS_CANNOT_TELL:
            return [] if self.experiments is None else self.experiments.accused
        return [*self.other, *self.same] if self.case is Case.ANOTHER_THING else [*self.same, *self.other]

    @property
    def unanswered(self) -> int:
        """Images that the model had no answer to, which count as wrong."""
        return self.groups.report.unanswered

    @property
    def guessing(self) -> bool:
        """Whether it hardly beats guessing. Where a shortcut is named that goes without saying: one who reads nothing
        but the shortcut may well average at chance."""
        return self.groups.guessing is not None and not self.level.accuses


def join(
    model: str,
    groups: GroupVerdict,
    experiments: Judgement | None = None,
    *,
    attribute: str = "attribute",
    tells: Sequence[PropertyProbe] = (),
    estimated: str | None = None,
) -> Verdict:
    """The verdict of the groups joined with what was discovered without them.

    Args:
        model: what to call it.
        groups: what the groups say.
        experiments: what the experiments say; None where there were none.
        attribute: what to call the attribute in a sentence.
        tells: how well each cue tells the attribute.
        estimated: where the objects' places come from, in words, when they are only estimated.

    =============== ===================== ========================================================================
    groups          experiments           verdict
    =============== ===================== ========================================================================
    none given      any                   the experiments'
    accuse          accuse                the groups', with the experiments behind it (``agree`` or ``apart``)
    accuse          nothing               the groups', and why an experiment can miss it (``differ``)
    hint            found                 the experiments', with the groups behind it
    nothing         accuse the same thing why they can differ; a hint where masks are estimated (``differ``)
    nothing         accuse another thing  the experiments', and that it is not the attribute (``apart``)
    cannot tell     accuse                the experiments' (``open``)
    any             cannot tell           the groups' (``open``)
    =============== ===================== ========================================================================
    """
    telling = {probe.key: probe for probe in tells if probe.strong}
    led = Verdict(
        model, attribute, groups, experiments, level=groups.level, evidence=groups.evidence, telling=telling,
        estimated=estimated,
    )  # fmt: skip
    if experiments is None or experiments.level is Level.UNTESTED:
        return led
    if groups.evidence is Evidence.CLASSES:
        return _by_experiment(led, Case.EXPERIMENTS_ALONE, experiments.level, Agreement.EXPERIMENTS)
    if experiments.level.accuses:
        return _accused(led, experiments)
    if experiments.level is Level.UNCLEAR:
        return replace(led, case=Case.EXPERIMENTS_CANNOT_TELL, agreement=Agreement.OPEN)
    if groups.level.accuses:
        return replace(led, case=Case.MISSED, agreement=Agreement.DIFFER)
    agreement = Agreement.OPEN if groups.level is Level.UNCLEAR else Agreement.AGREE
    return replace(led, case=Case.NOTHING, agreement=agreement)


def _by_experiment(led: Verdict, case: Case, level: Level, agreement: Agreement) -> Verdict:
    return replace(led, case=case, level=level, agreement=agreement, evidence=Evidence.EXPERIMENT)


def _accused(led: Verdict, experiments: Judgement) -> Verdict:
    """The experiments accuse: what that means beside what the groups say."""
    groups, found = led.groups.level, experiments.level
    same = tuple(s for s in experiments.accused if s.key in led.telling)
    other = tuple(s for s in experiments.accused if s.key not in led.telling)
    led = replace(led, same=same, other=other)
    beside = Agreement.AGREE if same else Agreement.APART
    if groups is Level.FOUND or (groups is Level.HINT and found is Level.HINT):
        return replace(led, case=Case.GROUPS_LEAD, agreement=beside)
    if groups is Level.HINT:
        return _by_experiment(led, Case.EXPERIMENTS_SURER, Level.FOUND, beside)
    if groups is Level.UNCLEAR:
        return _by_experiment(led, Case.GROUPS_CANNOT_TELL, found, Agreement.OPEN)
    if other:
        return _by_experiment(led, Case.ANOTHER_THING, found, Agreement.DIFFER if same else Agreement.APART)
    # a mask that missed a part of the object would pull as well: not enough against real images
    return _by_experiment(led, Case.WITHOUT_COST, Level.HINT if led.estimated else found, Agreement.DIFFER)
