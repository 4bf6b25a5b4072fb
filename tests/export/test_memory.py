"""No picture is asked about twice: by one model, or by several that share a network below their heads."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

import foveate as fv
from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages
from foveate.data.preprocess import Preprocess
from foveate.export.memory import Memory
from foveate.export.swift import Swift
from foveate.export.trunks import Embeds, Trunks

VIEW = Preprocess((24, 24))
IMAGES = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (20, 3, 24, 24), dtype=np.uint8))


class Small(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).flatten(1))


def heads(number: int, change: float = 0.0) -> list[fv.System]:
    """Models with one body, whose weights differ by ``change`` from one to the next, and different heads."""
    torch.manual_seed(0)
    first = Small()
    out = []
    for k in range(number):
        module = copy.deepcopy(first)
        nn.init.normal_(module.head.weight)
        with torch.no_grad():
            module.body[0].weight += change * k
        out.append(fv.wrap(module.eval(), ["a", "b"], preprocess=VIEW))
    return out


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many pictures went through a network below its head, one number a pass."""
    counted: list[int] = []
    own = Embeds.forward

    def told(self: Embeds, x: Tensor) -> Tensor:
        counted.append(len(x))
        return own(self, x)

    monkeypatch.setattr(Embeds, "forward", told)
    return counted


def of_rows(pictures: Tensor) -> NDArray[np.float32]:
    return pictures.float().mean((2, 3)).numpy()


def test_a_picture_is_asked_once_and_answers_come_in_order() -> None:
    memory, asked = Memory(), []

    def ask(pictures: Tensor) -> NDArray[np.float32]:
        asked.extend(pictures[:, 0, 0, 0].tolist())
        return of_rows(pictures)

    rng = np.random.default_rng(1)
    for _ in range(5):
        batch = IMAGES[rng.integers(0, 12, 9)]  # with repeats within the batch
        assert np.array_equal(memory(batch, ask), of_rows(batch))
    assert len(asked) == len(set(asked)) == len(memory)


def test_memory_stays_within_its_bytes() -> None:
    memory = Memory(limit=5 * 12)
    for start in range(0, 20, 4):
        batch = IMAGES[start : start + 4]
        assert np.array_equal(memory(batch, of_rows), of_rows(batch))
        assert memory.held <= memory.limit
    assert (len(memory), memory.held) == (5, 60)
    memory(IMAGES[-5:], lambda _: pytest.fail("the latest were forgotten"))


def test_models_of_one_trunk_share_what_it_saw(passes: list[int]) -> None:
    trunks, models = Trunks(), heads(4)
    expected = [model.predict_logits(IMAGES) for model in models]
    passes.clear()
    for model, logits in zip(models, expected, strict=True):
        asks = Swift(model, expected=100, trunks=trunks)
        assert np.allclose(asks.predict_logits(IMAGES), logits, atol=1e-5)
        assert asks.trunk is not None
    assert sum(passes) == len(IMAGES)
    assert not np.allclose(expected[0], expected[1], atol=0.1)


def test_other_weights_are_another_trunk(passes: list[int]) -> None:
    trunks = Trunks()
    for model in heads(3, change=1e-3):
        asks = Swift(model, expected=100, trunks=trunks)
        assert np.allclose(asks.predict_logits(IMAGES), model.predict_logits(IMAGES), atol=1e-5)
    assert sum(passes) == 3 * len(IMAGES)


def test_a_trunk_that_does_not_agree_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = heads(2, change=0.5)
    monkeypatch.setattr("foveate.export.trunks._fingerprint", lambda *_: b"the same")
    trunks = Trunks()
    for model, shared in ((first, True), (second, False)):
        asks = Swift(model, expected=100, trunks=trunks)
        assert np.allclose(asks.predict_logits(IMAGES), model.predict_logits(IMAGES), atol=1e-5)
        assert (asks.trunk is not None) == shared


def test_a_dataset_through_the_trunk(passes: list[int]) -> None:
    data = fv.data.critters(train=8, target=8, val=8, test=20, size=32).test
    (model,) = heads(1)
    asks = Swift(model, expected=100, trunks=Trunks())
    assert np.allclose(asks.predict_proba(data, batch_size=7), model.predict_proba(data), atol=1e-5)
    pictures = [data[i].image for i in range(len(data))]
    passes.clear()
    embedded = asks.embed(pictures)  # seen already, so nothing passes again
    assert embedded is not None
    assert embedded.shape == (20, 8)
    assert passes == []


def test_one_model_by_itself_is_asked_once_too() -> None:
    asked: list[int] = []

    def black_box(x: Tensor) -> Tensor:
        asked.append(len(x))
        return x.mean((2, 3))[:, :2]

    asks = Swift(fv.wrap(black_box, ["a", "b"], preprocess=VIEW), expected=1)
    first = asks.predict_logits(IMAGES)
    asked.clear()
    assert np.array_equal(asks.predict_logits(IMAGES.flip(0)), first[::-1])
    assert asked == []


@pytest.mark.parametrize(("models", "expected", "again"), [(1, 10_000, 20), (1, 100, 0), (2, 10_000, 0)])
def test_one_model_alone_does_not_remember_a_pass_over_many_images(
    models: int, expected: int, again: int, passes: list[int]
) -> None:
    data = GroupedDataset(ArrayImages(IMAGES.permute(0, 2, 3, 1).numpy()), np.arange(20) % 2, ["a", "b"])
    ask = Swift(heads(1)[0], expected, Trunks(models))
    first = ask.predict_proba(data)
    passes.clear()
    assert np.array_equal(ask.predict_proba(data), first)
    assert sum(passes) == again
