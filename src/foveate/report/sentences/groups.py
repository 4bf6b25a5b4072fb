"""What the groups say, in words."""

from __future__ import annotations

from foveate.measure import GroupReport
from foveate.report.gaps import FOUND_GAP, Gap, Share
from foveate.report.groups import ByClass, BySpread, ByTraining, GroupVerdict
from foveate.report.levels import Level
from foveate.report.sentences.numbers import percent, points


def group_headline(said: GroupVerdict, what: str) -> str:
    """A few words; ``what`` is what to call the attribute."""
    if isinstance(said.comparison, ByClass):
        return "Not tested" if said.report.groups else "Not tested: no attributes"
    if said.level is Level.NONE and said.guessing is not None:
        return "Hardly better than guessing"
    if said.level is Level.NONE:
        silent = said.report.unanswered
        return f"No answer for {silent} images" if silent else "No sign of a shortcut"
    if said.level is Level.UNCLEAR:
        return "Too few images to tell"
    sure = said.level is Level.FOUND
    if isinstance(said.comparison, BySpread):
        return f"Accuracy {'depends' if sure else 'may depend'} on the {what}"
    return f"{'Leans' if sure else 'May lean'} on the {what}"


def group_sentences(model: str, said: GroupVerdict, what: str) -> list[str]:
    """All that the groups say by themselves, but for the remark on guessing; the first sentence is the verdict."""
    compared = said.comparison
    if isinstance(compared, ByTraining):
        return _by_training(model, compared, what)
    if isinstance(compared, BySpread):
        return _by_spread(model, compared, what)
    return _by_class(model, said.report, compared.mistake)


def measured(said: GroupVerdict, what: str) -> str:
    """What the groups showed, as part of a sentence; empty without groups."""
    compared = said.comparison
    if isinstance(compared, ByTraining):
        inside, interval = _inside(compared), _interval(compared.gap)
        return f"it is {_rates(compared, what)} ({inside}a difference of {points(compared.gap.value)}; {interval})"
    if isinstance(compared, BySpread):
        return f"it is right on {_pair(compared)} ({_spread_numbers(compared.gap)})"
    return ""


def sides(said: GroupVerdict, what: str) -> list[tuple[str, Share]]:
    """The two sides that were compared, with what to call them; none without groups."""
    compared = said.comparison
    if isinstance(compared, ByTraining):
        return [(f"{what} as in training", compared.usual), (f"{what} unlike training", compared.unusual)]
    if isinstance(compared, BySpread):
        return [(row.name, Share(row.correct, row.n)) for row in (compared.better, compared.worse)]
    return []


def no_answer(model: str, report: GroupReport) -> list[str]:
    """The sentence on images that a model had no answer to; none where there are no such images."""
    return [f"{model} gave {report.remarks()[-1]}"] if report.unanswered else []


def guessing_remark(said: GroupVerdict) -> str:
    return (
        f"But with {percent(said.report.average)} right on average it is hardly better than always naming the most "
        f"frequent class ({percent(said.guessing)}), so the groups tell little."
    )


def _interval(gap: Gap) -> str:
    return f"95 % interval {round(100 * gap.low)} to {round(100 * gap.high)}"


def _rates(compared: ByTraining, what: str) -> str:
    return (
        f"right on {percent(compared.usual.value)} of the images where class and {what} go together as in training, "
        f"and on {percent(compared.unusual.value)} where they do not"
    )


def _inside(compared: ByTraining) -> str:
    """Said where the gap inside classes is not the plain difference of the two rates."""
    plain = compared.usual.value - compared.unusual.value
    return "" if abs(compared.gap.value - plain) < 0.015 else "compared class by class, "


def _by_training(model: str, compared: ByTraining, what: str) -> list[str]:
    gap, level = compared.gap, compared.level
    rates, inside, interval = _rates(compared, what), _inside(compared), _interval(gap)
    if level is Level.FOUND:
        first = f"{model} leans on the {what}: it is {rates} ({inside}a gap of {points(gap.value)}; {interval})."
    elif level is Level.HINT:
        first = (
            f"{model} may lean on the {what}: it is {rates} ({inside}a gap of {points(gap.value)}; {interval}). "
            f"The gap is real but {'small' if gap.value < FOUND_GAP else 'uncertain'}."
        )
    elif level is Level.NONE:
        first = (
            f"No sign that {model} leans on the {what}: it is {rates} "
            f"({inside}a difference of {points(gap.value)}; {interval})."
        )
    else:
        first = (
            f"There are too few images to tell whether {model} leans on the {what}: it is {rates}, "
            f"and {inside}the difference may be anything from {round(100 * gap.low)} to {points(gap.high)}."
        )
    if compared.drawn is None or not level.accuses:
        return [first]
    share, chance = compared.drawn
    return [
        first,
        f"Of its {share.n} mistakes there, {share.correct} ({percent(share.value)}) name the class that the "
        f"{what} goes with in training; guessing among the other classes would give {percent(chance)}.",
    ]


def _pair(compared: BySpread) -> str:
    better, worse = compared.better, compared.worse
    return f"{percent(better.accuracy)} of {better.name} and {percent(worse.accuracy)} of {worse.name}"


def _spread_numbers(gap: Gap) -> str:
    return f"a gap of {points(gap.value)}; {_interval(gap)}, widened because it is the largest of many"


def _by_spread(model: str, compared: BySpread, what: str) -> list[str]:
    level, rates, numbers = compared.level, _pair(compared), _spread_numbers(compared.gap)
    if level.accuses:
        sure = "depends" if level is Level.FOUND else "may depend"
        first = f"How often {model} is right {sure} on the {what}: it is right on {rates} ({numbers})."
    elif level is Level.NONE:
        first = (
            f"No sign that {model} depends on the {what}: the widest difference within a class is {rates} ({numbers})."
        )
    else:
        first = (
            f"There are too few images to tell whether {model} depends on the {what}: it is right on {rates} "
            f"({numbers})."
        )
    why = (
        f"The training images show no minority groups, so no {what} counts as the usual one."
        if compared.counted
        else f"How often each {what} occurred in training is not known, so no group counts as the usual one."
    )
    return [first, why]


def _by_class(model: str, report: GroupReport, mistake: tuple[str, str, int, int] | None) -> list[str]:
    if report.groups:
        why = "no class occurs with two different attributes, so nothing can be compared within a class"
        todo = "Add images of one class with different attributes"
    else:
        why = "no attributes were given"
        todo = (
            "Add an 'attribute' column with what you suspect (the background, the camera, the hospital …), "
            "or attribute sub-folders"
        )
    overall = f"It is right on {percent(report.average)} of the images"
    if len(report.classes) > 1:
        (low_name, _, low), *_, (high_name, _, high) = sorted(report.classes, key=lambda entry: entry[2])
        overall += f", from {percent(low)} of {low_name} to {percent(high)} of {high_name}"
    said = [f"Whether {model} takes a shortcut was not tested: {why}. {todo}, and run the audit again.", f"{overall}."]
    if mistake is not None:
        name, taken_for, times, mistakes = mistake
        said.append(f"Its most frequent mistake: {name} taken for {taken_for} ({times} of {mistakes} mistakes).")
    return said
