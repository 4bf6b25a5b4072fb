"""What could not be seen, in words: how small an effect a test would have found, what no test covers, leaky data."""

from __future__ import annotations

from foveate.report.discovery.cues import CUES
from foveate.report.discovery.judgement import Judgement
from foveate.report.discovery.leaks import Leak
from foveate.report.levels import Level
from foveate.report.sentences.numbers import listed, of_100, percent, points

NOT_EXCHANGED = (
    "the object's own shape and pose", "its colour and how wide it is where these are its class's",
    "how a file was named or made",
)  # fmt: skip
"""What no experiment exchanges at all; cues that are only probed come on top."""


def exchanged(found: Judgement) -> str:
    """The cues that were exchanged, those of a family together.

    >>> exchanged(Judgement())
    'nothing'
    """
    names = dict.fromkeys(s.cue.family or s.name for s in found.tested)
    return listed(list(names)) if names else "nothing"


def could_have_found(found: Judgement) -> str:
    """How small a pull each experiment would have found, in a sentence; those of a family together."""
    families: dict[str, float] = {}
    for s in found.tested:
        name = s.cue.family or s.name
        families[name] = max(families.get(name, 0.0), found.smallest_found(s) or 1.0)
    sizes: dict[str, list[str]] = {}
    for name, size in sorted(families.items(), key=lambda entry: entry[1]):
        sizes.setdefault(of_100(size), []).append(name)
    if len(sizes) == 1:
        said = f"{next(iter(sizes))} of 100 answers or more"
    else:
        said = "; ".join(
            f"{size}{' of 100 answers' if number == 0 else ''} or more for {listed(names)}"
            for number, (size, names) in enumerate(sizes.items())
        )
    return f"Each test would have found, four times in five, a pull of {said}."


def reach(found: Judgement | None, smallest_gap: float | None, attribute: str) -> list[str]:
    """What was tested and what it would have seen, for a model in which nothing was found.

    ``smallest_gap`` is that of the groups, None without groups; ``attribute`` is what to call theirs.
    """
    said = []
    if smallest_gap is not None:
        said.append(
            f"The {attribute}: a gap of {points(smallest_gap)} or more would have been found four times in five."
        )
    if found is None or not found.tested:
        return [*said, "Nothing else was tested."]
    return [*said, f"By experiment: {exchanged(found)}. {could_have_found(found)}", not_covered()]


def not_covered() -> str:
    """What the experiments cannot speak about, in a sentence."""
    probed = [cue.name for cue in CUES if cue.exchange is None]
    only = f"; {listed(probed)} {'is' if len(probed) == 1 else 'are'} only read, never exchanged" if probed else ""
    return f"No experiment covers {', '.join(NOT_EXCHANGED[:-1])}, or {NOT_EXCHANGED[-1]}{only}."


def leak(found: Leak) -> str:
    """A warning about the data: what tells the class, and whether a model is known to read it."""
    name = f"{found.cue.name[0].upper()}{found.cue.name[1:]}"
    told = f"{name} alone tells the class of {percent(found.probe.score)} of these images (guessing: " + (
        f"{percent(found.probe.chance)})."
    )
    readers = [model for model, level in found.levels.items() if level.accuses]
    if readers:
        follows = "follows" if len(readers) == 1 else "follow"
        who = listed(readers) if len(readers) <= 3 else f"{len(readers)} models"
        return f"{told} {who} {follows} it, and accuracy on such images hides that."
    if found.cue.given:
        return f"{told} Few images are left on which the two disagree, and only those can show a shortcut."
    if found.cue.exchange is None:
        return f"{told} No experiment can exchange it, so whether a model reads it stays open."
    if any(level is Level.UNCLEAR for level in found.levels.values()):
        return f"{told} Whether a model reads it, these images are too few to say."
    return f"{told} By experiment it is not read here, but the next model trained on such images may read it."
