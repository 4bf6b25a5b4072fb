"""Names become backbones: weights land where they belong, at any size, and mistakes are explained."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

import foveate as fv
from foveate import assets
from foveate.errors import FoveateError, ModelError
from foveate.extract import BackboneSpec, create_backbone, list_named, open_backbone
from foveate.extract.named import focus_state, mobilenet_state
from foveate.extract.onnx_weights import OnnxGraph, OnnxNode, read_onnx
from foveate.extract.tfjs_weights import keras_epsilon, keras_resnet_state, read_model, read_tfjs
from foveate.look import cls_attention
from foveate.measure import attention_hit, attention_mass

WHERE = {row.name: row.folder for row in assets.status() if row.ready}


def need(asset: str) -> Path:
    if asset not in WHERE:
        pytest.skip(f"the asset '{asset}' is not on this machine; foveate assets {asset}")
    return WHERE[asset]


# -- ONNX files, written here byte by byte ------------------------------------------------------------------


def varint(n: int) -> bytes:
    n &= (1 << 64) - 1
    out = b""
    while True:
        n, low = n >> 7, n & 0x7F
        out += bytes([low | (0x80 if n else 0)])
        if not n:
            return out


def field(number: int, value: bytes | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def tensor_proto(name: str, array: np.ndarray, kind: int, *, raw: bool = True, number: int = 4) -> bytes:
    dims = b"".join(field(1, d) for d in array.shape)
    if raw:
        numbers = field(9, array.tobytes())
    elif array.dtype.kind == "i":
        numbers = field(number, b"".join(varint(int(n)) for n in array.ravel()))
    else:
        numbers = field(number, array.tobytes())
    return dims + field(2, kind) + field(8, name.encode()) + numbers


def node_proto(name: str, kind: str, inputs: list[str], output: str) -> bytes:
    texts = b"".join(field(1, i.encode()) for i in inputs)
    return texts + field(2, output.encode()) + field(3, name.encode()) + field(4, kind.encode())


def model_proto(tensors: list[bytes], nodes: list[bytes]) -> bytes:
    graph = b"".join(field(1, n) for n in nodes) + field(2, b"a graph") + b"".join(field(5, t) for t in tensors)
    return field(1, 8) + field(2, b"by hand") + field(7, graph)


def test_onnx_file_written_by_hand(tmp_path):
    matrix = np.arange(6, dtype="<f4").reshape(2, 3)
    integers = np.array([3, -1, 300], dtype="<i8")
    path = tmp_path / "a.onnx"
    path.write_bytes(
        model_proto(
            [
                tensor_proto("onnx::MatMul_7", matrix, 1),
                tensor_proto("typed", matrix, 1, raw=False, number=4),
                tensor_proto("integers", integers, 7, raw=False, number=7),
                tensor_proto("half", matrix.astype("<f2"), 10),
                tensor_proto("scalar", np.array(2.5, dtype="<f8"), 11),
            ],
            [
                node_proto("/body/fc1/MatMul", "MatMul", ["x", "onnx::MatMul_7"], "y"),
                node_proto("/body/MatMul", "MatMul", ["q", "k"], "z"),  # of two activations: no weight
            ],
        )
    )
    graph = read_onnx(path)
    assert graph.tensors["typed"].tolist() == matrix.tolist()
    assert graph.tensors["integers"].tolist() == [3, -1, 300]
    assert graph.tensors["half"].dtype == torch.float16
    assert graph.tensors["scalar"].shape == ()
    assert float(graph.tensors["scalar"]) == 2.5
    assert graph.nodes[0] == OnnxNode("/body/fc1/MatMul", "MatMul", ("x", "onnx::MatMul_7"), ("y",))
    weights = graph.linear_weights()
    assert list(weights) == ["body.fc1.weight"]
    assert weights["body.fc1.weight"].tolist() == matrix.T.tolist()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"not a model at all", "not a readable ONNX file"),
        (field(1, 8), "holds 0 graphs"),
        (model_proto([tensor_proto("t", np.zeros(3, "<f4"), 1)], [])[:-2], "middle of a field"),
        (model_proto([field(1, 5) + field(2, 1) + field(9, b"\0" * 8)], []), "holds 2 numbers"),
        (model_proto([field(2, 16) + field(8, b"b")], []), "data type 16"),
        (model_proto([field(2, 1) + field(14, 1)], []), "second file"),
        (b"", "holds 0 graphs"),
    ],
)
def test_broken_onnx_files_are_refused(tmp_path, data, words):
    (tmp_path / "a.onnx").write_bytes(data)
    with pytest.raises(ModelError, match=words):
        read_onnx(tmp_path / "a.onnx")


def test_onnx_file_agrees_with_the_onnx_package(tmp_path):
    onnx = pytest.importorskip("onnx")
    rng = np.random.default_rng(0)
    arrays = {"a": rng.normal(size=(3, 4)).astype("f4"), "b": rng.integers(-9, 9, 5), "c": rng.normal(size=2)}
    kept = [onnx.numpy_helper.from_array(a, name) for name, a in arrays.items()]
    kept.append(onnx.helper.make_tensor("typed", 1, [2, 2], [1.0, 2.0, 3.0, -4.5]))
    node = onnx.helper.make_node("MatMul", ["x", "a"], ["y"], name="/fc/MatMul")
    graph = onnx.helper.make_graph([node], "g", [], [], initializer=kept)
    onnx.save(onnx.helper.make_model(graph), str(tmp_path / "m.onnx"))
    read = read_onnx(tmp_path / "m.onnx")
    for tensor in kept:
        assert np.array_equal(onnx.numpy_helper.to_array(tensor), read.tensors[tensor.name].numpy())
    assert torch.equal(read.linear_weights()["fc.weight"], torch.from_numpy(arrays["a"].T.copy()))


# -- a small ViT as the transformers library exports it ------------------------------------------------------


def exported(net: nn.Module) -> OnnxGraph:
    """The graph whose weights are those of ``net``, a timm ViT, split and named as in the asset's file."""
    state, tensors, nodes = net.state_dict(), {}, []

    def linear(path: str, weight: Tensor, bias: Tensor) -> None:
        name = f"onnx::MatMul_{len(nodes)}"
        tensors[name], tensors[f"{path}.bias"] = weight.T.contiguous(), bias
        nodes.append(
            OnnxNode("/" + path.replace(".", "/").replace("layer/", "layer.") + "/MatMul", "MatMul", ("x", name), ())
        )

    tensors["backbone.embeddings.cls_token"] = state["cls_token"]
    for leaf in ("weight", "bias"):
        tensors[f"backbone.embeddings.patch_embeddings.projection.{leaf}"] = state[f"patch_embed.proj.{leaf}"]
        tensors[f"backbone.layernorm.{leaf}"] = state[f"norm.{leaf}"]
        tensors[f"decoder.conv.{leaf}"] = torch.zeros(2)
    tensors["onnx::Concat_1"], tensors["onnx::Reshape_2"] = state["pos_embed"][:, :1], state["pos_embed"][:, 1:]
    nodes.append(OnnxNode("/backbone/embeddings/Concat", "Concat", ("onnx::Concat_1", "y"), ()))
    nodes.append(OnnxNode("/backbone/embeddings/Reshape", "Reshape", ("onnx::Reshape_2", "y"), ()))
    for i in range(len(net.blocks)):  # type: ignore[arg-type]
        layer, block = f"backbone.encoder.layer.{i}", f"blocks.{i}"
        weights, biases = (state[f"{block}.attn.qkv.{leaf}"].chunk(3) for leaf in ("weight", "bias"))
        for part, weight, bias in zip(("query", "key", "value"), weights, biases, strict=True):
            linear(f"{layer}.attention.attention.{part}", weight, bias)
        linear(f"{layer}.attention.output.dense", state[f"{block}.attn.proj.weight"], state[f"{block}.attn.proj.bias"])
        for part in ("mlp.fc1", "mlp.fc2"):
            linear(f"{layer}.{part}", state[f"{block}.{part}.weight"], state[f"{block}.{part}.bias"])
        for part in ("norm1", "norm2"):
            for leaf in ("weight", "bias"):
                tensors[f"{layer}.{part}.{leaf}"] = state[f"{block}.{part}.{leaf}"]
        for n in (1, 2):
            tensors[f"{layer}.layer_scale{n}.lambda1"] = state[f"{block}.ls{n}.gamma"]
    return OnnxGraph(tensors, nodes)


