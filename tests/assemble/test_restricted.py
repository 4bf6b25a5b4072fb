"""A black box behind a crop: it answers as on the crop alone, nothing in it changes, and the whole is one model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import foveate as fv
from foveate.data.preprocess import Preprocess
from foveate.errors import FoveateError, ModelError
from foveate.extract import FrozenModel
from foveate.look.attentive import attended
from foveate.restrict import extract_crops, greedy_crops

VIEW = Preprocess((32, 32), mean=(0.5,) * 3, std=(0.25,) * 3)


@pytest.fixture(scope="module")
def data() -> Any:
    return fv.data.critters(train=16, target=24, val=32, test=12, size=64)


def border(x: Tensor) -> Tensor:
    """Reads nothing but the border of what it is shown."""
    edge = torch.cat([x[:, :, :3].flatten(2), x[:, :, -3:].flatten(2)], dim=2).mean(2)
    return torch.stack([edge[:, 2] - edge[:, 1], edge[:, 1] - edge[:, 2]], dim=1)


@pytest.fixture(scope="module")
def box(data: Any) -> fv.Wrapped:
    return fv.wrap(border, data.train.class_names, preprocess=VIEW)


def test_the_box_is_shown_the_crop_and_nothing_else(box: fv.Wrapped, data: Any) -> None:
    found = fv.Restricted(box, "micro-vit", shares=(0.5,), select="loss").fit(data.target, val=data.val)
    found.share_, found.preprocess_ = 0.5, Preprocess((64, 64), mean=(0.0,) * 3, std=(1.0,) * 3, flip=False)
    images = torch.stack([s.image for s in data.test])
    pixels = images.float() / 255
    boxes = greedy_crops(attended(FrozenModel.open("micro-vit"), pixels).map, (32,), 64)
    crops = extract_crops(pixels, boxes, 32)[:, 0]
    expected = border((crops - 0.5) / 0.25)
    np.testing.assert_allclose(found.predict_logits(images), expected, atol=1e-5)
    gaze = found.look(images)
    assert gaze.boxes is not None
    assert torch.equal(gaze.boxes, boxes)


def test_the_best_on_val_is_chosen_and_as_is_is_the_box_itself(box: fv.Wrapped, data: Any) -> None:
    found = fv.Restricted(box, "micro-vit", shares=(0.5, 0.75)).fit(data.target, val=data.val)
    assert set(found.scores_) == {"as is", "0.5", "0.75"}
    best = max(found.scores_.values())
    chosen = "as is" if found.share_ is None else str(found.share_)
    assert found.scores_[chosen] == best
    assert "group labels (worst_group)" in found.supervision()
    never = fv.Restricted(box, "micro-vit", shares=(0.05,), select="loss").fit(data.target, val=data.val)
    never.share_, never.preprocess_ = None, box.preprocess_
    assert np.array_equal(never.predict_logits(data.test), box.predict_logits(data.test))


def test_an_onnx_box_is_saved_with_its_restriction(data: Any, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    from tests.fuzz.world import onnx_model

    (tmp_path / "m.onnx").write_bytes(onnx_model(shape=("b", 3, 32, 32)))
    base = fv.wrap(tmp_path / "m.onnx", ["cat", "duck"])
    found = fv.Restricted(base, "micro-vit", shares=(0.4,), select="average").fit(data.target, val=data.val)
    found.share_, found.preprocess_ = 0.4, Preprocess((64, 64), mean=(0.0,) * 3, std=(1.0,) * 3, flip=False)
    folder = found.save(tmp_path / "cured")
    (tmp_path / "m.onnx").unlink()
    again = fv.load(folder)
    assert np.array_equal(again.predict_logits(data.test), found.predict_logits(data.test))
    assert torch.equal(again.look([data.test[0].image]).map, found.look([data.test[0].image]).map)
    told = json.loads((folder / "system.json").read_text())
    told["learned"]["base"]["learned"]["sha256"] = "0" * 64
    (folder / "system.json").write_text(json.dumps(told))
    with pytest.raises(ModelError, match="other checksum"):
        fv.load(folder)


def test_an_onnx_file_with_its_weights_elsewhere_is_run_and_not_saved(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper, numpy_helper

    nodes = [
        helper.make_node("GlobalAveragePool", ["x"], ["pooled"]), helper.make_node("Flatten", ["pooled"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["y"]),
    ]  # fmt: skip
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["b", 3, 32, 32])]
    given = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["b", 2])]
    weights = [numpy_helper.from_array(np.ones((3, 2), np.float32), "w")]
    model = helper.make_model(
        helper.make_graph(nodes, "g", values, given, weights), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    assert (tmp_path / "m.data").exists()
    box = fv.wrap(tmp_path / "m.onnx", ["cat", "duck"])
    with pytest.raises(ModelError, match="second file"):
        box.save(tmp_path / "kept")


def test_settings_and_bases_that_do_not_fit(box: fv.Wrapped, data: Any) -> None:
    with pytest.raises(FoveateError, match="goes around a fitted or wrapped model"):
        fv.Restricted().fit(data.target)
    for shares in ((1.0,), (), (0.0,), ("half",)):
        with pytest.raises(FoveateError, match="sides of crops"):
            fv.Restricted(box, shares=shares).fit(data.target)  # type: ignore[arg-type]
    one = fv.Restricted(box, "micro-vit", shares=(0.5,)).fit(data.target, val=data.val)
    with pytest.raises(ModelError, match="already sees less"):
        fv.Restricted(one, "micro-vit").fit(data.target)


@pytest.mark.gate
def test_a_restricted_network_is_exported(data: Any, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
        torch.nn.Linear(4, 2),
    )  # fmt: skip
    base = fv.wrap(net, ["cat", "duck"], preprocess=VIEW)
    fv.export.to_folder(base, tmp_path / "base")
    found = fv.Restricted(base, "micro-vit", shares=(0.5,), select="loss").fit(data.target, val=data.val)
    found.share_, found.preprocess_ = 0.5, Preprocess((64, 64), mean=(0.0,) * 3, std=(1.0,) * 3, flip=False)
    fv.export.to_folder(found, tmp_path / "out", images=[s.image for s in data.test])
    assert fv.export.Runner(tmp_path / "out").predict([data.test[0].image]).shape == (1,)
