"""The training loop: learns, selects, resumes bit for bit, stops on NaN, keeps frozen things frozen."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages
from foveate.data.loading import Batch, Loader
from foveate.data.preprocess import Preprocess
from foveate.engine import ImageFeed, Selection, TensorFeed, TrainSettings, cross_entropy, train
from foveate.errors import DataError, FoveateError, ModelError, TrainingStopped


def blobs(n: int = 96, seed: int = 0) -> GroupedDataset:
    """Two classes: bright on the left, or bright on the right; the attribute is the colour."""
    rng = np.random.default_rng(seed)
    labels, attributes = rng.integers(0, 2, n), rng.integers(0, 2, n)
    pixels = rng.integers(0, 60, (n, 8, 8, 3), dtype=np.uint8)
    for i in range(n):
        side = slice(0, 4) if labels[i] == 0 else slice(4, 8)
        pixels[i, :, side, attributes[i]] += 150
    return GroupedDataset(
        ArrayImages(pixels), labels, ["left", "right"], attributes=attributes, attribute_names=["red", "green"]
    )


def net(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(), nn.Linear(4 * 36, 2)
    )


def feed(ds: GroupedDataset, augment: bool = False) -> ImageFeed:
    return ImageFeed(Loader(ds, Preprocess((8, 8), flip=False, shift=1)), augment)


def settings(**values: object) -> TrainSettings:
    return TrainSettings.of(**{"epochs": 4, "batch_size": 16, "lr": 1e-2, "progress": False, **values})


def test_it_learns_and_selects() -> None:
    data, val = blobs(), blobs(seed=1)
    model = net()
    history = train(model, feed(data), settings(), select=Selection("worst_group", feed(val)))
    scores = [row["val_worst_group"] for row in history.epochs]
    assert history.best_score == max(scores) > 0.9
    assert history.best_epoch == max(i for i, s in enumerate(scores) if s == max(scores)) + 1
    assert history.selection == {"metric": "worst_group", "on": "dataset", "uses_groups": True}
    again = Selection("worst_group", feed(val)).score(model, torch.device("cpu"), 64)
    assert again["worst_group"] == history.best_score


def test_selection_that_uses_no_groups_says_so() -> None:
    assert not Selection("average", feed(blobs())).uses_groups
    plain = GroupedDataset(blobs().images, blobs().labels, ["left", "right"])
    with pytest.raises(DataError, match="needs groups"):
        Selection("worst_group", feed(plain))
    with pytest.raises(FoveateError, match=r"unknown metric 'worstgroup'. Did you mean 'worst_group'"):
        Selection("worstgroup", feed(plain))


class Drifting(nn.Module):
    """An objective with state, to see that checkpoints carry it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, model: nn.Module, batch: Batch) -> Tensor:
        self.steps += 1
        return cross_entropy(model, batch) * (1 + 0.01 * self.steps)


class KilledError(Exception):
    pass


@pytest.mark.parametrize("optimizer", ["adam", "sgd", "adamw"])
def test_resume_is_bit_identical(tmp_path: Path, optimizer: str) -> None:
    data, val = blobs(), blobs(seed=1)

    def run(model: nn.Module, path: Path | None, stop: int | None = None) -> list[float]:
        def kill(epoch: int, _: nn.Module) -> None:
            if epoch == stop:
                raise KilledError

        chosen = settings(optimizer=optimizer, checkpoint=None if path is None else str(path), clip=1.0)
        select = Selection("loss", feed(val))
        return train(model, feed(data, augment=True), chosen, objective=Drifting(), select=select, on_epoch=kill).losses

    whole, broken = net(), net()
    torch.manual_seed(7)
    losses = run(whole, None)
    torch.manual_seed(7)
    path = tmp_path / "run.ckpt"
    with pytest.raises(KilledError):
        run(broken, path, stop=3)  # dies after epoch 3, before its checkpoint: two epochs are safe
    fresh = net(seed=99)
    torch.manual_seed(1234)  # whatever the new process drew before resuming must not matter
    assert run(fresh, path) == losses
    for (name, a), (_, b) in zip(whole.state_dict().items(), fresh.state_dict().items(), strict=True):
        assert torch.equal(a, b), name


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    path = str(tmp_path / "run.ckpt")
    train(net(), feed(blobs()), settings(epochs=1, checkpoint=path))
    with pytest.raises(ModelError, match=r"another training settings \(changed: lr\)"):
        train(net(), feed(blobs()), settings(epochs=1, checkpoint=path, lr=0.5))
    with pytest.raises(ModelError, match="another training data"):
        train(net(), feed(blobs(seed=5)), settings(epochs=1, checkpoint=path))
    other = nn.Sequential(nn.Flatten(), nn.Linear(192, 2))
    with pytest.raises(ModelError, match="another architecture"):
        train(other, feed(blobs()), settings(epochs=1, checkpoint=path))
    Path(path).write_bytes(b"not a checkpoint")
    with pytest.raises(ModelError, match="not a readable checkpoint"):
        train(net(), feed(blobs()), settings(epochs=1, checkpoint=path))


def test_nan_names_the_step() -> None:
    data = blobs()
    inputs = torch.randn(len(data), 5)
    calls = 0

    def objective(model: nn.Module, batch: Batch) -> Tensor:
        nonlocal calls
        calls += 1
        return model(batch.inputs).sum() * (float("nan") if calls == 9 else 1.0)

    with pytest.raises(TrainingStopped, match="loss is nan at epoch 2, step 3 of 6"):
        train(nn.Linear(5, 2), TensorFeed(inputs, data), settings(schedule="constant"), objective=objective)


def test_frozen_means_frozen() -> None:
    model = net()
    model[0].requires_grad_(False)
    model[1].requires_grad_(False)
    before = {k: v.clone() for k, v in model.state_dict().items()}
    train(model, feed(blobs()), settings(epochs=2))
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]) == name.startswith(("0.", "1.")), name


def test_nothing_to_train_is_said() -> None:
    with pytest.raises(TrainingStopped, match="every parameter"):
        train(net().requires_grad_(False), feed(blobs()), settings())


def test_patience_stops_early() -> None:
    data = blobs()
    history = train(
        nn.Linear(5, 2), TensorFeed(torch.zeros(len(data), 5), data), settings(epochs=50, patience=2, lr=1e-9),
        select=Selection("average", TensorFeed(torch.zeros(len(data), 5), data)),
    )  # fmt: skip
    assert len(history.epochs) == 3


def test_copies_are_drawn_in_training_and_plain_in_evaluation() -> None:
    data = blobs(n=6)
    inputs = torch.arange(3).repeat(6, 1).float()[..., None]  # copy j of every item holds the value j
    copies = TensorFeed(inputs, data, copies=True)
    drawn = torch.cat([b.inputs for e in range(20) for b in copies([np.arange(6)], e)])
    assert set(drawn.flatten().tolist()) == {0.0, 1.0, 2.0}
    assert torch.cat([b.inputs for b in copies.evaluate(4)]).eq(0).all()
