"""Models trained elsewhere: every format gives the same answers, and nothing runs without being allowed to."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import foveate as fv
from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages
from foveate.data.preprocess import Preprocess
from foveate.errors import ModelError
from foveate.export import to_folder

VIEW = Preprocess((16, 16), mean=(0.5,) * 3, std=(0.25,) * 3)


class Tiny(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.head = nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.conv(x)).mean((2, 3)))


@pytest.fixture(scope="module")
def net() -> Tiny:
    torch.manual_seed(0)
    return Tiny().eval()


@pytest.fixture(scope="module")
def data() -> GroupedDataset:
    pixels = np.random.default_rng(0).integers(0, 255, (10, 20, 16, 3), dtype=np.uint8)
    return GroupedDataset(ArrayImages(pixels), np.arange(10) % 2, ["cat", "dog"])


def expected(net: nn.Module, data: GroupedDataset) -> np.ndarray:
    with torch.no_grad():
        return net(VIEW.normalise(torch.stack([VIEW.prepare(s.image) for s in data]))).numpy()


def test_callable_and_module_give_the_models_own_logits(net: Tiny, data: GroupedDataset) -> None:
    for model in (net, lambda x: net(x), lambda x: net(x).detach().numpy()):
        wrapped = fv.wrap(model, ["cat", "dog"], preprocess=VIEW)
        np.testing.assert_allclose(wrapped.predict_logits(data, batch_size=4), expected(net, data), atol=1e-5)
    assert fv.evaluate(wrapped, data).n == 10
    assert wrapped.look(data[0].image[None]).kind == "occlusion"


def test_torchscript_and_export_need_trust(net: Tiny, data: GroupedDataset, tmp_path: Path) -> None:
    torch.jit.trace(net, torch.zeros(2, 3, 16, 16)).save(tmp_path / "model.pt")
    batch = torch.export.Dim("batch", min=1, max=256)
    program = torch.export.export(net, (torch.zeros(2, 3, 16, 16),), dynamic_shapes={"x": {0: batch}})
    torch.export.save(program, tmp_path / "model.pt2")
    for file in ("model.pt", "model.pt2"):
        with pytest.raises(ModelError, match="trust=True"):
            fv.wrap(tmp_path / file, ["cat", "dog"])
        wrapped = fv.wrap(tmp_path / file, ["cat", "dog"], preprocess=VIEW, trust=True)
        np.testing.assert_allclose(wrapped.predict_logits(data), expected(net, data), atol=1e-5)


class Bomb:
    """Pickled, this writes a file when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> Any:
        return Path.touch, (self.path,)


def test_no_pickle_runs_by_default(tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    torch.save({"state_dict": Bomb(mark)}, tmp_path / "bomb.pth")
    (tmp_path / "plain.pkl").write_bytes(pickle.dumps(Bomb(mark)))
    for what in (tmp_path / "bomb.pth", tmp_path / "plain.pkl", f"micro_resnet@{tmp_path / 'bomb.pth'}"):
        with pytest.raises(ModelError):
            fv.wrap(what, ["cat", "dog"])
    assert not mark.exists()
    with pytest.raises(ModelError, match="not a model"):
        fv.wrap(tmp_path / "bomb.pth", ["cat", "dog"], trust=True)
    assert mark.exists()  # the bomb is real: with trust it goes off


def test_onnx_with_its_own_names_and_view(net: Tiny, data: GroupedDataset, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    weights = {k: v.numpy() for k, v in net.state_dict().items()}
    nodes = [
        onnx.helper.make_node("Conv", ["x", "conv.weight", "conv.bias"], ["a"], pads=[1, 1, 1, 1]),
        onnx.helper.make_node("Relu", ["a"], ["b"]),
        onnx.helper.make_node("GlobalAveragePool", ["b"], ["c"]),
        onnx.helper.make_node("Flatten", ["c"], ["d"]),
        onnx.helper.make_node("Gemm", ["d", "head.weight", "head.bias"], ["logits"], transB=1),
    ]
    for batch in ("n", 4):
        graph = onnx.helper.make_graph(
            nodes, "tiny",
            [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [batch, 3, 16, 16])],
            [onnx.helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, [batch, 2])],
            [onnx.numpy_helper.from_array(v, k) for k, v in weights.items()],
        )  # fmt: skip
        model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
        model.ir_version = 9
        told = {"class_names": json.dumps(["cat", "dog"]), "preprocess": json.dumps(VIEW.to_dict())}
        onnx.helper.set_model_props(model, told)
        onnx.save(model, tmp_path / "tiny.onnx")
        wrapped = fv.wrap(tmp_path / "tiny.onnx")
        assert (wrapped.class_names_, wrapped.preprocess_) == (["cat", "dog"], VIEW)
        np.testing.assert_allclose(wrapped.predict_logits(data), expected(net, data), atol=1e-4)
    (tmp_path / "bad.onnx").write_text("not a graph")
    with pytest.raises(ModelError, match="not a readable ONNX model"):
        fv.wrap(tmp_path / "bad.onnx", ["cat", "dog"])


