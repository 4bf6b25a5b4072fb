"""Square crops as a restriction: where attention lies, in the middle, at random, or the best of a fixed grid."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
from collections.abc import Sequence
from dataclasses import field
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from foveate.data.dataset import GroupedDataset
from foveate.errors import DataError, FoveateError, UnreadableImage
from foveate.extract.views import ReaderShape, Views
from foveate.look.adapter import candidate_grid
from foveate.look.adapter_training import choose_crops, scaled_grids
from foveate.look.gaze import Gaze
from foveate.parameters import configured
from foveate.restrict.crops import extract_crops, greedy_crops
from foveate.restrict.restriction import Chosen, Restriction

log = logging.getLogger("foveate")


@configured
class Crops(Restriction):
    """Square crops, each enlarged to what the reader sees; a subclass says where they lie (:meth:`place`).

    Args:
        sizes: side of each crop, in pixels of the frame (the image as it is looked at).
        counts: numbers of crops (the first so many of ``sizes``) to choose from on ``val``.
        source: ``"resized"`` cuts crops from the frame, as in the paper; ``"original"`` from the image read at a
            whole multiple of the frame, large enough that a crop has the pixels the reader sees, as far as the
            files have them.
        frame: side of the frame; by default that of the look.
    """

    sizes: int | Sequence[int] = field(default=(64,), kw_only=False)
    counts: Sequence[int] | None = None
    source: Literal["resized", "original"] = "resized"
    frame: int | None = None
    zoom_ = 1

    def place(self, images: Tensor, gaze: Gaze, sizes: Sequence[int]) -> Tensor:
        """Boxes ``[B, n, 3]`` of ``(x, y, size)`` in pixels of the frame, -1 where nothing fits."""
        raise NotImplementedError

    def all_sizes(self) -> tuple[int, ...]:
        """The side of every crop, in order."""
        sizes = (self.sizes,) if isinstance(self.sizes, int) else tuple(self.sizes)
        if not sizes or any(int(s) != s or s < 1 for s in sizes):
            raise FoveateError(f"crops are whole numbers of pixels, for instance crops=(64, 32); found {self.sizes!r}.")
        return tuple(int(s) for s in sizes)

    def check(self) -> None:
        """Raise when the settings do not fit together."""
        if self.source not in ("resized", "original"):
            raise FoveateError(
                f"unknown source '{self.source}'; crops are cut from the 'resized' image or the 'original'."
            )
        most = len(self.all_sizes())
        if self.counts is not None and not (
            len(self.counts) and all(1 <= n <= most and int(n) == n for n in self.counts)
        ):
            raise FoveateError(
                f"crop_counts says how many of the {most} crops to try, each from 1 to {most}; "
                f"found {list(self.counts)}. Name more crops, or smaller counts."
            )

    def fit(self, data: GroupedDataset, frame: int | None, reader: ReaderShape) -> int:
        self.frame_ = self.frame or frame or 224
        self.check()
        sizes = self.all_sizes()
        if max(sizes) >= self.frame_:
            raise DataError(
                f"a crop of {max(sizes)} px takes in the whole image, which is looked at with {self.frame_} px, or "
                f"more. Use smaller crops, for instance {max(1, self.frame_ * 2 // 7)} px, or look at larger images."
            )
        shortest, longest = _sides(data)
        if shortest < min(sizes):
            log.warning(
                "images of %s have %d px, less than the crop of %d px: they are enlarged to %d px first, and a crop "
                "holds %d px of the file. Look at them smaller, with crops that are smaller too.",
                data.name, shortest, min(sizes), self.frame_, max(1, shortest * min(sizes) // self.frame_),
            )  # fmt: skip
        self.zoom_ = 1
        if self.source == "original":
            self.zoom_ = max(1, min(math.ceil(reader.size / min(sizes)), math.ceil(longest / self.frame_)))
        return self.frame_ * self.zoom_

    def choices(self) -> dict[Any, Chosen]:
        if self.counts is None:
            return {"all": tuple(range(len(self.all_sizes())))}
        return {int(n): tuple(range(int(n))) for n in self.counts}

    def __call__(self, images: Tensor, gaze: Gaze, reader: ReaderShape, views: Chosen) -> Views:
        sizes = self.all_sizes()[: max(views) + 1]  # a later crop never moves an earlier one
        boxes = self.place(images, gaze, sizes)[:, list(views)] * self.zoom_
        crops = extract_crops(images[:, :3], boxes.clamp(min=-1), reader.size)
        return Views(images, crops=crops, there=boxes[..., 2] > 0)

    def shown(self, gaze: Gaze, images: Tensor, reader: ReaderShape, views: Chosen) -> Gaze:
        """``boxes`` ``[B, n, 3]`` in pixels of the image as it is read; ``scores["crops"]`` ``[B, n]`` the share of
        the map that each holds. A look that sees all alike gets a map that is 1 inside the crops and 0 outside."""
        placed = self.place(images, gaze, self.all_sizes()[: max(views) + 1])[:, list(views)].cpu()
        boxes = torch.where(placed >= 0, placed * self.zoom_, -1)
        if gaze.kind == "everywhere":
            cover = torch.zeros(len(images), *images.shape[-2:])
            for i, row in enumerate(boxes.tolist()):
                for x, y, size in row:
                    if size > 0:
                        cover[i, y : y + size, x : x + size] = 1.0
            return Gaze(cover, kind="crops", boxes=boxes)
        gaze.map = gaze.map.cpu()
        pixels = gaze.upsampled((self.frame_, self.frame_))
        pixels = pixels / pixels.sum((1, 2), keepdim=True).clamp(min=1e-12)
        held = [
            [float(p[y : y + s, x : x + s].sum()) if s > 0 else 0.0 for x, y, s in row]
            for p, row in zip(pixels, placed.tolist(), strict=True)
        ]
        gaze.scores = {**{k: v.cpu() for k, v in gaze.scores.items()}, "crops": torch.tensor(held)}
        gaze.boxes = boxes
        return gaze

    def recipe(self) -> dict[str, Any]:
        # how frame and zoom were arrived at, and how many crops are chosen in the end, changes no crop
        told = {k: v for k, v in self.plain().items() if k not in ("counts", "source", "frame")}
        return {"part": type(self).__name__, **told, "of": self.identity()}

    def identity(self) -> dict[str, Any]:
        return {"frame": self.frame_, "zoom": self.zoom_}

    def learned(self) -> dict[str, Any]:
        return self.identity()

    def restore(self, learned: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.frame_, self.zoom_ = int(learned["frame"]), int(learned["zoom"])


@configured
class GreedyCrops(Crops):
    """The crops that hold most of the map, one after the other, without overlap (:func:`greedy_crops`)."""

    def place(self, images: Tensor, gaze: Gaze, sizes: Sequence[int]) -> Tensor:
        return greedy_crops(gaze.map, sizes, self.frame_)


@configured
class CentreCrops(Crops):
    """Crops in the middle of the image, one inside the other."""

    def place(self, images: Tensor, gaze: Gaze, sizes: Sequence[int]) -> Tensor:
        boxes = [[(self.frame_ - s) // 2, (self.frame_ - s) // 2, s] for s in sizes]
        return torch.tensor([boxes], device=images.device).expand(len(images), -1, -1)


@configured
class ScatteredCrops(Crops):
    """Crops at random places that do not overlap.

    Where they lie depends on ``seed`` and on the pixels of the image alone: the same image has the same crops
    in every run, order, batch and subset.
    """

    seed: int = 0

    def place(self, images: Tensor, gaze: Gaze, sizes: Sequence[int]) -> Tensor:
        boxes = []
        for image in (images * 255).round().to(torch.uint8).cpu():
            digest = hashlib.blake2b(image.contiguous().numpy().tobytes(), digest_size=8).digest()
            rng = np.random.default_rng([self.seed, int.from_bytes(digest, "little")])
            boxes.append(random_boxes(rng, sizes, self.frame_))
        return torch.tensor(boxes, device=images.device)


@configured
class CandidateCrops(Crops):
    """The best of a fixed grid of candidates, by the mean of the map inside (:func:`~foveate.look.choose_crops`).

    Args:
        sizes: here a number: how many candidates are read.
        grids: candidates as ``(side, how many per row)`` in pixels of the frame; by default the paper's 49 + 9 at the
            scale of the frame.
    """

    sizes: int | Sequence[int] = field(default=1, kw_only=False)
    grids: Sequence[tuple[int, int]] | None = None

    def offered(self) -> Tensor:
        """All candidates, ``int64 [n, 3]`` of ``(x, y, size)`` in pixels of the frame."""
        return candidate_grid(self.frame_, self._grids())

    def _grids(self) -> Sequence[tuple[int, int]]:
        return [(int(s), int(n)) for s, n in self.grids] if self.grids is not None else scaled_grids(self.frame_)

    def all_sizes(self) -> tuple[int, ...]:
        if not isinstance(self.sizes, int) or self.sizes < 1:
            raise FoveateError(f"crops says how many candidates to read, at least 1; found {self.sizes}.")
        # candidates have no order of size; what matters to the frame is the largest
        return (max(size for size, _ in self._grids()),) * self.sizes

    def place(self, images: Tensor, gaze: Gaze, sizes: Sequence[int]) -> Tensor:
        return choose_crops(gaze.map, self.offered(), len(sizes), self.frame_)


def random_boxes(rng: np.random.Generator, sizes: Sequence[int], side: int) -> list[list[int]]:
    """Boxes ``(x, y, size)`` in a square of ``side`` px, each uniform over the places the earlier ones leave.

    >>> random_boxes(np.random.default_rng(0), [4, 4], 4)  # the first takes all there is
    [[0, 0, 4], [-1, -1, -1]]
    """
    boxes: list[list[int]] = []
    for size in sizes:
        free = np.ones((side - size + 1, side - size + 1), dtype=bool)
        for x, y, taken in boxes:
            if taken > 0:
                free[max(y - size + 1, 0) : y + taken, max(x - size + 1, 0) : x + taken] = False
        places = np.flatnonzero(free)
        if not len(places):
            boxes.append([-1, -1, -1])
            continue
        y, x = divmod(int(places[rng.integers(len(places))]), free.shape[1])
        boxes.append([x, y, size])
    return boxes


def _sides(data: GroupedDataset, images: int = 8) -> tuple[int, int]:
    """Shortest and longest side among some images spread over ``data``."""
    sides: list[int] = []
    for i in np.linspace(0, len(data) - 1, min(len(data), images)).astype(int):
        with contextlib.suppress(UnreadableImage):  # another part of the run names it
            sides += data.images.read(int(i)).shape[:2]
    return (min(sides), max(sides)) if sides else (1 << 30, 0)
