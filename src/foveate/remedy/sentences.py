"""Everything a cure says in words, made from its types in one place."""

from __future__ import annotations

from typing import TYPE_CHECKING

from foveate.remedy.kinds import Attempt, Showing, State
from foveate.report import Level
from foveate.report.sentences import listed

if TYPE_CHECKING:
    from foveate.remedy.result import Cure


def per_cent(share: float) -> str:
    """A share as whole per cent.

    >>> per_cent(0.824)
    '82 %'
    """
    return f"{100 * share:.0f} %"


def about(found: Cure) -> list[str]:
    """What came of it: the headline first."""
    if found.before is None:
        return [
            "No shortcut was found, and the model is left alone.",
            found.audit_before.verdict,
            *_measured(found),
        ]
    if found.chosen is None:
        return [
            f"The model leans on {leans_on(found)}, and nothing that was tried helps enough: the original is handed "
            "back.",
            *_tried(found),
            *_measured(found),
            *_stopped(found),
        ]
    after = found.after
    assert after is not None
    before = found.before
    said = [
        f"Cured of {leans_on(found)} by {found.chosen.remedy.title}: the worst case goes from "
        f"{per_cent(before.worst.accuracy)} ({before.worst.name}) to {per_cent(after.worst.accuracy)} "
        f"({after.worst.name}).",
        f"On the validation images as they come, {per_cent(before.real)} were right and {per_cent(after.real)} are.",
    ]
    if before.follows is not None and after.follows is not None:
        said.append(
            f"With {listed([cue.name for cue in found.cues])} of another class, {per_cent(before.follows)} of the "
            f"answers followed it and {per_cent(after.follows)} do."
        )
    return [*said, *_measured(found), *_left(found), f"Labels used: {found.supervision}.", *_stopped(found)]


def leans_on(found: Cure) -> str:
    """What the audit named."""
    return listed([cue.name for cue in found.cues]) if found.cues else "the given attribute"


def _measured(found: Cure) -> list[str]:
    if found.measured is None:
        return ["There were no images apart to measure on: these figures are of the images the choice was made on."]
    before, after = found.measured
    worst = [r.worst_class if r.worst_group is None else r.worst_group for r in (before, after)]
    what = "class" if before.worst_group is None else "group"
    on = f"On {before.n} images that nothing was chosen on"
    if found.chosen is None:
        return [f"{on}, {per_cent(before.average)} are right, of the worst {what} {per_cent(worst[0])}."]
    return [
        f"{on}, the average goes from {per_cent(before.average)} to {per_cent(after.average)}, the worst {what} from "
        f"{per_cent(worst[0])} to {per_cent(worst[1])}."
    ]


def _tried(found: Cure) -> list[str]:
    tried = found.tried
    if not tried:
        reasons = {a.why for a in found.attempts if a.why}
        return [f"No remedy could be tried: {'; '.join(sorted(reasons))}."]
    best = max(tried, key=lambda a: a.standing.worst.accuracy if a.standing else 0.0)
    assert best.standing is not None
    assert found.before is not None
    return [
        f"The best of {len(tried)} remedies was {best.remedy.title}: its worst case is "
        f"{per_cent(best.standing.worst.accuracy)} ({best.standing.worst.name}), that of the original "
        f"{per_cent(found.before.worst.accuracy)}"
        + ("." if best.allowed else f", but {_too_far(found, best.standing)}.")
    ]


def _too_far(found: Cure, best: Showing) -> str:
    """Which average falls further than the rule allows."""
    before, limit = found.before, found.rule.real_drop
    if before is not None and limit is not None and best.real < before.real - limit:
        return (
            f"on the images as they come it falls from {per_cent(before.real)} to {per_cent(best.real)}, further than "
            f"the {100 * limit:g} points that are allowed (real_drop, --real-drop)"
        )
    return "its average falls too far"


def _left(found: Cure) -> list[str]:
    """What is not cured: by the audit of the result."""
    if found.audit_after is None:
        return ["There was no time to audit the cured model; audit it before you rely on it."]
    verdict = next(iter(found.audit_after.verdicts.values()))
    if verdict.level is Level.FOUND:
        return [f"Not all is cured: {found.audit_after.verdict}"]
    if verdict.level is Level.HINT:
        return [f"A trace is left: {found.audit_after.verdict}"]
    return ["The audit of the cured model finds no shortcut any more."]


def _stopped(found: Cure) -> list[str]:
    if not found.interrupted:
        return []
    return ["It was stopped before all remedies were tried: this is the best so far; the same call goes on."]


def outcome_of(entry: Attempt, chosen: Attempt | None) -> str:
    """What became of a remedy, for a table."""
    if entry is chosen:
        return "chosen"
    if entry.state is State.TRIED:
        return "tried" if entry.allowed else "average falls too far"
    return f"{entry.state.value}: {entry.why}" if entry.why else entry.state.value
