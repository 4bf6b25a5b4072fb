"""A model asked through its graph: the same answers, and the model itself wherever the graph cannot be had."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import foveate as fv
from foveate.data.preprocess import Preprocess
from foveate.export import swift, write
from foveate.export.graphs import Graph
from foveate.export.swift import Swift, quickened

VIEW = Preprocess((24, 24))
STUMBLES = {
    "no packages": ImportError("onnx"),
    "no ONNX for a layer": RuntimeError("aten::what"),
    "a full disk": OSError(28, "no space"),
}
"""What writing a graph can end with besides our own errors."""
IMAGES = torch.from_numpy(np.random.default_rng(0).integers(0, 256, (20, 3, 24, 24), dtype=np.uint8))


class Small(nn.Module):
    """Convolutions with normalisation, which a graph folds; ``broken`` rows have no answer."""

    def __init__(self, broken: bool = False) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.head = nn.Linear(8, 2)
        self.broken = broken

    def forward(self, x: Tensor) -> Tensor:
        out = self.head(self.body(x).flatten(1))
        return out / 0 * 0 if self.broken else out


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model always seems slower than its graph: which one is, a loaded machine cannot tell."""
    times = iter(range(10**6))
    timed = swift._timed

    def told(model: Any, images: Tensor) -> tuple[Any, float]:
        return timed(model, images)[0], 100.0 - next(times) * 50

    monkeypatch.setattr(swift, "_timed", told)


def wrapped(module: nn.Module) -> fv.System:
    torch.manual_seed(0)
    return fv.wrap(module.eval(), ["a", "b"], preprocess=VIEW)


@pytest.mark.usefixtures("slow")
def test_the_graph_gives_the_model_s_answers() -> None:
    model = wrapped(Small())
    ask = Swift(model, expected=1000)
    assert np.allclose(ask.predict_logits(IMAGES), model.predict_logits(IMAGES), atol=1e-5)
    assert ask.by_graph
    data = fv.data.critters(train=8, target=8, val=8, test=12, size=32).test
    probabilities = ask.predict_proba(data, on_bad="skip", workers=0)
    assert np.allclose(probabilities, model.predict_proba(data, on_bad="skip"), atol=1e-5)


class Branches(Small):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x if x.mean() > 0 else -x)


@pytest.mark.parametrize(("module", "recorded"), [(Small, True), (Branches, False)])
def test_what_depends_on_the_images_is_not_recorded(
    module: type[Small], recorded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    traced: list[Path] = []
    monkeypatch.setattr(write, "write_graph", lambda graph, path, format: traced.append(path))
    net, path = module().eval(), tmp_path / "model.onnx"
    write.write_soon(Graph("model", net, {"images": (3, 32, 32)}, ("logits",)), path)
    assert traced == ([] if recorded else [path])
    if recorded:
        for batch in (1, 2, 7):
            x = torch.randn(batch, 3, 32, 32)
            found = onnxruntime.InferenceSession(str(path)).run(["logits"], {"images": x.numpy()})[0]
            assert np.allclose(found, net(x).detach().numpy(), atol=1e-5)


@pytest.mark.parametrize(("module", "by_graph"), [(Small, True), (Branches, False)])
def test_a_quickened_module_gives_its_own_answers(module: type[Small], by_graph: bool) -> None:
    pytest.importorskip("onnxruntime")
    torch.manual_seed(0)
    net, x = module().eval(), torch.randn(6, 3, 32, 32)
    ask = quickened(net, x)
    assert (ask is not net) == by_graph
    assert torch.allclose(ask(-x), net(-x), atol=1e-5)


def test_little_to_ask_writes_no_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(swift, "write_soon", lambda *_: pytest.fail("a graph was written"))
    ask = Swift(wrapped(Small()), expected=20)
    ask.predict_logits(IMAGES)
    assert not ask.by_graph


@pytest.mark.usefixtures("slow")
@pytest.mark.parametrize("why", ["black box", "no answers", *STUMBLES, "another answer", "slower"])
def test_the_model_itself_goes_on(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = wrapped(Small(broken=why == "no answers"))
    if why == "black box":
        model = fv.wrap(lambda x: x.mean((2, 3))[:, :2], ["a", "b"], preprocess=VIEW)
    elif why in STUMBLES:
        monkeypatch.setattr(swift, "write_soon", lambda *_: (_ for _ in ()).throw(STUMBLES[why]))
    elif why == "another answer":
        other = fv.wrap(lambda x: x.mean((2, 3))[:, :2], ["a", "b"], preprocess=VIEW)
        monkeypatch.setattr(swift, "wrap", lambda *_, **__: other)
    elif why == "slower":
        monkeypatch.setattr(swift, "QUICKER", -1e9)
    ask = Swift(model, expected=1000)
    assert np.array_equal(ask.predict_logits(IMAGES), model.predict_logits(IMAGES), equal_nan=True)
    assert not ask.by_graph


def test_an_unreadable_first_image_is_no_reason_to_stop() -> None:
    data = fv.data.critters(train=8, target=8, val=8, test=8, size=32).test
    read = data.images.read

    def torn(i: int) -> Any:
        if i == 0:
            raise fv.errors.UnreadableImage("a.png", "torn")
        return read(i)

    data.images.read = torn  # type: ignore[method-assign]
    answers = Swift(wrapped(Small()), expected=10**6).predict_proba(data, on_bad="skip")
    assert np.isnan(answers[0]).all()
    assert np.isfinite(answers[1:]).all()
