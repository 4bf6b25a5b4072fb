"""From a decoded image to what a network reads: geometry once, then augmentation and normalisation by batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from foveate.data.dataset import GroupedDataset
from foveate.errors import DataError, UnreadableImage

MAX_SIDE = 16_384
"""Pixels of a side that a network may be given."""
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Preprocess:
    """How images reach a network; plain numbers, saved with the model.

    Args:
        size: ``(height, width)`` the network sees.
        fit: ``"squash"`` resizes to ``size`` whatever the shape; ``"crop"`` resizes the shorter side and
            cuts the centre, which keeps the aspect ratio.
        mean, std: per channel, for pixel values in ``[0, 1]``.
        flip: mirror half of the training images.
        shift: training images are moved by up to this many pixels (edges padded by reflection).

    >>> view = Preprocess((4, 4), mean=(0.5,) * 3, std=(0.5,) * 3)
    >>> x = view.normalise(view.prepare(torch.full((3, 8, 8), 255, dtype=torch.uint8))[None])
    >>> tuple(x.shape), float(x.max())
    ((1, 3, 4, 4), 1.0)
    """

    size: tuple[int, int]
    fit: str = "squash"
    mean: tuple[float, ...] = IMAGENET_MEAN
    std: tuple[float, ...] = IMAGENET_STD
    flip: bool = True
    shift: int = 0

    def __post_init__(self) -> None:
        if self.fit not in ("squash", "crop"):
            raise DataError(f"unknown fit '{self.fit}'; use 'squash' or 'crop'.")
        object.__setattr__(self, "size", checked_size(self.size))
        for name in ("mean", "std"):  # JSON turns tuples into lists; equality and hashing want tuples
            object.__setattr__(self, name, _channels(name, getattr(self, name)))
        if len(self.mean) != len(self.std):
            raise DataError(f"mean and std go together; found {len(self.mean)} numbers and {len(self.std)}.")
        if not isinstance(self.shift, int) or self.shift < 0:
            raise DataError(f"shift is a whole number of pixels, found {self.shift!r}.")

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    # -- geometry: the same for image, mask and box ---------------------------------------

    def _window(self, height: int, width: int) -> tuple[float, float, int, int, int, int]:
        """Scale in y and x, resized height and width, top and left of the cut."""
        h, w = self.size
        if self.fit == "squash":
            return h / height, w / width, h, w, 0, 0
        scale = max(h / height, w / width)
        rh, rw = max(h, round(height * scale)), max(w, round(width * scale))
        return rh / height, rw / width, rh, rw, (rh - h) // 2, (rw - w) // 2

    def prepare(self, image: Tensor) -> Tensor:
        """``uint8 [3, H, W]`` of any size to ``uint8 [3, h, w]``, antialiased."""
        _, _, rh, rw, top, left = self._window(*image.shape[-2:])
        if image.shape[-2:] != (rh, rw):
            if (rh, rw) == (
                1,
                1,
            ) and not image.is_floating_point():  # PyTorch's own kernel for bytes fails on one pixel
                image = F.interpolate(image[None].float(), (1, 1), mode="bilinear", antialias=True)[0].round().byte()
            else:
                image = F.interpolate(image[None], (rh, rw), mode="bilinear", antialias=True)[0]
        h, w = self.size
        return image[:, top : top + h, left : left + w].contiguous()

    def prepare_mask(self, mask: Tensor) -> Tensor:
        """``float [H, W]`` mask to ``float [h, w]``, by the same geometry (area average)."""
        _, _, rh, rw, top, left = self._window(*mask.shape[-2:])
        if mask.shape[-2:] != (rh, rw):
            mask = F.interpolate(mask[None, None], (rh, rw), mode="bilinear", antialias=True)[0, 0]
        h, w = self.size
        return mask[top : top + h, left : left + w].contiguous()

    def prepare_box(self, box: Tensor, height: int, width: int) -> Tensor:
        """A pixel box ``(x0, y0, x1, y1)`` of an ``height x width`` image in the coordinates of ``prepare``."""
        sy, sx, _, _, top, left = self._window(height, width)
        h, w = self.size
        moved = box * box.new_tensor([sx, sy, sx, sy]) - box.new_tensor([left, top, left, top])
        return torch.minimum(moved.clamp(min=0), box.new_tensor([w, h, w, h]))

    # -- by batch -------------------------------------------------------------------------

    def augment(self, images: Tensor, generator: torch.Generator) -> Tensor:
        """Random shift and mirror of a batch ``[B, 3, h, w]``; each image draws its own."""
        n, _, h, w = images.shape
        p = min(self.shift, h - 1, w - 1)
        still = [[0] * n, [0] * n]
        offsets = torch.randint(0, 2 * p + 1, (2, n), generator=generator).tolist() if self.shift else still
        mirrored = (torch.rand(n, generator=generator) < 0.5).tolist() if self.flip else [False] * n
        if not self.shift and not any(mirrored):
            return images
        # NumPy copies windows of bytes several times as fast as PyTorch gathers them
        pixels = images.cpu().numpy()
        wide = np.pad(pixels, ((0, 0), (0, 0), (p, p), (p, p)), mode="reflect")
        moved = np.empty_like(pixels)
        for i, (y, x, mirror) in enumerate(zip(*offsets, mirrored, strict=True)):
            window = wide[i, :, y : y + h, x : x + w]
            moved[i] = window[..., ::-1] if mirror else window
        return torch.from_numpy(moved).to(images.device)

    def normalise(self, images: Tensor) -> Tensor:
        """``uint8 [B, 3, h, w]`` to normalised float32, channels last in memory (convolutions are faster so)."""
        mean = torch.tensor(self.mean, device=images.device).view(1, -1, 1, 1)
        std = torch.tensor(self.std, device=images.device).view(1, -1, 1, 1)
        # in place, and turned around last: one copy fewer, and arithmetic over channels-last values is slower
        values = images.to(torch.float32, copy=True).div_(255.0).sub_(mean).div_(std)
        return values.contiguous(memory_format=torch.channels_last)

    def denormalise(self, inputs: Tensor) -> Tensor:
        """The inverse of :meth:`normalise`, as float32 in ``[0, 1]``."""
        mean = torch.tensor(self.mean, device=inputs.device).view(1, -1, 1, 1)
        std = torch.tensor(self.std, device=inputs.device).view(1, -1, 1, 1)
        return (inputs * std + mean).clamp(0, 1)


def checked_size(size: Any) -> tuple[int, int]:
    """``(height, width)`` of an image size as given, if it is one: two whole numbers of pixels.

    >>> checked_size([32, 48])
    (32, 48)
    """
    sides = list(size) if isinstance(size, Sequence) and not isinstance(size, str) else [size]
    whole = [isinstance(side, (int, np.integer)) and not isinstance(side, bool) for side in sides]
    if len(sides) != 2 or not all(whole) or not all(1 <= side <= MAX_SIDE for side in sides):
        raise DataError(f"an image size is height and width in pixels, each from 1 to {MAX_SIDE:,}; found {size!r}.")
    return int(sides[0]), int(sides[1])


def _channels(name: str, values: Any) -> tuple[float, ...]:
    """Three finite numbers (or one for all), those of a standard deviation above 0."""
    numbers = tuple(values) if isinstance(values, Sequence) and not isinstance(values, str) else ()
    plain = all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in numbers)
    good = len(numbers) in (1, 3) and plain and bool(np.isfinite(numbers).all())
    if not good or (name == "std" and min(numbers) <= 0):
        above = " above 0" if name == "std" else ""
        raise DataError(f"{name} is one number{above} for each of red, green and blue; found {values!r}.")
    return numbers


def channel_statistics(
    dataset: GroupedDataset, images: int = 512, seed: int = 0
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and standard deviation per channel over a random sample of ``images`` images, in ``[0, 1]``.

    Unreadable images are passed over: another part of the run names them.
    """
    order = np.random.default_rng(seed).permutation(len(dataset))
    total, squares, pixels, used = np.zeros(3), np.zeros(3), 0, 0
    for i in order:
        try:
            image: NDArray[np.float64] = dataset.images.read(int(i)).reshape(-1, 3) / 255.0
        except UnreadableImage:
            continue
        total += image.sum(0)
        squares += (image**2).sum(0)
        pixels += len(image)
        used += 1
        if used == images:
            break
    if not pixels:
        raise DataError(f"{dataset.name}: none of its {len(dataset)} images can be read.")
    mean = total / pixels
    std = np.sqrt(np.maximum(squares / pixels - mean**2, 1e-6))
    return tuple(round(float(m), 4) for m in mean), tuple(round(float(max(s, 1e-3)), 4) for s in std)


