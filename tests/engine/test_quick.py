"""Quicker training is the same training: parts of a batch, precision, a compiler that fails, where tensors lie."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages
from foveate.data.loading import Batch
from foveate.engine import Fixed, TensorFeed, TrainSettings, quick, train
from foveate.engine.quick import channels_last, chosen_precision, is_convolutional
from foveate.errors import FoveateError


def feed(n: int = 44) -> TensorFeed:
    rng = np.random.default_rng(0)
    data = GroupedDataset(ArrayImages(np.zeros((n, 1, 1, 3), np.uint8)), rng.integers(0, 3, n), ["a", "b", "c"])
    return TensorFeed(torch.from_numpy(rng.normal(size=(n, 3, 6, 6)).astype(np.float32)), data)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(16, 3))


def trained(model: nn.Module | None = None, **values: object) -> tuple[nn.Module, list[float]]:
    model = model or net()
    words = {"epochs": 3, "batch_size": 16, "lr": 0.05, "optimizer": "sgd", "progress": False, **values}
    history = train(model, feed(), TrainSettings.of(**words))
    return model, history.losses


def weights(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("clip", [None, 0.1])
def test_parts_of_a_batch_make_the_step_of_the_whole(clip: float | None) -> None:
    whole, losses = trained(batch_size=16, clip=clip)
    parts, same = trained(batch_size=4, accumulate=4, clip=clip)
    assert len(losses) == len(same) == 3 * 3  # 44 images: the last batch is short
    assert same == pytest.approx(losses, abs=1e-6)
    torch.testing.assert_close(weights(parts), weights(whole), atol=1e-6, rtol=1e-5)


def test_batches_that_belong_together_are_not_cut() -> None:
    plan = Fixed(lambda epoch: [np.arange(8)])
    with pytest.raises(FoveateError, match="compares the images of a batch with each other"):
        train(net(), feed(), TrainSettings(epochs=1, accumulate=2, progress=False), plan=plan)


def test_the_layout_is_put_back_and_changes_no_value(monkeypatch: pytest.MonkeyPatch) -> None:
    quickly, _ = trained()
    assert all(p.is_contiguous() for p in quickly.parameters())
    monkeypatch.setattr(quick, "is_convolutional", lambda model: False)
    plainly, _ = trained()
    torch.testing.assert_close(weights(quickly), weights(plainly), atol=1e-6, rtol=1e-5)


def test_patches_are_no_reason_to_change_the_layout() -> None:
    vit = nn.Sequential(nn.Conv2d(3, 8, 4, stride=4), nn.Conv2d(8, 2, 1))
    assert not is_convolutional(vit)
    with channels_last(vit):
        assert vit[0].weight.is_contiguous()


@pytest.mark.parametrize(
    ("device", "has", "problem", "told"),
    [
        ("cpu", True, None, "bf16-mixed"), ("cpu", False, None, "32-true"), ("cpu", True, "it dies", "32-true"),
        ("cuda", True, None, "bf16-mixed"), ("cuda", False, None, "16-mixed"), ("mps", True, None, "32-true"),
    ],
)  # fmt: skip
def test_auto_is_what_the_machine_can_do(
    device: str, has: bool, problem: str | None, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quick, "multiplies_bf16", lambda: has)
    monkeypatch.setattr(quick, "bf16_problem", lambda: problem)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda: has)
    assert chosen_precision("auto", torch.device(device)) == told
    assert chosen_precision("32-true", torch.device(device)) == "32-true"


@pytest.mark.bf16
def test_bf16_learns_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOVEATE_BF16", "usable")
    _, exact = trained()
    model, rounded = trained(precision="bf16-mixed")
    assert rounded == pytest.approx(exact, abs=0.02)
    assert model[0].weight.dtype == torch.float32


def test_a_compiler_that_fails_is_a_sentence(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def broken(*args: object, **kwargs: object) -> None:
        raise RuntimeError("no working C++ compiler found\nand a page of more")

    monkeypatch.setattr(nn.Module, "compile", lambda self: setattr(self, "_compiled_call_impl", broken))
    with caplog.at_level(logging.WARNING, logger="foveate"):
        model, losses = trained(compile=True)
    assert caplog.messages == [
        "the network is trained without torch.compile, which failed: no working C++ compiler found"
    ]
    assert losses == trained()[1]
    assert model._compiled_call_impl is None


def test_a_mistake_of_the_model_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nn.Module, "compile", lambda self: None)
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        trained(nn.Sequential(nn.Flatten(), nn.Linear(7, 3)), compile=True)


def test_tensors_go_to_a_gpu_through_pinned_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned, moved = [], []
    monkeypatch.setattr(Tensor, "pin_memory", lambda self: pinned.append(1) or self)
    monkeypatch.setattr(Tensor, "to", lambda self, device, non_blocking=False: moved.append(non_blocking) or self)
    batch = next(iter(feed()([np.arange(4)], 0)))
    batch.to("cuda")
    assert (len(pinned), moved) == (2, [True, True])  # images and labels; there are no attributes
    assert isinstance(batch.to("cpu"), Batch)
    assert len(pinned) == 2
