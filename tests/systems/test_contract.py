"""Every named system keeps scikit-learn's habits: settings in, settings out, copies that have learned nothing."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import foveate as fv
from foveate.assemble.system import System
from foveate.engine import TrainSettings
from foveate.errors import FoveateError, ModelError
from foveate.registries import SYSTEMS

sys.path.insert(0, str(Path(__file__).parents[1] / "known_systems"))
from worlds import CASES, Case, data, store, vit

NAMES = SYSTEMS.names()
NEEDS_CLIP = ("ZeroShot", "A2ZeroShot", "TTR")
NONSENSE: dict[str, dict[str, Any]] = {
    "A2": {"crops": 0},
    "A2Adapter": {"weigh": "nothing"},
    "A2ZeroShot": {"crop": 0},
    "AIMProbe": {"select": "luck"},
    "CVaRDRO": {"alpha": 2.0},
    "CentreCrop": {"crops": 0},
    "CnC": {"contrast": 2.0},
    "DAR": {"learn": "nothing"},
    "DFR": {"variant": "magic"},
    "EPProbe": {"select": "luck"},
    "ERM": {"select": "luck"},
    "EarlyMask": {"masks": "magic"},
    "FullImage": {"head": "magic"},
    "Glimpse": {"keep": 2.0},
    "GroupDRO": {"adjustment": "magic"},
    "IFAM": {"mask": "magic"},
    "JTT": {"by": "magic"},
    "LateMask": {"masks": "magic"},
    "PDiscoFormer": {"start": "magic"},
    "Pipeline": {"on_bad": "pray"},
    "RandomCrops": {"crops": 0},
    "Reweight": {"by": "magic"},
    "S2": {"head": "magic"},
    "SpectralDecoupling": {"on_bad": "pray"},
    "Subsample": {"select": "luck"},
    "TTR": {"how": "magic"},
    "ZeroShot": {"batch_size": 0},
}
"""A value no system can work with, of each: stored without a word, refused by ``check``."""


def kind_of(name: str) -> type[System]:
    if name in NEEDS_CLIP:
        pytest.importorskip("open_clip")
    return SYSTEMS.get(name)


def pipeline() -> System:
    """A combination that has no name."""
    return fv.Pipeline(
        look=fv.look.ClsAttention(vit(0)), restrict=fv.restrict.TopTokens(keep=0.5), extract=fv.extract.Frozen(vit(1)),
        decide=fv.decide.Logistic(), store=store(), progress=False,
    )  # fmt: skip


def case_of(name: str) -> Case:
    """The first case of ``worlds`` with this system."""
    if name == "Pipeline":
        return Case(pipeline, ("train",), data)
    return next(case for label, case in CASES.items() if label == name or label.startswith(f"{name},"))


def built(name: str) -> System:
    kind_of(name)
    return case_of(name).build()


def same(one: Any, other: Any) -> bool:
    if hasattr(one, "get_params"):  # a system, or a part of a pipeline
        return type(one) is type(other) and same(one.get_params(deep=False), other.get_params(deep=False))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    return one is other or bool(one == other)


def test_every_system_has_a_nonsense() -> None:
    assert sorted(NONSENSE) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
class TestContract:
    def test_its_settings_are_explicit(self, name: str) -> None:
        kind = kind_of(name)
        kinds = {p.kind for p in inspect.signature(kind).parameters.values()}
        assert not kinds & {inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL}
        assert set(kind.setting_names()) == set(inspect.signature(kind).parameters)
        assert kind.trains() == ("training" in kind.setting_names())

    def test_every_setting_has_a_default(self, name: str) -> None:
        kind = kind_of(name)
        assert isinstance(kind(), kind)

    def test_the_constructor_stores_what_it_is_given(self, name: str) -> None:
        kind = kind_of(name)
        given = {setting: object() for setting in kind.setting_names() if setting != "training"}
        if kind.trains():
            given["training"] = TrainSettings(epochs=3)
        system = kind(**given)
        found = system.get_params(deep=False)
        assert list(found) == kind.setting_names()
        assert all(found[setting] is value for setting, value in given.items())
        assert not system.fitted

    def test_nonsense_is_refused_by_check_and_not_before(self, name: str) -> None:
        system = built(name)
        system.check()
        system.set_params(**NONSENSE[name])
        with pytest.raises(FoveateError):
            system.check()
        kind_of(name)(**NONSENSE[name])

    def test_fit_begins_with_the_check(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        system, seen = built(name), []

        class Asked(Exception): ...

        def asked() -> None:
            seen.append(True)
            raise Asked

        monkeypatch.setattr(system, "check", asked)
        case = case_of(name)
        given = {split: getattr(case.world(), split) for split in case.splits}
        first = given.pop("train", None)
        with pytest.raises(Asked):
            system.fit(given.pop("target") if first is None else first, **given)
        assert seen
        assert not system.fitted

    def test_deep_and_shallow_parameters(self, name: str) -> None:
        system = built(name)
        shallow, deep = system.get_params(deep=False), system.get_params()
        assert list(shallow) == type(system).setting_names()
        assert shallow.items() <= deep.items() or all(deep[k] is v for k, v in shallow.items())
        if system.trains():
            assert deep["training__epochs"] == system.training.epochs
            assert deep["training__lr"] == system.training.lr

    def test_parameters_are_set_by_every_name(self, name: str) -> None:
        system = built(name)
        setting = next(iter(NONSENSE[name]))
        mark = object()
        assert system.set_params(**{setting: mark}) is system
        assert getattr(system, setting) is mark
        with pytest.raises(FoveateError, match=r"has no setting|unknown training setting"):
            system.set_params(no_such_thing=1)
        if system.trains():
            others = system.training.changed(epochs=0)
            system.set_params(training__epochs=7)
            assert system.training.epochs == 7
            system.set_params(epochs=9)
            assert system.training.epochs == 9
            assert system.training.changed(epochs=0) == others  # nothing else moved
            assert type(system)(epochs=5).training == type(system)().training.changed(epochs=5)
            whole = TrainSettings(epochs=2, lr=0.5)
            assert type(system)(training=whole).training is whole

    def test_a_clone_has_the_settings_and_nothing_learned(self, name: str) -> None:
        system = built(name)
        system.class_names_ = ["as if", "it were fitted"]
        copy = clone(system)
        assert copy is not system
        assert type(copy) is type(system)
        assert not copy.fitted
        assert same(system.get_params(deep=False), copy.get_params(deep=False))
        if system.trains():
            copy.set_params(epochs=123)
            assert system.training.epochs != 123

    def test_its_repr_says_what_is_unusual(self, name: str) -> None:
        kind = kind_of(name)
        assert repr(kind()) == f"{name}()"
        setting, value = next(iter(NONSENSE[name].items()))
        assert repr(kind(**{setting: value})) == f"{name}({setting}={value!r})"
        if kind.trains():
            assert repr(kind(epochs=123)) == f"{name}(epochs=123)"

    def test_fitted_it_scores_knows_its_classes_and_comes_back_from_a_folder(self, name: str, tmp_path: Path) -> None:
        case = case_of(name)
        kind_of(name)
        system = case.fitted()
        test = case.world().test
        assert system.classes_.tolist() == list(range(len(system.class_names_)))
        predicted = system.predict(test)
        assert set(predicted) <= set(system.classes_)
        assert system.score(test) == pytest.approx(float(np.mean(predicted == test.labels)))
        settings = system.settings()
        assert "training" not in settings
        assert not any(isinstance(v, System) for v in settings.values())
        again = fv.load(system.save(tmp_path / "saved"))
        if "store" in settings:
            again.set_params(store=store())
        assert type(again) is type(system)
        assert again.supervision() == system.supervision()
        np.testing.assert_allclose(again.predict_logits(test), system.predict_logits(test), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_an_unfitted_one_says_so(name: str) -> None:
    system = built(name)
    for ask in (lambda: system.classes_, lambda: system.predict([]), lambda: system.save("nowhere")):
        with pytest.raises(ModelError, match="has not been fitted"):
            ask()


@pytest.mark.parametrize("name", ["DFR", "DAR"])
def test_a_fitted_base_stays_fitted_and_the_same_in_a_clone(name: str) -> None:
    system = built(name)
    assert system.get_params()["base"].fitted
    copy = clone(system)
    assert copy.base is system.base
    assert copy.base.fitted
    again = clone(clone(copy))
    assert again.base is system.base


def depth(kind: type) -> int:
    """The longest way up, this project's classes counted."""
    return kind.__module__.startswith("foveate.") + max((depth(base) for base in kind.__bases__), default=0)


@pytest.mark.parametrize("name", NAMES)
def test_no_system_is_deeper_than_four(name: str) -> None:
    assert depth(kind_of(name)) <= 4


def test_a_repr_tells_what_is_switched_off() -> None:
    assert repr(fv.IFAM(clip=None)) == "IFAM(clip=None)"  # 2.0 is usual there


def test_systems_shows_the_named_systems() -> None:
    assert set(NAMES) <= set(dir(fv.systems))
    assert all(getattr(fv.systems, name) is getattr(fv, name) is kind_of(name) for name in NAMES)
    for beside in ("System", "Needs", "Network", "load", "wrap", "Wrapped", "evaluate", "entanglement", "part_quality"):
        assert getattr(fv.systems, beside) is not None
    assert fv.systems.part_quality is fv.assess.part_quality
    assert fv.systems.evaluate is fv.evaluate
    with pytest.raises(AttributeError):
        _ = fv.systems.Nothing
    with pytest.raises(FoveateError, match="Did you mean 'ERM'"):
        fv.systems.get_system("ERMM")
