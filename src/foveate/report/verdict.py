"""One verdict from two kinds of evidence: the groups of a given attribute, and the experiments of discovery.

The groups count real images, so with attributes they lead in what concerns the attribute. The experiments speak of
properties of the image; a probe says which of those tell the attribute. Where the two disagree about the same thing,
one sentence says what each measured and why they can differ; a shortcut of another kind than the attribute stands
beside what the groups say.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from foveate.report.discovery.judgement import Judgement, Suspect, effect, in_the_data, of_100
from foveate.report.discovery.probes import Probe
from foveate.report.groups import HARDLY, Verdict, percent

SMALL_EFFECT = 0.15
"""A gap under this may come from a pull too weak to turn whole answers."""


def join(
    model: str,
    judged: Verdict,
    found: Judgement,
    *,
    attribute: str = "attribute",
    tells: Sequence[Probe] = (),
    estimated: str | None = None,
) -> Verdict:
    """The verdict of the groups joined with what was discovered without them.

    Args:
        model: what to call it.
        judged: the verdict of the groups.
        found: what the experiments say.
        attribute: what to call the attribute in a sentence.
        tells: how well each property tells the attribute.
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
    judged = replace(judged, levels={**judged.levels, "experiments": found.level})
    if found.level == "untested" or not found.sentences:
        return judged
    if judged.evidence == "classes":
        rest = _without_remark(judged.sentences[1:], found.level in ("found", "hint"))
        return replace(
            judged, level=found.level, headline=found.headline, sentences=[*found.sentences, *rest],
            evidence="experiment", agreement="experiments",
        )  # fmt: skip
    telling = {probe.key: probe for probe in tells if probe.strong}
    accused = [s for s in found.suspects if s.level == found.level and s.explained_by is None]
    if found.level in ("found", "hint") and accused:
        return _accused(model, judged, found, accused, attribute, telling, estimated)
    if found.level == "unclear":
        return replace(judged, sentences=[*judged.sentences, _unsettled(found)], agreement="open")
    if judged.level in ("found", "hint"):
        missed = _missed(judged, found, attribute, telling, estimated)
        return replace(judged, sentences=[*judged.sentences, missed], agreement="differ")
    start, agreement = ("found nothing", "open") if judged.level == "unclear" else ("agree", "agree")
    said = f"The experiments {start}: {found.nothing}."
    return replace(judged, sentences=[*judged.sentences, said, *found.notes], agreement=agreement)


def _accused(
    model: str,
    judged: Verdict,
    found: Judgement,
    accused: list[Suspect],
    attribute: str,
    telling: dict[str, Probe],
    estimated: str | None,
) -> Verdict:
    """The experiments accuse: what that means beside what the groups say."""
    same = [s for s in accused if s.key in telling]
    other = [s for s in accused if s.key not in telling]
    leans, also_leans = ("leans", "also leans") if found.level == "found" else ("may lean", "may also lean")

    def known(s: Suspect) -> str:
        return f"which tells the {attribute} ({percent(telling[s.key].score)} right)"

    def also(suspects: list[Suspect]) -> list[str]:
        return [f"By experiment it {also_leans} on {s.name}: {effect(s)}." for s in suspects]

    if judged.level == "found" or (judged.level == "hint" and found.level == "hint"):
        agree = [f"The experiments agree, on {s.name}, {known(s)}: {effect(s)}." for s in same[:1]]
        return replace(
            judged, sentences=[*judged.sentences, *agree, *also([*same[1:], *other]), *found.notes],
            agreement="agree" if same else "apart",
        )  # fmt: skip
    rest = _without_remark(judged.sentences[1:], True)
    if judged.level == "hint":
        first, *more = [*same, *other]
        lead = f"{model} leans on {first.name}{f', {known(first)}' if same else ''}: {effect(first)}."
        groups = (
            f"The groups point the same way: {judged.measured}."
            if same
            else f"It may lean on the {attribute} too: {judged.measured}."
        )
        return replace(
            judged, level="found", headline=f"Leans on {first.name}", evidence="experiment",
            sentences=[lead, groups, *rest, *also(more), *found.notes], agreement="agree" if same else "apart",
        )  # fmt: skip
    if judged.level == "unclear":
        groups = f"The groups cannot tell, for want of images: {judged.measured}."
        return replace(
            judged, level=found.level, headline=found.headline, sentences=[*found.sentences, groups, *rest],
            evidence="experiment", agreement="open",
        )  # fmt: skip
    if other:
        first = other[0]
        lead = f"{model} {leans} on {first.name}, not on the {attribute}: {effect(first)}."
        groups = f"As to the {attribute}, {judged.measured}."
        differ = [_without_cost(s, attribute, known(s), estimated) for s in same[:1]]
        return replace(
            judged, level=found.level, headline=f"{leans.capitalize()} on {first.name}", evidence="experiment",
            sentences=[lead, groups, *rest, *also(other[1:]), *differ, *(in_the_data(s) for s in other)],
            agreement="differ" if same else "apart",
        )  # fmt: skip
    first = same[0]
    if estimated:  # a mask that missed a part of the object would pull as well: not enough against real images
        leans = "may lean"
    lead = (
        f"{model} {leans} on {first.name}, {known(first)}, but the groups show no cost: {judged.measured}, while "
        f"{effect(first)}."
    )
    return replace(
        judged, level="hint" if estimated else found.level, headline=f"{leans.capitalize()} on {first.name}",
        evidence="experiment", sentences=[lead, _why_without_cost(first, attribute, estimated), *rest],
        agreement="differ",
    )  # fmt: skip


