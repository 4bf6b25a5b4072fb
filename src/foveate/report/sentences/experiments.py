"""What the experiments say, in words."""

from __future__ import annotations

from foveate.report.discovery.experiments import Pull
from foveate.report.discovery.judgement import Judgement, Suspect
from foveate.report.levels import Level
from foveate.report.sentences.limits import could_have_found, exchanged, not_covered
from foveate.report.sentences.numbers import listed, of_100, percent


def experiment_headline(found: Judgement) -> str:
    """A few words."""
    if found.level.accuses:
        return f"{'Leans' if found.level is Level.FOUND else 'May lean'} on {found.accused[0].name}"
    return {Level.UNCLEAR: "Too few images to tell", Level.NONE: "No shortcut found"}.get(found.level, "Not tested")


def experiment_sentences(model: str, found: Judgement) -> list[str]:
    """All that the experiments say by themselves; the first sentence is the verdict."""
    if found.level is Level.UNTESTED:
        return [
            f"Whether {model} takes a shortcut could not be tested by experiment: there are too few images, or it "
            "gives all of them one answer."
        ]
    return [*_verdict(model, found), *notes(found)]


def _verdict(model: str, found: Judgement) -> list[str]:
    if found.level is Level.FOUND:
        first, *more = found.accused
        also = [f"It also leans on {s.name}: {effect_of(s)}." for s in more]
        return [f"{model} leans on {first.name}: {effect_of(first)}.", *also]
    if found.level is Level.HINT:
        return [f"{model} may lean on {found.accused[0].name}: {effect_of(found.accused[0])}."]
    if found.level is Level.UNCLEAR:
        worst, pull = max(found.pulls, key=lambda entry: entry[1].high)
        return [
            f"There are too few images to tell whether {model} takes a shortcut: exchanging {worst.name} may turn up "
            f"to {of_100(pull.high)} of 100 answers ({pull.n} images)."
        ]
    return [f"No shortcut was found in {model}: {nothing(found)}.", could_have_found(found), not_covered()]


def nothing(found: Judgement) -> str:
    """When nothing was found: what was tried and how little it did, as part of a sentence."""
    most, pull = max(found.pulls, key=lambda entry: entry[1].value)
    return (
        f"{exchanged(found)} were exchanged between images, and its answers did not follow (at most "
        f"{of_100(pull.value)} of 100, for {most.name}; 95 % interval up to {of_100(pull.high)})"
    )


def notes(found: Judgement) -> list[str]:
    """Remarks that stay true beside what the groups say."""
    said = [in_the_data(s) for s in found.shortcuts]
    said += _what_holds_what(found)
    unused = [
        f"{s.name} ({percent(s.label.score)} right by it alone)"
        for s in found.tested
        if s.level is Level.NONE and s.label is not None and s.label.tells and s.label.score >= 0.7
    ]
    if unused and not found.shortcuts:
        said.append(f"The images do hold shortcuts that it does not use: {listed(unused[:3])}.")
    if any(s.cue.needs_objects for s in found.tested):
        said.append(f"Where the object is was taken from {found.objects}.")
    return said


def _what_holds_what(found: Judgement) -> list[str]:
    """Which part of a cue its pull comes from."""
    said = []
    for part in found.accused:
        whole = next((s for s in found.suspects if s.explained_by == part.cue and s.key == "background"), None)
        if whole is not None and part.holds is not None:
            said.append(
                f"Exchanging {whole.name} turns answers only through {part.name}: with that given back, "
                f"{percent(part.holds)} of the pull of {whole.name} is gone."
            )
        elif part.holds is not None and any(s.key == "background" for s in found.accused):
            said.append(f"{part.name[0].upper()}{part.name[1:]} holds {percent(part.holds)} of the background's pull.")
    aspect = next((s for s in found.suspects if s.explained_by is not None and s.cue.aspect is not None), None)
    by = None if aspect is None else aspect.explained_by
    if found.shortcuts and aspect is not None and by is not None and by.key == aspect.cue.part_of:
        said.append(
            f"Much of the pull of {by.name} is {aspect.cue.aspect}: {aspect.name} alone turns "
            f"{of_100(aspect.strength)} of 100 answers."
        )
    return said


def effect_of(s: Suspect) -> str:
    """What exchanging the property did, as part of a sentence."""
    if s.pull is None:
        beyond = "" if s.answers is None else f" (permutation p = {s.answers.adjusted:.3f} after correction)"
        return (
            f"its answers follow {s.name} beyond what the class explains{beyond}. No experiment can exchange it, so "
            "this is a lead and not a proof"
        )
    return (
        f"when it is exchanged, {_of_100_answers(s.pull)} follow it to another class (95 % interval "
        f"{of_100(s.pull.low)} to {of_100(s.pull.high)}; {s.pull.n} images), and right answers go from "
        f"{percent(s.pull.same)} to {percent(s.pull.other)}"
    )


def _of_100_answers(pull: Pull) -> str:
    """The pull as a count; a range where the object was cut with and without a margin, for want of true masks."""
    if pull.generous is None or of_100(pull.generous.value) == of_100(pull.value):
        return f"{of_100(pull.value)} of 100 answers"
    low, high = sorted((pull.generous.value, pull.value))
    return f"between {of_100(low)} and {of_100(high)} of 100 answers (the object cut with and without a margin)"


def in_the_data(s: Suspect) -> str:
    """Whether the images themselves hold the shortcut, in a sentence."""
    if s.label is None:
        return f"Whether {s.name} tells the class in these images is not known."
    rate = f"{percent(s.label.score)} of the images can be told from it alone; guessing: {percent(s.label.chance)}"
    if s.label.strong:
        return f"In these images {s.name} also tells the class ({rate}), so accuracy on them hides the shortcut."
    much = "tells the class only in part" if s.label.tells else "does not tell the class"
    return f"In these images {s.name} {much} ({rate}), so leaning on it costs accuracy here."
