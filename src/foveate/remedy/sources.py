"""Balanced sets when there is none, and when there is: the four sources a remedy can learn from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages
from foveate.decide.reweight import subsample
from foveate.remedy.dividing import Division
from foveate.remedy.exchanging import MadeSet
from foveate.remedy.kinds import Supply
from foveate.report.discovery import Discovery

KEPT_BYTES = 256 * 2**20
"""Made images are kept in memory up to this; more are made again whenever they are read."""
FEWEST_A_GROUP = 4
"""A balanced subset with fewer images of a group than this teaches nothing."""


@dataclass(frozen=True)
class BalancedSet:
    """A set with groups in which the cue says nothing about the class once groups count the same.

    Attributes:
        grouped: every image, with its group, for remedies that balance by themselves.
        balanced: the same number from every group, for those that do not.
    """

    origin: Supply
    grouped: GroupedDataset
    balanced: GroupedDataset

    @staticmethod
    def of(origin: Supply, grouped: GroupedDataset, seed: int) -> BalancedSet:
        groups = grouped.require_groups("a balanced set")
        kept = np.sort(subsample(groups, np.random.default_rng([seed, 5])))
        return BalancedSet(origin, grouped, grouped.subset(kept))


def available(
    division: Division, made: MadeSet | None, discovery: Discovery | None, seed: int
) -> tuple[dict[Supply, BalancedSet], dict[Supply, str]]:
    """The sets that can be had from what is there, and why the others cannot.

    Pseudo-groups come from a probe that was fitted on the images of the audit, and are read off others.
    """
    found: dict[Supply, BalancedSet] = {}
    missing: dict[Supply, str] = {}
    if division.target is None:
        missing[Supply.TARGET] = "there is no target split"
    else:
        found[Supply.TARGET] = BalancedSet.of(Supply.TARGET, with_groups(division.target), seed)
    if division.fit.attributes is None:
        missing[Supply.GROUPS] = "the images have no attributes"
    else:
        _add(found, missing, Supply.GROUPS, division.fit, seed)
    if made is None:
        missing[Supply.EXCHANGE] = "no experiment found what to exchange"
    else:
        found[Supply.EXCHANGE] = BalancedSet.of(Supply.EXCHANGE, made.together, seed)
    if discovery is None or not any(s.key in discovery.base.seen.features for s in discovery.judgement.shortcuts):
        missing[Supply.PSEUDO] = "the audit named nothing that a probe can read off images"
    elif division.fit.attributes is not None:
        missing[Supply.PSEUDO] = "the images have attributes of their own"
    else:
        _add(found, missing, Supply.PSEUDO, discovery.pseudo_groups(division.fit), seed)
    return found, missing


def _add(
    found: dict[Supply, BalancedSet], missing: dict[Supply, str], origin: Supply, data: GroupedDataset, seed: int
) -> None:
    counts = data.group_counts
    present = counts[counts > 0]
    if len(present) <= len(np.unique(data.labels)):
        missing[origin] = "every class comes with one value alone, so nothing can be balanced"
    elif present.min() < FEWEST_A_GROUP:
        missing[origin] = f"the smallest group has {present.min()} images, fewer than {FEWEST_A_GROUP}"
    else:
        found[origin] = BalancedSet.of(origin, data, seed)


def with_groups(data: GroupedDataset) -> GroupedDataset:
    """``data``; without attributes, with one that says nothing: the groups then are the classes."""
    if data.attributes is not None:
        return data
    return GroupedDataset(
        data.images, data.labels, data.class_names, attributes=np.zeros(len(data), np.int64), attribute_names=["any"],
        masks=data.masks, boxes=data.boxes, name=data.name,
    )  # fmt: skip


def in_memory(data: GroupedDataset, most: int = KEPT_BYTES) -> GroupedDataset:
    """``data`` with its images read once and kept, where they are all of one size and take at most ``most`` bytes."""
    if not len(data):
        return data
    first = data.images.read(0)
    if first.size * len(data) > most:
        return data
    pixels = np.empty((len(data), *first.shape), np.uint8)
    for i in range(len(data)):
        pixels[i] = data.images.read(i)
    return GroupedDataset(
        ArrayImages(pixels, data.name), data.labels, data.class_names, attributes=data.attributes,
        attribute_names=data.attribute_names, name=data.name,
    )  # fmt: skip


def drawn(data: GroupedDataset, most: int, seed: int) -> GroupedDataset:
    """At most ``most`` images of ``data``, the same share of every class or group, at least one of each."""
    if len(data) <= most:
        return data
    strata: NDArray[np.int64] = data.labels if data.groups is None else data.groups
    rng = np.random.default_rng([seed, 6])
    share = most / len(data)
    kept: Sequence[NDArray[np.int64]] = [
        rng.permutation(np.flatnonzero(strata == s))[: max(1, round(share * int((strata == s).sum())))]
        for s in np.unique(strata)
    ]
    return data.subset(np.sort(np.concatenate(kept)))
