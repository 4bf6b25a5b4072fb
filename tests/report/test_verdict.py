"""One verdict from groups and experiments: whoever accuses, no two headlines contradict each other."""

from __future__ import annotations

import functools
import json
import re
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import foveate as fv
from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages
from foveate.data.preprocess import Preprocess
from foveate.measure import group_report
from foveate.measure.groups import SmallGroupWarning
from foveate.report import Audit
from foveate.report.discovery.cues import BY_KEY, EXCHANGED, column, given_attribute
from foveate.report.discovery.experiments import Pull
from foveate.report.discovery.judgement import Judgement, judge
from foveate.report.discovery.probes import PropertyProbe
from foveate.report.findings import VerdictRecord
from foveate.report.groups import GroupVerdict, judge_groups
from foveate.report.verdict import join

GIVEN, CAMERA = given_attribute("habitat"), column("camera")
CUES = {**BY_KEY, CAMERA.key: CAMERA, GIVEN.key: GIVEN}
BIASED = np.array([[950, 50], [50, 950]])
RIGHT = {"found": (980, 400), "hint": (950, 900), "none": (950, 948)}
"""Right of 1,000 usual and of 1,000 unusual images, by what the groups should say."""


@functools.cache
def groups(level: str) -> GroupVerdict:
    usual, unusual = RIGHT.get(level, (0, 0))
    n = 1000
    if level == "unclear":
        usual, unusual, n = 14, 12, 15
    p, y, a = [], [], []
    for label in (0, 1):
        for attribute in (0, 1):
            right = usual if label == attribute else unusual
            p += [label] * right + [1 - label] * (n - right)
            y += [label] * n
            a += [attribute] * n
    confusion = np.zeros((2, 2, 2), dtype=np.int64)
    np.add.at(confusion, (y, a, p), 1)
    names = ["cat", "duck"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallGroupWarning)
        report = group_report(p, y, a, BIASED, class_names=names, attribute_names=["forest", "sea"])
    judged = judge_groups(report, confusion, train_counts=BIASED, class_names=names)
    assert judged.level == level
    return judged


def pull(cue: str, value: float, half: float = 0.03) -> Pull:
    return Pull(BY_KEY[cue], 200, value, value - half, value + half, 1e-9 if value > half else 0.4, 0.9, 0.9 - value)


def experiments(**values: float) -> Judgement:
    """Pulls by property; every other property stays at 1 of 100."""
    named = {key.replace("_", "-"): value for key, value in values.items()}
    return judge([pull(cue.key, named.get(cue.key, 0.01)) for cue in EXCHANGED], [], [], CUES, objects="the masks")


def tells(*keys: str) -> list[PropertyProbe]:
    return [
        PropertyProbe(cue.key, "attribute", 0.97 if cue.key in keys else 0.55, 0.5, 0.005, 0.01, 400)
        for cue in EXCHANGED
    ]


def joined(level: str, found: Judgement, *keys: str, estimated: str | None = None) -> VerdictRecord:
    return VerdictRecord.of(
        join("M", groups(level), found, attribute="habitat", tells=tells(*keys), estimated=estimated)
    )


def test_groups_accuse_and_experiments_do_not() -> None:
    told = joined("found", experiments(), "background")
    assert (told.level, told.headline, told.agreement) == ("found", "Leans on the habitat", "differ")
    assert told.sentences[0].startswith("M leans on the habitat: it is right on 98")
    assert "No shortcut" not in " ".join(told.sentences)
    (why,) = [s for s in told.sentences if "can differ" in s]
    assert "the background, which tells the habitat: 1 of 100" in why
    assert "margin around the object" in why
    assert told.levels == {"groups": "found", "experiments": "none"}


def test_the_reasons_follow_the_case() -> None:
    small = " ".join(joined("hint", experiments(), "background", estimated="a ViT").sentences)
    assert "an effect this small need not turn whole answers" in small
    assert "only estimated (from a ViT)" in small
    large = " ".join(joined("found", experiments(), "background").sentences)
    assert "this small" not in large
    assert "estimated" not in large
    elsewhere = " ".join(joined("found", experiments()).sentences)
    assert "none of the exchanged properties tells the habitat" in elsewhere