def _without_remark(sentences: Sequence[str], accused: bool) -> list[str]:
    """Without the remark on guessing where a shortcut is named: one who reads it alone may well average at chance."""
    return [sentence for sentence in sentences if not (accused and sentence.startswith(HARDLY))]


def _unsettled(found: Judgement) -> str:
    widest = max((s.pull for s in found.suspects if s.pull is not None), key=lambda pull: pull.high)
    name = next(s.name for s in found.suspects if s.key == widest.cue)
    return (
        f"The experiments cannot settle it: exchanging {name} may turn up to {of_100(widest.high)} of 100 answers "
        f"({widest.n} images)."
    )


def _missed(judged: Verdict, found: Judgement, attribute: str, telling: dict[str, Probe], estimated: str | None) -> str:
    """Why the groups can accuse and the experiments not, in one sentence."""
    tested = [s for s in found.suspects if s.pull is not None and s.key in telling]
    nearest = max(tested, key=lambda s: telling[s.key].strength, default=None)
    reasons = []
    if nearest is None or nearest.pull is None:
        shown = ""
        reasons.append(f"none of the exchanged properties tells the {attribute}")
    else:
        shown = (
            f" ({nearest.name}, which tells the {attribute}: {of_100(nearest.pull.value)} of 100, 95 % interval up to "
            f"{of_100(nearest.pull.high)})"
        )
        if judged.gap is not None and judged.gap["value"] < SMALL_EFFECT:
            reasons.append("an effect this small need not turn whole answers")
        if estimated:
            reasons.append(
                f"where the object is was only estimated (from {estimated}), so that some of the {attribute} may "
                "stay with it"
            )
        else:
            reasons.append("an exchange leaves a margin around the object as it was")
    if judged.evidence == "spread":
        reasons.append("some groups may simply hold harder images")
    return (
        "The experiments do not show it: the groups count how often it is right on real images, an experiment how "
        f"often an answer turns when one property is exchanged between images{shown}, and the two can differ because "
        f"{' or because '.join(reasons)}."
    )


def _why_without_cost(s: Suspect, attribute: str, estimated: str | None) -> str:
    """Why the experiments can accuse and the groups not, in one sentence."""
    doubt = (
        f"where the object is was only estimated (from {estimated}), so that a part of it may have been exchanged too"
        if estimated
        else f"something else about {s.name} than the {attribute} may decide"
    )
    return (
        "The groups count how often it is right on real images, an experiment how often an answer turns on edited "
        f"ones, and the two can differ because {doubt}, or because on real images the object is clear enough to "
        "decide."
    )


def _without_cost(s: Suspect, attribute: str, known: str, estimated: str | None) -> str:
    return (
        f"Exchanging {s.name}, {known}, turns answers as well ({of_100(s.pull.value if s.pull else 0.0)} of 100), "
        f"though the groups of the {attribute} show no cost. {_why_without_cost(s, attribute, estimated)}"
    )
