"""Probes that read square crops: what A², centre crops and random crops share."""

from __future__ import annotations

import contextlib
import logging
import math
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from foveate.data.dataset import GroupedDataset
from foveate.errors import DataError, FoveateError, UnreadableImage
from foveate.look import Gaze
from foveate.restrict import extract_crops
from foveate.systems.frozen_model import Model
from foveate.systems.probe import Probe, Views
from foveate.systems.system import Images

log = logging.getLogger("foveate")


class CropProbe(Probe):
    """A probe on square crops; a subclass says where they lie (``_place``) and how large the image is (``_frame``).

    Args:
        embedder: as for every probe.
        crops: side of each crop, in pixels of the frame (the image as it is looked at).
        source: ``"resized"`` cuts crops from the frame, as in the paper; ``"original"`` from the image read at a
            whole multiple of the frame, large enough that a crop has the pixels the embedder sees, as far as the
            files have them.
        options: as for every probe.
    """

    def __init__(
        self,
        embedder: Model = "vit-s-focus",
        *,
        crops: int | Sequence[int] = (64,),
        source: Literal["resized", "original"] = "resized",
        **options: Any,
    ):
        super().__init__(embedder, **options)
        self.crops = crops
        self.source = source
        if source not in ("resized", "original"):
            raise FoveateError(f"unknown source '{source}'; crops are cut from the 'resized' image or the 'original'.")

    def _frame(self) -> int:
        """Side of the image in which crops are placed."""
        raise NotImplementedError

    def _place(self, images: Tensor, sizes: Sequence[int]) -> Tensor:
        """Boxes ``[B, n, 3]`` of ``(x, y, size)`` in pixels of the frame, -1 where nothing fits."""
        raise NotImplementedError

    def _sizes(self) -> tuple[int, ...]:
        sizes = (self.crops,) if isinstance(self.crops, int) else tuple(self.crops)
        if not sizes or any(int(s) != s or s < 1 for s in sizes):
            raise FoveateError(f"crops are whole numbers of pixels, for instance crops=(64, 32); found {self.crops!r}.")
        return tuple(int(s) for s in sizes)

    def _check(self) -> None:
        self._sizes()

    def _open(self, data: GroupedDataset) -> int:
        frame, sizes = self._frame(), self._sizes()
        if max(sizes) >= frame:
            raise DataError(
                f"a crop of {max(sizes)} px takes in the whole image, which is looked at with {frame} px, or more. "
                f"Use smaller crops, for instance {max(1, frame * 2 // 7)} px, or look at larger images."
            )
        shortest, longest = _sides(data)
        if shortest < min(sizes):
            log.warning(
                "images of %s have %d px, less than the crop of %d px: they are enlarged to %d px first, and a crop "
                "holds %d px of the file. Look at them smaller, with crops that are smaller too.",
                data.name, shortest, min(sizes), frame, max(1, shortest * min(sizes) // frame),
            )  # fmt: skip
        self.zoom_ = 1
        if self.source == "original":
            self.zoom_ = max(1, min(math.ceil(self.embedder_.size / min(sizes)), math.ceil(longest / frame)))
        return frame * self.zoom_

    def _choices(self) -> dict[Any, Views]:
        return {"all": tuple(range(len(self._sizes())))}

    def _recipe(self) -> dict[str, Any]:
        return {"restrict": "crops", "sizes": self._sizes(), "frame": self._frame(), "zoom": self.zoom_}

    def _features(self, images: Tensor, views: Views) -> Tensor:
        sizes = self._sizes()[: max(views) + 1]  # a later crop never moves an earlier one
        boxes = self._place(images, sizes)[:, list(views)] * self.zoom_
        there = boxes[..., 2] > 0
        crops = extract_crops(images, boxes.clamp(min=-1), self.embedder_.size)
        embedded = self.embedder_.embed(crops[there], self.batch_size) if bool(there.any()) else None
        out = images.new_zeros(*there.shape, self.embedder_.backbone.dim)
        if embedded is not None:
            out[there] = embedded.to(out.dtype)  # a crop that found no place stays a vector of zeros
        return out

    def look(self, images: Images) -> Gaze:
        """The crops the prediction rests on, and a map that is 1 inside and 0 outside of them."""
        inputs = self.inputs(images)
        boxes = self._boxes(inputs)
        cover = torch.zeros(len(inputs), *inputs.shape[-2:])
        for i, row in enumerate(boxes.tolist()):
            for x, y, size in row:
                if size > 0:
                    cover[i, y : y + size, x : x + size] = 1.0
        return Gaze(cover, kind="crops", boxes=boxes)

    def _boxes(self, inputs: Tensor) -> Tensor:
        """The chosen boxes, in pixels of the image as it is read (``preprocess_``), -1 where there is none."""
        placed = self._place(inputs, self._sizes()[: len(self.views_)]).cpu()
        return torch.where(placed >= 0, placed * self.zoom_, -1)

    def _config(self) -> dict[str, Any]:
        return {**super()._config(), "zoom": self.zoom_}

    def _restore(self, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        super()._restore(config, tensors)
        self.zoom_ = int(config["zoom"])


def _sides(data: GroupedDataset, images: int = 8) -> tuple[int, int]:
    """Shortest and longest side among some images spread over ``data``."""
    sides: list[int] = []
    for i in np.linspace(0, len(data) - 1, min(len(data), images)).astype(int):
        with contextlib.suppress(UnreadableImage):  # another part of the run names it
            sides += data.images.read(int(i)).shape[:2]
    return (min(sides), max(sides)) if sides else (1 << 30, 0)
