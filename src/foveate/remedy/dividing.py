"""Which images are for what: to fit a remedy, to choose among remedies, to measure at the end."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from foveate.assemble.system import System, aligned
from foveate.data.benchmark import Benchmark
from foveate.data.dataset import GroupedDataset
from foveate.errors import DataError

FEWEST = 40
"""Fewer images than this to choose on would be a choice by chance."""


@dataclass(frozen=True)
class Division:
    """The images of a cure by what they are used for.

    Attributes:
        fit: remedies learn from these (with exchanged images, pseudo-groups or given groups).
        choose: the audit, and the choice among remedies; no remedy learns from them.
        measure: before and after; nothing is chosen on them. The same as ``choose`` where there are no others.
        target: the user's own small balanced set, or None.
        told: how the images were divided, in one sentence.
    """

    fit: GroupedDataset
    choose: GroupedDataset
    measure: GroupedDataset
    target: GroupedDataset | None
    told: str

    @property
    def apart(self) -> bool:
        """Whether there are images on which nothing was chosen."""
        return self.measure is not self.choose

    @property
    def attributes(self) -> bool:
        """Whether the images that are chosen on have attributes."""
        return self.choose.attributes is not None


def divide(data: Benchmark | GroupedDataset, system: System, seed: int = 0) -> Division:
    """Take the splits there are; what is missing is cut off the largest by ``seed``, evenly from every class.

    >>> import foveate as fv
    >>> data = fv.data.critters(train=200, target=0, val=80, test=40, size=32)
    >>> model = fv.ERM("micro_resnet", epochs=1, progress=False).fit(data.train)
    >>> divide(data, model).told
    'remedies learn from train (200), are chosen on val (80) and measured on test (40)'
    >>> divide(data.train, model).told
    'remedies learn from 98 of critters/train (divided by seed 0), are chosen on 52 and measured on 50'
    """
    if isinstance(data, GroupedDataset):
        fit, choose, measure = _cut(_usable(data, system), (0.5, 0.25, 0.25), seed)
        told = (
            f"remedies learn from {len(fit)} of {data.name} (divided by seed {seed}), are chosen on {len(choose)} and "
            f"measured on {len(measure)}"
        )
        return _checked(Division(fit, choose, measure, None, told))
    splits = {name: _usable(part, system) for name, part in data.splits.items() if len(part)}
    if not splits:
        raise DataError(f"{data.name} has no images to cure a model with.")
    if len(splits) == 1 and "target" not in splits:
        return divide(next(iter(splits.values())), system, seed)
    target = splits.pop("target", None)
    words = {name: f"{name} ({len(part)})" for name, part in splits.items()}
    learned, held, apart = splits.get("train"), splits.get("val"), splits.get("test")
    if held is None and learned is not None:
        learned, held = _cut(learned, (0.75, 0.25), seed)
        words["train"], words["val"] = f"{len(learned)} of train", f"{len(held)} of train held out by seed {seed}"
    if learned is None and held is not None:
        learned, held = _cut(held, (0.5, 0.5), seed)
        words["train"], words["val"] = f"{len(learned)} of val", f"the other {len(held)} of val (halved by seed {seed})"
    if learned is None and held is None and apart is not None:
        return replace(divide(apart, system, seed), target=target)
    if learned is None or held is None:
        raise DataError(
            f"{data.name} has a target split alone; give images to choose on as well (split 'val' or 'train')."
        )
    told = f"remedies learn from {words['train']}, are chosen on {words['val']}" + (
        f" and measured on {words['test']}" if apart is not None else "; there are no images apart to measure on"
    )
    if target is not None:
        told += f"; target ({len(target)}) is the given balanced set"
    return _checked(Division(learned, held, held if apart is None else apart, target, told))


def _usable(data: GroupedDataset, system: System) -> GroupedDataset:
    """``data`` with the classes of ``system``, in its order."""
    try:
        return aligned(system, data)
    except DataError as error:
        raise DataError(
            f"the model and the data do not name the same classes: the model knows {_few(system.class_names_)}, "
            f"{data.name} has {_few(data.class_names)}. Name the model's outputs in their order with class_names "
            "(--classes)."
        ) from error


def _few(names: list[str]) -> str:
    return ", ".join(names[:6]) + (" …" if len(names) > 6 else "")


def _checked(made: Division) -> Division:
    for part, use in ((made.fit, "to learn from"), (made.choose, "to choose on")):
        present = len(np.unique(part.labels))
        if present < 2:
            raise DataError(
                f"{part.name} has images of {present} class{'es' if present != 1 else ''} only; a cure needs at least "
                f"two classes among the images {use}."
            )
    if len(made.choose) < FEWEST:
        raise DataError(
            f"there are {len(made.choose)} images to audit and to choose on ({made.choose.name}); a cure needs at "
            f"least {FEWEST}. Give more images, or a larger 'val' split."
        )
    return made


def _cut(data: GroupedDataset, shares: tuple[float, ...], seed: int) -> list[GroupedDataset]:
    """``data`` in parts, each with the same share of every class (or group)."""
    strata = data.labels if data.groups is None else data.groups
    rng = np.random.default_rng([seed, 4])
    place = np.zeros(len(data), dtype=np.int64)
    edges = np.cumsum(shares)[:-1]
    for value in np.unique(strata):
        mine = rng.permutation(np.flatnonzero(strata == value))
        place[mine] = np.searchsorted(edges, (np.arange(len(mine)) + 0.5) / len(mine), side="right")
    return [data.subset(np.flatnonzero(place == k)) for k in range(len(shares))]
