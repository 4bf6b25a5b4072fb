"""In Python as on the command line: choosing without groups is said, and so is a fit that was not worth it."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest

import foveate as fv
from foveate.assemble.worth import measured_elsewhere, no_better
from foveate.assess import NoBetterWarning, misgivings
from foveate.data.benchmark import Benchmark
from foveate.engine import NoGroupsWarning
from foveate.errors import DataError

QUICK = {"epochs": 2, "progress": False}
BUILD: dict[str, Any] = {
    "DAR": lambda erm, **more: fv.DAR(erm, heads=4, **QUICK, **more),
    "DFR": lambda erm, **more: fv.DFR(erm, refits=2, progress=False, **more),
    "DFR by gradient": lambda erm, **more: fv.DFR(erm, variant="gradient", **QUICK, **more),
    "Restricted": lambda erm, **more: fv.Restricted(erm, "micro-vit", shares=(0.5,), **more),
    "a probe with DFR's head": lambda erm, **more: fv.FullImage("micro-vit", head="dfr", refits=2, **more),
}


@pytest.mark.parametrize("name", BUILD)
def test_without_groups_the_worst_class_chooses_and_that_is_said(name: str, data: Benchmark, erm: fv.ERM) -> None:
    bare = data.val.without_attributes()
    with measured_elsewhere():
        with pytest.warns(NoGroupsWarning, match=r"has no attributes, so it chooses by worst_class.*select") as said:
            system = BUILD[name](erm).fit(data.target, val=bare)
        assert said[0].filename == __file__  # it points at the line that called fit
        assert system.selection_["metric"] == "worst_class"
        assert not system.selection_["uses_groups"]
        with pytest.raises(DataError, match="'worst_group' needs groups"):  # what was asked for is not replaced
            BUILD[name](erm, select="worst_group").fit(data.target, val=bare)
        with warnings.catch_warnings():
            warnings.simplefilter("error", NoGroupsWarning)
            assert BUILD[name](erm, select="average").fit(data.target, val=bare).selection_["metric"] == "average"
            assert BUILD[name](erm).fit(data.target, val=data.val).selection_["metric"] == "worst_group"


def test_a_setting_that_was_not_made_stays_so(data: Benchmark, erm: fv.ERM, tmp_path: Path) -> None:
    """The choice belongs to one fit: settings, clones and saved models keep that nobody made it."""
    with pytest.warns(NoGroupsWarning), measured_elsewhere():
        dar = BUILD["DAR"](erm).fit(data.target, val=data.val.without_attributes())
    assert dar.select is None
    again = fv.load(dar.save(tmp_path / "dar"))
    assert again.select is None
    assert again.selection_ == dar.selection_


@pytest.mark.parametrize("how", [{}, {"variant": "gradient", **QUICK}, {"variant": "network", **QUICK}, None])
def test_what_the_base_reached_is_known(how: dict[str, Any] | None, data: Benchmark, erm: fv.ERM) -> None:
    """From the features that were read, or from images: the same as an evaluation of the base."""
    with measured_elsewhere():
        made: Any = BUILD["DAR"](erm) if how is None else fv.DFR(erm, **{"refits": 2, "progress": False, **how})
        made.fit(data.target, val=data.val)
    found, wanted = made._before(data.val), fv.evaluate(erm, data.val)
    assert {n: found[n] for n in ("average", "worst_class", "worst_group")} == pytest.approx(
        {n: wanted.value(n) for n in ("average", "worst_class", "worst_group")}
    )


def test_a_base_is_asked_from_the_store(data: Benchmark, erm: fv.ERM, monkeypatch: pytest.MonkeyPatch) -> None:
    with measured_elsewhere():
        dar = BUILD["DAR"](erm).fit(data.target, val=data.val)
    monkeypatch.setattr(type(erm), "predict_logits", None)  # no image is read again
    assert dar._before(data.val) is not None


def test_a_fit_that_was_not_worth_it_is_said_to_be_so(data: Benchmark, erm: fv.ERM) -> None:
    small = {"model_args": {"width": 8, "layers": [1, 1, 1], "stem_stride": 2}, "epochs": 1, "lr": 1e-9}
    with pytest.warns(NoBetterWarning, match="no better than naming the most frequent class") as said:
        nothing = fv.ERM("micro_resnet", progress=False, **small).fit(data.train, val=data.val)
    assert [str(one.message) for one in said] == misgivings(nothing, data.val)
    assert said[0].filename == __file__
    with pytest.warns(NoBetterWarning) as said:
        dar = fv.DAR(erm, heads=4, epochs=1, lr=1e-9, progress=False).fit(data.target, val=data.val)
    assert [str(one.message) for one in said] == misgivings(dar, data.val, erm)
    assert "no better than its base" in str(said[-1].message)


def test_a_fit_that_was_worth_it_says_nothing(data: Benchmark, erm: fv.ERM) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", NoBetterWarning)
        fv.DFR(erm, refits=2, progress=False).fit(data.target, val=data.val)
        fv.DAR(erm, heads=4, epochs=1, lr=1e-9, progress=False).fit(data.target)  # nothing to compare on
        attribute = fv.DAR(erm, heads=4, epochs=8, learn="attribute", progress=False)
        attribute.fit(data.target, val=data.val)  # the base never learned that


def test_who_measures_anyway_is_not_told(data: Benchmark, erm: fv.ERM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fv.DAR, "_before", lambda *_: pytest.fail("the base was asked"))
    with warnings.catch_warnings(), measured_elsewhere():
        warnings.simplefilter("error", NoBetterWarning)
        fv.DAR(erm, heads=4, epochs=1, lr=1e-9, progress=False).fit(data.target, val=data.val)


def test_sentences_from_figures(data: Benchmark) -> None:
    """By hand: half of ``val`` is of one class, so 50 % is guessing; without a worst group the worst class counts."""
    good = {"average": 0.9, "worst_class": 0.8, "worst_group": 0.7}
    assert no_better("x", data.val, good) == []
    assert no_better("x", data.val, good, {**good, "worst_group": 0.6}) == []
    (said,) = no_better("x", data.val, good, good)
    assert "worst group 70.0 % (base 70.0 %), average 90.0 % (base 90.0 %)" in said
    (said,) = no_better("x", data.val, {**good, "worst_group": None}, {"average": 0.9, "worst_class": 0.81})
    assert "worst class 80.0 % (base 81.0 %)" in said
    (said,) = no_better("x", data.val, {"average": 0.5, "worst_class": 0.0})
    assert "right on 50.0 %" in said
