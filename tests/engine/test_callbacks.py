"""Callbacks: told after every epoch what was measured, may stop the training, and a stopped run stays stopped."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages
from foveate.engine import EpochEnd, Selection, StopTraining, TensorFeed, TrainSettings, train


def data(n: int = 32) -> GroupedDataset:
    return GroupedDataset(ArrayImages(np.zeros((n, 4, 4, 3), np.uint8)), np.arange(n) % 2, ["even", "odd"])


def feed(seed: int = 0) -> TensorFeed:
    torch.manual_seed(seed)
    set_ = data()
    return TensorFeed(torch.from_numpy(set_.labels)[:, None] + 0.5 * torch.randn(len(set_), 3), set_)


def model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Linear(3, 2)


def settings(**more: object) -> TrainSettings:
    return TrainSettings.of(**{"epochs": 6, "batch_size": 8, "lr": 1e-2, "progress": False, **more})


@pytest.mark.parametrize("metric", ["loss", "average"])
def test_they_hear_of_every_epoch_with_a_score_that_grows(metric: str) -> None:
    heard: list[EpochEnd] = []
    history = train(model(), feed(), settings(), select=Selection(metric, feed(1)), callbacks=[heard.append])
    assert [(end.epoch, end.epochs) for end in heard] == [(n, 6) for n in range(1, 7)]
    for end, row in zip(heard, history.epochs, strict=True):
        assert {**end.metrics, "epoch": end.epoch} == row
        assert end.score == (-row["val_loss"] if metric == "loss" else row["val_average"])
    best = [end.epoch for end in heard if end.score == max(e.score or -9e9 for e in heard)]
    assert history.best_epoch == best[-1]


def test_without_validation_there_is_no_score() -> None:
    heard: list[EpochEnd] = []
    train(model(), feed(), settings(epochs=2), callbacks=[heard.append])
    assert [(list(end.metrics), end.score) for end in heard] == [(["loss"], None)] * 2


def test_stopping_keeps_the_best_so_far_and_all_are_told() -> None:
    told: list[str] = []

    def stop(end: EpochEnd) -> None:
        told.append(f"stop {end.epoch}")
        if end.epoch == 3:
            raise StopTraining

    def other(end: EpochEnd) -> None:
        told.append(f"other {end.epoch}")

    stopped, short = model(), model()
    history = train(
        stopped, feed(), settings(schedule="constant"), select=Selection("loss", feed(1)), callbacks=[stop, other]
    )
    assert told == [f"{who} {n}" for n in (1, 2, 3) for who in ("stop", "other")]
    train(short, feed(), settings(schedule="constant", epochs=3), select=Selection("loss", feed(1)))
    assert len(history.epochs) == 3
    for name, value in short.state_dict().items():
        assert torch.equal(stopped.state_dict()[name], value)


def test_any_other_exception_ends_the_run() -> None:
    def fail(end: EpochEnd) -> None:
        raise KeyError(end.epoch)

    with pytest.raises(KeyError, match="1"):
        train(model(), feed(), settings(), callbacks=[fail])


def test_a_stopped_run_is_not_gone_on_with(tmp_path: Path) -> None:
    path = str(tmp_path / "run.ckpt")

    def stop(end: EpochEnd) -> None:
        if end.epoch == 2:
            raise StopTraining

    first, again = model(), model()
    chosen = settings(checkpoint=path, checkpoint_every=5, schedule="constant")
    train(first, feed(), chosen, callbacks=[stop])
    heard: list[EpochEnd] = []
    history = train(again, feed(), chosen, callbacks=[heard.append])
    assert (len(history.epochs), heard) == (2, [])
    for name, value in first.state_dict().items():
        assert torch.equal(again.state_dict()[name], value)
