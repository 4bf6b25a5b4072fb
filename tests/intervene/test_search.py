"""Choosing parts to remove, on a made-up model whose answer is known, and on a fitted one."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import foveate as fv
from foveate.data.benchmark import Benchmark
from foveate.data.dataset import GroupedDataset
from foveate.errors import ModelError
from foveate.intervene import effect, foreground_overlap, greedy_removal, search_parts

VIT = {"model_args": {"depth": 1, "embed_dim": 24, "num_heads": 2, "patch_size": 4}, "epochs": 1, "progress": False}


class Voting:
    """Predicts right for the share of images that ``worth`` of the parts still there adds up to."""

    class_names_ = ("cat", "duck")
    attribute_names_ = None
    train_counts_ = None
    selection_: dict[str, Any] | None = None
    dropped_parts_: tuple[int, ...] | None = None

    def __init__(self, worth: list[float]):
        self.worth, self.parts = worth, len(worth)

    def _require_fit(self) -> None: ...

    def with_parts_removed(self, parts: Iterable[int]) -> Voting:
        changed = copy.copy(self)
        changed.dropped_parts_ = tuple(sorted(parts)) or None
        return changed

    def part_maps(self, images: Any) -> torch.Tensor:
        raise NotImplementedError

    def predict(self, data: GroupedDataset, **_: Any) -> np.ndarray[Any, Any]:
        kept = [w for k, w in enumerate(self.worth) if k not in (self.dropped_parts_ or ())]
        right = np.arange(len(data)) < round(sum(kept) * len(data))
        return np.where(right, data.labels, 1 - data.labels)


@pytest.fixture(scope="module")
def data() -> Benchmark:
    return fv.data.critters(size=32, train=40, target=16, val=40, test=20)


def test_the_part_that_harms_is_found_and_the_labels_it_took_are_told(data: Benchmark) -> None:
    voting: Any = Voting([0.5, -0.3, 0.4])
    voting.class_names_ = data.val.class_names
    changed, found = search_parts(voting, data.val, metric="average")
    assert found.removed == changed.dropped_parts_ == (1,)  # type: ignore[attr-defined]
    assert found.baseline == pytest.approx(0.6)
    assert found.after == pytest.approx(0.9)
    assert changed.selection_ == {"metric": "parts removed by average", "on": data.val.name, "uses_groups": False}
    assert voting.dropped_parts_ is None
    assert voting.selection_ is None
    changed, _ = search_parts(voting, data.val, metric="worst_group", how="greedy")
    assert changed.selection_ is not None
    assert changed.selection_["uses_groups"] is True


def test_what_was_removed_before_stays_removed(data: Benchmark) -> None:
    voting: Any = Voting([0.5, -0.3, 0.4, -0.1]).with_parts_removed([3])
    voting.class_names_ = data.val.class_names
    changed, found = search_parts(voting, data.val, metric="average")
    assert found.removed == (1,)
    assert 3 not in found.scores
    assert changed.dropped_parts_ == (1, 3)  # type: ignore[attr-defined]


def test_sentences(data: Benchmark) -> None:
    worst: Any = Voting([-0.1, -0.2])
    worst.class_names_ = data.val.class_names
    with pytest.raises(ModelError, match=r"without each of its 2 parts.*how='greedy'"):
        # 0.4 of the images are right with nothing left
        search_parts(_lifted(worst), data.val, metric="average")
    with pytest.raises(ModelError, match=r"use 'leave-one-out' or 'greedy'"):
        search_parts(worst, data.val, how="magic")  # type: ignore[arg-type]
    plain = fv.ERM("micro_vit", **{**VIT, "epochs": 0}).fit(data.train)
    with pytest.raises(ModelError, match=r"ERM has no parts to remove"):
        search_parts(plain, data.val)


def _lifted(voting: Any) -> Any:
    class Lifted(Voting):
        def predict(self, data: GroupedDataset, **_: Any) -> np.ndarray[Any, Any]:
            kept = [w for k, w in enumerate(self.worth) if k not in (self.dropped_parts_ or ())]
            return np.where(np.arange(len(data)) < round((0.8 + sum(kept)) * len(data)), data.labels, 1 - data.labels)

    lifted = Lifted(voting.worth)
    lifted.class_names_ = voting.class_names_
    return lifted


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=5))
@settings(max_examples=40, deadline=None)
def test_greedy_removal_is_best_when_parts_add_up(worth: list[float]) -> None:
    def score(gone: set[int]) -> float:
        return sum(w for k, w in enumerate(worth) if k not in gone)

    found = greedy_removal(score, len(worth))
    every = [set(c) for r in range(len(worth) + 1) for c in combinations(range(len(worth)), r)]
    assert found.after == pytest.approx(max(score(gone) for gone in every))


def test_overlap_and_effect_of_a_fitted_model(data: Benchmark) -> None:
    torch.set_num_threads(1)
    model = fv.IFAM("micro_vit", parts=2, **VIT).fit(data.train)
    maps = torch.cat([model.part_maps([s.image]) for s in data.test])
    masks = torch.stack([s.mask for s in data.test if s.mask is not None]) > 0.5
    overlap = foreground_overlap(model, data.test, batch_size=7)
    assert overlap == pytest.approx(fv.measure.foreground_miou(maps, masks), abs=1e-6)
    figures = effect(model, data.test)
    assert figures.miou == pytest.approx(overlap)
    report = fv.evaluate(model, data.test)
    assert (figures.average, figures.worst_group) == (report.average, report.worst_group)
    empty = effect(model.with_parts_removed([0, 1]), data.test)
    assert empty.miou == 0
    assert len(set(model.with_parts_removed([0, 1]).predict(data.test))) == 1
