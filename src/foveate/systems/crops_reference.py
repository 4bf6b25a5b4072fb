"""The references A² is measured against: the same embedder and head, another way to look."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from foveate.errors import FoveateError
from foveate.look import Gaze
from foveate.systems.crop_probe import CropProbe
from foveate.systems.frozen_model import Model, resized
from foveate.systems.network import Network
from foveate.systems.probe import Probe, Views
from foveate.systems.system import Images, Needs


class FullImage(Probe):
    """The plain linear probe: a frozen embedder sees the whole image.

    Args:
        embedder: the model that reads.
        options: whatever a :class:`~foveate.systems.probe.Probe` takes. ``embed_size=518`` is the reference
            that gives the embedder more pixels instead of a place to look.

    >>> import tempfile
    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=64)
    >>> vit = fv.extract.create_backbone("micro_vit")
    >>> fv.FullImage(vit, store=tempfile.mkdtemp()).fit(data.train).predict(data.test).shape
    (16,)
    """

    needs: ClassVar[Needs] = Needs(train="labels")

    def _recipe(self) -> dict[str, Any]:
        return {"restrict": "nothing"}

    def _features(self, images: Tensor, views: Views) -> Tensor:
        return self.embedder_.embed(images, self.batch_size)[:, None]

    def look(self, images: Images) -> Gaze:
        """Grad-CAM for the predicted class."""
        network = Network(self.embedder_.backbone.cpu(), self.head_.to_linear())
        return network.eval().gradcam(self.embedder_.prepare(self.inputs(images)))


class CentreCrop(CropProbe):
    """A probe on the middle of the image.

    Args:
        embedder: the model that reads.
        crops: side of the crop in pixels of the resized image (or of several, one inside the other).
        image_size: side of the resized image.
        options: ``source`` and whatever a :class:`~foveate.systems.probe.Probe` takes.

    >>> import tempfile
    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=64)
    >>> vit = fv.extract.create_backbone("micro_vit")
    >>> centre = fv.CentreCrop(vit, crops=32, image_size=64, store=tempfile.mkdtemp()).fit(data.train)
    >>> centre.look([data.test[0].image]).boxes.tolist()
    [[[16, 16, 32]]]
    """

    needs: ClassVar[Needs] = Needs(train="labels")

    def __init__(
        self,
        embedder: Model = "vit-s-focus",
        *,
        crops: int | Sequence[int] = 128,
        image_size: int = 224,
        **options: Any,
    ):
        super().__init__(embedder, crops=crops, **options)
        self.image_size = image_size

    def _frame(self) -> int:
        return self.image_size

    def _recipe(self) -> dict[str, Any]:
        return {**super()._recipe(), "placed": "centre"}

    def _place(self, images: Tensor, sizes: Sequence[int]) -> Tensor:
        boxes = [[(self.image_size - s) // 2, (self.image_size - s) // 2, s] for s in sizes]
        return torch.tensor([boxes], device=images.device).expand(len(images), -1, -1)


class RandomCrops(CropProbe):
    """A probe on crops at random places that do not overlap, of the sizes A² would use.

    Where they lie depends on ``seed`` and on the pixels of the image alone: the same image has the same crops
    in every run, order, batch and subset.

    Args:
        embedder: the model that reads.
        crops: side of each crop in pixels of the resized image.
        image_size: side of the resized image.
        options: ``source``, ``seed`` and whatever a :class:`~foveate.systems.probe.Probe` takes.

    >>> import tempfile
    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=64)
    >>> vit = fv.extract.create_backbone("micro_vit")
    >>> some = fv.RandomCrops(vit, crops=(24, 16), image_size=64, store=tempfile.mkdtemp()).fit(data.train)
    >>> tuple(some.look([data.test[0].image]).boxes.shape)
    (1, 2, 3)
    """

    needs: ClassVar[Needs] = Needs(train="labels")

    def __init__(
        self,
        embedder: Model = "vit-s-focus",
        *,
        crops: int | Sequence[int] = (64,),
        image_size: int = 224,
        **options: Any,
    ):
        super().__init__(embedder, crops=crops, **options)
        self.image_size = image_size

    def _frame(self) -> int:
        return self.image_size

    def _recipe(self) -> dict[str, Any]:
        return {**super()._recipe(), "placed": "random", "seed": self.seed}

    def _place(self, images: Tensor, sizes: Sequence[int]) -> Tensor:
        boxes = []
        for image in (images * 255).round().to(torch.uint8).cpu():
            digest = hashlib.blake2b(image.contiguous().numpy().tobytes(), digest_size=8).digest()
            rng = np.random.default_rng([self.seed, int.from_bytes(digest, "little")])
            boxes.append(random_boxes(rng, sizes, self.image_size))
        return torch.tensor(boxes, device=images.device)


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


class S2(Probe):
    """S²: the image at several scales, each cut into tiles of the embedder's size.

    The CLS embeddings of the tiles of a scale are averaged, those of the scales concatenated. The paper pools
    patch tokens for dense tasks; which of the two the A² paper feeds to logistic regression it does not say.

    Args:
        embedder: the model that reads.
        scales: whole numbers; scale k is the image enlarged k times (bicubic) and cut into k x k tiles.
        options: whatever a :class:`~foveate.systems.probe.Probe` takes.

    Reference: Shi et al. 2024, "When do we not need larger vision models?".

    >>> import tempfile
    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=64)
    >>> vit = fv.extract.create_backbone("micro_vit")
    >>> fv.S2(vit, store=tempfile.mkdtemp()).fit(data.train).head_.weight_.shape
    (2, 192)
    """

    needs: ClassVar[Needs] = Needs(train="labels")

    def __init__(self, embedder: Model = "vit-s-focus", *, scales: Sequence[int] = (1, 2), **options: Any):
        super().__init__(embedder, **options)
        self.scales = scales

    def _check(self) -> None:
        if not len(self.scales) or any(int(k) != k or k < 1 for k in self.scales):
            raise FoveateError(f"scales are whole numbers from 1 up, for instance (1, 2); found {list(self.scales)}.")

    def _choices(self) -> dict[Any, Views]:
        return {"all": tuple(range(len(self.scales)))}

    def _recipe(self) -> dict[str, Any]:
        return {"restrict": "tiles", "scales": [int(k) for k in self.scales]}

    def _features(self, images: Tensor, views: Views) -> Tensor:
        found = []
        for k in (int(self.scales[v]) for v in views):
            pieces = tiles(resized(images, k * self.embedder_.size, mode="bicubic"), k)
            embedded = self.embedder_.embed(pieces.flatten(0, 1), self.batch_size)
            found.append(embedded.unflatten(0, pieces.shape[:2]).mean(1))
        return torch.stack(found, dim=1)

    def look(self, images: Images) -> Gaze:
        """Everywhere alike: S² takes in the whole image at every scale."""
        return Gaze(torch.ones(len(self.inputs(images)), 1, 1), kind="everywhere")


def tiles(images: Tensor, k: int) -> Tensor:
    """``[B, C, k * h, k * w]`` cut into k x k tiles in raster order: ``[B, k * k, C, h, w]``.

    >>> tiles(torch.arange(16).reshape(1, 1, 4, 4), 2)[0, :, 0, 0, 0].tolist()
    [0, 2, 8, 10]
    """
    b, c, height, width = images.shape
    cut = images.reshape(b, c, k, height // k, k, width // k)
    return cut.permute(0, 2, 4, 1, 3, 5).reshape(b, k * k, c, height // k, width // k)
