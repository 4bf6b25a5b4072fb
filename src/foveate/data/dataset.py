"""Images with labels and what is known about them: the one dataset type of the project."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from torch.utils.data import Dataset

from foveate.data.images import ImageSource, read_at_least, reads_in_threads
from foveate.errors import DataError, UnreadableImage


@dataclass(frozen=True)
class Sample:
    """One image and what is known about it.

    Attributes:
        image: ``uint8 [3, H, W]``.
        label: class index.
        attribute: attribute index (what the shortcut is made of), or None.
        group: ``label * num_attributes + attribute``, or None.
        index: position in the dataset it came from.
        mask: ``float32 [H, W]`` in ``[0, 1]``, 1 on the object, or None.
        box: ``float32 [4]`` as ``(x0, y0, x1, y1)`` in pixels, end exclusive, or None.
        keypoints: ``float32 [P, 3]`` as ``(x, y, visible)``, or None.
    """

    image: Tensor
    label: int
    attribute: int | None
    group: int | None
    index: int
    mask: Tensor | None = None
    box: Tensor | None = None
    keypoints: Tensor | None = None


class GroupedDataset(Dataset[Sample]):
    """Images with labels, optional attributes, and the groups they form.

    Args:
        images: where the pixels come from (:class:`~foveate.data.images.ArrayImages`,
            :class:`~foveate.data.images.FileImages`, or anything with the same methods).
        labels: class index of every image, ``[N]``.
        class_names: name of every class.
        attributes: attribute index of every image, ``[N]``, or None when unknown.
        attribute_names: name of every attribute value; required with ``attributes``.
        masks: an image source of masks (``uint8 [H, W]``, 255 = object), or None.
        boxes: ``[N, 4]`` pixel boxes ``(x0, y0, x1, y1)``, end exclusive, NaN where unknown, or None.
        keypoints: ``[N, P, 3]`` of ``(x, y, visible)``, or None.
        keypoint_names: name of every keypoint.
        extras: further columns of length N (a second attribute, a breed …), by name.
        name: what to call this dataset in messages.

    >>> import numpy as np
    >>> from foveate.data.images import ArrayImages
    >>> ds = GroupedDataset(ArrayImages(np.zeros((4, 8, 8, 3), np.uint8)), [0, 0, 1, 1], ["cat", "dog"],
    ...                     attributes=[0, 1, 0, 1], attribute_names=["forest", "sea"])
    >>> ds.group_names
    ['cat/forest', 'cat/sea', 'dog/forest', 'dog/sea']
    >>> ds[3].group, tuple(ds[3].image.shape)
    (3, (3, 8, 8))
    """

    def __init__(
        self,
        images: ImageSource,
        labels: ArrayLike,
        class_names: Sequence[str],
        *,
        attributes: ArrayLike | None = None,
        attribute_names: Sequence[str] | None = None,
        masks: ImageSource | None = None,
        boxes: ArrayLike | None = None,
        keypoints: ArrayLike | None = None,
        keypoint_names: Sequence[str] | None = None,
        extras: Mapping[str, ArrayLike] | None = None,
        name: str = "dataset",
    ):
        self.name = name
        self.images = images
        self.masks = masks
        self.class_names = [str(c) for c in class_names]
        self.attribute_names = None if attribute_names is None else [str(a) for a in attribute_names]
        self.keypoint_names = None if keypoint_names is None else [str(k) for k in keypoint_names]
        self.labels: NDArray[np.int64] = self._column("labels", labels, np.int64)
        self.attributes: NDArray[np.int64] | None = (
            None if attributes is None else self._column("attributes", attributes, np.int64)
        )
        self.boxes: NDArray[np.float32] | None = None if boxes is None else self._column("boxes", boxes, np.float32)
        self.keypoints: NDArray[np.float32] | None = (
            None if keypoints is None else self._column("keypoints", keypoints, np.float32)
        )
        self.extras: dict[str, NDArray[Any]] = {k: np.asarray(v) for k, v in (extras or {}).items()}
        self._check()

    def _column(self, what: str, values: ArrayLike, dtype: type) -> NDArray[Any]:
        column: NDArray[Any] = np.asarray(values, dtype=dtype)
        if len(column) != len(self.images):
            raise DataError(f"{self.name}: {len(column)} {what} for {len(self.images)} images; give one each.")
        return column

    def _check(self) -> None:
        if len(self.labels) and not (self.labels.min() >= 0 and self.labels.max() < len(self.class_names)):
            raise DataError(
                f"{self.name}: labels run from {self.labels.min()} to {self.labels.max()}, "
                f"but there are {len(self.class_names)} class names."
            )
        if self.attributes is not None:
            if self.attribute_names is None:
                raise DataError(f"{self.name}: attributes are given without attribute_names; name each value.")
            low, high = (self.attributes.min(), self.attributes.max()) if len(self.attributes) else (0, 0)
            if not (low >= 0 and high < len(self.attribute_names)):
                raise DataError(
                    f"{self.name}: attributes run from {low} to {high}, "
                    f"but there are {len(self.attribute_names)} attribute names."
                )
        if self.masks is not None and len(self.masks) != len(self.images):
            raise DataError(f"{self.name}: {len(self.masks)} masks for {len(self.images)} images.")

    # -- size and groups ------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self.images)

    @property
    def num_classes(self) -> int:
        return len(self.class_names)

    @property
    def num_attributes(self) -> int:
        return len(self.attribute_names) if self.attribute_names is not None else 0

    @property
    def num_groups(self) -> int:
        return self.num_classes * self.num_attributes

    @cached_property
    def groups(self) -> NDArray[np.int64] | None:
        """``label * num_attributes + attribute`` of every image, or None without attributes."""
        return None if self.attributes is None else self.labels * self.num_attributes + self.attributes

    def require_groups(self, who: str) -> NDArray[np.int64]:
        """The groups, or a :class:`DataError` that says who needs them and how to give them."""
        if self.groups is None:
            raise DataError(
                f"{who} needs groups, but {self.name} has no attributes. "
                "Add an 'attribute' column to the CSV (or attribute sub-folders)."
            )
        return self.groups

    @property
    def group_names(self) -> list[str]:
        return [f"{c}/{a}" for c in self.class_names for a in self.attribute_names or []]

    @property
    def group_counts(self) -> NDArray[np.int64]:
        """Images in every group, ``[num_groups]``."""
        return np.bincount(self.require_groups("group_counts"), minlength=self.num_groups)

    @property
    def class_counts(self) -> NDArray[np.int64]:
        return np.bincount(self.labels, minlength=self.num_classes)

    # -- samples --------------------------------------------------------------------------

    def __getitem__(self, index: int) -> Sample:
        """Decode image ``index``; a bad file raises :class:`~foveate.errors.UnreadableImage`."""
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index = int(index) % len(self)
        image = torch.from_numpy(np.ascontiguousarray(self.images.read(index).transpose(2, 0, 1)).copy())
        return Sample(
            image=image,
            label=int(self.labels[index]),
            attribute=None if self.attributes is None else int(self.attributes[index]),
            group=None if self.groups is None else int(self.groups[index]),
            index=index,
            mask=self.mask(index),
            box=None if self.boxes is None else torch.from_numpy(self.boxes[index].copy()),
            keypoints=None if self.keypoints is None else torch.from_numpy(self.keypoints[index].copy()),
        )

    def mask(self, index: int) -> Tensor | None:
        """Mask ``index`` as ``float32 [H, W]`` in ``[0, 1]``, or None."""
        if self.masks is None:
            return None
        values = self.masks.read(index)
        if values.size == 0:  # a source that knows only some of the masks
            return None
        return torch.from_numpy(values.astype(np.float32) / 255.0)

    def __iter__(self) -> Iterator[Sample]:
        return (self[i] for i in range(len(self)))

    def where(self, index: int) -> str:
        """A name for image ``index`` that a person can look up: its path, or its row."""
        return self.images.where(int(index))

    # -- views ----------------------------------------------------------------------------

    def subset(self, indices: ArrayLike, name: str | None = None) -> GroupedDataset:
        """The images at ``indices`` (positions, or a boolean mask), in that order; nothing is decoded."""
        chosen = np.asarray(indices)
        if chosen.dtype == bool:
            if len(chosen) != len(self):
                raise IndexError(f"a mask of {len(chosen)} for {len(self)} images")
            chosen = np.flatnonzero(chosen)
        chosen = np.arange(len(self))[chosen.astype(np.int64)]  # negative positions count from the end
        return GroupedDataset(
            _Chosen.of(self.images, chosen),
            self.labels[chosen],
            self.class_names,
            attributes=None if self.attributes is None else self.attributes[chosen],
            attribute_names=self.attribute_names,
            masks=None if self.masks is None else _Chosen.of(self.masks, chosen),
            boxes=None if self.boxes is None else self.boxes[chosen],
            keypoints=None if self.keypoints is None else self.keypoints[chosen],
            keypoint_names=self.keypoint_names,
            extras={k: v[chosen] for k, v in self.extras.items()},
            name=name or self.name,
        )

    def with_labels(self, labels: ArrayLike, class_names: Sequence[str], name: str | None = None) -> GroupedDataset:
        """The same images under other labels (for instance the attribute as label)."""
        return GroupedDataset(
            self.images, labels, class_names,
            attributes=self.attributes, attribute_names=self.attribute_names, masks=self.masks,
            boxes=self.boxes, keypoints=self.keypoints, keypoint_names=self.keypoint_names,
            extras=self.extras, name=name or self.name,
        )  # fmt: skip

    def without_attributes(self) -> GroupedDataset:
        """The same images with labels, masks and boxes, as if nobody knew more about them."""
        return GroupedDataset(
            self.images, self.labels, self.class_names, masks=self.masks, boxes=self.boxes, name=self.name
        )

    def __add__(self, other: Dataset[Sample]) -> GroupedDataset:  # type: ignore[override]
        """Both datasets one after the other; classes and attributes must agree."""
        if not isinstance(other, GroupedDataset):
            return NotImplemented
        if self.class_names != other.class_names or self.attribute_names != other.attribute_names:
            raise DataError(f"{self.name} and {other.name} have other classes or attributes; they cannot be joined.")
        if self.keypoint_names != other.keypoint_names and not (self.keypoints is None or other.keypoints is None):
            raise DataError(f"{self.name} and {other.name} have other keypoints; they cannot be joined.")

        def both(a: Any, b: Any) -> Any:
            return None if a is None or b is None else np.concatenate([a, b])

        return GroupedDataset(
            _Joined(self.images, other.images),
            np.concatenate([self.labels, other.labels]),
            self.class_names,
            attributes=both(self.attributes, other.attributes),
            attribute_names=self.attribute_names,
            masks=None if self.masks is None or other.masks is None else _Joined(self.masks, other.masks),
            boxes=both(self.boxes, other.boxes),
            keypoints=both(self.keypoints, other.keypoints),
            keypoint_names=self.keypoint_names if other.keypoints is not None else None,
            extras={k: both(v, other.extras[k]) for k, v in self.extras.items() if k in other.extras},
            name=f"{self.name}+{other.name}",
        )

    @cached_property
    def fingerprint(self) -> str:
        """A hash of every image's content, label and attribute; changes when any of them does."""
        hasher = hashlib.blake2b(digest_size=16)
        hasher.update(repr((self.class_names, self.attribute_names)).encode())
        hasher.update(self.labels.tobytes())
        if self.attributes is not None:
            hasher.update(self.attributes.tobytes())
        for i in range(len(self)):
            hasher.update(self.images.digest(i))
        return hasher.hexdigest()

    def readable(self) -> tuple[NDArray[np.int64], list[UnreadableImage]]:
        """Positions of the images that decode, and one error for each that does not (decodes everything)."""
        good, bad = [], []
        for i in range(len(self)):
            try:
                self.images.read(i)
                good.append(i)
            except UnreadableImage as error:
                bad.append(error)
        return np.asarray(good, dtype=np.int64), bad

    def __repr__(self) -> str:
        groups = f", {self.num_attributes} attributes" if self.attributes is not None else ""
        return f"GroupedDataset({self.name}: {len(self)} images, {self.num_classes} classes{groups})"


