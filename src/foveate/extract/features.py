"""Features of a whole dataset, as they come out of the feature store."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveate.data.dataset import GroupedDataset
from foveate.errors import DataError
from foveate.extract.shelf import Opened
from foveate.files import atomic_file


class Features:
    """Features of every image of a dataset, on disk.

    Attributes:
        array: read-only memory map ``[N, ...]``, or ``[N, copies + 1, ...]`` with augmented copies (copy 0 is
            the plain image). Rows of images that could not be read are NaN.
        valid: bool ``[N]``, False where the image could not be read.
        bad: ``(index, where, reason)`` of every image that could not be read.
        copies: augmented copies beside the plain one.
        key: the name of the entry in its store.
    """

    def __init__(self, opened: Opened, copies: int):
        self._opened = opened  # keeps the entry from being evicted
        self.array: NDArray[Any] = opened.array
        self.copies = copies
        self.key = opened.folder.name
        self.bad: list[tuple[int, str, str]] = [tuple(b) for b in opened.details["bad"]]  # type: ignore[misc]
        self.valid: NDArray[np.bool_] = np.ones(len(self.array), dtype=bool)
        self.valid[[b[0] for b in self.bad]] = False

    def __len__(self) -> int:
        return len(self.array)

    @property
    def row_shape(self) -> tuple[int, ...]:
        """The shape of the features of one image (one copy of it)."""
        return self.array.shape[2:] if self.copies else self.array.shape[1:]

    @property
    def channels(self) -> int:
        """Length of a pooled vector, or number of maps."""
        return int(self.row_shape[0])

    def batch(self, indices: Sequence[int] | NDArray[np.int64] | slice, copy: int = 0) -> Tensor:
        """The features of some images as float32 ``[B, ...]``, in the order of ``indices``."""
        if not 0 <= copy <= self.copies:
            raise DataError(f"there is no copy {copy}; these features have copies 0 (plain) to {self.copies}.")
        # np.asarray: indexing the memmap class itself is slower and gives memmaps again
        rows = np.asarray(self.array)
        chosen = indices if isinstance(indices, slice) else np.asarray(indices, dtype=np.int64)
        taken = rows[chosen, copy] if self.copies else rows[chosen]
        return torch.from_numpy(np.array(taken, dtype=np.float32, copy=isinstance(chosen, slice) or None))

    def __repr__(self) -> str:
        missing = f", {len(self.bad)} unreadable" if self.bad else ""
        return f"{type(self).__name__}({list(self.array.shape)} {self.array.dtype}{missing})"


class Maps(Features):
    """Feature maps of every image: ``array`` is ``[N, C, h, w]``, with copies ``[N, copies + 1, C, h, w]``."""

    @property
    def grid(self) -> tuple[int, int]:
        """``(h, w)`` of the maps."""
        h, w = self.row_shape[-2:]
        return h, w


def save_npz(path: str | Path, features: Features, dataset: GroupedDataset) -> Path:
    """Features with what belongs to them, as a NumPy file: ``features``, ``valid``, ``labels`` and ``attributes``.

    Attributes of a dataset without any are not in it.
    """
    arrays = {"features": features.array, "valid": features.valid, "labels": dataset.labels}
    if dataset.attributes is not None:
        arrays["attributes"] = dataset.attributes
    with atomic_file(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **arrays)  # type: ignore[arg-type]
    return Path(path)
