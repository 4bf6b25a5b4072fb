"""What opens the page: a sentence one can say, two numbers, what could not be seen, advice that fits the verdict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.report.test_findings import images, model, reads_object, reads_scene
from tests.report.test_verdict import experiments, groups, pull, tells

import foveate as fv
from foveate.report.advice import Step, next_steps
from foveate.report.discovery.before_after import BeforeAfter
from foveate.report.discovery.cues import BY_KEY, EXCHANGED
from foveate.report.discovery.experiments import Pull
from foveate.report.discovery.judgement import judge, level_of, smallest_found
from foveate.report.discovery.leaks import Leak, leaks
from foveate.report.discovery.probes import PropertyProbe
from foveate.report.gaps import Share, difference
from foveate.report.levels import Level
from foveate.report.sentences import example_of, overall, plain, two_numbers
from foveate.report.sentences.limits import could_have_found, leak, not_covered, reach
from foveate.report.sentences.plain import LEVEL_MEANINGS, LEVEL_NAMES
from foveate.report.verdict import Verdict, join

PIXELS = torch.zeros(3, 8, 8, dtype=torch.uint8)


def shown(
    cue: str = "background", answer: str = "cat", donor: str = "cat", place: str | None = "meadow"
) -> BeforeAfter:
    return BeforeAfter(BY_KEY[cue], PIXELS, PIXELS, PIXELS, 3, 4, "duck", donor, place, "duck", answer)


def verdict(level: str, found: Any, *keys: str) -> Verdict:
    return join("ERM", groups(level), found, attribute="habitat", tells=tells(*keys))


def said(v: Verdict, *turned: BeforeAfter, held: list[BeforeAfter] | None = None) -> str:
    return plain(v, example_of(v, turned, held or []))


def test_the_sentence_of_an_exchange() -> None:
    v = verdict("found", experiments(background=0.4), "background")
    assert said(v, shown()) == "Put a duck on a meadow background and ERM says cat."
    assert said(v, shown(place=None)) == "Put a duck on the background of a cat picture and ERM says cat."
    taken = said(v, shown(place=None, donor="duck"))
    assert taken == "Put a duck on the background of a picture it takes for a cat and ERM says cat."
    hint = verdict("hint", experiments(background=0.05), "background")
    assert said(hint, shown()) == "Put a duck on a meadow background and ERM may say cat."
    mark = verdict("none", experiments(corner_tr=0.4))
    assert (
        said(mark, shown("corner-tr")) == "Give a duck picture the top right corner of a cat picture and ERM says cat."
    )
    site = verdict("found", experiments(corner_tr=0.4), "corner-tr")
    assert said(site, shown("corner-tr", place="hospital A")) == (
        "Give a duck picture the top right corner of a hospital A picture and ERM says cat."
    )


def test_the_sentence_speaks_of_what_the_verdict_names() -> None:
    """The groups accuse the habitat, the experiments a corner: a picture of the corner would prove something else."""
    v = verdict("found", experiments(corner_tr=0.4), "background")
    assert example_of(v, [shown("corner-tr")], []) is None
    assert said(v, shown("corner-tr")) == (
        "ERM is right on 98 % of the images where the habitat is the usual one, and on 40 % where it is not."
    )


def test_the_sentence_where_nothing_was_found() -> None:
    v = verdict("none", experiments(), "background")
    held = [shown(answer="duck")]
    assert said(v, held=held) == (
        "No shortcut was found: put a duck on a meadow background, and ERM still says duck."
    )  # fmt: skip
    assert said(v) == "No shortcut was found in ERM."
    few = verdict("unclear", experiments())
    assert said(few, held=held) == "There are too few images to tell whether ERM takes a shortcut."


def test_two_numbers_come_from_whoever_decided() -> None:
    by_groups = two_numbers(verdict("found", experiments(background=0.4), "background"))
    assert [share.value for _, share in by_groups] == [0.98, 0.4]
    assert [name for name, _ in by_groups] == ["right where the habitat is the usual one", "right where it is not"]
    by_experiment = two_numbers(verdict("unclear", experiments(background=0.4), "background"))
    assert [share.value for _, share in by_experiment] == [0.9, 0.5]
    assert by_experiment[0][0] == "right with the background of a picture of its own class"


def test_several_models_in_one_sentence() -> None:
    found, none = dict.fromkeys("abcdef", Level.FOUND), {"x": Level.NONE, "y": Level.NONE}
    assert overall({**found, **none}) == "6 models take a shortcut, and none was found in x and y."
    assert overall(dict.fromkeys("abcd", Level.NONE)) == "No shortcut was found in any of the 4 models."
    assert overall({"a": Level.HINT, "b": Level.UNCLEAR}) == (
        "a may take a shortcut, and b cannot be judged for want of images."
    )


def test_every_level_is_explained() -> None:
    assert set(LEVEL_NAMES) == set(LEVEL_MEANINGS) == set(Level)


# -- what could not be seen -----------------------------------------------------------------------


@given(n=st.integers(30, 600), tests=st.integers(1, 20))
@settings(max_examples=40, deadline=None)
def test_the_smallest_pull_would_be_found_and_shrinks_with_images(n: int, tests: int) -> None:
    def at(value: float, n: int) -> Pull:
        half = 1.96 * np.sqrt(value * (1 - value) / n + 1 / n**2)
        return Pull(BY_KEY["background"], n, value, value - half, value + half, 1e-9, 0.9, 0.9)

    least = smallest_found(at(0.0, n), tests)
    assert 0.1 <= least <= 1
    assert smallest_found(at(0.0, 2 * n), tests) <= least
    if least < 1:
        assert level_of(at(least, n), 0.001) is Level.FOUND


def test_the_smallest_pull_is_found_four_times_in_five() -> None:
    """Draw pulls of that size again and again and ask the thresholds."""
    n = 200
    least = smallest_found(Pull(BY_KEY["background"], n, 0.0, 0.0, 0.0, 0.5, 1.0, 1.0), tests=1)
    turned = np.random.default_rng(0).random((2000, n)) < least
    mean = turned.mean(1)
    low = mean - 1.96 * np.sqrt((turned.var(1) * n + 1) / n / n)
    assert 0.75 < ((mean >= 0.10) & (low >= 0.05)).mean() < 0.9


def test_the_smallest_gap_is_found_four_times_in_five() -> None:
    rng = np.random.default_rng(1)
    n, base = 300, 0.8
    least = difference(Share(int(base * n), n), Share(int(base * n), n)).smallest_found
    found = [
        difference(Share(int(a), n), Share(int(b), n)).level is Level.FOUND
        for a, b in zip(rng.binomial(n, base, 2000), rng.binomial(n, base - least, 2000), strict=True)
    ]
    assert 0.7 < np.mean(found) < 0.9


def test_none_says_what_was_tested_and_what_was_not() -> None:
    found = experiments()
    assert could_have_found(found).startswith("Each test would have found, four times in five, a pull of 1")
    (gap, tried, rest) = reach(found, 0.12, "habitat")
    assert gap == "The habitat: a gap of 12 points or more would have been found four times in five."
    for cue in EXCHANGED:
        assert (cue.family or cue.name) in tried
    assert rest == not_covered()
    assert "the file size are only read" in rest
    assert reach(None, None, "habitat") == ["Nothing else was tested."]
    told = verdict("none", found, "background")
    assert not_covered() in fv.report.findings.VerdictRecord.of(told).sentences


def test_what_gives_the_class_away_is_a_warning() -> None:
    def told(key: str, score: float) -> PropertyProbe:
        return PropertyProbe(key, "label", score, 0.5, 0.001, 0.01, 200)

    size = Leak(BY_KEY["compression"], told("compression", 0.94), {"ERM": Level.UNTESTED})
    assert leak(size) == (
        "The file size alone tells the class of 94 % of these images (guessing: 50 %). No experiment can exchange it, "
        "so whether a model reads it stays open."
    )
    scene = Leak(BY_KEY["background"], told("background", 0.96), {"ERM": Level.FOUND, "DAR": Level.NONE})
    assert leak(scene).endswith("ERM follows it, and accuracy on such images hides that.")
    free = Leak(BY_KEY["background"], told("background", 0.96), {"DAR": Level.NONE})
    assert leak(free).endswith("but the next model trained on such images may read it.")


@pytest.fixture(scope="module")
def biased() -> fv.report.Audit:
    data = images(attributes=False, strength=0.98)
    return fv.audit({"scene": model(reads_scene), "object": model(reads_object)}, data, examples=0)


def test_a_strong_probe_reaches_the_first_screen(biased: fv.report.Audit) -> None:
    warnings = biased.findings.warnings
    assert [w.cue for w in warnings][:1] == ["background"]
    assert not {w.cue for w in warnings} & {"colour", "border", "corner-tl"}, "parts of it are not said again"
    assert warnings[0].levels == {"scene": Level.FOUND, "object": Level.NONE}
    html = biased.html()
    assert html.index("A warning about the data") < html.index("<h2>")
    assert leaks({}) == []


def test_turned_and_held_examples_are_what_they_say(biased: fv.report.Audit) -> None:
    scene, objects = (biased.discoveries[name] for name in ("scene", "object"))
    assert len(scene.turned) == 4
    assert scene.held == []
    for example in scene.turned:
        assert example.answer != example.label
        assert model(reads_scene).predict([example.edited])[0] == ["blue", "red"].index(example.answer)
    (held,) = objects.held
    assert held.answer == held.label != held.donor_label
    assert model(reads_object).predict([held.edited])[0] == ["blue", "red"].index(held.label)
    assert biased.findings.models[1].verdict.plain.endswith(f"and object still says {held.label}.")


# -- advice ---------------------------------------------------------------------------------------


@given(level=st.sampled_from(["found", "hint", "none", "unclear"]), pulls=st.sampled_from([0.01, 0.05, 0.4]))
@settings(max_examples=20, deadline=None)
def test_keep_it_is_said_only_where_nothing_is_open(level: str, pulls: float) -> None:
    v = verdict(level, experiments(background=pulls), "background")
    steps = next_steps([v], attributes=True)
    assert (Step.KEEP in steps) == (v.level is Level.NONE)
    assert (Step.MORE_IMAGES in steps) == (v.level is Level.UNCLEAR)
    beside = next_steps([v, verdict("none", experiments())], attributes=True)
    assert (Step.KEEP in beside) == (v.level is Level.NONE)


def test_what_was_not_tested_is_not_kept_either() -> None:
    untested = fv.audit(model(reads_object), images(attributes=False, strength=0.5), discover=False, examples=0)
    assert [advice.step for advice in untested.findings.advice] == [Step.MAKE_TESTABLE]
    few = judge([pull(cue.key, 0.02, half=0.2) for cue in EXCHANGED], [], [], BY_KEY, objects="x")
    assert Step.KEEP not in next_steps([verdict("unclear", few)], attributes=True)
