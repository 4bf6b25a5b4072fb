"""Which test images a trial answered rightly, small enough for a row of the records.

With them two methods can be compared image by image after the models are gone (:mod:`foveate.measure.paired`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.data.dataset import GroupedDataset
from foveate.errors import FoveateError
from foveate.measure import UNREADABLE, Hits, minority_groups

MOST = 10_000_000
"""Images of a group at most: a number in a file is not to fill the memory."""


@dataclass(frozen=True)
class KeptHits:
    """Right or wrong of every test image, by group.

    Attributes:
        right: by group ``class/attribute``, in the order of the dataset.
        minority: the groups that training has too few of.

    >>> kept = KeptHits({"cat/sea": np.array([True, False, True])}, ("cat/sea",))
    >>> kept.packed()
    {'right': {'cat/sea': '3:a0'}, 'minority': ['cat/sea']}
    >>> KeptHits.unpacked(kept.packed()).right["cat/sea"].tolist()
    [True, False, True]
    """

    right: Hits
    minority: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, predictions: NDArray[np.int64], dataset: GroupedDataset, train_counts: NDArray[np.int64] | None
    ) -> KeptHits | None:
        """Of predictions ``[n]``; None without groups, or when an image could not be read (there is no pair then)."""
        if dataset.attributes is None or dataset.attribute_names is None or (predictions == UNREADABLE).any():
            return None
        shape = (dataset.num_classes, len(dataset.attribute_names))
        counts = None if train_counts is None else np.asarray(train_counts).reshape(shape)
        few = np.zeros(shape, bool) if counts is None else minority_groups(counts)
        right, minority = {}, []
        for group in np.unique(groups := dataset.require_groups("answers")):
            label, attribute = divmod(int(group), shape[1])
            name = f"{dataset.class_names[label]}/{dataset.attribute_names[attribute]}"
            right[name] = (predictions == dataset.labels)[groups == group]
            minority += [name] if few[label, attribute] else []
        return cls(right, tuple(minority))

    def packed(self) -> dict[str, Any]:
        """As JSON values: of every group how many images, and a bit for each as hexadecimal digits."""
        right = {name: f"{len(bits)}:{np.packbits(bits).tobytes().hex()}" for name, bits in self.right.items()}
        return {"right": right, "minority": list(self.minority)}

    @classmethod
    def unpacked(cls, packed: Mapping[str, Any]) -> KeptHits | None:
        """What :meth:`packed` gave; None of an empty row (a record from before answers were kept)."""
        if not packed:
            return None
        try:
            right = {}
            for name, text in packed["right"].items():
                count, _, digits = text.partition(":")
                bits = np.unpackbits(np.frombuffer(bytes.fromhex(digits), dtype=np.uint8))
                if not int(count) <= min(len(bits), MOST) or len(bits) - int(count) > 7:
                    raise ValueError(f"{count} images and {len(bits)} bits")
                right[str(name)] = bits[: int(count)].astype(bool)
            return cls(right, tuple(str(name) for name in packed["minority"]))
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise FoveateError(f"the answers of a record cannot be read ({error}); run the trial again.") from error
