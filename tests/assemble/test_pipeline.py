"""One pipeline: five parts, given as objects, names or settings, are a system like any other."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from torch import nn

import foveate as fv
from foveate.errors import DataError, FoveateError, ModelError


@pytest.fixture(scope="module")
def data() -> Any:
    return fv.data.critters(seed=2, train=60, target=40, val=24, test=24, strength=0.9)


def row(store: Path, **changed: Any) -> fv.Pipeline:
    """A row nobody has published, in five lines."""
    parts: dict[str, Any] = {
        "look": fv.look.ClsAttention("micro-vit"),
        "restrict": fv.restrict.TopTokens(keep=0.3),
        "extract": fv.extract.Frozen("micro-vit"),
        "pool": fv.pool.LearnedPool("attention", by=fv.decide.CrossEntropy(epochs=2, progress=False)),
        "decide": fv.decide.BalancedLogistic(refits=2),
    }
    return fv.Pipeline(**{**parts, **changed}, store=store, progress=False)


def test_a_row_nobody_has_published(data: Any, tmp_path: Path) -> None:
    system = row(tmp_path).fit(data.train, target=data.target, val=data.val)
    assert system.supervision() == "target: labels, groups; selection: group labels (worst_group)"
    assert system.score(data.test) == fv.evaluate(system, data.test).average
    gaze = system.look([data.test[0].image])
    assert gaze.mask is not None
    assert int(gaze.mask.sum()) == 20  # three tenths of 64 patches, rounded up
    again = fv.load(system.save(tmp_path / "saved"))
    again.store = str(tmp_path)
    assert np.array_equal(again.predict_logits(data.test), system.predict_logits(data.test))
    assert again.supervision() == system.supervision()
    refitted = clone(again).fit(data.train, target=data.target, val=data.val)
    np.testing.assert_allclose(refitted.predict_logits(data.test), system.predict_logits(data.test), atol=1e-3)
    audit = fv.audit({"row": system}, data.test, discover=False)
    assert audit.findings.models


def test_pools_do_not_take_each_others_features(data: Any, tmp_path: Path) -> None:
    """Vectors, means and maps of the same views stand under keys of their own in one store."""
    by = fv.decide.CrossEntropy(epochs=1, progress=False)
    pools = [None, "mean", fv.pool.LearnedPool("attention", by=by), None]
    logits = [
        row(tmp_path, pool=pool, decide=fv.decide.Logistic()).fit(data.train, data.target).predict_logits(data.test)
        for pool in pools
    ]
    assert np.array_equal(logits[0], logits[3])
    assert not np.allclose(logits[0], logits[1])
    assert not np.allclose(logits[0], logits[2])


def test_what_is_left_out_is_the_plain_probe(data: Any, tmp_path: Path) -> None:
    plain = fv.Pipeline(extract="micro-vit", store=tmp_path, progress=False).fit(data.train)
    named = fv.FullImage("micro-vit", store=tmp_path, progress=False).fit(data.train)
    assert np.array_equal(plain.predict_logits(data.test), named.predict_logits(data.test))
    assert plain.supervision() == named.supervision() == "train: labels"


def test_parts_by_name_and_by_settings(data: Any, tmp_path: Path) -> None:
    told = {
        "look": {"kind": "attention", "model": "micro-vit"}, "restrict": {"kind": "crops", "sizes": [24]},
        "extract": "micro-vit", "decide": {"kind": "dfr", "refits": 2}, "seed": 3,
    }  # fmt: skip
    system = fv.Pipeline(**json.loads(json.dumps(told)), store=tmp_path, progress=False)
    system.fit(data.train, data.target, data.val)
    named = fv.A2("micro-vit", "micro-vit", crops=(24,), head="dfr", refits=2, seed=3, store=tmp_path, progress=False)
    named.fit(data.train, data.target, data.val)
    assert np.array_equal(system.predict_logits(data.test), named.predict_logits(data.test))
    with pytest.raises(FoveateError, match=r"unknown look 'attenton'\. Did you mean 'attention'"):
        fv.Pipeline(look="attenton").check()
    with pytest.raises(FoveateError, match="no setting 'size'"):
        fv.Pipeline(restrict={"kind": "tokens", "size": 3}).check()
    with pytest.raises(FoveateError, match="by its kind"):
        fv.Pipeline(decide={"C": 3}).check()


def test_a_pool_that_learns_for_a_linear_decision_says_what_it_consumed(data: Any, tmp_path: Path) -> None:
    by = fv.decide.CrossEntropy(epochs=1, progress=False, on="target")
    system = row(tmp_path, pool=fv.pool.LearnedPool("attention", by=by), decide=fv.decide.Logistic())
    system.fit(data.train, data.target, data.val)
    told = "train: labels; target: labels, attribute-balanced (pool); selection: group labels (worst_group)"
    assert system.supervision() == told
    assert fv.load(system.save(tmp_path / "saved")).supervision() == told


def test_several_views_and_a_learned_pool(data: Any, tmp_path: Path) -> None:
    system = fv.Pipeline(
        look=fv.look.ClsAttention("micro-vit"), restrict=fv.restrict.GreedyCrops((24, 16)), extract="micro-vit",
        pool="attention", decide=fv.decide.CrossEntropy(epochs=1, progress=False), store=tmp_path, progress=False,
    ).fit(data.train, data.target)  # fmt: skip
    assert system.predict(data.test).shape == (24,)
    assert system.head_.in_features == 2 * 96
    again = fv.load(system.save(tmp_path / "saved"))
    assert np.array_equal(again.predict_logits(data.test), system.predict_logits(data.test))


def test_a_module_of_ones_own(data: Any, tmp_path: Path) -> None:
    class Top(nn.Module):
        def forward(self, maps: torch.Tensor) -> torch.Tensor:
            return maps.flatten(2).amax(2)

    system = fv.Pipeline(extract="micro-vit", pool=Top(), decide="cross-entropy", store=tmp_path, progress=False)
    system.set_params(decide=fv.decide.CrossEntropy(epochs=1, progress=False)).fit(data.train, data.target)
    assert system.predict(data.test).shape == (24,)
    with pytest.raises(ModelError, match="registry of pools"):
        system.save(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_the_truth_needs_masks(data: Any, tmp_path: Path) -> None:
    system = row(tmp_path, look="truth", pool="mean", decide="logistic").fit(data.train)
    assert system.score(data.test) > 0.4
    with pytest.raises(DataError, match="looks where the true mask is"):
        system.predict([data.test[0].image])
    bare = fv.data.GroupedDataset(data.train.images, data.train.labels, data.train.class_names)
    with pytest.raises(DataError, match="looks at true masks"):
        row(tmp_path, look="truth", pool="mean", decide="logistic").fit(bare)


def test_exports_where_the_parts_can(data: Any, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    can = row(tmp_path, pool=None, decide=fv.decide.Logistic()).fit(data.train)
    fv.export.to_folder(can, tmp_path / "exported", "onnx")
    pictures = [data.test[i].image for i in range(3)]
    ran = fv.export.Runner(tmp_path / "exported").predict_logits(pictures)
    np.testing.assert_allclose(ran, can.predict_logits(pictures), atol=1e-3)
    with pytest.raises(ModelError, match="no fixed graph"):
        fv.export.to_folder(row(tmp_path).fit(data.train, data.target, data.val), tmp_path / "other", "onnx")


def test_a_spec_can_ask_for_a_pipeline(tmp_path: Path) -> None:
    from foveate.bench.run import Job, run

    text = """
name: rows
data: {name: critters, options: {train: 24, target: 16, val: 16, test: 16}}
seeds: [0]
methods:
  tokens:
    system: Pipeline
    settings: {extract: micro-vit, look: {kind: attention, model: micro-vit}}
    grid: {restrict: [{kind: tokens, keep: 0.2}, {kind: tokens, keep: 0.6}]}
"""
    job = Job(text, "rows.yaml", str(tmp_path), str(tmp_path / "records.db"), command="test", commit="test")
    run(job, 0, None, lambda line: None)
    assert len(job.sweep().records.all("rows")) == 2
