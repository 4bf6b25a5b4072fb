"""The methods that train a whole network: what each is given, what it does at the edges, and that it helps."""

from __future__ import annotations

import logging
from pathlib import Path

import numpy as np
import pytest
import torch

import foveate as fv
from foveate.data.benchmark import Benchmark
from foveate.data.dataset import GroupedDataset
from foveate.errors import DataError, FoveateError

SMALL = {"model_args": {"width": 12, "layers": [1, 1, 1], "stem_stride": 2}, "progress": False}
KINDS = ["Reweight", "Subsample", "GroupDRO", "CVaRDRO", "JTT", "CnC", "SpectralDecoupling"]


def without_attributes(ds: GroupedDataset) -> GroupedDataset:
    return GroupedDataset(ds.images, ds.labels, ds.class_names)


@pytest.mark.parametrize("kind", KINDS)
def test_fits_saves_and_loads(kind: str, data: Benchmark, tmp_path: Path) -> None:
    system = getattr(fv, kind)("micro_resnet", epochs=1, batch_size=32, **SMALL)
    system.fit(data.train.subset(range(96)), val=data.val)
    again = fv.load(system.save(tmp_path / kind))
    assert type(again) is type(system)
    assert again.get_params() == system.get_params()
    some = data.test.subset(range(16))
    assert (again.predict_logits(some) == system.predict_logits(some)).all()
    assert np.isfinite(system.predict_logits(some)).all()


@pytest.mark.parametrize("kind", ["Reweight", "Subsample", "GroupDRO"])
def test_group_aware_methods_beat_erm(kind: str, data: Benchmark, erm: fv.ERM) -> None:
    assert "groups" in str(getattr(fv, kind).needs)
    base = fv.evaluate(erm, data.test)
    # the balanced subset is small: it needs more passes for the same number of steps
    epochs = {"Subsample": 60}.get(kind, 8)
    system = getattr(fv, kind)("micro_resnet", epochs=epochs, lr=3e-3, **SMALL).fit(data.train, data.target, data.val)
    assert fv.evaluate(system, data.test).minority > base.minority + 0.1
    with pytest.raises(DataError, match=f"{kind} needs groups"):
        getattr(fv, kind)("micro_resnet", epochs=1, **SMALL).fit(without_attributes(data.train))


def test_without_groups_says_nothing_of_groups(data: Benchmark) -> None:
    for kind in ("ERM", "CVaRDRO", "JTT", "CnC", "SpectralDecoupling"):
        assert "group" not in str(getattr(fv, kind).needs)
    fv.JTT("micro_resnet", epochs=1, **SMALL).fit(without_attributes(data.train.subset(range(64))))


def test_loss_weights_and_sampler_are_two_things(data: Benchmark) -> None:
    loss, sampler = fv.Reweight(by="loss"), fv.Reweight(by="sampler")
    groups = data.train.groups
    drawn = np.concatenate(sampler._plan(data.train).batches(0, 64))
    shares = np.bincount(groups[drawn], minlength=4) / len(drawn)
    assert shares == pytest.approx([0.25] * 4, abs=0.07)
    seen = np.concatenate(loss._plan(data.train).batches(0, 64))
    assert sorted(seen) == list(range(len(data.train)))


def test_subsample_counts(data: Benchmark) -> None:
    kept = np.concatenate(fv.Subsample()._plan(data.train).batches(0, 16))
    counts = np.bincount(data.train.groups[kept], minlength=4)
    assert counts.tolist() == [data.train.group_counts.min()] * 4


def test_group_dro_with_a_missing_group(data: Benchmark, caplog: pytest.LogCaptureFixture) -> None:
    lacking = data.train.subset(data.train.groups != 1)
    with caplog.at_level(logging.WARNING, "foveate"):
        system = fv.GroupDRO("micro_resnet", epochs=1, **SMALL).fit(lacking.subset(range(0, len(lacking), 5)))
    assert data.train.group_names[1] in caplog.text
    assert np.isfinite(system.predict_logits(data.test.subset(range(8)))).all()


def test_group_dro_automatic_adjustment(data: Benchmark) -> None:
    some = data.train.subset(range(64))
    with pytest.raises(DataError, match="needs a validation set"):
        fv.GroupDRO("micro_resnet", adjustment="auto", epochs=1, **SMALL).fit(some)
    system = fv.GroupDRO("micro_resnet", adjustment="auto", epochs=2, **SMALL).fit(some, val=data.val)
    assert system.fitted


def test_jtt_with_a_perfect_first_model_equals_erm(
    data: Benchmark, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    some = data.train.subset(range(64))
    monkeypatch.setattr("foveate.systems.jtt.error_set", lambda predictions, labels: np.array([], dtype=np.int64))
    with caplog.at_level(logging.WARNING, "foveate"):
        jtt = fv.JTT("micro_resnet", epochs=2, **SMALL).fit(some)
    assert "no error" in caplog.text
    erm = fv.ERM("micro_resnet", epochs=2, **SMALL).fit(some)
    for a, b in zip(jtt.network_.state_dict().values(), erm.network_.state_dict().values(), strict=True):
        assert torch.equal(a, b)


def test_jtt_upweights_its_errors(data: Benchmark) -> None:
    jtt = fv.JTT("micro_resnet", epochs=1, first_epochs=1, upweight=7, **SMALL).fit(data.train)
    seen = np.concatenate(jtt._plan(data.train).batches(0, 64))
    counts = np.bincount(seen, minlength=len(data.train))
    assert len(jtt.errors_) > 0
    assert (counts[jtt.errors_] == 8).all()
    assert len(seen) == len(data.train) + 7 * len(jtt.errors_)
    jtt.by = "sampler"  # the same shares in an epoch of the usual length
    drawn = np.concatenate([np.concatenate(jtt._plan(data.train).batches(e, 64)) for e in range(40)])
    assert len(drawn) == 40 * len(data.train)
    share = 8 * len(jtt.errors_) / len(seen)
    assert np.isin(drawn, jtt.errors_).mean() == pytest.approx(share, abs=0.02)


def test_bad_settings_are_sentences() -> None:
    with pytest.raises(FoveateError, match="less than one image"):
        fv.CVaRDRO(alpha=0.01, batch_size=16).check()
    with pytest.raises(FoveateError, match="one device"):
        fv.CnC(devices=2).check()
    with pytest.raises(FoveateError, match=r"contrast=2 must lie in \[0, 1\]"):
        fv.CnC(contrast=2).check()
    with pytest.raises(FoveateError, match="by is 'loss' or 'sampler'"):
        fv.Reweight(by="magic").check()
    with pytest.raises(FoveateError, match="by is 'copies' or 'sampler'"):
        fv.JTT(by="magic").check()
