"""A benchmark: up to four splits of one dataset, and what to say when one is missing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate.data.dataset import GroupedDataset
from foveate.errors import DataError

SPLITS = ("train", "target", "val", "test")

_MISSING = {
    "train": "Give images a 'train' split to fit a model.",
    "target": "A target set is small and attribute-balanced; DFR and DAR adapt on it. "
    "Mark rows with split 'target', or make one from the validation set with benchmark.with_target(n) "
    "or --target-size N on the command line (foveate fit).",
    "val": "Mark rows with split 'val', or hold some training images out with benchmark.with_val(fraction) "
    "or --val-share F on the command line (foveate fit).",
    "test": "Mark rows with split 'test', or evaluate on another dataset.",
}


@dataclass
class Benchmark:
    """Up to four splits of one dataset: ``train``, ``target`` (small, balanced), ``val`` and ``test``.

    Asking for a split that is missing raises a :class:`~foveate.errors.DataError` that says what to do;
    ``"val" in benchmark`` tells whether it is there.

    >>> from foveate.data import critters
    >>> data = critters(train=40, target=16, val=16, test=16, size=32)
    >>> data
    Benchmark(critters: train 40, target 16, val 16, test 16)
    >>> "val" in data, len(data.target)
    (True, 16)
    """

    name: str
    splits: dict[str, GroupedDataset]
    notes: dict[str, Any] = field(default_factory=dict)

    def __contains__(self, split: str) -> bool:
        return split in self.splits

    def get(self, split: str) -> GroupedDataset | None:
        """The split, or None when it is missing."""
        return self.splits.get(split)

    def __getitem__(self, split: str) -> GroupedDataset:
        if split not in self.splits:
            if split not in SPLITS:
                raise DataError(f"unknown split '{split}'; the splits are {', '.join(SPLITS)}.")
            have = ", ".join(self.splits) or "none"
            raise DataError(f"{self.name} has no '{split}' split (it has: {have}). {_MISSING[split]}")
        return self.splits[split]

    @property
    def train(self) -> GroupedDataset:
        return self["train"]

    @property
    def target(self) -> GroupedDataset:
        return self["target"]

    @property
    def val(self) -> GroupedDataset:
        return self["val"]

    @property
    def test(self) -> GroupedDataset:
        return self["test"]

    def with_val(self, fraction: float = 0.2, seed: int = 0) -> Benchmark:
        """Hold ``fraction`` of every training group (or class) out as ``val``."""
        if not 0 < fraction < 1:
            raise DataError(f"the fraction held out for validation must lie between 0 and 1, found {fraction}.")
        held, rest = _stratified(self.train, fraction, seed)
        if not len(held) or not len(rest):
            raise DataError(
                f"holding {fraction} of every group out leaves {len(rest)} of {len(self.train)} images for training "
                f"and {len(held)} for validation; choose another fraction."
            )
        splits = dict(self.splits, train=self.train.subset(rest), val=self.train.subset(held))
        return Benchmark(self.name, splits, self.notes)

    def with_target(self, size: int, seed: int = 0) -> Benchmark:
        """Move a group-balanced ``target`` of about ``size`` images out of ``val`` (needs attributes)."""
        groups = self.val.require_groups("with_target")
        present = np.unique(groups)
        each = size // len(present)
        smallest = int(np.bincount(groups)[present].min())
        if each < 1 or each >= smallest:
            raise DataError(
                f"a target of {size} needs {max(each, 1)} images of each of the {len(present)} groups and must leave "
                f"some for validation, but the smallest group in val has {smallest}. Choose a smaller size."
            )
        rng = np.random.default_rng(seed)
        chosen = np.concatenate([rng.permutation(np.flatnonzero(groups == g))[:each] for g in present])
        rest = np.setdiff1d(np.arange(len(groups)), chosen)
        splits = dict(self.splits, target=self.val.subset(np.sort(chosen)), val=self.val.subset(rest))
        return Benchmark(self.name, splits, self.notes)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{k} {len(v)}" for k, v in self.splits.items())
        return f"Benchmark({self.name}: {sizes})"


def _stratified(ds: GroupedDataset, fraction: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    strata = ds.labels if ds.groups is None else ds.groups
    rng = np.random.default_rng(seed)
    held = [
        rng.permutation(np.flatnonzero(strata == s))[: round(fraction * int((strata == s).sum()))]
        for s in np.unique(strata)
    ]
    chosen = np.sort(np.concatenate(held)).astype(np.int64)
    return chosen, np.setdiff1d(np.arange(len(ds)), chosen)
