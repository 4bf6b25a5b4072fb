"""A benchmark: up to four splits of one dataset, and what to say when one is missing."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foveate import notebook
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

    def _repr_html_(self) -> str:
        first = next(iter(self.splits.values()), None)
        if first is None:
            return notebook.text(repr(self))
        names = _group_names(first)
        counts = {split: np.bincount(_strata(ds), minlength=len(names)) for split, ds in self.splits.items()}
        rows = [[notebook.text(name), *(str(n[g]) for n in counts.values())] for g, name in enumerate(names[:40])]
        rows.append(["<b>all</b>", *(f"<b>{len(ds)}</b>" for ds in self.splits.values())])
        return notebook.card(self.name, notebook.table(["group", *self.splits], rows))

    def plot(self, split: str = "train", each: int = 6) -> Any:
        """A Matplotlib figure: ``each`` images of every group (or class) of ``split``, with how many there are.

        >>> from foveate.data import critters
        >>> len(critters(strength=0.5, train=16, target=0, val=0, test=0, size=32).plot(each=2).axes)
        8
        """
        ds = self[split]
        names, strata = _group_names(ds), _strata(ds)
        there = [g for g in range(len(names)) if (strata == g).any()]
        figure = notebook.figure(1.1 * each + 1.6, 1.15 * len(there))
        axes = figure.subplots(len(there), each, squeeze=False)
        for row, g in zip(axes, there, strict=True):
            found = np.flatnonzero(strata == g)
            for ax, i in zip(row, found, strict=False):
                ax.imshow(ds[int(i)].image.permute(1, 2, 0).numpy())
            for ax in row:
                ax.set(xticks=[], yticks=[])
                ax.set_frame_on(False)
            label = f"{names[g]}\n{len(found)} images"
            row[0].set_ylabel(label, rotation=0, ha="right", va="center", fontsize=8)
        return figure

    def without_attributes(self) -> Benchmark:
        """Every split as if no attribute were known."""
        return Benchmark(self.name, {k: v.without_attributes() for k, v in self.splits.items()}, self.notes)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{k} {len(v)}" for k, v in self.splits.items())
        return f"Benchmark({self.name}: {sizes})"


def _strata(ds: GroupedDataset) -> NDArray[np.int64]:
    return ds.labels if ds.groups is None else ds.groups


def _group_names(ds: GroupedDataset) -> list[str]:
    return list(ds.class_names) if ds.groups is None else ds.group_names


def _stratified(ds: GroupedDataset, fraction: float, seed: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    strata = _strata(ds)
    rng = np.random.default_rng(seed)
    held = [
        rng.permutation(np.flatnonzero(strata == s))[: round(fraction * int((strata == s).sum()))]
        for s in np.unique(strata)
    ]
    chosen = np.sort(np.concatenate(held)).astype(np.int64)
    return chosen, np.setdiff1d(np.arange(len(ds)), chosen)