@pytest.mark.parametrize("name", ["micro_resnet", "mobilenetv2_035", "mobilenetv3_small_050", "micro_vit"])
def test_timm_checkpoint_gives_the_full_models_logits_and_gradcam(name: str, tmp_path: Path) -> None:
    import timm

    from foveate.extract import list_backbones

    assert list_backbones(name)
    torch.manual_seed(0)
    full = timm.create_model(name, num_classes=3).eval()
    save_file(full.state_dict(), tmp_path / "w.safetensors")
    names = ["a", "b", "c"]
    wrapped = fv.wrap(f"{name}@{tmp_path / 'w.safetensors'}", names, image_size=64)
    images = torch.randint(0, 255, (2, 3, 64, 64), dtype=torch.uint8)
    with torch.no_grad():
        own = full(wrapped.inputs(images)).numpy()
    np.testing.assert_allclose(wrapped.predict_logits(images), own, atol=1e-5)
    assert wrapped.look(images).kind == "grad-cam"
    with pytest.raises(ModelError, match="does not fit"):
        fv.wrap(name, ["a", "b"], weights=tmp_path / "w.safetensors", image_size=64)


def test_mistakes_get_a_sentence(net: Tiny, data: GroupedDataset, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="class names"):
        fv.wrap(net)
    with pytest.raises(ModelError, match="neither a model file nor a timm name"):
        fv.wrap(str(tmp_path / "nothing.onnx"), ["cat"])
    with pytest.raises(ModelError, match="one column for each"):
        fv.wrap(net, ["cat", "dog", "owl"], preprocess=VIEW).predict(data)
    with pytest.raises(ModelError, match="Python function"):
        fv.wrap(lambda x: net(x), ["cat", "dog"]).save(tmp_path / "m")
    with pytest.raises(ModelError, match="expected a callable"):
        fv.wrap(3, ["cat"])  # type: ignore[arg-type]


def _beside(file: Path, **changed: Any) -> None:
    """What ``foveate export`` writes beside a model file, by hand."""
    told = {"class_names": ["cat", "dog"], "preprocess": VIEW.to_dict(), "graphs": [{"file": file.name}], **changed}
    (file.parent / "foveate-export.json").write_text(json.dumps(told), encoding="utf-8")


def test_names_and_view_are_read_from_the_file_beside(net: Tiny, data: GroupedDataset, tmp_path: Path) -> None:
    file = tmp_path / "model.pt"
    torch.jit.trace(net, torch.zeros(2, 3, 16, 16)).save(file)
    with pytest.raises(ModelError, match="class names"):  # nothing beside it yet
        fv.wrap(file, trust=True)
    _beside(file)
    wrapped = fv.wrap(file, trust=True)
    assert (wrapped.class_names_, wrapped.preprocess_) == (["cat", "dog"], VIEW)
    np.testing.assert_allclose(wrapped.predict_logits(data), expected(net, data), atol=1e-5)
    own = Preprocess((16, 16), mean=(0.0,) * 3, std=(1.0,) * 3)
    given = fv.wrap(file, ["owl", "fox"], preprocess=own, trust=True)  # what the caller says comes first
    assert (given.class_names_, given.preprocess_) == (["owl", "fox"], own)


def test_the_file_beside_speaks_only_for_its_own_graph(net: Tiny, tmp_path: Path) -> None:
    file = tmp_path / "model.pt"
    torch.jit.trace(net, torch.zeros(2, 3, 16, 16)).save(file)
    for graphs in ([{"file": "other.pt"}], [{"file": "model.pt"}, {"file": "second.pt"}]):
        _beside(file, graphs=graphs)
        with pytest.raises(ModelError, match="class names"):
            fv.wrap(file, trust=True)
    _beside(file, preprocess={"size": [16, 16], "colour": "blue"})
    with pytest.raises(ModelError, match=r"foveate-export.json cannot be read"):
        fv.wrap(file, trust=True)
    (tmp_path / "foveate-export.json").write_text("{ not json", encoding="utf-8")
    with pytest.raises(ModelError, match=r"foveate-export.json cannot be read"):
        fv.wrap(file, trust=True)


def test_an_exported_model_is_wrapped_as_it_was(tmp_path: Path) -> None:
    """What ``foveate export`` writes is what ``wrap`` reads: the same answers from the file alone."""
    bench = fv.data.critters(train=24, target=8, val=8, test=12, size=32)
    erm = fv.ERM("micro_resnet", epochs=1, progress=False).fit(bench.train)
    to_folder(erm, tmp_path / "exported", "torch-export")
    again = fv.wrap(tmp_path / "exported" / "model.pt2", trust=True)
    assert again.class_names_ == erm.class_names_
    np.testing.assert_allclose(again.predict_proba(bench.test), erm.predict_proba(bench.test), atol=1e-4)


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        ({"inputs": 0}, "has 0 inputs"),
        ({"inputs": 2}, "has 2 inputs"),
        ({"kind": 7}, "expected 32-bit floating-point images"),
        ({"shape": (0, 3, 32, 32)}, "none of them 0"),
        ({"shape": ("b", 3)}, r"expected images \[batch, 3, height, width\]"),
    ],
)
def test_an_onnx_file_that_reads_no_images_is_refused(odd: dict[str, Any], said: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    from tests.fuzz.world import onnx_model

    (tmp_path / "m.onnx").write_bytes(onnx_model(**odd))
    with pytest.raises(ModelError, match=said):
        fv.wrap(tmp_path / "m.onnx", ["cat", "duck"])


def test_an_onnx_file_that_fails_when_it_runs_is_a_sentence(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    from tests.fuzz.world import onnx_model

    (tmp_path / "m.onnx").write_bytes(onnx_model(shape=("b", 3, 32, 32)))
    with pytest.raises(ModelError, match="cannot be run on images"):
        fv.wrap(tmp_path / "m.onnx", ["cat", "duck"], image_size=16)
    model = fv.wrap(tmp_path / "m.onnx", ["cat", "duck"], image_size=16, try_out=False)
    with pytest.raises(ModelError, match="cannot be run on images"):
        model.predict(np.zeros((2, 16, 16, 3), np.uint8))
