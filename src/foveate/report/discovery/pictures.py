"""The images of the experiments, and the pictures that an exchange makes of two of them."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveate.data.preprocess import Preprocess
from foveate.report.discovery.cues import Cue
from foveate.report.discovery.cues.cue import as_pixels

KEPT = 256 * 2**20
"""Bytes of exchanged pictures that are kept for the next model."""
Value = TypeVar("Value")


@dataclass
class Kept:
    """What was made of some images and serves every model: exchanged pictures, up to ``limit`` bytes, and measures.

    What came first stays: models are asked in the same order, and if what came last stayed, pictures beyond the limit
    would push out each other before their turn came again.

    Attributes:
        of: the tensors that it was made of; a sheet with others has no part in it.
        held: bytes of the pictures.
    """

    of: tuple[Tensor | None, ...]
    limit: int = KEPT
    held: int = 0
    pictures: dict[Hashable, Tensor] = field(default_factory=dict, repr=False)
    measures: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    def picture(self, key: Hashable, made: Tensor) -> None:
        """Keep a picture ``uint8 [3, H, W]`` if there is room."""
        if key not in self.pictures and self.held + made.nbytes <= self.limit:
            self.pictures[key] = made.clone()  # a row of a batch would hold the batch
            self.held += made.nbytes


@dataclass(frozen=True)
class Sheet:
    """The images the experiments use, at the size the model sees.

    Attributes:
        images: ``uint8 [n, 3, H, W]``.
        masks: ``[n, H, W]``, 1 on the object and a margin around it.
        labels, predictions: ``[n]``.
        confidence: the model's probability of its prediction, ``[n]``.
        positions: where the images are in the dataset, ``[n]``.
        tight: ``[n, H, W]``, 1 on the object alone; None where nothing better than ``masks`` is known.
        original: a position to the image as it is stored, ``uint8 [3, h, w]``; ``view`` makes it what the model sees.
        keeps: places that every exchange leaves as they are in its recipient, ``uint8 [n, H, W]``; None for none.
        donors: the images as donors, ``uint8 [n, 3, H, W]``; None for ``images``.
        shared: what was made of these images for other models.
    """

    images: Tensor
    masks: Tensor
    labels: NDArray[np.int64]
    predictions: NDArray[np.int64]
    confidence: NDArray[np.float64]
    positions: NDArray[np.int64]
    tight: Tensor | None = None
    original: Callable[[int], Tensor] | None = field(default=None, compare=False)
    view: Preprocess | None = None
    keeps: Tensor | None = None
    donors: Tensor | None = None
    shared: Kept | None = field(default=None, compare=False, repr=False)

    @property
    def kept(self) -> Kept | None:
        """What is shared, if it was made of the very images and masks of this sheet."""
        if self.shared is None or self.keeps is not None or self.donors is not None:
            return None
        alike = all(a is b for a, b in zip((self.images, self.masks, self.tight), self.shared.of, strict=True))
        return self.shared if alike else None

    def measured(self, key: Hashable, measure: Callable[[], Value]) -> Value:
        """What ``measure`` gives, once for all models that see these images; it must not depend on any model."""
        if self.kept is None:
            return measure()
        if key not in self.kept.measures:
            self.kept.measures[key] = measure()
        found: Value = self.kept.measures[key]
        return found

    def __len__(self) -> int:
        return len(self.images)

    def first(self, n: int) -> Sheet:
        """The first ``n`` images, which are a random draw."""
        return replace(
            self, images=self.images[:n], masks=self.masks[:n], labels=self.labels[:n],
            predictions=self.predictions[:n], confidence=self.confidence[:n], positions=self.positions[:n],
            tight=None if self.tight is None else self.tight[:n],
            keeps=None if self.keeps is None else self.keeps[:n],
            donors=None if self.donors is None else self.donors[:n],
        )  # fmt: skip


def exchange(
    sheet: Sheet, cue: Cue, recipients: Sequence[int] | NDArray[np.int64], donors: Any, generous: bool = False
) -> Tensor:
    """The recipients with the donors' property, ``uint8 [B, 3, H, W]``; ``generous`` leaves a margin at the object.

    Pictures that another model was asked about are not made again.
    """
    if cue.exchange is None:
        raise ValueError(f"'{cue.key}' cannot be exchanged")
    rows, others = np.asarray(recipients), np.asarray(donors)
    kept = sheet.kept
    if kept is None or not kept.limit:
        return _made(sheet, cue, rows, others, generous)
    way = (cue.exchange, cue.cuts, cue.outlined, cue.full_size, generous)
    keys = [(way, int(i), int(j)) for i, j in zip(rows, others, strict=True)]
    found = {key: kept.pictures[key] for key in keys if key in kept.pictures}
    new = [place for place, key in enumerate(keys) if key not in found]
    if new:
        for place, picture in zip(new, _made(sheet, cue, rows[new], others[new], generous), strict=True):
            found[keys[place]] = picture
            kept.picture(keys[place], picture)
    return torch.stack([found[key] for key in keys])


def _made(sheet: Sheet, cue: Cue, rows: NDArray[np.int64], others: NDArray[np.int64], generous: bool) -> Tensor:
    if cue.exchange is None:
        raise ValueError(f"'{cue.key}' cannot be exchanged")
    i, j = torch.as_tensor(rows), torch.as_tensor(others)
    if cue.full_size and sheet.original is not None and sheet.view is not None:
        made = torch.stack([_at_full_size(sheet, cue, int(i), int(j)) for i, j in zip(rows, others, strict=True)])
    else:
        tight = sheet.masks if sheet.tight is None or generous else sheet.tight
        cut, hidden = tight if cue.cuts or cue.outlined else sheet.masks, tight if cue.outlined else sheet.masks
        giving = sheet.images if sheet.donors is None else sheet.donors
        made = as_pixels(cue.exchange(sheet.images[i].float(), cut[i].float(), giving[j].float(), hidden[j].float()))
    return made if sheet.keeps is None else torch.where(sheet.keeps[i][:, None] > 0, sheet.images[i], made)


def _at_full_size(sheet: Sheet, cue: Cue, i: int, j: int) -> Tensor:
    if cue.exchange is None or sheet.original is None or sheet.view is None:
        raise ValueError(f"'{cue.key}' cannot be exchanged at full size")
    x, donor = (sheet.original(int(sheet.positions[row])).float()[None] for row in (i, j))
    empty = [torch.zeros(image.shape[0], *image.shape[-2:]) for image in (x, donor)]
    return sheet.view.prepare(as_pixels(cue.exchange(x, empty[0], donor, empty[1]))[0])
