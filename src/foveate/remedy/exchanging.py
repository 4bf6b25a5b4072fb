"""Images made by exchanging between classes the very thing an audit named, so that it tells the class no more.

A made image is a recipient with the cue of a donor: its label is the recipient's, and what the cue speaks for is the
donor's class. So every made image has a group (label, donor's class) by construction, and nobody had to name an
attribute.

A model that learns from such images learns whatever still tells the class, so more care is needed than in an audit:

- Nothing of the old cue may stay. Generous masks leave a rim of the old surroundings around the object; here they are
  tight. The audit keeps the look of the object where objects do not share a property of the picture; here it is
  exchanged all over.
- Editing may not tell the class either. Images with the cue of their own class go through exactly the same hands as
  those with another's. What cannot be undone (brightness that clips, detail that is lost) both take on: the one goes to
  its own class and then to another, the other the other way round. Were one of the two edited more, a network would
  read the editing. Images as they come are not learned from: a network tells them from edited ones, and would learn to
  trust the cue wherever nothing was edited.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveate.data.dataset import GroupedDataset
from foveate.data.images import ImageSource
from foveate.data.preprocess import Preprocess
from foveate.errors import DataError
from foveate.report.discovery.cues.cue import Cue, as_pixels
from foveate.report.discovery.objects import Objects
from foveate.report.reading import readable

MOST_OBJECT = 0.9
"""An image that its object covers more than this has no surroundings to give or to change."""
OTHERS = 2
"""Donors of other classes that an image gets, where there are that many other classes."""


@dataclass(frozen=True)
class Cutouts:
    """The images of a dataset that can be exchanged with, and where their objects are.

    Attributes:
        dataset: all images.
        positions: those that were read and have surroundings, ``[n]``.
        masks: where the object is at the size of ``view``, packed to bits, ``[n, bytes]``.
        view: how images reach the model; made images have its size.
    """

    dataset: GroupedDataset
    positions: NDArray[np.int64]
    masks: NDArray[np.uint8]
    view: Preprocess

    @staticmethod
    def of(
        dataset: GroupedDataset, objects: Objects, view: Preprocess, tick: Callable[[int], None] | None = None
    ) -> Cutouts:
        """Find the object in every image of ``dataset``; unreadable images are left out."""
        kept: list[int] = []
        packed: list[NDArray[np.uint8]] = []
        objects.look(np.arange(len(dataset)), tick)
        for start in range(0, len(dataset), 16):
            wanted = np.arange(start, min(start + 16, len(dataset)))
            found = dict(readable(dataset, wanted))
            for i, mask in zip(found, objects.tight(list(found.values()), list(found)), strict=True):
                if mask is None:
                    continue
                seen = view.prepare_mask(mask) > 0.5
                if seen.float().mean() <= MOST_OBJECT:
                    kept.append(i)
                    packed.append(np.packbits(seen.numpy()))
        rows = np.stack(packed) if packed else np.zeros((0, 1), np.uint8)
        return Cutouts(dataset, np.asarray(kept, dtype=np.int64), rows, view)

    @property
    def labels(self) -> NDArray[np.int64]:
        return self.dataset.labels[self.positions]

    def image(self, row: int) -> Tensor:
        """Image ``row`` as the model sees it, ``float [1, 3, H, W]`` in 0 … 255."""
        pixels = self.dataset.images.read(int(self.positions[row])).transpose(2, 0, 1)
        return self.view.prepare(torch.from_numpy(np.ascontiguousarray(pixels).copy()))[None].float()

    def mask(self, row: int) -> Tensor:
        """The mask of its object, ``float [1, H, W]``."""
        height, width = self.view.size
        bits = np.unpackbits(self.masks[row], count=height * width).reshape(height, width)
        return torch.from_numpy(bits.astype(np.float32))[None]


class ExchangedImages:
    """An image source: every image is made when it is asked for, so memory stays flat however many there are.

    Args:
        cutouts: recipients and donors.
        recipients: rows of ``cutouts``, ``[N]``.
        donors: the donors of each, one after the other, ``[N, d]``; the last one's cue is what stays.
        cues: what is exchanged.
    """

    def __init__(self, cutouts: Cutouts, recipients: NDArray[np.int64], donors: NDArray[np.int64], cues: Sequence[Cue]):
        self.cutouts, self.recipients, self.donors, self.cues = cutouts, recipients, donors, tuple(cues)

    def __len__(self) -> int:
        return len(self.recipients)

    def read(self, i: int) -> NDArray[np.uint8]:
        made = exchanged(self.cutouts, int(self.recipients[i]), self.donors[i].tolist(), self.cues)
        return made[0].permute(1, 2, 0).contiguous().numpy()

    def where(self, i: int) -> str:
        data, at = self.cutouts.dataset, self.cutouts.positions
        what = " and ".join(cue.name for cue in self.cues)
        return f"{data.where(int(at[self.recipients[i]]))} with {what} of {data.where(int(at[self.donors[i, -1]]))}"

    def digest(self, i: int) -> bytes:
        hasher = hashlib.blake2b(repr([cue.key for cue in self.cues]).encode(), digest_size=16)
        for row in (int(self.recipients[i]), *self.donors[i].tolist()):
            hasher.update(self.cutouts.dataset.images.digest(int(self.cutouts.positions[row])))
            hasher.update(self.cutouts.masks[row].tobytes())
        return hasher.digest()


def exchanged(cutouts: Cutouts, recipient: int, donors: Sequence[int], cues: Sequence[Cue]) -> Tensor:
    """One image with the cues of its donors, one donor after the other, ``uint8 [1, 3, H, W]``."""
    image, mask = cutouts.image(recipient), cutouts.mask(recipient)
    nowhere = torch.zeros_like(mask)
    for donor in donors:
        other, theirs = cutouts.image(donor), cutouts.mask(donor)
        for cue in cues:
            if cue.exchange is None:
                raise ValueError(f"'{cue.key}' cannot be exchanged")
            if _all_over(cue):
                image = cue.exchange(image, nowhere, other, nowhere)
            else:
                image = cue.exchange(image, mask, other, theirs)
        image = as_pixels(image).float()
    return as_pixels(image)


def _all_over(cue: Cue) -> bool:
    """Whether it is a property of the whole picture, which lives at no place and apart from no object."""
    return cue.region is None and not cue.needs_objects


@dataclass(frozen=True)
class MadeSet:
    """A dataset whose groups are (label, class that the cue speaks for).

    Attributes:
        alike: with the cue of another image of their own class.
        other: with the cue of another class.
    """

    alike: GroupedDataset
    other: GroupedDataset

    @property
    def together(self) -> GroupedDataset:
        """All that were made, one after the other."""
        return self.alike + self.other


def make_set(
    cutouts: Cutouts, cues: Sequence[Cue], answers: NDArray[np.int64], *, seed: int = 0, name: str = "exchanged"
) -> MadeSet:
    """Exchange ``cues`` between the images of ``cutouts``.

    Args:
        answers: what the model says to the images of ``cutouts.dataset``, ``[N]``. Donors are images it names rightly,
            where there are some: their cue is one that it takes for their class.
        seed: draws the donors.
    """
    data, labels = cutouts.dataset, cutouts.labels
    right = answers[cutouts.positions] == labels
    pools: dict[int, NDArray[np.int64]] = {}
    for k in np.unique(labels):
        mine = np.flatnonzero(labels == k)
        pools[int(k)] = mine[right[mine]] if right[mine].any() else mine
    if len(pools) < 2:
        raise DataError(
            f"{data.name} has usable images of one class only; exchanging between classes needs at least two."
        )
    rng = np.random.default_rng([seed, 3])
    by_way = any(_all_over(cue) for cue in cues)  # what replaces pixels leaves nothing of an exchange before it
    rows: dict[str, list[tuple[int, ...]]] = {"alike": [], "other": []}
    for i, label in enumerate(labels):
        others = [int(rng.choice(pools[k])) for k in rng.permutation([k for k in pools if k != label])[:OTHERS]]
        own = int(rng.choice(pools[int(label)]))
        rows["other"] += [(i, own, donor) if by_way else (i, donor) for donor in others]
        rows["alike"].append((i, others[0], own) if by_way else (i, own))
    names = [f"{cues[0].noun} like {c}" for c in data.class_names]

    def dataset(kind: str) -> GroupedDataset:
        chain = np.asarray(rows[kind], dtype=np.int64)
        source: ImageSource = ExchangedImages(cutouts, chain[:, 0], chain[:, 1:], cues)
        return GroupedDataset(
            source, labels[chain[:, 0]], data.class_names, attributes=labels[chain[:, -1]], attribute_names=names,
            name=f"{name} ({kind})",
        )  # fmt: skip

    return MadeSet(dataset("alike"), dataset("other"))