def test_experiments_accuse_what_the_groups_acquit() -> None:
    told = joined("none", experiments(background=0.4), "background")
    assert (told.level, told.headline, told.agreement) == ("found", "Leans on the background", "differ")
    assert told.sentences[0].startswith("M leans on the background, which tells the habitat (97 % right), but the")
    assert "the groups show no cost: it is right on 95 %" in told.sentences[0]
    assert "when it is exchanged, 40 of 100 answers follow it to another class" in told.sentences[0]
    assert "something else about the background than the habitat may decide" in told.sentences[1]
    assert not any(s.startswith("No sign") for s in told.sentences)
    doubtful = joined("none", experiments(background=0.4), "background", estimated="a ViT")
    assert (doubtful.level, doubtful.headline) == ("hint", "May lean on the background")
    assert "only estimated (from a ViT)" in doubtful.sentences[1]


def test_another_shortcut_than_the_attribute_is_no_contradiction() -> None:
    told = joined("none", experiments(corner_tr=0.4), "background")
    assert (told.level, told.agreement) == ("found", "apart")
    assert told.sentences[0].startswith("M leans on something in the top right corner, not on the habitat: ")
    assert told.sentences[1].startswith("As to the habitat, it is right on 95 %")
    both = joined("found", experiments(corner_tr=0.4), "background")
    assert (both.headline, both.agreement) == ("Leans on the habitat", "apart")
    assert any(s.startswith("By experiment it also leans on something in the top right corner") for s in both.sentences)


def test_both_accuse_and_both_acquit() -> None:
    told = joined("found", experiments(background=0.4), "background")
    assert (told.headline, told.agreement) == ("Leans on the habitat", "agree")
    assert any(
        s.startswith("The experiments agree, on the background, which tells the habitat") for s in told.sentences
    )
    sure = joined("hint", experiments(background=0.4), "background")
    assert (sure.level, sure.headline, sure.agreement) == ("found", "Leans on the background", "agree")
    assert sure.sentences[1].startswith("The groups point the same way")
    free = joined("none", experiments(), "background")
    assert (free.level, free.agreement) == ("none", "agree")
    assert free.sentences[1].startswith("The experiments agree: ")


def test_who_cannot_tell_leaves_the_verdict_to_the_other() -> None:
    few = [pull(cue.key, 0.02, half=0.2) for cue in EXCHANGED]
    unclear = judge(few, [], [], CUES, objects="the masks")
    assert unclear.level == "unclear"
    told = joined("found", unclear)
    assert (told.headline, told.agreement) == ("Leans on the habitat", "open")
    assert told.sentences[-1].startswith("The experiments cannot settle it")
    led = joined("unclear", experiments(background=0.4), "background")
    assert (led.level, led.headline) == ("found", "Leans on the background")
    assert any(s.startswith("The groups cannot tell") for s in led.sentences)
    nothing = judge([], [], [], CUES, objects="the masks")
    assert (
        joined("found", nothing).sentences
        == VerdictRecord.of(join("M", groups("found"), attribute="habitat")).sentences
    )


def test_the_given_attribute_is_left_to_the_groups() -> None:
    follows = [PropertyProbe(key, "answers", 0.9, 0.5, 0.005, 0.01, 400) for key in (GIVEN.key, CAMERA.key)]
    pulls = [pull(cue.key, 0.01) for cue in EXCHANGED]
    told = judge(pulls, [], follows, CUES, objects="the masks")
    assert {s.key: s.level for s in told.suspects if s.pull is None} == {GIVEN.key: "untested", CAMERA.key: "hint"}
    assert judge(pulls, [], follows[:1], CUES, objects="the masks").level == "none"


ACCUSES, ACQUITS = re.compile(r"^M (may lean|leans) on"), re.compile(r"^(No sign|No shortcut|There are too few)")


@given(
    level=st.sampled_from(["found", "hint", "none", "unclear"]),
    values=st.lists(st.sampled_from([0.0, 0.05, 0.3]), min_size=len(EXCHANGED), max_size=len(EXCHANGED)),
    keys=st.sets(st.sampled_from([cue.key for cue in EXCHANGED])),
    estimated=st.sampled_from([None, "a ViT"]),
)
@settings(max_examples=80, deadline=None)
def test_no_two_headlines_ever_contradict(level: str, values: list[float], keys: set[str], estimated: Any) -> None:
    found = judge([pull(cue.key, v) for cue, v in zip(EXCHANGED, values, strict=True)], [], [], CUES, objects="x")
    told = joined(level, found, *keys, estimated=estimated)
    accusing = sum(bool(ACCUSES.match(s)) for s in told.sentences)
    acquitting = sum(bool(ACQUITS.match(s)) for s in told.sentences)
    assert accusing + acquitting == 1
    assert bool(ACCUSES.match(told.sentences[0])) == (told.level in ("found", "hint"))
    assert ("ay lean on" in told.headline) == (told.level == "hint")
    assert told.headline.startswith("Leans on") == (told.level == "found")
    if "found" in (level, found.level) and level != "none":
        assert told.level == "found"
    assert sum("can differ" in s for s in told.sentences) == (told.agreement == "differ")


