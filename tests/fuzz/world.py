"""Good inputs, made once: what the bad ones are made from."""

from __future__ import annotations

import shutil
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

import foveate as fv

TINY = {"width": 8, "layers": [1, 1, 1], "stem_stride": 2}
SMALL = {"embed_dim": 24, "depth": 2, "num_heads": 2, "patch_size": 8}
SPEC = """\
name: tiny
data: {name: critters, options: {train: 24, target: 16, val: 16, test: 16, size: 32}}
network: {backbone: micro_resnet, model_args: {width: 8, layers: [1, 1, 1], stem_stride: 2}}
training: {epochs: 1, lr: 0.001, batch_size: 16}
seeds: [0]
methods:
  base: {system: ERM}
  DFR: {system: DFR, grid: {refits: [1, 2]}}
"""


@dataclass(frozen=True)
class World:
    """Where the good inputs lie."""

    root: Path

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def erm(self) -> Path:
        return self.root / "erm"

    @property
    def ifam(self) -> Path:
        return self.root / "ifam"

    @property
    def onnx(self) -> Path:
        return self.root / "model.onnx"

    @property
    def state(self) -> Path:
        return self.root / "state.safetensors"

    @property
    def records(self) -> Path:
        return self.root / "records.csv"

    def copy_data(self, folder: Path) -> Path:
        """A copy of the dataset that a case may spoil."""
        return Path(shutil.copytree(self.data, folder / "data"))


def make_world(root: Path) -> World:
    """Data, two models, an ONNX file, a state dict, records: all tiny, in a few seconds."""
    world = World(root)
    critters = fv.data.critters(train=24, target=16, val=16, test=16, size=32)
    fv.data.write_csv(critters, world.data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        erm = fv.ERM("micro_resnet", model_args=TINY, epochs=1, progress=False).fit(critters.train)
        ifam = fv.IFAM("micro_vit", parts=3, model_args=SMALL, epochs=1, progress=False).fit(critters.train)
    erm.save(world.erm)
    ifam.save(world.ifam)
    world.onnx.write_bytes(onnx_model())
    write_state(world.state)
    write_records(world.records)
    (root / "spec.yaml").write_text(SPEC)
    for split, label, k in (("train", "cat", 0), ("train", "duck", 1), ("test", "cat", 2), ("test", "duck", 3)):
        place = root / "pets" / split / label
        place.mkdir(parents=True)
        Image.fromarray(np.asarray(critters.train.images.read(k))).save(place / "1.png")
    (root / "image.png").write_bytes((root / "pets/train/cat/1.png").read_bytes())
    return world


def onnx_model(
    shape: tuple[object, ...] = ("batch", 3, 32, 32), inputs: int = 1, kind: int = 1, rank: int = 2, classes: int = 2
) -> bytes:
    """A classifier that averages its pixels; ``kind`` is the element type of its inputs (1: float)."""
    from onnx import TensorProto, helper

    names = [f"images{k}" for k in range(inputs)]
    given = [helper.make_tensor_value_info(name, kind, list(shape)) for name in names]
    weights = helper.make_tensor("W", 1, [3, classes], [0.1 * i for i in range(3 * classes)])
    nodes = []
    if not names:
        nodes.append(helper.make_node("Constant", [], ["x"], value=helper.make_tensor("c", 1, [1, 3], [0.0] * 3)))
    else:
        nodes.append(helper.make_node("Cast", [names[0]], ["f"], to=TensorProto.FLOAT))
        for name in names[1:]:
            nodes.append(helper.make_node("Cast", [name], [name + "f"], to=TensorProto.FLOAT))
        axes = list(range(2, len(shape)))
        nodes.append(helper.make_node("ReduceMean", ["f"], ["x"], axes=axes or [0], keepdims=0))
    nodes.append(helper.make_node("MatMul", ["x", "W"], ["y"]))
    out = "y"
    if rank != 2:
        nodes.append(helper.make_node("ReduceMean", ["y"], ["z"], axes=[1], keepdims=0))
        out = "z"
    graph = helper.make_graph(
        nodes, "g", given, [helper.make_tensor_value_info(out, 1, [None] * rank)], initializer=[weights]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    model.ir_version = 8
    return bytes(model.SerializeToString())


def write_state(path: Path) -> None:
    import timm
    from safetensors.torch import save_file

    import foveate.extract.micro  # noqa: F401  (registers the name)

    net = timm.create_model("micro_resnet", num_classes=2)
    save_file(net.state_dict(), str(path))


def write_records(path: Path) -> None:
    from foveate.bench import Record, write_csv

    rows = [
        Record(
            "tiny", "d0", "critters", method, seed, {"refits": 1}, score=0.5, select="minority", system=method,
            metrics={"average": 0.9, "worst_group": 0.4 + 0.1 * seed}, supervision="train: labels", seconds=1.0,
        )
        for method in ("DFR", "DAR")
        for seed in (0, 1)
    ]  # fmt: skip
    write_csv(path, rows)
