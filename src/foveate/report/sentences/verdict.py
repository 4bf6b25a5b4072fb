"""The verdict in words: a headline, and the sentences of every case of groups beside experiments."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from foveate.report.discovery.judgement import Judgement, Suspect
from foveate.report.levels import Evidence, Level
from foveate.report.sentences.experiments import (
    effect_of,
    experiment_headline,
    experiment_sentences,
    in_the_data,
    notes,
    nothing,
)
from foveate.report.sentences.groups import group_headline, group_sentences, guessing_remark, measured, no_answer
from foveate.report.sentences.limits import could_have_found, not_covered
from foveate.report.sentences.numbers import of_100, percent
from foveate.report.verdict import Case, Verdict

SMALL_EFFECT = 0.15
"""A gap under this may come from a pull too weak to turn whole answers."""


def headline(v: Verdict) -> str:
    """The verdict in a few words."""
    if v.experiments is not None and v.case in (Case.EXPERIMENTS_ALONE, Case.GROUPS_CANNOT_TELL):
        return experiment_headline(v.experiments)
    if v.case in (Case.EXPERIMENTS_SURER, Case.ANOTHER_THING, Case.WITHOUT_COST):
        return f"{_leans(v.level).capitalize()} on {v.accused[0].name}"
    return group_headline(v.groups, v.attribute)


def sentences(v: Verdict) -> list[str]:
    """The verdict in plain words with its numbers; the first sentence is the verdict."""
    if v.experiments is None:
        return _groups_alone(v, None)
    return _OF_CASE[v.case](v, v.experiments)


def first_words(v: Verdict) -> str:
    """The verdict in a sentence, and a second one when the model left images without an answer."""
    return " ".join([sentences(v)[0], *no_answer(v.model, v.groups.report)])


# -- what the cases share -------------------------------------------------------------------------


def _leans(level: Level) -> str:
    return "leans" if level is Level.FOUND else "may lean"


def _remark(v: Verdict) -> list[str]:
    return [guessing_remark(v.groups)] if v.guessing else []


def _groups(v: Verdict) -> list[str]:
    silent = no_answer(v.model, v.groups.report)
    return [*group_sentences(v.model, v.groups, v.attribute), *silent, *_remark(v)]


def _behind(v: Verdict) -> list[str]:
    """What the groups say after their verdict, where the verdict is another's."""
    return _groups(v)[1:]


def _measured(v: Verdict) -> str:
    return measured(v.groups, v.attribute)


def _known(v: Verdict, s: Suspect) -> str:
    return f"which tells the {v.attribute} ({percent(v.telling[s.key].score)} right)"


def _also(found: Judgement, suspects: Sequence[Suspect]) -> list[str]:
    leans = "also leans" if found.level is Level.FOUND else "may also lean"
    return [f"By experiment it {leans} on {s.name}: {effect_of(s)}." for s in suspects]


# -- the cases ------------------------------------------------------------------------------------


def _groups_alone(v: Verdict, found: Judgement | None) -> list[str]:
    return _groups(v)


def _experiments_alone(v: Verdict, found: Judgement) -> list[str]:
    return [*experiment_sentences(v.model, found), *_behind(v)]


def _groups_lead(v: Verdict, found: Judgement) -> list[str]:
    agree = [f"The experiments agree, on {s.name}, {_known(v, s)}: {effect_of(s)}." for s in v.same[:1]]
    return [*_groups(v), *agree, *_also(found, [*v.same[1:], *v.other]), *notes(found)]


def _experiments_surer(v: Verdict, found: Judgement) -> list[str]:
    first, *more = v.accused
    lead = f"{v.model} leans on {first.name}{f', {_known(v, first)}' if v.same else ''}: {effect_of(first)}."
    groups = "The groups point the same way" if v.same else f"It may lean on the {v.attribute} too"
    return [lead, f"{groups}: {_measured(v)}.", *_behind(v), *_also(found, more), *notes(found)]


def _groups_cannot_tell(v: Verdict, found: Judgement) -> list[str]:
    groups = f"The groups cannot tell, for want of images: {_measured(v)}."
    return [*experiment_sentences(v.model, found), groups, *_behind(v)]


