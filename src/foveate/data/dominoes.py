"""Dominoes: an MNIST digit (the shortcut) over a CIFAR-10 photograph (the object to name)."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from foveate.data.benchmark import Benchmark
from foveate.data.dataset import GroupedDataset
from foveate.data.pools import Deck, ImagePool, cell_counts, deal, load_pool, prepare_assets, shuffled_cells

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
DIGITS = tuple(str(d) for d in range(10))
PER_CLASS = 4396
"""Training images of each class in the DAR paper: 4,180 + 9 x 24."""


def dominoes(
    root: str | os.PathLike[str] | None = None,
    seed: int = 0,
    strength: float = 0.95,
    *,
    per_class: int = PER_CLASS,
    target_per_cell: int = 10,
    val_per_cell: int = 10,
    test_per_cell: int = 100,
) -> Benchmark:
    """The Dominoes benchmark of the DAR paper (Table 4): 10 classes x 10 digits, 64 rows x 32 columns.

    The digit (padded from 28 to 32 pixels, grey) sits on top, the photograph below. The label is the CIFAR-10
    class, the attribute the digit. In ``train`` class ``i`` goes with digit ``i``: 4,180 images on the
    diagonal and 24 in each other cell, 43,960 in all. ``target`` and ``val`` have 10 images in every cell,
    ``test`` has 100. Other strengths keep the 4,396 images of a class and follow the same rule (each other
    cell gets ``round((1 - strength) * 4396 / 9)``): 0.90 gives 3,955 and 49.

    Train, target and val share no photograph and no digit. Test comes from the test pools of both sources:
    it uses every CIFAR-10 test photograph once; five digits have fewer than the 1,000 test images needed, so
    some of theirs appear twice (in test only).

    Masks mark the photograph (the core half); ``extras`` hold the source positions ``cifar_index`` and
    ``mnist_index``. Images are joined when read, from memory-mapped files.

    Args:
        root: folder of the source data (see :func:`foveate.assets.fetch`).
        seed: which images are drawn, and their order.
        strength: share of each class that carries its own digit in ``train``.
        per_class: training images of each class.
        target_per_cell: images in every cell of ``target``; likewise ``val_per_cell`` and ``test_per_cell``.
    """
    pools = {s: (load_pool("cifar10", s, root), load_pool("mnist", s, root)) for s in ("train", "test")}
    return from_pools(
        pools["train"],
        pools["test"],
        seed,
        cell_counts(per_class, 10, strength),
        {"target": target_per_cell, "val": val_per_cell, "test": test_per_cell},
        {"seed": seed, "strength": strength, "sources": ["cifar10", "mnist"]},
    )


def prepare(
    root: str | os.PathLike[str] | None = None, tell: Callable[[str], None] | None = None
) -> dict[str, dict[str, object]]:
    """Fetch and check what :func:`dominoes` needs; returns folder and image counts of each source."""
    return prepare_assets(["cifar10", "mnist"], root, tell)


def from_pools(
    train_pools: tuple[ImagePool, ImagePool],
    test_pools: tuple[ImagePool, ImagePool],
    seed: int,
    train_cells: NDArray[np.int64],
    per_cell: dict[str, int],
    notes: dict[str, object] | None = None,
) -> Benchmark:
    """Dominoes from any photographs and digits: ``(photographs, digits)`` for train and for test.

    Args:
        train_pools: 32 x 32 x 3 photographs and 28 x 28 digits that train, target and val draw from.
        test_pools: the same for test.
        seed: which images are drawn.
        train_cells: images of every (class, digit) cell of ``train``, ``[10, 10]``.
        per_cell: images in every cell of ``target``, ``val``, ``test``; 0 leaves the split out.
        notes: kept in the benchmark's notes.
    """
    rng = np.random.default_rng(seed)
    learn = (Deck(train_pools[0].labels, rng, "photographs"), Deck(train_pools[1].labels, rng, "digits"))
    judge = (Deck(test_pools[0].labels, rng, "photographs"), Deck(test_pools[1].labels, rng, "digits"))
    plan = {"train": train_cells} | {s: np.full_like(train_cells, n) for s, n in per_cell.items()}
    splits = {}
    for split, cells in plan.items():
        if not cells.sum():
            continue
        testing = split == "test"
        photos, digits = test_pools if testing else train_pools
        photo_deck, digit_deck = judge if testing else learn
        labels, attributes = shuffled_cells(cells, rng)
        images = DominoImages(
            photos,
            digits,
            deal(photo_deck, labels),
            deal(digit_deck, attributes, reuse=testing),
            f"dominoes/{split}",
        )
        splits[split] = GroupedDataset(
            images,
            labels,
            CLASSES,
            attributes=attributes,
            attribute_names=DIGITS,
            masks=LowerHalf(len(labels)),
            boxes=np.tile(np.array([0, 32, 32, 64], np.float32), (len(labels), 1)),
            extras={"cifar_index": images.photo_index, "mnist_index": images.digit_index},
            name=f"dominoes/{split}",
        )
    return Benchmark("dominoes", splits, dict(notes or {}))


class DominoImages:
    """Joins digit and photograph when an image is read: ``uint8 [64, 32, 3]``."""

    def __init__(
        self,
        photos: ImagePool,
        digits: ImagePool,
        photo_index: NDArray[np.int64],
        digit_index: NDArray[np.int64],
        name: str,
    ):
        self.photos, self.digits = photos.images, digits.images
        self.photo_index, self.digit_index = photo_index, digit_index
        self.name = name

    def __len__(self) -> int:
        return len(self.photo_index)

    def read(self, i: int) -> NDArray[np.uint8]:
        image = np.zeros((64, 32, 3), np.uint8)
        image[2:30, 2:30] = self.digits[int(self.digit_index[i])][:, :, None]
        image[32:] = self.photos[int(self.photo_index[i])]
        return image

    def where(self, i: int) -> str:
        return f"{self.name}[{i}] (cifar10 {self.photo_index[i]}, mnist {self.digit_index[i]})"

    def digest(self, i: int) -> bytes:
        """Hash of the two parts (which determine the image), without joining them."""
        hasher = hashlib.blake2b(b"domino", digest_size=16)
        hasher.update(self.photos[int(self.photo_index[i])].tobytes())
        hasher.update(self.digits[int(self.digit_index[i])].tobytes())
        return hasher.digest()


class LowerHalf:
    """The mask of every domino: the lower half, ``uint8 [64, 32]``."""

    def __init__(self, length: int):
        self._length = length
        self._mask = np.zeros((64, 32), np.uint8)
        self._mask[32:] = 255

    def __len__(self) -> int:
        return self._length

    def read(self, i: int) -> NDArray[np.uint8]:
        return self._mask

    def where(self, i: int) -> str:
        return "lower half"

    def digest(self, i: int) -> bytes:
        return hashlib.blake2b(self._mask.tobytes(), digest_size=16).digest()
