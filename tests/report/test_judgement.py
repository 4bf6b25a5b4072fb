"""What pulls allow to say when the objects' places were estimated."""

from __future__ import annotations

from dataclasses import replace

from foveate.report.discovery.cues import BY_KEY
from foveate.report.discovery.experiments import Pull
from foveate.report.discovery.judgement import judge, smallest_found
from foveate.report.discovery.marks import MARK
from foveate.report.discovery.nested import Nesting
from foveate.report.discovery.probes import PropertyProbe
from foveate.report.levels import Level

SEARCHED = replace(MARK, searched=True)


def pull(key: str, value: float, p: float = 1e-9) -> Pull:
    return Pull(BY_KEY[key], 200, value, value - 0.05, value + 0.05, p, 0.9, 0.9)


def test_a_tight_cut_must_be_borne_out_by_a_generous_one() -> None:
    def level(tight: float, wide: float, p: float = 1e-6) -> Level:
        both = replace(pull("background", tight), generous=pull("background", wide, p))
        return judge([both], [], [], BY_KEY, objects="a ViT", estimated=True).suspects[0].level

    assert level(0.36, 0.25) is Level.FOUND
    assert level(0.25, 0.09) is Level.HINT, "two thirds of it were the cut's"
    assert level(0.13, 0.04) is Level.HINT
    assert level(0.36, 0.25, p=0.2) is Level.HINT, "the generous one may be chance"


def test_what_may_make_a_class_is_no_lead_without_an_experiment() -> None:
    def level(key: str) -> Level:
        follows = PropertyProbe(key, "answers", 0.9, 0.6, 0.005, 0.01, 200)
        return judge([], [], [follows], BY_KEY, objects="masks").suspects[0].level

    assert level("tilt") is Level.HINT
    assert level("object-colour") is Level.UNTESTED


def test_a_faint_size_is_found_only_where_it_explains_something() -> None:
    def found(size: float, nesting: Nesting, estimated: bool = True) -> list[str]:
        pulls = [pull("size", size), pull("background", 0.3)]
        return [
            s.key for s in judge(pulls, [], [], BY_KEY, objects="a ViT", estimated=estimated, nesting=nesting).shortcuts
        ]

    explains = Nesting({"background": BY_KEY["size"]})
    assert found(0.13, explains) == ["size"]
    assert found(0.13, Nesting()) == ["background"]
    assert found(0.2, Nesting()) == ["background", "size"], "surely above 10 of 100"
    assert found(0.13, Nesting(), estimated=False) == ["background", "size"], "true masks need no such care"


def test_what_was_searched_for_has_to_be_surer() -> None:
    def level(value: float) -> Level:
        return (
            judge([replace(pull("background", value), cue=SEARCHED)], [], [], BY_KEY, objects="a ViT").suspects[0].level
        )

    assert judge([pull("background", 0.13)], [], [], BY_KEY, objects="a ViT").level is Level.FOUND
    assert level(0.13) is Level.HINT, "its low end is 8 of 100, and many looks were tried"
    assert level(0.2) is Level.FOUND
    same = replace(pull("background", 0.0), cue=SEARCHED)
    assert smallest_found(same, 9) > smallest_found(pull("background", 0.0), 9)