def image_size(dataset: GroupedDataset) -> tuple[int, int]:
    """``(height, width)`` of the first readable image."""
    for i in range(len(dataset)):
        try:
            return dataset.images.read(i).shape[:2]  # type: ignore[return-value]
        except UnreadableImage:
            continue
    raise DataError(f"{dataset.name}: none of its {len(dataset)} images can be read.")


def as_images(images: Tensor | NDArray[np.uint8] | Sequence[Any]) -> list[Tensor]:
    """A batch in any of the usual forms as a list of ``uint8 [3, H, W]``.

    Accepts a tensor ``[B, 3, H, W]`` (uint8, or float in ``[0, 1]``), an array ``[B, H, W, 3]`` of the same
    types, or a list of PIL images, arrays, tensors or paths. In a list, a grey ``[H, W]`` array or tensor is
    repeated to three channels, as grey files are.

    >>> [tuple(image.shape) for image in as_images([np.zeros((4, 6), np.uint8), torch.rand(3, 5, 5)])]
    [(3, 4, 6), (3, 5, 5)]
    """
    from PIL import Image

    from foveate.data.images import decode, to_rgb

    def one(item: Any) -> Tensor:
        if isinstance(item, Image.Image):
            item = np.asarray(to_rgb(item))
        elif isinstance(item, (str, bytes)) or hasattr(item, "__fspath__"):
            item = decode(item)
        found = tuple(item.shape) if hasattr(item, "shape") else type(item).__name__
        if isinstance(item, np.ndarray) and item.ndim in (2, 3):
            channels_first = item.transpose(2, 0, 1) if item.ndim == 3 else item
            item = torch.from_numpy(np.ascontiguousarray(channels_first).copy())
        if isinstance(item, Tensor) and item.ndim == 2:
            item = item.expand(3, -1, -1)
        if not isinstance(item, Tensor) or item.ndim != 3 or item.shape[0] != 3 or not item.numel():
            raise DataError(
                f"expected RGB images as [3, H, W] tensors, [H, W, 3] arrays or PIL, or grey ones as [H, W]; "
                f"found {found}."
            )
        if item.dtype != torch.uint8:
            if not (item.min() >= 0 and item.max() <= 1):  # NaN is neither
                raise DataError("float images must lie in [0, 1]; do not normalise them, the model does.")
            item = (item * 255).round().to(torch.uint8)
        return item

    single = isinstance(images, (Image.Image, str, bytes)) or hasattr(images, "__fspath__")
    # the rows of one image must not pass for a batch of grey ones
    if single or (isinstance(images, (np.ndarray, Tensor)) and images.ndim != 4):
        raise DataError(
            "expected a batch: a [B, 3, H, W] tensor, a [B, H, W, 3] array or a list of images; "
            f"found {tuple(images.shape) if hasattr(images, 'shape') else type(images).__name__}. "
            "Put one image in a list: [image]."
        )
    batch = [one(item) for item in images]
    if not batch:
        raise DataError("expected at least one image, found none.")
    return batch