# -- the whole audit ------------------------------------------------------------------------------

SIDE = 32


def pictures(n: int, scene: np.ndarray, labels: np.ndarray, pale: np.ndarray, code: np.ndarray) -> GroupedDataset:
    """A red or blue square (the class) on a green or purple scene (the attribute), some pale; ``code`` is a faint
    stripe in the scene, away from border and corners."""
    rng = np.random.default_rng(0)
    pixels = np.zeros((n, SIDE, SIDE, 3), np.float64)
    pixels[:] = np.where(scene[:, None, None, None], [60, 150, 60], [140, 60, 140])
    pixels[:, 4:7, 9:23] += np.where(code, 30, -30)[:, None, None, None]
    masks = np.zeros((n, SIDE, SIDE), np.uint8)
    for i in range(n):
        y, x = rng.integers(11, 16, 2)
        strong = np.array([230, 40, 40] if labels[i] else [40, 40, 230])
        pixels[i, y : y + 9, x : x + 9] = 0.25 * strong + 75 if pale[i] else strong
        masks[i, y : y + 9, x : x + 9] = 255
    pixels = np.clip(pixels + rng.normal(0, 8, pixels.shape), 0, 255).astype(np.uint8)
    return GroupedDataset(
        ArrayImages(pixels, "toy"), labels, ["blue", "red"], attributes=scene, attribute_names=["purple", "green"],
        masks=ArrayImages(masks), name="toy",
    )  # fmt: skip


def wrapped(score: Any) -> fv.Wrapped:
    view = Preprocess((SIDE, SIDE), mean=(0.0,) * 3, std=(1.0,) * 3)
    return fv.wrap(lambda x: torch.stack([-score(x), score(x)], 1), ["blue", "red"], preprocess=view, name="M")


def reads_object(x: Tensor) -> Tensor:
    return 60 * ((x[:, 0] - x[:, 2]).clamp(min=0.35) - 0.35).mean((1, 2)) - 0.5


def reads_stripe(x: Tensor) -> Tensor:
    around = x[:, :, 8:10, 9:23].mean((1, 2, 3))
    return 40 * (x[:, :, 4:7, 9:23].mean((1, 2, 3)) - around)


@pytest.fixture(scope="module")
def audits() -> dict[str, Audit]:
    """``pale``: in one habitat objects are pale, which the model misreads. ``stripe``: the model reads a stripe in
    the background that has nothing to do with the habitat."""
    rng = np.random.default_rng(3)
    n = 240
    labels, scene = rng.integers(0, 2, n), rng.integers(0, 2, n)
    pale = (scene == 1) & (labels == 1) & (rng.random(n) < 0.7)
    coin = rng.integers(0, 2, n).astype(bool)
    code = np.where(rng.random(n) < 0.95, labels, 1 - labels).astype(bool)
    pales, stripes = pictures(n, scene, labels, pale, coin), pictures(n, scene, labels, np.zeros(n, bool), code)
    options: dict[str, Any] = {"attribute": "scene", "examples": 0}
    return {
        "pale": fv.audit({"M": wrapped(reads_object)}, pales, **options),
        "stripe": fv.audit({"M": wrapped(reads_stripe)}, stripes, train_counts=BIASED, **options),
    }


def test_audit_where_only_the_groups_accuse(audits: dict[str, Audit]) -> None:
    entry = json.loads(json.dumps(audits["pale"].to_dict()))["models"][0]
    told = entry["verdict"]
    assert told["levels"] == {"groups": "found", "experiments": "none"}
    assert (told["level"], told["agreement"], told["evidence"]) == ("found", "differ", "spread")
    assert "depends on the scene" in told["sentences"][0]
    assert any("harder images" in s for s in told["sentences"])
    assert "headline" not in entry["discovery"]
    assert audits["pale"].failures({"shortcut": 1.0})
    assert "No shortcut" not in audits["pale"].html()


def test_audit_where_only_the_experiments_accuse(audits: dict[str, Audit]) -> None:
    told = audits["stripe"].to_dict()["models"][0]["verdict"]
    assert told["levels"] == {"groups": "none", "experiments": "found"}
    assert (told["level"], told["agreement"], told["evidence"]) == ("found", "differ", "experiment")
    assert audits["stripe"].verdict.startswith("M leans on the background, which tells the scene")
    html = audits["stripe"].html()
    assert "No sign" not in html
    assert "Leans on the background" in html
