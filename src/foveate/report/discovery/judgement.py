"""From experiments and probes to words: which shortcut, how sure, on what evidence.

The experiment decides. A probe shows that the *data* hold a shortcut (a property tells the label); only an exchange
that turns the model's answers shows that the *model* uses it. The thresholds are those of the group report: a pull
counts as found from 10 points on, when the low end of its interval reaches 5 and its p-value, corrected for the number
of properties tested, is under 0.05.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from foveate.report.discovery.experiments import Pull
from foveate.report.discovery.observations import GIVEN
from foveate.report.discovery.probes import Probe, holm
from foveate.report.gaps import FOUND_GAP, FOUND_LOW, Level
from foveate.report.groups import percent

HINT = 0.03
"""A pull under this is too small to mention, however sure."""


@dataclass(frozen=True)
class Suspect:
    """One property with all that is known about it.

    Attributes:
        level: ``found``, ``hint``, ``none``, ``unclear``, or ``untested`` (no experiment possible).
        explained_by: key of another property that this one is a part of, or None.
        label, answers: the probes of the label and of the model's answers beyond the label.
    """

    key: str
    name: str
    level: Level
    pull: Pull | None = None
    adjusted: float | None = None
    explained_by: str | None = None
    label: Probe | None = None
    answers: Probe | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "key": self.key, "name": self.name, "level": self.level, "explained_by": self.explained_by,
            "pull": None if self.pull is None else {**self.pull.to_dict(), "adjusted": self.adjusted},
            "label": None if self.label is None else self.label.to_dict(),
            "answers": None if self.answers is None else self.answers.to_dict(),
        }  # fmt: skip


@dataclass(frozen=True)
class Judgement:
    """What discovery found about one model, by itself; :func:`foveate.report.verdict.join` makes the verdict.

    Attributes:
        level, headline: what the experiments say, and in a few words.
        sentences: all that there is to say, ``notes`` included.
        suspects: every property, worst first.
        notes: remarks that stay true beside what the groups say.
        nothing: when nothing was found, what was tried and how little it did, as part of a sentence.
    """

    level: Level
    headline: str
    sentences: list[str]
    suspects: list[Suspect] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    nothing: str = ""

    @property
    def shortcuts(self) -> list[Suspect]:
        """What the model leans on by experiment, strongest first, leaving out what is part of another."""
        return [s for s in self.suspects if s.level == "found" and s.explained_by is None]

    def to_dict(self) -> dict[str, Any]:
        """The evidence. Its words are left to the verdict: a second headline might say something else."""
        return {
            "level": self.level,
            "shortcuts": [s.key for s in self.shortcuts], "suspects": [s.to_dict() for s in self.suspects],
        }  # fmt: skip


def level_of(pull: Pull, adjusted: float) -> Level:
    """What one pull allows to say."""
    if adjusted < 0.05 and pull.value >= FOUND_GAP and pull.low >= FOUND_LOW:
        return "found"
    if adjusted < 0.05 and pull.value >= HINT:
        return "hint"
    return "unclear" if pull.high >= FOUND_GAP else "none"


def judge(
    model: str,
    pulls: Sequence[Pull],
    label_probes: Sequence[Probe],
    answer_probes: Sequence[Probe],
    names: Mapping[str, str],
    *,
    objects: str,
    sure: bool = True,
) -> Judgement:
    """Put the evidence together.

    Args:
        model: what to call it.
        pulls: what the experiments gave.
        label_probes, answer_probes: which properties tell the label, and the answers beyond the label.
        names: how to call each property in a sentence.
        objects: where the masks come from, in words.
        sure: whether the masks are good enough to accuse on the ground of a background exchange.
    """
    told = {probe.key: probe for probe in label_probes}
    follow = {probe.key: probe for probe in answer_probes}
    adjusted = holm([pull.p for pull in pulls])
    suspects: list[Suspect] = []
    for pull, q in zip(pulls, adjusted, strict=True):
        level = level_of(pull, float(q))
        if pull.cue == "background" and not sure and level == "found":
            level = "hint"
        suspects.append(
            Suspect(
                pull.cue, names[pull.cue], level, pull, float(q), label=told.get(pull.cue), answers=follow.get(pull.cue)
            )
        )
    suspects = _explained(suspects)
    tested = {pull.cue for pull in pulls}
    for key in [k for k in names if k not in tested and (k in told or k in follow)]:
        # without an experiment, answers that follow a property beyond the label are a hint and never more
        # (a given attribute is left to the group report, which tests it)
        level = "hint" if key in follow and follow[key].tells and key != GIVEN else "untested"
        suspects.append(Suspect(key, names[key], level, label=told.get(key), answers=follow.get(key)))
    order = {"found": 0, "hint": 1, "unclear": 2, "none": 3, "untested": 4}
    suspects.sort(key=lambda s: (order[s.level], s.explained_by is not None, -(s.pull.value if s.pull else -1.0)))
    return _worded(model, suspects, objects)


def _explained(suspects: list[Suspect]) -> list[Suspect]:
    """Mark what is part of the background: its colour, and what of it reaches into corners and border."""
    scene = next((s for s in suspects if s.key == "background" and s.level in ("found", "hint") and s.pull), None)
    if scene is None or scene.pull is None:
        return suspects
    out = []
    for s in suspects:
        part = s.pull is not None and s.level in ("found", "hint") and s is not scene
        place = s.key.startswith("corner") or s.key == "border"
        if part and (s.key == "colour" or (place and s.pull is not None and s.pull.value < 0.6 * scene.pull.value)):
            s = Suspect(**{**s.__dict__, "explained_by": scene.key})
        out.append(s)
    return out


def _worded(model: str, suspects: list[Suspect], objects: str) -> Judgement:
    tested = [s for s in suspects if s.pull is not None]
    found = [s for s in tested if s.level == "found" and s.explained_by is None]
    hints = [s for s in suspects if s.level == "hint" and s.explained_by is None]
    if not tested and not hints:
        sentence = (
            f"Whether {model} takes a shortcut could not be tested by experiment: there are too few images, or it "
            "gives all of them one answer."
        )
        return Judgement("untested", "Not tested", [sentence], suspects)
    sentences: list[str] = []
    notes: list[str] = []
    nothing = ""
    level: Level
    if found:
        level, headline = "found", f"Leans on {found[0].name}"
        sentences.append(f"{model} leans on {found[0].name}: {effect(found[0])}.")
        sentences += [f"It also leans on {s.name}: {effect(s)}." for s in found[1:]]
        notes += [in_the_data(s) for s in found]
        through = next((s for s in suspects if s.explained_by == "background" and s.key == "colour"), None)
        if through is not None and through.pull is not None:
            notes.append(
                "Much of the pull of the background is its colour: the colour cast alone turns "
                f"{of_100(through.pull.value)} of 100 answers."
            )
    elif hints:
        level, headline = "hint", f"May lean on {hints[0].name}"
        sentences.append(f"{model} may lean on {hints[0].name}: {effect(hints[0])}.")
    elif any(s.level == "unclear" for s in tested):
        level, headline = "unclear", "Too few images to tell"
        worst = max((s for s in tested if s.pull), key=lambda s: s.pull.high if s.pull else 0.0)
        assert worst.pull is not None
        sentences.append(
            f"There are too few images to tell whether {model} takes a shortcut: exchanging {worst.name} may turn up "
            f"to {of_100(worst.pull.high)} of 100 answers ({worst.pull.n} images)."
        )
    else:
        level, headline = "none", "No shortcut found"
        most = max((s for s in tested if s.pull), key=lambda s: s.pull.value if s.pull else 0.0)
        assert most.pull is not None
        nothing = (
            f"{_listed([s.name for s in tested if not s.key.startswith('corner')])} and the corners were exchanged "
            f"between images, and its answers did not follow (at most {of_100(most.pull.value)} of 100, for "
            f"{most.name}; 95 % interval up to {of_100(most.pull.high)})"
        )
        sentences.append(f"No shortcut was found in {model}: {nothing}.")
    unused = [s for s in tested if s.level == "none" and s.label is not None and s.label.tells and s.label.score >= 0.7]
    if unused and not found:
        named = _listed([f"{s.name} ({percent(s.label.score)} right by it alone)" for s in unused[:3] if s.label])
        notes.append(f"The images do hold shortcuts that it does not use: {named}.")
    if any(s.key == "background" for s in tested):
        notes.append(f"Where the object is was taken from {objects}.")
    return Judgement(level, headline, [*sentences, *notes], suspects, notes, nothing)


def effect(s: Suspect) -> str:
    """What exchanging the property did, as part of a sentence."""
    if s.pull is None:
        beyond = "" if s.answers is None else f" (permutation p = {s.answers.adjusted:.3f} after correction)"
        return (
            f"its answers follow {s.name} beyond what the class explains{beyond}. No experiment can exchange it, so "
            "this is a lead and not a proof"
        )
    return (
        f"with that of an image it takes for another class, its answer turns to that class in "
        f"{of_100(s.pull.value)} of 100 images more than with that of its own class (95 % interval "
        f"{of_100(s.pull.low)} to {of_100(s.pull.high)}; {s.pull.n} images), and {percent(s.pull.same)} right become "
        f"{percent(s.pull.other)}"
    )


def in_the_data(s: Suspect) -> str:
    """Whether the images themselves hold the shortcut, in a sentence."""
    if s.label is None:
        return f"Whether {s.name} tells the class in these images is not known."
    rate = f"{percent(s.label.score)} of the images are named rightly by it alone; guessing: {percent(s.label.chance)}"
    if s.label.strong:
        return f"In these images {s.name} also tells the class ({rate}), so accuracy on them hides the shortcut."
    much = "tells the class only in part" if s.label.tells else "does not tell the class"
    return f"In these images {s.name} {much} ({rate}), so leaning on it costs accuracy here."


def of_100(share: float) -> str:
    """A share of answers as people count them.

    >>> of_100(0.414), of_100(-0.02)
    ('41', '0')
    """
    return str(max(0, round(100 * share)))


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else "nothing"
