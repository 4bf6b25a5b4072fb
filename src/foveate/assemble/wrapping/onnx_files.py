"""ONNX files: a black box that foveate runs with onnxruntime and saves as the bytes it was."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foveate.assemble.wrapping.brought import Brought
from foveate.assemble.wrapping.holding import Holding
from foveate.data.preprocess import Preprocess
from foveate.errors import FoveateError, MissingExtra, ModelError, first_line
from foveate.extract.onnx_weights import reads_other_files

ONNX_NAMES, ONNX_VIEW = "class_names", "preprocess"
"""Keys of an ONNX file's own metadata (JSON) that are read when the caller gives nothing."""


class HeldOnnx(Holding):
    """A graph that onnxruntime runs."""

    kind = "onnx"
    why = "an ONNX file, of which foveate sees the answers alone"

    def __init__(self, name: str, content: bytes, where: str, path: Path | None = None):
        super().__init__(name)
        self.content, self.where = content, where
        self.session = _session(content if path is None else str(path), where)
        self.input = _image_input(where, self.session.get_inputs())

    def __call__(self, inputs: Tensor) -> Tensor:
        shape = self.input.shape
        fixed = shape[0] if isinstance(shape[0], int) else None
        pixels = inputs.detach().cpu().contiguous().numpy()
        if fixed is None or fixed == len(pixels):
            return torch.from_numpy(_asked(self.where, self.session, self.input.name, pixels))
        parts = []
        for start in range(0, len(pixels), fixed):  # a graph made for one batch size: fill the last one up
            part = pixels[start : start + fixed]
            full = np.concatenate([part, np.repeat(part[-1:], fixed - len(part), axis=0)])
            parts.append(_asked(self.where, self.session, self.input.name, full)[: len(part)])
        return torch.from_numpy(np.concatenate(parts))

    def described(self) -> dict[str, Any]:
        if reads_other_files(self.content):
            raise ModelError(f"{self.where} keeps its weights in a second file; save it as one ONNX file first.")
        return {"sha256": hashlib.sha256(self.content).hexdigest()}

    def tensors(self) -> dict[str, Tensor]:
        return {"onnx": torch.frombuffer(bytearray(self.content), dtype=torch.uint8)}

    @classmethod
    def restored(cls, name: str, told: dict[str, Any], tensors: dict[str, Tensor]) -> HeldOnnx:
        """The graph that :meth:`described` and :meth:`tensors` told of, if its bytes are the ones that were saved."""
        content = tensors["onnx"]
        if content.dtype != torch.uint8 or content.ndim != 1:
            raise ModelError("the ONNX graph of a saved model is a row of bytes; this one is not.")
        found = content.numpy().tobytes()
        if hashlib.sha256(found).hexdigest() != told.get("sha256"):
            raise ModelError("the ONNX graph of this saved model is not the one that was saved (other checksum).")
        if reads_other_files(found):
            raise ModelError("the ONNX graph of a saved model keeps all its weights; this one names other files.")
        return cls(name, found, name)


def onnx_file(path: Path) -> Brought:
    """The model in an ONNX file, with what its metadata say."""
    try:
        held = HeldOnnx(path.stem, path.read_bytes(), str(path), path)
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {first_line(error)}") from error
    found = Brought(held)
    told = held.session.get_modelmeta().custom_metadata_map
    try:
        if ONNX_NAMES in told:
            found.class_names = [str(c) for c in json.loads(told[ONNX_NAMES])]
        if ONNX_VIEW in told:
            found.preprocess = Preprocess(**json.loads(told[ONNX_VIEW]))
    except (ValueError, TypeError, FoveateError) as error:
        raise ModelError(f"{path}: its metadata cannot be read: {error}") from error
    shape = held.input.shape
    if len(shape) == 4 and all(isinstance(side, int) for side in shape[2:]):
        found.size = (shape[2], shape[3])
    return found


def _session(content: bytes | str, where: str) -> Any:
    try:
        onnxruntime = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise MissingExtra("onnxruntime", "onnx", "reading an ONNX model") from error

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 4  # it would print names out of the file as they are; errors are raised anyway
    try:
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        str([(one.name, one.shape) for one in session.get_inputs()])  # names that are no text show when they are read
    except Exception as error:
        raise ModelError(f"{where} is not a readable ONNX model: {first_line(error)}") from error
    return session


def _asked(where: str, session: Any, name: str, pixels: Any) -> Any:
    """The first output of a graph, an array of numbers with a row an image."""
    try:
        found = session.run(None, {name: pixels})[0]
    except Exception as error:  # the runtime's own kinds, which differ from version to version
        raise ModelError(
            f"{where} cannot be run on images {list(pixels.shape)}: {first_line(error)} If it was made for "
            "another size, say so with image_size (--size)."
        ) from error
    if not isinstance(found, np.ndarray) or found.dtype.kind not in "fiu" or found.ndim < 1:
        raise ModelError(
            f"{where} gives {getattr(found, 'dtype', type(found).__name__)} and no logits [batch, classes]."
        )
    return found


def _image_input(where: str, inputs: Sequence[Any]) -> Any:
    """The one input of a graph that reads images; anything else is refused with what was found."""
    found = ", ".join(f"{i.name}: {i.type.removeprefix('tensor')} {i.shape}" for i in inputs) or "none"
    if len(inputs) != 1:
        raise ModelError(f"{where} has {len(inputs)} inputs ({found}); expected one: images [batch, 3, height, width].")
    first = inputs[0]
    if first.type != "tensor(float)":
        raise ModelError(f"{where} reads {found}; expected 32-bit floating-point images [batch, 3, height, width].")
    sides = [side for side in first.shape if isinstance(side, int)]
    colours = first.shape[1] if len(first.shape) == 4 else 0
    if (isinstance(colours, int) and colours != 3) or 0 in sides:
        raise ModelError(f"{where} reads {found}; expected images [batch, 3, height, width], none of them 0.")
    return first
