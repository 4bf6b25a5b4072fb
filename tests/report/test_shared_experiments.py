"""What several models share in their experiments: the draw of donors, and the pictures made of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

import foveate as fv
from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages
from foveate.export import swift
from foveate.export.memory import Memory
from foveate.report.discovery import pictures
from foveate.report.discovery.cues import BY_KEY
from foveate.report.discovery.donors import drawn_pairs
from foveate.report.discovery.experiments import PullPlan, measure_pull
from foveate.report.discovery.pictures import Kept, Sheet, exchange

N, SIDE = 120, 24


def sheet_of(predictions: NDArray[np.int64], keep: int = 0) -> Sheet:
    rng = np.random.default_rng(0)
    images = torch.from_numpy(rng.integers(0, 256, (N, 3, SIDE, SIDE), dtype=np.uint8))
    masks = torch.zeros(N, SIDE, SIDE, dtype=torch.uint8)
    masks[:, 8:16, 8:16] = 1
    return Sheet(
        images, masks, np.arange(N) % 2, predictions, rng.random(N), np.arange(N), masks,
        shared=Kept((images, masks, masks), keep),
    )  # fmt: skip


def test_models_that_agree_draw_the_same() -> None:
    labels = np.arange(N) % 2
    other = labels.copy()
    other[:6] = 1 - other[:6]
    first, second = (drawn_pairs(sheet_of(said), BY_KEY["background"], seed=3) for said in (labels, other))
    assert np.array_equal(first[:, 0], second[:, 0])  # recipients in one order
    assert (first == second).mean() > 0.8
    assert not np.array_equal(np.sort(first[:, 0]), first[:, 0])
    assert (first[:, 0] != first[:, 1]).all()
    assert (labels[first[:, 1]] == labels[first[:, 0]]).all()
    assert (labels[first[:, 2]] != labels[first[:, 0]]).all()


def test_every_donor_of_a_pool_is_as_likely() -> None:
    sheet = sheet_of(np.arange(N) % 2)
    drawn = np.concatenate([drawn_pairs(sheet, BY_KEY["frame"], seed=seed) for seed in range(40)])
    counts = np.bincount(drawn[:, 2], minlength=N)
    assert (counts > 0).sum() == N // 2  # the surer half of both classes
    used = counts[counts > 0]
    assert used.mean() == pytest.approx(80)
    assert used.std() < 2 * np.sqrt(80)


def test_kept_pictures_are_those_that_would_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, keeping = sheet_of(np.arange(N) % 2), sheet_of(np.arange(N) % 2, keep=10**7)
    made: list[int] = []
    own = pictures._made

    def told(sheet: Sheet, cue: object, rows: NDArray[np.int64], *rest: object) -> Tensor:
        made.append(len(rows))
        return own(sheet, cue, rows, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(pictures, "_made", told)
    rows, donors = np.arange(12), np.arange(12)[::-1].copy()
    for cue in (BY_KEY["background"], BY_KEY["sharpness"], BY_KEY["colour"].outside(), BY_KEY["size"]):
        for generous in (False, True):
            fresh = exchange(plain, cue, rows, donors, generous)
            exchange(keeping, cue, rows, donors, generous)
            made.clear()
            assert torch.equal(exchange(keeping, cue, rows, donors, generous), fresh)
            assert made == []
    assert keeping.kept is not None
    assert keeping.kept.held == sum(p.nbytes for p in keeping.kept.pictures.values())


def test_kept_pictures_stay_within_their_bytes() -> None:
    each = 3 * SIDE * SIDE
    sheet = sheet_of(np.arange(N) % 2, keep=5 * each + 7)
    made = exchange(sheet, BY_KEY["colour"], np.arange(20), np.arange(20)[::-1].copy())
    again = exchange(sheet, BY_KEY["colour"], np.arange(20), np.arange(20)[::-1].copy())
    assert sheet.kept is not None
    assert (len(sheet.kept.pictures), sheet.kept.held) == (5, 5 * each)
    assert torch.equal(made, again)


def test_a_changed_sheet_takes_no_part_in_what_is_kept() -> None:
    from dataclasses import replace

    sheet = sheet_of(np.arange(N) % 2, keep=10**7)
    assert sheet.kept is not None
    assert replace(sheet, masks=sheet.masks.clone()).kept is None
    assert sheet.first(5).kept is None


def test_controls_of_a_faint_pull_are_put_off() -> None:
    """Of 112 images three turn, far too few to accuse: own donors are asked where answers turned and nowhere else."""
    labels = np.arange(N) % 2
    sheet = sheet_of(labels)
    drawn = drawn_pairs(sheet, BY_KEY["frame"])
    turns = {tuple(drawn[row, [0, 2]]) for row in (3, 40, 90)}
    exchanged = {
        exchange(sheet, BY_KEY["frame"], [i], [k])[0].numpy().tobytes(): (int(labels[i]), (i, k) in turns)
        for i, j, k in drawn
    } | {exchange(sheet, BY_KEY["frame"], [i], [j])[0].numpy().tobytes(): (int(labels[i]), False) for i, j, k in drawn}
    asked = []

    def predict(batch: Tensor) -> NDArray[np.int64]:
        found = [exchanged[picture.numpy().tobytes()] for picture in batch]
        asked.append(len(batch))
        return np.asarray([1 - label if turned else label for label, turned in found])

    found = measure_pull(sheet, BY_KEY["frame"], predict, plan=PullPlan([56, 112, 120], tests=14), drawn=drawn)
    assert found is not None
    assert sum(asked) == found.n + 3
    assert found.p == 1.0
    assert found.high < 0.1


@pytest.mark.parametrize("pays", [0.0, 1e9])  # through a graph where there is ONNX Runtime, and without
def test_eight_equal_models_are_asked_as_often_as_one(pays: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swift, "PAYS", pays)
    bench = fv.data.critters(train=80, target=8, val=8, test=80, size=32)
    pixels = np.stack([bench.test.images.read(i) for i in range(len(bench.test))])
    data = GroupedDataset(ArrayImages(pixels, "bare"), bench.test.labels, bench.test.class_names)
    model = fv.ERM("micro_resnet", epochs=2, progress=False).fit(bench.train)
    asked: list[bytes] = []
    own = Memory.__call__

    def told(self: Memory, batch: Tensor, ask: object) -> NDArray[np.float32]:
        def spied(new: Tensor) -> NDArray[np.float32]:
            asked.extend(picture.numpy().tobytes() for picture in new)
            return ask(new)  # type: ignore[operator]

        return own(self, batch, spied)

    monkeypatch.setattr(Memory, "__call__", told)
    one = fv.audit({"one": model}, data, examples=0, objects="centre")
    alone = len(asked)
    assert alone == len(set(asked)) > 200  # no picture twice
    asked.clear()
    eight = fv.audit({str(k): model for k in range(8)}, data, examples=0, objects="centre")
    assert len(asked) == alone
    assert {d.judgement.level for d in eight.discoveries.values()} == {one.discoveries["one"].judgement.level}
