"""Model files: which format one is, and which formats are programs that need trust."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import torch
from torch import nn

from foveate.assemble.wrapping.brought import Brought
from foveate.assemble.wrapping.holding import HeldFunction
from foveate.assemble.wrapping.modules import HeldModule
from foveate.assemble.wrapping.onnx_files import onnx_file
from foveate.data.preprocess import Preprocess
from foveate.errors import FoveateError, ModelError, first_line


class HeldScript(HeldFunction):
    """A TorchScript program: gradients reach the images, and nothing inside can be named."""

    gradients = True
    why = "a TorchScript program, of which foveate sees the answers and their gradients alone"


def model_file(path: Path, trust: bool) -> Brought:
    """The model in a file: ONNX, or with ``trust`` TorchScript, ``torch.export`` or a pickled module."""
    if path.suffix == ".onnx":
        return onnx_file(path)
    inside = set()
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            inside = {part for entry in archive.namelist() for part in entry.split("/")}
    kind = "torch.export" if path.suffix == ".pt2" else "TorchScript" if "code" in inside else "pickled PyTorch"
    if path.suffix == ".safetensors":
        raise ModelError(f"{path} holds weights without an architecture; say which one: wrap('resnet18@{path}').")
    if not trust:
        raise ModelError(
            f"{path} is a {kind} file, which can hold a program that runs when it is loaded. If you know where it "
            "comes from, allow it with trust=True (--trust). A state dict (NAME@file) or an ONNX file needs no trust."
        )
    try:
        if kind == "torch.export":
            return Brought(HeldModule(path.stem, torch.export.load(path).module()))
        if kind == "TorchScript":
            return Brought(HeldScript(path.stem, torch.jit.load(str(path), map_location="cpu").eval()))
        found = torch.load(path, map_location="cpu", weights_only=False)
    except Exception as error:
        raise ModelError(f"{path} cannot be loaded as a {kind} file: {first_line(error)}") from error
    if isinstance(found, nn.Module):
        return Brought(HeldModule(path.stem, found))
    raise ModelError(f"{path} holds {type(found).__name__}, not a model; for a state dict say NAME@{path}.")


def told_beside(path: Path) -> tuple[list[str], Preprocess] | None:
    """What ``foveate export`` wrote beside a model file: class names and preprocessing; None without it.

    Only for exports of one graph: a model of two graphs cannot be run from one of its files.
    """
    sidecar = path.parent / "foveate-export.json"
    if not path.is_file() or not sidecar.is_file():
        return None
    try:
        told = json.loads(sidecar.read_text(encoding="utf-8"))
        if [graph["file"] for graph in told["graphs"]] != [path.name]:
            return None
        return [str(c) for c in told["class_names"]], Preprocess(**told["preprocess"])
    except (ValueError, TypeError, KeyError, FoveateError) as error:
        raise ModelError(f"{sidecar} cannot be read: {type(error).__name__} {error}.") from error
