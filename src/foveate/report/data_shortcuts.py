"""What a training set gives away: does anything but the object tell the class? A check of the data, without a model.

A model that learns from such images can reach its accuracy without ever looking at the object. Whether one does is for
an audit to say; here nobody is accused.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from foveate.data.dataset import GroupedDataset
from foveate.data.scan import Problem
from foveate.report.discovery.cues import Cue
from foveate.report.discovery.objects import find_objects
from foveate.report.discovery.observations import observe
from foveate.report.discovery.probes import FOLDS, PropertyProbe, probe_all

LOOKED_AT = 600
"""Images that are read, drawn at random, the same share of every class."""
FEWEST = 60
"""Fewer images than this say nothing about a training set."""
NEVER_SEEN = ("file-camera", "file-date", "file-name", "file-profile", "compression", "file-format", "shape")
"""Facts of the file that no pixel holds: they tell where images come from, and that leaves traces."""


@dataclass(frozen=True)
class Giveaway:
    """A property that tells the class of training images: the warning about the data, with its evidence.

    Attributes:
        cue: the property.
        probe: how often it names the class of an image it was not fitted on, against guessing, with the p-value
            corrected for the number of properties.
    """

    cue: Cue
    probe: PropertyProbe

    @property
    def sentence(self) -> str:
        """The warning for people."""
        name = f"{self.cue.name[0].upper()}{self.cue.name[1:]}"
        told = (
            f"{name} alone tells the class of {100 * self.probe.score:.0f} of 100 training images (guessing: "
            f"{100 * self.probe.chance:.0f})"
        )
        if self.cue.key in NEVER_SEEN:
            return f"{told}: the classes come from different sources, and a model can learn their traces."
        return f"{told}: a model can learn it in place of the object."


@dataclass(frozen=True)
class DataShortcuts:
    """What :func:`data_shortcuts` found.

    Attributes:
        giveaways: properties that tell the class almost always, strongest first; a part of one that does is left out.
        probes: every property that was tried, with the cue it belongs to.
        images: how many were read.
        objects: where the objects' places come from, in words.
        seconds: how long it took.
    """

    giveaways: tuple[Giveaway, ...]
    probes: tuple[Giveaway, ...]
    images: int
    objects: str
    seconds: float

    def problems(self, split: str) -> list[Problem]:
        """As warnings of ``foveate data check``."""
        return [Problem("shortcut", "warning", f"{split}: {g.cue.key}", g.sentence) for g in self.giveaways]

    def note(self) -> str:
        """What was tried, and what it says nothing about, in one line."""
        told = [g for g in self.probes if g.probe.tells and g.cue.key not in {s.cue.key for s in self.giveaways}]
        weak = "".join(f"; {g.cue.name} tells {100 * g.probe.score:.0f} of 100" for g in told[:3])
        return (
            f"Shortcuts: {len(self.probes)} properties of {self.images} training images were tried in "
            f"{self.seconds:.0f} s (objects: {self.objects}){weak}. This is about the data; whether a model reads "
            "them, foveate audit tells."
        )

    def to_dict(self) -> dict[str, object]:
        """Plain values, ready for JSON."""
        flagged = {g.cue.key for g in self.giveaways}
        properties = [
            {"key": g.cue.key, "name": g.cue.name, "score": g.probe.score, "chance": g.probe.chance, "p": g.probe.p,
             "adjusted_p": g.probe.adjusted, "tells": g.probe.tells, "flagged": g.cue.key in flagged}
            for g in self.probes
        ]  # fmt: skip
        return {
            "about": "the data, not a model", "images": self.images, "objects": self.objects,
            "seconds": round(self.seconds, 2), "properties": properties,
        }  # fmt: skip


def data_shortcuts(
    dataset: GroupedDataset,
    *,
    objects: str | None = None,
    images: int = LOOKED_AT,
    seed: int = 0,
    tick: Callable[[int], None] | None = None,
) -> DataShortcuts | None:
    """Probe the class from everything but the object: background, border, corners, light, file facts, columns.

    Args:
        dataset: usually the training images.
        objects: where objects are, as for :func:`foveate.report.discovery.objects.find_objects`; by default the
            dataset's masks or boxes, else the middle of the picture, which costs nothing.
        images: how many are read at most.

    Returns None when there is nothing to compare: fewer than ``FEWEST`` images, or a single class.

    >>> import foveate as fv
    >>> biased = fv.data.critters(size=32, strength=0.95, train=200, target=0, val=0, test=0).train
    >>> found = data_shortcuts(biased)
    >>> [(g.cue.key, g.probe.score > 0.85) for g in found.giveaways][:1]
    [('background', True)]
    """
    began = time.perf_counter()
    chosen = _drawn(dataset, images, seed)
    if len(chosen) < FEWEST or len(np.unique(dataset.labels[chosen])) < 2:
        return None
    known = dataset.masks is not None or dataset.boxes is not None
    places = find_objects(dataset, objects or (None if known else "centre"))
    seen = observe(dataset, chosen, places, tick=tick)
    labels = dataset.labels[seen.positions]
    if len(labels) < FEWEST or np.bincount(labels).max() == len(labels):
        return None
    # the given attribute is known to the user, who may have planted it; the colour of an object may rightly tell it
    features = {
        key: values
        for key, values in seen.features.items()
        if not seen.cues[key].given and not seen.cues[key].within_class
    }
    probes = [Giveaway(seen.cues[p.key], p) for p in probe_all(features, labels, "label", seed=seed)]
    probes.sort(key=lambda g: -g.probe.strength)
    strong = {g.cue.key for g in probes if g.probe.strong}
    flagged = tuple(g for g in probes if g.cue.key in strong and (g.cue.part_of or "") not in strong)
    return DataShortcuts(flagged, tuple(probes), len(labels), places.words, time.perf_counter() - began)


def _drawn(dataset: GroupedDataset, images: int, seed: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """Positions drawn at random, as many of every class as there are places for; classes with hardly any left out."""
    rng = np.random.default_rng([seed, 7])
    piles = [rng.permutation(np.flatnonzero(dataset.labels == k)) for k in range(dataset.num_classes)]
    piles = [pile for pile in piles if len(pile) >= 2 * FOLDS]
    each = max(2 * FOLDS, images // max(1, len(piles)))
    return np.sort(np.concatenate([pile[:each] for pile in piles])) if piles else np.zeros(0, dtype=np.int64)
