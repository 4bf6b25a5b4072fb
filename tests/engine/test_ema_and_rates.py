"""The running mean of the weights, square-root scaling and normalised weight decay, each against its definition."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages
from foveate.data.loading import Batch
from foveate.engine import Selection, TensorFeed, TrainSettings, train


def data(n: int = 40) -> tuple[TensorFeed, GroupedDataset]:
    labels = np.arange(n) % 2
    ds = GroupedDataset(ArrayImages(np.zeros((n, 4, 4, 3), np.uint8)), labels, ["a", "b"])
    inputs = torch.randn(n, 3, generator=torch.Generator().manual_seed(0)) + torch.from_numpy(labels)[:, None]
    return TensorFeed(inputs, ds), ds


def fresh() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(3, 2)


def settings(**values: object) -> TrainSettings:
    given = {"epochs": 2, "batch_size": 10, "lr": 0.1, "progress": False, "optimizer": "sgd", "momentum": 0.0}
    return TrainSettings.of(**{**given, "schedule": "constant", "weight_decay": 0.0, **values})


def test_the_mean_is_what_stays_and_what_is_validated() -> None:
    feed, _ = data()
    seen: list[Tensor] = []

    def watched(model: nn.Module, batch: Batch) -> Tensor:
        seen.append(plain.weight.detach().clone())
        return nn.functional.cross_entropy(model(batch.inputs), batch.labels)

    plain = fresh()
    train(plain, feed, settings(), objective=watched)
    path = [*seen[1:], plain.weight.detach()]  # the weights after every step
    expected = seen[0]
    for t, weight in enumerate(path, start=1):
        decay = min(0.5, (1 + t) / (10 + t))
        expected = decay * expected + (1 - decay) * weight
    averaged = fresh()
    history = train(averaged, feed, settings(ema=0.5), select=Selection("loss", feed))
    assert history.best_epoch == 2
    torch.testing.assert_close(averaged.weight.detach(), expected)
    again = Selection("loss", feed).score(averaged, torch.device("cpu"), 64)["loss"]
    assert again == pytest.approx(history.best_score)
    unselected = fresh()
    train(unselected, feed, settings(ema=0.5))
    torch.testing.assert_close(unselected.weight.detach(), expected)


def test_a_resumed_run_keeps_its_mean(tmp_path: Path) -> None:
    feed, _ = data()

    class Killed(Exception):
        pass

    def kill(epoch: int, _: nn.Module) -> None:
        if epoch == 3:
            raise Killed

    whole, broken, again = fresh(), fresh(), fresh()
    train(whole, feed, settings(ema=0.9, epochs=4))
    path = str(tmp_path / "run.ckpt")
    with pytest.raises(Killed):
        train(broken, feed, settings(ema=0.9, epochs=4, checkpoint=path), on_epoch=kill)
    nn.init.zeros_(again.weight)
    train(again, feed, settings(ema=0.9, epochs=4, checkpoint=path))
    assert torch.equal(whole.weight, again.weight)


def test_the_rate_grows_with_the_root_of_the_batch() -> None:
    feed, _ = data()
    scaled, by_hand = fresh(), fresh()
    train(scaled, feed, settings(lr=0.1, batch_size=20, reference_batch=5))
    train(by_hand, feed, settings(lr=0.2, batch_size=20))
    assert torch.equal(scaled.weight, by_hand.weight)


def test_weight_decay_is_divided_by_the_root_of_the_steps() -> None:
    feed, _ = data()
    normalised, by_hand = fresh(), fresh()
    # 40 items in batches of 10 over 4 epochs: 16 steps
    shared = {"epochs": 4, "optimizer": "adamw"}
    train(normalised, feed, settings(weight_decay=0.4, normalise_decay=True, **shared))
    train(by_hand, feed, settings(weight_decay=0.4 / math.sqrt(16), **shared))
    assert torch.equal(normalised.weight, by_hand.weight)
