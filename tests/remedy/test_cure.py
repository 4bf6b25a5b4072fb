"""A cure from end to end on drawn animals: no attributes, a model that leans on the ground they stand on."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import foveate as fv
from foveate.data.benchmark import Benchmark
from foveate.data.dataset import GroupedDataset
from foveate.data.preprocess import Preprocess
from foveate.errors import DataError, FoveateError, ModelError, StorageError
from foveate.remedy import run
from foveate.remedy.choosing import Rule
from foveate.remedy.kinds import Means, State
from foveate.remedy.records import UNFINISHED, read_record

SIDE = 32


def bare(data: GroupedDataset) -> GroupedDataset:
    """The images with their masks, without attributes."""
    return GroupedDataset(data.images, data.labels, data.class_names, masks=data.masks, name=data.name)


@pytest.fixture(scope="module")
def drawn() -> Benchmark:
    return fv.data.critters(
        seed=3, size=SIDE, strength=0.95, val_strength=0.95, train=240, val=120, test=120, target=24
    )


@pytest.fixture(scope="module")
def data(drawn: Benchmark) -> Benchmark:
    return Benchmark("mine", {name: bare(drawn[name]) for name in ("train", "val", "test")})


@pytest.fixture(scope="module")
def model(data: Benchmark) -> fv.ERM:
    args = {"width": 16, "layers": [1, 1], "stem_stride": 2}
    return fv.ERM("micro_resnet", model_args=args, epochs=5, lr=3e-3, batch_size=16, progress=False).fit(data.train)


@pytest.fixture(scope="module")
def cured(model: fv.ERM, data: Benchmark, tmp_path_factory: pytest.TempPathFactory) -> tuple[fv.remedy.Cure, Path]:
    out = tmp_path_factory.mktemp("cure") / "out"
    # a network this small has learned the ground and little else: whatever cures it loses images like those of training
    return fv.cure(model, data, out=out, minutes=5, real_drop=None), out


def test_a_remedy_that_loses_the_images_as_they_come_is_not_taken_unless_that_is_asked(
    model: fv.ERM, data: Benchmark, cured: tuple[fv.remedy.Cure, Path]
) -> None:
    unlimited, _ = cured
    assert unlimited.before is not None
    assert unlimited.chosen is not None
    assert unlimited.chosen.standing is not None
    assert unlimited.before.real - unlimited.chosen.standing.real > 0.15
    tried = [replace(entry, allowed=Rule().allows(entry.standing, unlimited.before)) for entry in unlimited.tried]
    kept = replace(unlimited, rule=Rule(), chosen=None, attempts=tried)
    assert kept.rule.choose(kept.tried, unlimited.before) is None
    assert "further than the 15 points that are allowed (real_drop, --real-drop)" in str(kept)


def test_the_worst_group_rises_although_no_group_was_named(
    cured: tuple[fv.remedy.Cure, Path], model: fv.ERM, drawn: Benchmark
) -> None:
    found, _ = cured
    assert found.outcome == "cured"
    assert [cue.key for cue in found.cues] == ["background"]
    before, after = fv.evaluate(model, drawn.test), fv.evaluate(found.model, drawn.test)
    assert (after.worst_group or 0) > (before.worst_group or 0) + 0.2
    assert after.average > before.average - 0.03
    assert "no attributes" in found.supervision
    assert found.before is not None
    assert found.after is not None
    assert found.after.worst.accuracy > found.before.worst.accuracy + 0.2


def test_all_that_fits_was_tried_and_all_else_has_a_reason(cured: tuple[fv.remedy.Cure, Path]) -> None:
    found, _ = cured
    states = {a.remedy.key: a.state for a in found.attempts}
    assert {states[k] for k in ("dfr-exchange", "dar-exchange", "tune-exchange", "crop")} == {State.TRIED}
    assert states["dfr-target"] is State.UNFIT
    assert all(a.why for a in found.attempts if a.state is not State.TRIED)
    assert all(a.supervision and a.seconds > 0 for a in found.tried)


def test_the_folder_holds_model_export_report_and_record(cured: tuple[fv.remedy.Cure, Path], data: Benchmark) -> None:
    found, out = cured
    assert not (out / UNFINISHED).exists()
    again = fv.load(out / "model")
    assert np.array_equal(again.predict(data.test), found.model.predict(data.test))
    record = read_record(out)
    assert record.version == 1
    assert record.outcome == "cured"
    assert record.chosen == found.chosen.remedy.key  # type: ignore[union-attr]
    told = json.loads((out / "cure.json").read_text())
    assert {a["remedy"] for a in told["attempts"]} == {a.remedy.key for a in found.attempts}
    page = (out / "report.html").read_text()
    for words in ("Cured of the background", "What was tried", "DFR on exchanged images", "What this does not show"):
        assert words in page
    assert "http" not in page.replace("http-equiv", "")
    assert (out / "export" / "foveate-export.json").is_file() or "not exported" in record.export


def test_a_second_call_goes_on_from_finished_remedies(
    model: fv.ERM, data: Benchmark, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, calls = run.attempt, []

    def stopping(remedy: Any, *args: Any, **options: Any) -> Any:
        calls.append(remedy.key)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(remedy, *args, **options)

    monkeypatch.setattr(run, "attempt", stopping)
    out = tmp_path / "out"
    found = fv.cure(model, data, out=out, minutes=5)
    assert found.interrupted
    assert len(found.tried) == 1
    assert "best so far" in str(found)
    assert read_record(out).interrupted
    assert (out / UNFINISHED).is_dir()

    lines: list[str] = []
    monkeypatch.setattr(run, "remedies_for", lambda *a: _cheap(run_remedies(*a)))
    again = fv.cure(model, data, out=out, minutes=5, progress=lines.append)
    assert calls.count(found.tried[0].remedy.key) == 1
    assert any("finished before" in line for line in lines)
    assert not again.interrupted
    assert not (out / UNFINISHED).exists()


run_remedies = run.remedies_for


def _cheap(found: Any) -> Any:
    fit, unfit = found
    return [r for r in fit if r.means is Means.DFR], unfit


def test_a_model_without_a_shortcut_is_left_alone(data: Benchmark, tmp_path: Path) -> None:
    def reads_the_middle(x: torch.Tensor) -> torch.Tensor:
        middle = x[:, :, 10:22, 10:22].std((1, 2, 3))
        return torch.stack([middle, 0.25 - middle], 1)

    box = fv.wrap(reads_the_middle, data.val.class_names, preprocess=Preprocess((SIDE, SIDE)))
    found = fv.cure(box, data, out=tmp_path / "out", minutes=2)
    assert found.outcome == "left alone"
    assert found.model is box
    assert not (tmp_path / "out" / "model").exists()
    assert "left alone" in (tmp_path / "out" / "report.html").read_text()


def test_a_black_box_is_shown_less_and_handed_back_where_that_does_not_help(data: Benchmark, tmp_path: Path) -> None:
    def reads_ground(x: torch.Tensor) -> torch.Tensor:
        score = 12 * (x[:, 1, -6:].mean((1, 2)) - x[:, 2, -6:].mean((1, 2)))
        return torch.stack([score, -score], 1)

    view = Preprocess((SIDE, SIDE), mean=(0.0,) * 3, std=(1.0,) * 3)
    out = tmp_path / "out"
    found = fv.cure(fv.wrap(reads_ground, data.val.class_names, preprocess=view), data, minutes=2, out=out)
    states = {a.remedy.key: a for a in found.attempts}
    assert "black box" in states["dfr-exchange"].why
    assert states["crop"].state is State.TRIED
    assert "nothing that was tried helps enough" in str(found)  # a model that knows nothing of the animal
    assert not (out / "model").exists()


def test_what_is_wrong_is_told_before_anything_is_written(model: fv.ERM, data: Benchmark, tmp_path: Path) -> None:
    out = tmp_path / "out"
    silent = fv.wrap(lambda x: x.mean((2, 3))[:, :2] * float("nan"), data.val.class_names, preprocess=model.preprocess_)
    with pytest.raises(ModelError, match="NaN or infinite logits for 120 of 120"):
        fv.cure(silent, data, out=out)
    with pytest.raises(ModelError, match=r"fv\.wrap"):
        fv.cure(torch.nn.Linear(2, 2), data, out=out)  # type: ignore[arg-type]
    with pytest.raises(FoveateError, match="allowed_drop is a share"):
        fv.cure(model, data, out=out, allowed_drop=3)
    with pytest.raises(FoveateError, match="minutes"):
        fv.cure(model, data, out=out, minutes=0)
    with pytest.raises(DataError, match="class only"):
        fv.cure(model, Benchmark("b", {**data.splits, "val": data.val.subset(data.val.labels == 0)}), out=out)
    assert not out.exists()
    taken = tmp_path / "mine"
    taken.mkdir()
    (taken / "thesis.txt").write_text("do not touch")
    with pytest.raises(StorageError, match="is not of a cure"):
        fv.cure(model, data, out=taken)
