"""The verdict as one would say it aloud: one sentence, two numbers, and what the levels mean."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from foveate.report.discovery.before_after import BeforeAfter
from foveate.report.discovery.cues import Cue
from foveate.report.discovery.judgement import Suspect
from foveate.report.gaps import Share
from foveate.report.groups import BySpread, ByTraining
from foveate.report.levels import Evidence, Level
from foveate.report.sentences.numbers import listed, percent
from foveate.report.verdict import Verdict

LEVEL_NAMES = {
    Level.FOUND: "found", Level.HINT: "hint", Level.UNCLEAR: "cannot tell", Level.NONE: "none",
    Level.UNTESTED: "not tested",
}  # fmt: skip
LEVEL_MEANINGS = {
    Level.FOUND: "A shortcut: at least 10 of 100 answers hang on it, and by the 95 % interval no fewer than 5.",
    Level.HINT: "Real but small, or a lead that no experiment can follow. Look at the pictures.",
    Level.UNCLEAR: "Too few images. A shortcut could hide in what they leave open: neither guilty nor acquitted.",
    Level.NONE: "Looked for and not there. Below stands what was tested and how small an effect each test would have "
    "found; anything else may still be there.",
    Level.UNTESTED: "Not looked for: there was nothing to compare, and no experiment was possible.",
}  # fmt: skip
"""What a level says, in words, wherever it appears."""


def example_of(v: Verdict, turned: Sequence[BeforeAfter], held: Sequence[BeforeAfter]) -> BeforeAfter | None:
    """The exchange that shows the verdict; None where there is none, or where it is about something else."""
    if not v.level.accuses:
        return held[0] if held and v.level is Level.NONE and not v.guessing else None
    named = {s.key for s in (v.same if v.evidence is not Evidence.EXPERIMENT else v.accused)}
    return next((shown for shown in turned if shown.cue.key in named), None)


def plain(v: Verdict, shown: BeforeAfter | None) -> str:
    """The verdict in one sentence; ``shown`` is the exchange that stands beside it."""
    if v.level.accuses:
        if shown is None:
            return _by_numbers(v)
        says = "says" if v.level is Level.FOUND else "may say"
        return f"{_trial(v, shown)} and {v.model} {says} {shown.answer}."
    if v.guessing:
        return f"{v.model} hardly beats guessing on these images, so they tell little about shortcuts."
    if v.level is Level.UNCLEAR:
        return f"There are too few images to tell whether {v.model} takes a shortcut."
    if v.level is Level.UNTESTED:
        return f"Whether {v.model} takes a shortcut was not tested."
    if shown is None:
        return f"No shortcut was found in {v.model}."
    trial = _trial(v, shown)
    return f"No shortcut was found: {trial[0].lower()}{trial[1:]}, and {v.model} still says {shown.answer}."


def two_numbers(v: Verdict) -> list[tuple[str, Share]]:
    """How often it is right where the shortcut helps, and where it does not; none where nothing was compared."""
    compared, found = v.groups.comparison, v.experiments
    if v.evidence is Evidence.EXPERIMENT and found is not None:
        strongest = max(found.pulls, key=lambda entry: entry[1].value, default=None)
        s = next((s for s in v.accused if s.pull is not None), None if strongest is None else strongest[0])
        return [] if s is None else _exchanged(s)
    if isinstance(compared, ByTraining):
        return [
            (f"right where the {v.attribute} is the usual one", compared.usual),
            ("right where it is not", compared.unusual),
        ]  # fmt: skip
    if isinstance(compared, BySpread):
        return [(f"right on {row.name}", Share(row.correct, row.n)) for row in (compared.better, compared.worse)]
    return []


def overall(levels: Mapping[str, Level]) -> str:
    """One sentence about several models.

    >>> overall({"ERM": Level.FOUND, "DFR": Level.HINT, "DAR": Level.NONE})
    'ERM takes a shortcut, DFR may take one, and none was found in DAR.'
    >>> overall(dict.fromkeys("abcde", Level.FOUND))
    'All 5 models take a shortcut.'
    """
    words = {
        Level.FOUND: ("takes a shortcut", "take a shortcut"), Level.HINT: ("may take one", "may take one"),
        Level.UNCLEAR: ("cannot be judged for want of images", "cannot be judged for want of images"),
        Level.UNTESTED: ("was not tested", "were not tested"),
    }  # fmt: skip
    first = {Level.HINT: "may take a shortcut"}  # what "one" stands for has to be named first
    by_level = {level: [name for name, own in levels.items() if own is level] for level in Level}
    parts: list[str] = []
    for level, names in by_level.items():
        if not names:
            continue
        every = len(names) == len(levels) > 1
        who = listed(names) if len(names) <= 3 else f"{len(names)} models"
        if level is Level.NONE:
            who = f"any of the {len(names)} models" if every else who
            parts.append(f"{'none' if parts else 'No shortcut'} was found in {who}")
        else:
            told = words[level][len(names) > 1]
            parts.append(f"{f'All {len(names)} models' if every else who} {told if parts else first.get(level, told)}")
    joined = f"{', '.join(parts[:-1])}, and {parts[-1]}"
    return f"{parts[0] if len(parts) == 1 else joined}."


def a(name: str) -> str:
    """A class with its article, where it is a plain word; else in quotes.

    >>> a("duck"), a("owl"), a("water_bird"), a("not blond"), a("8")
    ('a duck', 'an owl', 'a water bird', 'a “not blond”', 'an 8')
    """
    words = name.replace("_", " ")
    article = "an" if re.match(r"[aeioAEIO]|un(?!i)|8", words) else "a"
    whole = re.fullmatch(r"[\w-]+( [\w-]+)?", words) and not re.match(r"(not|no|non)\b", words)
    return f"{article} {words}" if whole else f"a “{name}”"


def _trial(v: Verdict, shown: BeforeAfter) -> str:
    """What was done to the image, as the start of a sentence."""
    cue = shown.cue
    if cue.key in v.telling and shown.donor_attribute is not None:
        named = a(shown.donor_attribute)
        theirs = _theirs(cue, f"{named} picture") if cue.theirs else f"{named} {cue.noun}"
    else:
        turned = shown.answer != shown.label
        taken = turned and shown.donor_label != shown.answer
        donor = f"a picture it takes for {a(shown.answer)}" if taken else f"{a(shown.donor_label)} picture"
        theirs = _theirs(cue, donor)
    return cue.trial.format(object=a(shown.label), theirs=theirs)


def _theirs(cue: Cue, donor: str) -> str:
    return (cue.theirs or f"{cue.name} of {{donor}}").format(donor=donor)


def _by_numbers(v: Verdict) -> str:
    numbers = two_numbers(v)
    if v.evidence is Evidence.EXPERIMENT or not numbers:
        follows = "follow" if v.level is Level.FOUND else "seem to follow"
        return f"The answers of {v.model} {follows} {v.accused[0].name}, beyond what the class explains."
    (_, usual), (_, unusual) = numbers
    if isinstance(v.groups.comparison, BySpread):
        (better, _), (worse, _) = numbers
        return f"{v.model} is {better} in {percent(usual.value)}, and {worse} only in {percent(unusual.value)}."
    return (
        f"{v.model} is right on {percent(usual.value)} of the images where the {v.attribute} is the usual one, and on "
        f"{percent(unusual.value)} where it is not."
    )


def _exchanged(s: Suspect) -> list[tuple[str, Share]]:
    if s.pull is None:
        return []
    n, own = s.pull.n, _theirs(s.cue, "a picture of its own class")
    return [
        (f"right with {own}", Share(round(s.pull.same * n), n)),
        ("right with that of another class", Share(round(s.pull.other * n), n)),
    ]
