"""What a network starts from: trained weights where they can be had, said in one line; nothing waits for a network."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import foveate as fv
from foveate.errors import ModelError
from foveate.extract import create_backbone, starting
from foveate.extract.starting import RANDOM, started

SIZE = (64, 64)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def asked(*_: Any) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(starting.socket, "create_connection", asked)
    starting._reachable.cache_clear()


def test_without_weights_it_says_so_and_what_to_do(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "foveate.start"):
        found = started("resnet10t", None, SIZE, pretrained=None)
    assert (found.origin, found.view) == (RANDOM, None)
    assert "starts from random weights" in caplog.text
    assert "FOVEATE_OFFLINE is set" in caplog.text
    assert "--scratch" in caplog.text


def test_insisting_is_an_error_and_scratch_is_silent(caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(ModelError, match="cannot load pretrained weights of 'resnet10t'"):
        started("resnet10t", None, SIZE, pretrained=True)
    for name, options in (("resnet10t", {"pretrained": False}), ("micro_resnet", {"pretrained": None}),
                          ("resnet10t", {"pretrained": None, "small_stem": True})):  # fmt: skip
        assert started(name, None, SIZE, **options).origin == RANDOM
    assert not caplog.records


def test_the_hub_is_asked_once_and_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def nobody(*place: Any) -> None:
        asked.append(place)
        raise OSError("no route")

    monkeypatch.setattr(starting.socket, "create_connection", nobody)
    for word in starting.OFFLINE:
        monkeypatch.delenv(word, raising=False)
    for word in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.delenv(word, raising=False)
    for _ in range(3):
        assert started("resnet10t", None, SIZE, pretrained=None).origin == RANDOM
    assert len(asked) == 1
    assert asked[0][1] <= 2


def test_weights_in_the_cache_and_assets_are_found(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    real, made = create_backbone, []

    def counted(name: Any, **options: Any) -> Any:
        made.append(options.pop("pretrained", False))
        return real(name, **options)

    monkeypatch.setattr(starting, "create_backbone", counted)
    monkeypatch.setattr(starting, "_kept", lambda known: True)
    with caplog.at_level(logging.INFO, "foveate.start"):
        found = started("resnet10t", None, SIZE, pretrained=None)
    assert made == [True]
    assert found.view is not None
    assert "in the hub's cache on this machine" in caplog.text
    monkeypatch.setattr(starting, "_kept", lambda known: False)
    monkeypatch.setattr(starting, "IN_REGISTRIES", {"resnet10t": "micro-vit"})
    monkeypatch.setattr(starting.assets, "status", lambda: [type("Row", (), {"name": "micro-vit", "ready": True})()])
    assert "asset 'micro-vit'" in started("resnet10t", None, SIZE, pretrained=None).origin


def test_a_fitted_model_remembers(tmp_path: Path) -> None:
    data = fv.data.critters(train=8, target=8, val=8, test=8, size=32)
    torch.manual_seed(0)
    model = fv.ERM("micro-vit", epochs=1, progress=False, image_size=64).fit(data.train)
    assert model.started_from_ == "the weights of 'micro-vit'"
    again: Any = fv.load(model.save(tmp_path / "m"))
    assert again.started_from_ == model.started_from_
    assert np.array_equal(again.predict_logits(data.test), model.predict_logits(data.test))
