"""Running an exported folder: preprocessing, the graphs, and what lies between them."""

from __future__ import annotations

import importlib
import json
import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import BaseModel, Field
from torch import Tensor

from foveate.assemble.system import Images
from foveate.data.dataset import GroupedDataset
from foveate.data.loading import Loader, OnBad
from foveate.data.preprocess import Preprocess, as_images
from foveate.errors import DataError, MissingExtra, ModelError, first_line
from foveate.extract import resized
from foveate.files import read_text, recover_folder
from foveate.measure import answered, decided, shares_of
from foveate.restrict import attended_tokens, early_mask, extract_crops, greedy_crops, on_grid

SIDECAR = "foveate-export.json"
SUFFIX = {"onnx": ".onnx", "torch-export": ".pt2"}
Call = Callable[..., list[NDArray[Any]]]


class _Graph(BaseModel):
    name: str
    file: str = Field(min_length=1, max_length=200)
    inputs: dict[str, list[Any]]


class _DescribedExport(BaseModel):
    """What is read of the file beside the graphs; whatever else is in it is for people."""

    written_as: Literal["onnx", "torch-export"]
    class_names: list[str] = Field(min_length=1)
    preprocess: dict[str, Any]
    graphs: list[_Graph] = Field(min_length=1)
    steps: dict[str, Any] = Field(default_factory=dict)


class Runner:
    """An exported model: images in, logits out, without the system that made it.

    Args:
        folder: written by :func:`~foveate.export.to_folder`.
        trust: allow ``torch.export`` programs, which can hold code. Say so only for folders whose origin you know.

    >>> import tempfile, pathlib
    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=32)
    >>> base = fv.ERM("micro_resnet", epochs=1, progress=False).fit(data.train)
    >>> folder = pathlib.Path(tempfile.mkdtemp()) / "exported"
    >>> _ = fv.export.to_folder(base, folder, "torch-export")
    >>> run = Runner(folder, trust=True)  # we wrote it ourselves, a moment ago
    >>> run.class_names, run.predict([data.test[0].image]).shape
    (['cat', 'duck'], (1,))
    """

    def __init__(self, folder: str | Path, *, trust: bool = False):
        self.folder = recover_folder(folder)
        path = self.folder / SIDECAR
        if not path.is_file():
            raise ModelError(f"{self.folder} is not an export of foveate (there is no {SIDECAR} in it).")
        try:
            self.described: dict[str, Any] = json.loads(read_text(path))
            told = _DescribedExport.model_validate(self.described)
            self.class_names = told.class_names
            self.preprocess = Preprocess(**told.preprocess)
            if told.written_as == "torch-export" and not trust:
                raise ModelError(
                    f"{self.folder} holds torch.export programs, which can run code when they are loaded. If you know "
                    "where it comes from, allow it with trust=True (--trust). ONNX exports need no trust."
                )
            opener = _open_onnx if told.written_as == "onnx" else _open_program
            self.graphs: dict[str, Call] = {g.name: opener(self._file(g.file), list(g.inputs)) for g in told.graphs}
            self.steps = told.steps
        except (ValueError, KeyError, TypeError, AttributeError, OSError, RecursionError, DataError) as error:
            raise ModelError(f"{path} is not a whole description of an export: {error!r}.") from error

    def _file(self, name: str) -> Path:
        path = self.folder / Path(name).name  # a description must not lead out of its folder
        if not path.is_file():
            raise ModelError(f"{self.folder} is not a whole export: {path.name} is missing.")
        return path

    def inputs(self, images: Images) -> Tensor:
        """Images in any usual form as the normalised batch the graphs read."""
        prepared = torch.stack([self.preprocess.prepare(i) for i in as_images(images)])
        return self.preprocess.normalise(prepared).contiguous(memory_format=torch.contiguous_format)

    @property
    def class_names_(self) -> list[str]:
        """The classes, under the name that systems have them."""
        return self.class_names

    def predict_logits(
        self,
        images: GroupedDataset | Images,
        masks: Sequence[Tensor] | None = None,
        *,
        batch_size: int = 16,
        on_bad: OnBad = "raise",
    ) -> NDArray[np.float32]:
        """Logits ``[n, C]``; a model under masks from outside needs ``masks``, one ``[H, W]`` an image.

        A row of ``-inf`` stands for an image that the model has no answer to (NaN or infinite logits). A dataset is
        read ``batch_size`` images at a time, the next ones while these are computed; a row of NaN is an unreadable one.
        """
        if not isinstance(images, GroupedDataset):
            return self._answers(self.inputs(images), masks)
        logits = np.full((len(images), len(self.class_names)), np.nan, dtype=np.float32)
        for batch in Loader(images, self.preprocess, on_bad=on_bad, cache_bytes=0).in_order(batch_size):
            inputs = self.preprocess.normalise(batch.inputs).contiguous(memory_format=torch.contiguous_format)
            chosen = None if masks is None else [masks[i] for i in batch.indices.tolist()]
            logits[batch.indices.numpy()] = self._answers(inputs, chosen)
        return logits

    def predict_proba(self, images: GroupedDataset | Images, **options: Any) -> NDArray[np.float32]:
        """Class probabilities ``[n, C]``; rows of NaN for unreadable images, rows of 0 where there is no answer."""
        return shares_of(self.predict_logits(images, **options))

    def _answers(self, inputs: Tensor, masks: Sequence[Tensor] | None) -> NDArray[np.float32]:
        try:
            return answered(self._read(inputs, masks))
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError) as error:
            raise ModelError(
                f"{self.folder / SIDECAR} does not describe the graphs beside it: "
                f"{type(error).__name__} {first_line(error)}"
            ) from error

    def _read(self, inputs: Tensor, masks: Sequence[Tensor] | None) -> NDArray[np.float32]:
        kind = self.steps.get("kind", "")
        if kind == "crops":
            return self._read_crops(inputs)
        if kind == "tokens":
            return self._read_tokens(inputs)
        if kind == "masks":
            if masks is None or len(masks) != len(inputs):
                raise DataError("this model reads images under masks; give masks=[...], one [H, W] an image.")
            pixels = torch.stack([self.preprocess.prepare_mask(torch.as_tensor(m).float()) for m in masks])
            return self.graphs["model"](inputs, early_mask(pixels, tuple(self.steps["grid"])))[0]
        return self.graphs["model"](inputs)[0]

    def predict(
        self, images: GroupedDataset | Images, masks: Sequence[Tensor] | None = None, **options: Any
    ) -> NDArray[np.int64]:
        """Class indices ``[n]``; -1 for images skipped as unreadable, -2 where the model has no answer."""
        return decided(self.predict_logits(images, masks, **options))

    def _attend(self, inputs: Tensor) -> Tensor:
        """Where the model looks, ``[B, h, w]``."""
        return torch.from_numpy(self.graphs["attention"](_seen_by(self.steps["attention"], inputs))[0])

    def _read_crops(self, inputs: Tensor) -> NDArray[np.float32]:
        """A²: crops where the first graph looks, read by the second."""
        steps = self.steps
        boxes = greedy_crops(self._attend(inputs), steps["sizes"], steps["frame"]) * steps["zoom"]
        there = boxes[..., 2] > 0
        side = steps["reader"]["size"]
        crops = extract_crops(inputs, boxes.clamp(min=-1), side)  # [B, V, 3, side, side]
        shape = crops.shape
        ready = _seen_by(steps["reader"], crops.flatten(0, 1)).reshape(shape)
        return self.graphs["reader"](ready.contiguous(), there)[0]

    def _read_tokens(self, inputs: Tensor) -> NDArray[np.float32]:
        """Glimpse: the tokens the first graph looks at, read by the second."""
        steps, maps = self.steps, self._attend(inputs)
        mask = attended_tokens(on_grid(maps, tuple(steps["grid"])), **{steps["by"]: steps["share"]})
        return self.graphs["reader"](_seen_by(steps["reader"], inputs), mask.flatten(1))[0]