def _another_thing(v: Verdict, found: Judgement) -> list[str]:
    first, *more = v.other
    return [
        f"{v.model} {_leans(found.level)} on {first.name}, not on the {v.attribute}: {effect_of(first)}.",
        f"As to the {v.attribute}, {_measured(v)}.",
        *_behind(v),
        *_also(found, more),
        *(_turns_as_well(v, s) for s in v.same[:1]),
        *(in_the_data(s) for s in v.other),
    ]


def _without_cost(v: Verdict, found: Judgement) -> list[str]:
    first = v.same[0]
    lead = (
        f"{v.model} {_leans(v.level)} on {first.name}, {_known(v, first)}, but the groups show no cost: "
        f"{_measured(v)}, while {effect_of(first)}."
    )
    return [lead, _why_without_cost(v, first), *_behind(v)]


def _experiments_cannot_tell(v: Verdict, found: Judgement) -> list[str]:
    suspect, widest = max(found.pulls, key=lambda entry: entry[1].high)
    unsettled = (
        f"The experiments cannot settle it: exchanging {suspect.name} may turn up to {of_100(widest.high)} of 100 "
        f"answers ({widest.n} images)."
    )
    return [*_groups(v), unsettled]


def _missed(v: Verdict, found: Judgement) -> list[str]:
    return [*_groups(v), _why_missed(v, found)]


def _nothing(v: Verdict, found: Judgement) -> list[str]:
    start = "found nothing" if v.groups.level is Level.UNCLEAR else "agree"
    said = f"The experiments {start}: {nothing(found)}."
    return [*_groups(v), said, could_have_found(found), not_covered(), *notes(found)]


_OF_CASE: dict[Case, Callable[[Verdict, Judgement], list[str]]] = {
    Case.GROUPS_ALONE: _groups_alone,
    Case.EXPERIMENTS_ALONE: _experiments_alone,
    Case.GROUPS_LEAD: _groups_lead,
    Case.EXPERIMENTS_SURER: _experiments_surer,
    Case.GROUPS_CANNOT_TELL: _groups_cannot_tell,
    Case.ANOTHER_THING: _another_thing,
    Case.WITHOUT_COST: _without_cost,
    Case.EXPERIMENTS_CANNOT_TELL: _experiments_cannot_tell,
    Case.MISSED: _missed,
    Case.NOTHING: _nothing,
}


# -- why the two can differ -----------------------------------------------------------------------


def _why_missed(v: Verdict, found: Judgement) -> str:
    """Why the groups can accuse and the experiments not, in one sentence."""
    near = [(s, pull) for s, pull in found.pulls if s.key in v.telling]
    shown, reasons = "", []
    if not near:
        reasons.append(f"none of the exchanged properties tells the {v.attribute}")
    else:
        nearest, pull = max(near, key=lambda entry: v.telling[entry[0].key].strength)
        shown = (
            f" ({nearest.name}, which tells the {v.attribute}: {of_100(pull.value)} of 100, 95 % interval up to "
            f"{of_100(pull.high)})"
        )
        gap = v.groups.comparison.gap
        if gap is not None and gap.value < SMALL_EFFECT:
            reasons.append("an effect this small need not turn whole answers")
        if v.estimated:
            reasons.append(
                f"where the object is was only estimated (from {v.estimated}), so that some of the {v.attribute} may "
                "stay with it"
            )
        else:
            reasons.append("an exchange leaves a margin around the object as it was")
    if v.groups.evidence is Evidence.SPREAD:
        reasons.append("some groups may simply hold harder images")
    return (
        "The experiments do not show it: the groups count how often it is right on real images, an experiment how "
        f"often an answer turns when one property is exchanged between images{shown}, and the two can differ because "
        f"{' or because '.join(reasons)}."
    )


def _why_without_cost(v: Verdict, s: Suspect) -> str:
    """Why the experiments can accuse and the groups not, in one sentence."""
    doubt = (
        f"where the object is was only estimated (from {v.estimated}), so that a part of it may have been exchanged too"
        if v.estimated
        else f"something else about {s.name} than the {v.attribute} may decide"
    )
    return (
        "The groups count how often it is right on real images, an experiment how often an answer turns on edited "
        f"ones, and the two can differ because {doubt}, or because on real images the object is clear enough to "
        "decide."
    )


def _turns_as_well(v: Verdict, s: Suspect) -> str:
    return (
        f"Exchanging {s.name}, {_known(v, s)}, turns answers as well ({of_100(s.strength)} of 100), "
        f"though the groups of the {v.attribute} show no cost. {_why_without_cost(v, s)}"
    )