class _Chosen:
    """An image source seen through a list of positions."""

    def __init__(self, source: ImageSource, indices: NDArray[np.int64]):
        self.source, self.indices = source, indices
        self.in_threads = reads_in_threads(source)

    @staticmethod
    def of(source: ImageSource, indices: NDArray[np.int64]) -> _Chosen:
        if isinstance(source, _Chosen):
            return _Chosen(source.source, source.indices[indices])
        return _Chosen(source, indices)

    def __len__(self) -> int:
        return len(self.indices)

    def read(self, i: int) -> NDArray[np.uint8]:
        return self.source.read(int(self.indices[i]))

    def read_at_least(self, i: int, least: tuple[int, int]) -> NDArray[np.uint8]:
        return read_at_least(self.source, int(self.indices[i]), least)

    def where(self, i: int) -> str:
        return self.source.where(int(self.indices[i]))

    def digest(self, i: int) -> bytes:
        return self.source.digest(int(self.indices[i]))


class _Joined:
    """Two image sources one after the other."""

    def __init__(self, first: ImageSource, second: ImageSource):
        self.first, self.second = first, second
        self.in_threads = reads_in_threads(first) and reads_in_threads(second)

    def __len__(self) -> int:
        return len(self.first) + len(self.second)

    def _at(self, i: int) -> tuple[ImageSource, int]:
        n = len(self.first)
        return (self.first, i) if i < n else (self.second, i - n)

    def read(self, i: int) -> NDArray[np.uint8]:
        source, j = self._at(i)
        return source.read(j)

    def read_at_least(self, i: int, least: tuple[int, int]) -> NDArray[np.uint8]:
        source, j = self._at(i)
        return read_at_least(source, j, least)

    def where(self, i: int) -> str:
        source, j = self._at(i)
        return source.where(j)

    def digest(self, i: int) -> bytes:
        source, j = self._at(i)
        return source.digest(j)