def _seen_by(view: dict[str, Any], images: Tensor) -> Tensor:
    """Images in ``[0, 1]`` as one of two models reads them: its size, its normalisation."""
    images = resized(images, view["size"])
    mean, std = (torch.tensor(view[k]).view(1, -1, 1, 1) for k in ("mean", "std"))
    return ((images - mean) / std).contiguous(memory_format=torch.contiguous_format)


def _open_onnx(path: Path, inputs: list[str]) -> Call:
    try:
        onnxruntime = importlib.import_module("onnxruntime")
    except ImportError as error:
        raise MissingExtra("onnxruntime", "onnx", "running an ONNX file") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 4  # it would print names out of the file as they are; errors are raised anyway
    try:
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ModelError(f"{path} is not a readable ONNX model: {first_line(error)}") from error

    def call(*tensors: Tensor) -> list[NDArray[Any]]:
        try:
            return session.run(None, dict(zip(inputs, (t.numpy() for t in tensors), strict=True)))
        except Exception as error:  # the runtime's own kinds; or a description that is not of this graph
            raise ModelError(f"{path} cannot be run as its description says: {first_line(error)}") from error

    return call


def _open_program(path: Path, inputs: list[str]) -> Call:
    previous = logging.root.manager.disable
    logging.disable(logging.WARNING)  # a file that is none is told with a traceback, and then raised as well
    try:
        program = torch.export.load(path).module()
    except Exception as error:
        raise ModelError(f"{path} is not a readable torch.export program: {first_line(error)}") from error
    finally:
        logging.disable(previous)

    @torch.no_grad()
    def call(*tensors: Tensor) -> list[NDArray[Any]]:
        found = program(*tensors)
        return [t.numpy() for t in (found if isinstance(found, (tuple, list)) else (found,))]

    return call