def test_focus_state_finds_every_weight():
    torch.manual_seed(0)
    net = create_backbone("vit_small_patch14_dinov2", image_size=(28, 28), embed_dim=12, depth=2, num_heads=2).net
    for parameter in net.parameters():
        nn.init.normal_(parameter)
    state = focus_state(exported(net))
    assert state.keys() == net.state_dict().keys()
    for name, tensor in net.state_dict().items():
        assert torch.equal(state[name], tensor), name


def test_focus_state_refuses_another_graph():
    with pytest.raises(ModelError, match="fetch the asset again"):
        focus_state(OnnxGraph({}, []))


# -- TensorFlow.js -------------------------------------------------------------------------------------------


def write_tfjs(folder: Path, tensors: dict[str, np.ndarray], shard: int = 50, eps: float = 1e-3) -> None:
    data = b"".join(a.astype("<f4").tobytes() for a in tensors.values())
    paths = [f"part{i}.bin" for i in range(-(-len(data) // shard))]
    for i, name in enumerate(paths):
        (folder / name).write_bytes(data[i * shard : (i + 1) * shard])
    weights = [{"name": n, "shape": list(a.shape), "dtype": "float32"} for n, a in tensors.items()]
    layer = {"class_name": "BatchNormalization", "config": {"epsilon": eps}}
    topology = {"model_config": {"config": {"layers": [layer, layer, {"class_name": "Add"}]}}}
    model = {"weightsManifest": [{"paths": paths, "weights": weights}], "modelTopology": topology}
    (folder / "model.json").write_text(json.dumps(model))


def test_tfjs_shards_are_joined(tmp_path):
    wanted = {"a/kernel": np.arange(24.0).reshape(2, 3, 4), "b": np.array([7.5]), "c": np.zeros((0, 3))}
    write_tfjs(tmp_path, wanted, shard=13)  # shards end in the middle of a number
    found = read_tfjs(tmp_path)
    assert {k: v.tolist() for k, v in found.items()} == {k: v.tolist() for k, v in wanted.items()}
    assert keras_epsilon(read_model(tmp_path)) == 1e-3


def test_broken_tfjs_files_are_refused(tmp_path):
    with pytest.raises(ModelError, match=r"model\.json"):
        read_tfjs(tmp_path)
    write_tfjs(tmp_path, {"a": np.zeros(30)})
    (tmp_path / "part1.bin").unlink()
    with pytest.raises(ModelError, match="whole"):
        read_tfjs(tmp_path)
    write_tfjs(tmp_path, {"a": np.zeros(30)})
    with open(tmp_path / "part2.bin", "ab") as file:
        file.write(b"\0\0\0\0")
    with pytest.raises(ModelError, match="120 bytes, its shards hold 124"):
        read_tfjs(tmp_path)


def keras_resnet(layers: tuple[int, ...], classes: int = 5) -> tuple[dict[str, Tensor], nn.Module]:
    """Random weights of a Keras ResNet with its own layout, and the widths it has."""
    generator = torch.Generator().manual_seed(0)
    tensors: dict[str, Tensor] = {}

    def unit(conv: str, norm: str, size: int, into: int, out: int) -> None:
        tensors[f"{conv}/kernel"] = torch.randn(size, size, into, out, generator=generator) / (size * into**0.5)
        tensors[f"{conv}/bias"] = torch.randn(out, generator=generator)
        for leaf in ("gamma", "beta", "moving_mean"):
            tensors[f"{norm}/{leaf}"] = torch.randn(out, generator=generator)
        tensors[f"{norm}/moving_variance"] = 0.5 + torch.rand(out, generator=generator)

    unit("conv1", "bn_conv1", 7, 3, 64)
    into = 64
    for stage, blocks in enumerate(layers):
        width = 64 * 2**stage
        for block in range(blocks):
            name = f"{stage + 2}{'abc'[block]}_branch"
            unit(f"res{name}2a", f"bn{name}2a", 1, into, width)
            unit(f"res{name}2b", f"bn{name}2b", 3, width, width)
            unit(f"res{name}2c", f"bn{name}2c", 1, width, 4 * width)
            if block == 0:
                unit(f"res{name}1", f"bn{name}1", 1, into, 4 * width)
            into = 4 * width
    tensors["fc1000/kernel"] = torch.randn(into, classes, generator=generator)
    tensors["fc1000/bias"] = torch.randn(classes, generator=generator)
    net = create_backbone("resnet50_keras", layers=layers, num_classes=classes).net.eval()
    return tensors, net


def as_keras_computes(tensors: dict[str, Tensor], x: Tensor, layers: tuple[int, ...], eps: float = 1e-3) -> Tensor:
    """The Keras network written out plainly: BGR 0..255 in, logits out; strides in the first 1x1 convolutions."""
    f = nn.functional

    def unit(x: Tensor, conv: str, norm: str, stride: int = 1, pad: int = 0) -> Tensor:
        x = f.conv2d(x, tensors[f"{conv}/kernel"].permute(3, 2, 0, 1), tensors[f"{conv}/bias"], stride, pad)
        g, b, m, v = (
            tensors[f"{norm}/{k}"].view(1, -1, 1, 1) for k in ("gamma", "beta", "moving_mean", "moving_variance")
        )
        return (x - m) / (v + eps).sqrt() * g + b

    x = f.relu(unit(x, "conv1", "bn_conv1", 2, 3))
    x = f.max_pool2d(f.pad(x, (1, 1, 1, 1)), 3, 2)
    for stage, blocks in enumerate(layers):
        for block in range(blocks):
            name = f"{stage + 2}{'abc'[block]}_branch"
            stride = 2 if block == 0 and stage > 0 else 1
            y = f.relu(unit(x, f"res{name}2a", f"bn{name}2a", stride))
            y = f.relu(unit(y, f"res{name}2b", f"bn{name}2b", 1, 1))
            y = unit(y, f"res{name}2c", f"bn{name}2c")
            x = f.relu(y + (unit(x, f"res{name}1", f"bn{name}1", stride) if block == 0 else x))
    return x.mean((2, 3)) @ tensors["fc1000/kernel"] + tensors["fc1000/bias"]


@torch.no_grad()
def test_keras_resnet_computes_what_keras_computes():
    """From an ordinary RGB image through our preprocessing: the same logits as BGR minus the Caffe means."""
    from foveate.extract.backbone import Backbone, default_preprocess, load_weights

    layers = (2, 1, 1, 1)
    tensors, net = keras_resnet(layers)
    load_weights(net, keras_resnet_state(tensors, layers), "resnet50_keras")
    images = torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    backbone = Backbone(net, BackboneSpec("resnet50_keras"))
    ours = net(default_preprocess(backbone, (64, 64)).normalise(images))
    bgr = images.flip(1).float() - torch.tensor([103.939, 116.779, 123.68]).view(3, 1, 1)
    torch.testing.assert_close(ours, as_keras_computes(tensors, bgr, layers), rtol=1e-4, atol=1e-3)


def test_keras_resnet_is_strict():
    tensors, _ = keras_resnet((1, 1, 1, 1))
    with pytest.raises(ModelError, match="1 tensors a Keras ResNet-50 has not"):
        keras_resnet_state({**tensors, "extra": torch.zeros(1)}, (1, 1, 1, 1))
    del tensors["bn3a_branch2b/gamma"]
    with pytest.raises(ModelError, match="bn3a_branch2b/gamma"):
        keras_resnet_state(tensors, (1, 1, 1, 1))


# -- MobileNetV2 ---------------------------------------------------------------------------------------------


@torch.no_grad()
def test_mobilenet_is_torchvisions():
    from torchvision.models import mobilenet_v2

    from foveate import compat  # noqa: F401

    torch.manual_seed(0)
    original = mobilenet_v2(weights=None).eval()
    for module in original.modules():  # statistics that matter
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(std=0.1)  # type: ignore[union-attr]
            module.running_var.uniform_(0.5, 2)  # type: ignore[union-attr]
    ours = create_backbone("mobilenetv2_100", num_classes=1000).net.eval()
    ours.load_state_dict(mobilenet_state(original.state_dict()))
    x = torch.randn(2, 3, 64, 64)
    torch.testing.assert_close(ours(x), original(x), rtol=1e-4, atol=1e-5)
    with pytest.raises(ModelError, match=r"features\.99"):
        mobilenet_state({"features.99.weight": torch.zeros(1)})


# -- names ---------------------------------------------------------------------------------------------------


def test_micro_vit_comes_with_the_package():
    backbone, view = open_backbone("micro-vit")
    assert backbone.spec == BackboneSpec("micro_vit", (64, 64))
    assert view.size == (64, 64)
    assert not backbone.training
    again, _ = open_backbone("micro-vit")
    assert again.weights_hash() == backbone.weights_hash()
    assert all(p.dtype == torch.float32 for p in backbone.parameters())


@torch.no_grad()
def test_micro_vit_looks_at_critters_it_has_not_seen():
    bench = fv.data.critters(seed=3, classes=8, strength=1 / 8, train=0, target=0, val=0, test=192)
    backbone, view = open_backbone("micro-vit")
    inputs = view.normalise(torch.stack([bench.test[i].image for i in range(192)]))
    maps = cls_attention(backbone.net, inputs).map
    boxes = torch.tensor(bench.test.boxes)
    area = ((boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]) / 64**2).mean()
    assert attention_mass(maps, boxes, 64).mean() >= 2 * area
    assert attention_hit(maps, boxes, 64).mean() > 0.95


@torch.no_grad()
def test_another_image_size_resamples_positions():
    small, _ = open_backbone("micro-vit")
    large, view = open_backbone("micro-vit", (96, 128))
    assert view.size == large.spec.image_size == (96, 128)
    assert large.maps(torch.zeros(1, 3, 96, 128)).shape == (1, 96, 12, 16)
    assert torch.equal(small.net.pos_embed[:, 0], large.net.pos_embed[:, 0])  # the class token's stays
    means = [net.net.pos_embed[:, 1:].mean() for net in (small, large)]
    torch.testing.assert_close(*means, atol=2e-3, rtol=0.05)
    same, _ = open_backbone("micro-vit", 64)
    assert same.weights_hash() == small.weights_hash()


@torch.no_grad()
def test_local_checkpoint_of_another_grid(tmp_path):
    torch.manual_seed(0)
    made = create_backbone("micro_vit", image_size=(32, 32)).eval()
    save_file(made.net.state_dict(), str(tmp_path / "w.safetensors"))
    backbone, view = open_backbone(f"micro_vit@{tmp_path / 'w.safetensors'}", 32)
    x = torch.randn(1, 3, 32, 32)
    assert torch.equal(backbone(x), made(x))
    assert view.size == (32, 32)
    assert open_backbone(f"micro_vit@{tmp_path / 'w.safetensors'}")[1].size == (32, 32)  # as it was made
    assert (
        open_backbone(f"micro_vit@{tmp_path / 'w.safetensors'}", 64)[0].maps(torch.zeros(1, 3, 64, 64)).shape[-1] == 8
    )
    with pytest.raises(ModelError, match="another architecture"):
        open_backbone(f"resnet18@{tmp_path / 'w.safetensors'}")


@pytest.mark.parametrize(
    ("name", "size", "words"),
    [
        ("micro-vit", 60, "64 x 64"),
        ("micro-vit", 0, "image_size"),
        ("micro_vit", None, "Did you mean 'micro-vit'"),
        ("vit-s-fokus", None, "Did you mean 'vit-s-focus'"),
        ("micro_vit@nowhere.safetensors", None, "no checkpoint file"),
        ("nonsense@nowhere.safetensors", None, "no checkpoint file"),
    ],
)
def test_mistakes_are_explained(name, size, words):
    with pytest.raises(ModelError, match=words):
        open_backbone(name, size)


def test_asset_that_cannot_be_had_names_the_command(tmp_path, monkeypatch):
    monkeypatch.setenv("FOVEATE_DATA", str(tmp_path))
    from foveate.assets import store

    monkeypatch.setattr(store, "_attempt", lambda *_, **__: "no network")
    for name in list_named()[1:]:
        with pytest.raises(FoveateError, match=f"foveate assets {name}"):
            open_backbone(name)


# -- the real files, where they are ----------------------------------------------------------------------------


@torch.no_grad()
def test_vit_s_focus_is_the_network_in_the_file():
    folder = need("vit-s-focus")
    onnx = pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    model = onnx.load(str(folder / "vit_s_focus.onnx"))
    wanted = ["/backbone/layernorm/Add_1_output_0", "/backbone/encoder/layer.11/attention/attention/Softmax_output_0"]
    for name in wanted:
        model.graph.output.append(onnx.helper.make_tensor_value_info(name, 1, None))
    options = runtime.SessionOptions()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    backbone, view = open_backbone("vit-s-focus")
    scene = fv.data.critters(seed=0, size=224, train=0, target=0, val=0, test=4).test[0].image
    x = view.normalise(scene[None])
    tokens, attention = session.run(wanted, {"input_image": x.contiguous().numpy()})
    np.testing.assert_allclose(backbone.net.forward_features(x).numpy(), tokens, atol=1e-3)
    rows = cls_attention(backbone.net, x, heads=None).scores["heads"].flatten(2)
    np.testing.assert_allclose(rows.numpy(), attention[:, :, 0, 1:], atol=1e-5)


@torch.no_grad()
@pytest.mark.parametrize("size", [112, 140])
def test_vit_s_focus_at_other_sizes(size):
    need("vit-s-focus")
    backbone, view = open_backbone("vit-s-focus", size)
    assert view.size == (size, size)
    assert backbone.maps(torch.zeros(1, 3, size, size)).shape == (1, 384, size // 14, size // 14)


@pytest.mark.parametrize(("name", "dim"), [("mobilenet-v2", 1280), ("resnet50-tfjs", 2048)])
@torch.no_grad()
def test_cnn_assets_open(name, dim):
    need(name)
    backbone, view = open_backbone(name, 64)
    features = backbone(view.normalise(torch.randint(0, 256, (2, 3, 64, 64), dtype=torch.uint8)))
    assert features.shape == (2, dim)
    assert features.isfinite().all()
    assert features.std() > 0.05  # BatchNorms that do not belong to their convolutions let nothing or too much through
    assert features.abs().max() < 50
