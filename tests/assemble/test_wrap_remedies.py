"""A model trained elsewhere is opened, cured, saved and read back: what it computes stays the same, bit for bit."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import foveate as fv
from foveate.assemble.capabilities import network_of
from foveate.assemble.network import Network
from foveate.data.preprocess import Preprocess
from foveate.errors import ModelError

VIEW = Preprocess((32, 32), mean=(0.5,) * 3, std=(0.25,) * 3)
NAMES = ["cat", "duck"]


class Handmade(nn.Module):
    """Two convolutions, and everything between maps and head written as functions."""

    def __init__(self, classes: int = 2) -> None:
        super().__init__()
        self.one = nn.Conv2d(3, 8, 3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.two = nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.hidden = nn.Linear(16, 12)
        self.head = nn.Linear(12, classes)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu_(self.norm(self.one(x)))
        x = F.relu(self.two(x))
        x = F.adaptive_avg_pool2d(x, 1).view(x.shape[0], -1)
        return self.head(F.dropout(F.relu(self.hidden(x)), 0.5, self.training))


def made(kind: Callable[..., nn.Module], *args: Any) -> nn.Module:
    torch.manual_seed(0)
    return kind(*args).eval()


@pytest.fixture(scope="module")
def data() -> Any:
    return fv.data.critters(train=16, target=24, val=16, test=12, size=32)


@pytest.fixture(scope="module")
def wrapped() -> fv.Wrapped:
    return fv.wrap(made(Handmade), NAMES, preprocess=VIEW)


def test_what_is_inside_is_found_and_said(wrapped: fv.Wrapped) -> None:
    found = wrapped.abilities
    assert (found.channels, found.grid, found.embedding) == (16, (8, 8), 12)
    assert found.gradients
    assert not found.black_box
    assert not found.tokens
    assert "an embedding of 12 numbers" in repr(wrapped)
    network = network_of(wrapped)
    assert network is not None
    x = torch.randn(3, 3, 32, 32)
    net = wrapped.model.module  # type: ignore[union-attr]
    with torch.no_grad():
        assert torch.equal(network(x), net(x))
        maps = F.relu(net.two(F.relu(net.norm(net.one(x)))))
        assert torch.equal(network.maps(x), maps)
        assert torch.equal(network.embed(x), F.relu(net.hidden(maps.mean((2, 3)))))


@pytest.mark.parametrize("remedy", ["DFR", "DAR", "AIMProbe"])
def test_remedies_start_from_it_and_are_one_model_again(
    remedy: str, wrapped: fv.Wrapped, data: Any, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"DFR": {"refits": 2}, "DAR": {"epochs": 2}, "AIMProbe": {"epochs": 2, "heads": 4}}
    cured = getattr(fv, remedy)(base=wrapped, store=tmp_path / "store", progress=False, **settings[remedy])
    cured.fit(data.target, val=data.val)
    again = fv.load(cured.save(tmp_path / "cured"))
    assert np.array_equal(again.predict_logits(data.test), cured.predict_logits(data.test))
    assert np.array_equal(again.look(data.test[0].image[None]).map, cured.look(data.test[0].image[None]).map)
    assert "trained elsewhere" in cured.supervision()


def test_the_last_convolution_of_somebodys_network_is_left_alone(
    wrapped: fv.Wrapped, data: Any, tmp_path: Path
) -> None:
    with pytest.raises(fv.FoveateError, match="another DFR variant"):
        fv.DFR(wrapped, variant="conv", epochs=1, store=tmp_path, progress=False).fit(data.target)


def test_saved_and_read_back_it_answers_as_before(wrapped: fv.Wrapped, data: Any, tmp_path: Path) -> None:
    again = fv.load(wrapped.save(tmp_path / "kept"))
    assert isinstance(again, fv.Wrapped)
    assert np.array_equal(again.predict_logits(data.test), wrapped.predict_logits(data.test))
    assert again.abilities == wrapped.abilities
    twice = fv.load(again.save(tmp_path / "twice"))
    assert np.array_equal(twice.predict_logits(data.test), wrapped.predict_logits(data.test))
    assert np.array_equal(twice.look(data.test[0].image[None]).map, wrapped.look(data.test[0].image[None]).map)


def as_timm(state: dict[str, Tensor]) -> dict[str, Tensor]:
    """torchvision and timm call the tensors of a ResNet alike."""
    return {k: v for k, v in state.items() if not k.startswith("fc.")}


def test_dar_on_a_wrapped_resnet_is_dar_on_the_same_weights_by_name(data: Any, tmp_path: Path) -> None:
    from torchvision.models import resnet18

    net: Any = made(lambda: resnet18(num_classes=2))
    view = Preprocess((64, 64), mean=(0.4,) * 3, std=(0.3,) * 3)
    wrapped = fv.wrap(net, NAMES, preprocess=view)
    backbone = fv.extract.create_backbone("resnet18", image_size=(64, 64))
    backbone.net.load_state_dict(as_timm(net.state_dict()))
    named = fv.wrap(Network(backbone, copy.deepcopy(net.fc)), NAMES, preprocess=view)
    how: dict[str, Any] = {"epochs": 2, "store": tmp_path, "progress": False, "queries": 2}
    dars = [fv.DAR(base, **how).fit(data.target, val=data.val) for base in (wrapped, named)]
    assert wrapped.abilities.maps == "layer4"
    one, two = (dar.predict_logits(data.test) for dar in dars)
    assert np.array_equal(one, two)
    heads = [dar.parts_.decide.tensors() for dar in dars]
    assert all(torch.equal(heads[0][key], heads[1][key]) for key in heads[0])


def test_a_function_cannot_be_saved(data: Any, tmp_path: Path) -> None:
    box = fv.wrap(lambda x: x.mean((2, 3))[:, :2], NAMES, preprocess=VIEW)
    assert box.abilities.black_box
    with pytest.raises(ModelError, match="Python function"):
        box.save(tmp_path / "box")
    assert not (tmp_path / "box").exists()
    with pytest.raises(ModelError, match="ends in a network"):
        fv.DFR(box, store=tmp_path).fit(data.target)
