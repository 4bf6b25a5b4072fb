"""DFR and DAR: the base stays frozen bit for bit, both help, DAR can also learn the shortcut."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import foveate as fv
from foveate.data.benchmark import Benchmark
from foveate.decide import AbsentGroupWarning
from foveate.errors import DataError, FoveateError

QUICK = {"epochs": 20, "progress": False}


@pytest.mark.parametrize("variant", ["logistic", "gradient", "two-layer", "conv"])
def test_dfr_variants_help_and_round_trip(
    variant: str, data: Benchmark, erm: fv.ERM, store: Path, tmp_path: Path
) -> None:
    before = {k: v.clone() for k, v in erm.network_.state_dict().items()}
    steps = {"batch_size": 16} if variant == "conv" else {}
    dfr = fv.DFR(erm, variant=variant, store=str(store), **QUICK, **steps).fit(data.target, val=data.val)
    for name, value in erm.network_.state_dict().items():
        assert torch.equal(value, before[name]), f"{name} of the base moved"
    moved = [
        name
        for name, value in dfr.network_.backbone.state_dict().items()
        if not torch.equal(value, before[f"backbone.{name}"])
    ]
    assert len(moved) == (1 if variant == "conv" else 0), moved
    assert fv.evaluate(dfr, data.test).worst_group > fv.evaluate(erm, data.test).worst_group
    again = fv.load(dfr.save(tmp_path / "dfr"))
    assert (again.predict_logits(data.test) == dfr.predict_logits(data.test)).all()


def test_fine_tuning_starts_from_the_base_and_moves_a_copy_of_it(data: Benchmark, erm: fv.ERM, tmp_path: Path) -> None:
    before = {k: v.clone() for k, v in erm.network_.state_dict().items()}
    still = fv.DFR(erm, variant="network", epochs=1, lr=1e-9, progress=False).fit(data.target)
    here = dict(still.network_.named_parameters())
    assert all(torch.allclose(here[name], before[name], atol=1e-5) for name in here)  # its head came along
    tuned = fv.DFR(erm, variant="network", epochs=3, progress=False).fit(data.target, val=data.val)
    assert all(torch.equal(value, before[name]) for name, value in erm.network_.state_dict().items())
    moved = dict(tuned.network_.backbone.named_parameters())
    assert any(not torch.equal(value, before[f"backbone.{name}"]) for name, value in moved.items())
    assert not any(value.requires_grad for value in moved.values())
    again = fv.load(tuned.save(tmp_path / "tuned"))
    assert (again.predict_logits(data.test) == tuned.predict_logits(data.test)).all()


def test_dfr_logistic_equals_its_head_on_features(data: Benchmark, erm: fv.ERM, store: Path) -> None:
    dfr = fv.DFR(erm, store=str(store), progress=False).fit(data.target, val=data.val)
    network = erm.network_.eval()
    with torch.no_grad():
        features = torch.cat([network.embed(erm.inputs(data.test[i].image[None])) for i in range(20)])
    expected = dfr.head_.decision_function(features.numpy())
    np.testing.assert_allclose(dfr.predict_logits(data.test.subset(range(20))), expected, atol=1e-3)


def test_dfr_with_an_absent_group_says_so(data: Benchmark, erm: fv.ERM, store: Path) -> None:
    lacking = data.target.subset(data.target.groups != 2)
    with pytest.warns(AbsentGroupWarning, match="1 "):
        fv.DFR(erm, store=str(store)).fit(lacking, val=data.val)


@pytest.mark.parametrize("options", [{}, {"depth": 1}, {"queries": 1, "heads": 1}, {"positional": True}, {"norm": True,
                         "residual": True}, {"pool": "jetley"}, {"copies": 2}, {"l1": 1e-3}])  # fmt: skip
def test_dar_leaves_the_backbone_bit_identical(
    options: dict, data: Benchmark, erm: fv.ERM, store: Path, tmp_path: Path
) -> None:
    before = {k: v.clone() for k, v in erm.network_.state_dict().items()}
    dar = fv.DAR(erm, store=str(store), heads=options.pop("heads", 4), **options, **{**QUICK, "epochs": 3})
    dar.fit(data.target, val=data.val)
    assert all(torch.equal(v, before[k]) for k, v in erm.network_.state_dict().items())
    for name, value in dar.network_.backbone.state_dict().items():
        assert torch.equal(value, before[f"backbone.{name}"]), name
    again = fv.load(dar.save(tmp_path / "dar"))
    some = data.test.subset(range(20))
    assert (again.predict_logits(some) == dar.predict_logits(some)).all()
    gaze = dar.attend([some[0].image, some[1].image])
    assert gaze.map.shape == (2, 4, 4)
    assert gaze.map.sum((1, 2)) == pytest.approx(torch.ones(2), abs=1e-5)
    assert dar.look([some[0].image]).map.shape == (1, 4, 4)


def test_dar_helps_and_learns_either_side(data: Benchmark, erm: fv.ERM, store: Path) -> None:
    dar = fv.DAR(erm, store=str(store), heads=4, epochs=60, progress=False).fit(data.target, val=data.val)
    report = fv.evaluate(dar, data.test)
    assert report.worst_group > fv.evaluate(erm, data.test).worst_group + 0.1
    spurious = fv.DAR(erm, store=str(store), heads=4, learn="attribute", epochs=20, progress=False)
    spurious.fit(data.target, val=data.val)
    assert spurious.class_names_ == data.test.attribute_names
    assert (spurious.predict(data.test) == data.test.attributes).mean() > 0.9


def test_features_are_computed_once(
    data: Benchmark, erm: fv.ERM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fv.DAR(erm, store=str(tmp_path), heads=4, epochs=1, progress=False).fit(data.target)

    def never(*_: object, **__: object) -> None:
        raise AssertionError("the backbone ran again")

    monkeypatch.setattr("foveate.extract.backbone.Backbone.maps", never)
    fv.DAR(erm, store=str(tmp_path), heads=2, epochs=1, progress=False).fit(data.target)


def test_errors_are_sentences(data: Benchmark, erm: fv.ERM) -> None:
    with pytest.raises(FoveateError, match="DAR starts from a fitted model"):
        fv.DAR().fit(data.target)
    with pytest.raises(FoveateError, match="unknown variant 'magic'"):
        fv.DFR(erm, variant="magic").fit(data.target)
    plain = fv.data.GroupedDataset(data.target.images, data.target.labels, data.target.class_names)
    with pytest.raises(DataError, match="DFR needs groups"):
        fv.DFR(erm).fit(plain)
    with pytest.raises(DataError, match="needs attributes"):
        fv.DAR(erm, learn="attribute").fit(plain)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert str(fv.DAR.needs) == "train: labels (base); target: labels, attribute-balanced"


def test_maps_kept_in_the_store_predict_the_same(erm: fv.ERM, data: Benchmark, tmp_path: Path) -> None:
    """The bench predicts every trial of a search from the same stored maps; the answers must be those of the images."""
    for system in (fv.DAR(erm, epochs=1, store=str(tmp_path), progress=False), fv.DFR(erm, store=str(tmp_path))):
        system.fit(data.target, val=data.val)
        plain = system.predict_logits(data.test)
        system.keeps = "maps"
        np.testing.assert_allclose(system.predict_logits(data.test), plain, rtol=1e-4, atol=1e-5)
