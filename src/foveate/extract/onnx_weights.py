"""Weights out of ONNX files, without the onnx package: a small reader of the protobuf fields that hold them.

An exported network keeps its convolutions, norms and biases under their own names, but the matrices of its linear
layers under numbers, and transposed, since they sit in plain ``MatMul`` nodes. What a matrix is for is said by the
name of the node that uses it. Only the file's numbers are read; nothing in it is run.

Reference: the message and field numbers of ``onnx.proto`` (ModelProto, GraphProto, NodeProto, TensorProto).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from foveate.errors import ModelError

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
# TensorProto.data_type -> the type, and the field its numbers are in when there is no raw_data
_TYPES: dict[int, tuple[np.dtype, int]] = {
    1: (np.dtype("<f4"), 4),
    6: (np.dtype("<i4"), 5),
    7: (np.dtype("<i8"), 7),
    10: (np.dtype("<f2"), 0),
    11: (np.dtype("<f8"), 10),
}


@dataclass(frozen=True)
class OnnxNode:
    """One operation of the graph: its name, its kind, and the names of what goes in and comes out."""

    name: str
    kind: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class OnnxGraph:
    """What :func:`read_onnx` finds: constant tensors by name, and the operations in order."""

    tensors: dict[str, Tensor]
    nodes: list[OnnxNode]

    def linear_weights(self) -> dict[str, Tensor]:
        """The matrices of linear layers, ``[out, in]``, by the module path of the node that multiplies by them.

        The node ``/encoder/fc1/MatMul`` of a PyTorch export gives ``encoder.fc1.weight``.
        """
        found = {}
        for node in self.nodes:
            if node.kind == "MatMul" and node.inputs[-1] in self.tensors:
                path = node.name.strip("/").rpartition("/")[0].replace("/", ".")
                found[f"{path}.weight"] = self.tensors[node.inputs[-1]].T.contiguous()
        return found

    def feeding(self, kind: str, under: str = "") -> list[Tensor]:
        """Anonymous constants read by nodes of this kind whose names start with ``under``, in graph order."""
        return [
            self.tensors[name]
            for node in self.nodes
            if node.kind == kind and node.name.startswith(under)
            for name in node.inputs
            if name in self.tensors and name.startswith("onnx::")
        ]


def read_onnx(path: str | Path) -> OnnxGraph:
    """Read the constants (graph initialisers) and the nodes of an ONNX file.

    Tensors kept in a second file, and types other than float16, float32, float64, int32 and int64, are refused
    with a sentence.
    """
    path = Path(path)
    try:
        return _graph(memoryview(path.read_bytes()))
    except FileNotFoundError as error:
        raise ModelError(f"there is no file {path}. Check the path.") from error
    except (ValueError, IndexError, OSError) as error:
        raise ModelError(f"{path} is not a readable ONNX file: {error}.") from error


def reads_other_files(content: bytes) -> bool:
    """Whether any tensor of an ONNX model lies in a second file; True also for bytes that cannot be told."""
    try:
        graphs = [value for field, value in _fields(memoryview(content)) if field == 7]
        return any(isinstance(graph, memoryview) and _elsewhere(graph) for graph in graphs)
    except (ValueError, IndexError, RecursionError):
        return True


def _elsewhere(graph: memoryview) -> bool:
    """Initialisers of a graph, and the tensors and graphs among the attributes of its nodes."""
    for field, value in _fields(graph):
        if not isinstance(value, memoryview) or field not in (1, 5, 15):
            continue
        if field == 5 and _external(value):
            return True
        if field == 15 and any(isinstance(part, memoryview) and _external(part) for _, part in _fields(value)):
            return True
        if field == 1:
            for _, attribute in ((f, v) for f, v in _fields(value) if f == 5 and isinstance(v, memoryview)):
                for kind, inner in _fields(attribute):
                    if not isinstance(inner, memoryview):
                        continue
                    if (kind in (5, 10) and _external(inner)) or (kind in (6, 11) and _elsewhere(inner)):
                        return True
    return False


def _external(tensor: memoryview) -> bool:
    return any(field == 13 or (field == 14 and value == 1) for field, value in _fields(tensor))


def _graph(data: memoryview) -> OnnxGraph:
    graphs = [value for field, value in _fields(data) if field == 7 and isinstance(value, memoryview)]
    if len(graphs) != 1:
        raise ValueError(f"it holds {len(graphs)} graphs, expected 1")
    tensors: dict[str, Tensor] = {}
    nodes = []
    for field, value in _fields(graphs[0]):
        if not isinstance(value, memoryview):
            continue
        if field == 1:
            nodes.append(_node(value))
        elif field == 5:
            name, tensor = _tensor(value)
            tensors[name] = tensor
    return OnnxGraph(tensors, nodes)


def _node(data: memoryview) -> OnnxNode:
    texts: dict[int, list[str]] = {1: [], 2: [], 3: [], 4: []}
    for field, value in _fields(data):
        if field in texts and isinstance(value, memoryview):
            texts[field].append(str(value, "utf-8"))
    return OnnxNode("".join(texts[3]), "".join(texts[4]), tuple(texts[1]), tuple(texts[2]))


def _tensor(data: memoryview) -> tuple[str, Tensor]:
    dims: list[int] = []
    name, kind, raw = "", 0, None
    typed: dict[int, list[memoryview | int]] = {}
    for field, value in _fields(data):
        if field == 1:
            dims.extend(_integers(value))
        elif field == 2 and isinstance(value, int):
            kind = value
        elif field == 8 and isinstance(value, memoryview):
            name = str(value, "utf-8")
        elif field == 9 and isinstance(value, memoryview):
            raw = value
        elif field == 14 and value == 1:
            raise ValueError("its tensors are in a second file; save it as one file")
        else:
            typed.setdefault(field, []).append(value)
    if kind not in _TYPES:
        raise ValueError(f"the tensor '{name}' has the data type {kind}, which is not read here")
    dtype, field = _TYPES[kind]
    if raw is not None:
        array = np.frombuffer(raw, dtype=dtype).copy()
    elif dtype.kind == "i":
        array = np.array([n for value in typed.get(field, []) for n in _integers(value)], dtype=dtype)
    else:  # packed or one by one: either way the bytes of the numbers in order
        parts = [np.frombuffer(v, dtype=dtype) for v in typed.get(field, []) if isinstance(v, memoryview)]
        array = np.concatenate([np.empty(0, dtype=dtype), *parts])
    if array.size != int(np.prod(dims, dtype=np.int64)):
        raise ValueError(f"the tensor '{name}' holds {array.size} numbers, its shape says {dims}")
    return name, torch.from_numpy(array.reshape(dims))


def _fields(data: memoryview) -> Iterator[tuple[int, memoryview | int]]:
    """Field number and value of every field of a message: a number, or the bytes of anything longer."""
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at)
        field, wire = key >> 3, key & 7
        if wire == VARINT:
            number, at = _varint(data, at)
            yield field, number
            continue
        if wire == BYTES:
            length, at = _varint(data, at)
        elif wire in (FIXED32, FIXED64):
            length = 4 if wire == FIXED32 else 8
        else:
            raise ValueError(f"unknown wire type {wire}")
        if at + length > end:
            raise ValueError("it ends in the middle of a field")
        yield field, data[at : at + length]
        at += length


def _varint(data: memoryview, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return (number - (1 << 64) if number >= 1 << 63 else number), at
        shift += 7
        if shift > 63:
            raise ValueError("a number runs over ten bytes")


def _integers(value: memoryview | int) -> list[int]:
    """A repeated integer field, packed into bytes or given one by one."""
    if isinstance(value, int):
        return [value]
    numbers, at = [], 0
    while at < len(value):
        number, at = _varint(value, at)
        numbers.append(number)
    return numbers
