"""Pseudo-groups: what a shortcut says about every image, so that group metrics and group-aware systems can be used.

The attribute of an image is the class that the shortcut speaks for in it, read by a probe of the model's own answers.
An image never teaches the probe that reads it: a probe with hundreds of numbers knows the images it was fitted on by
heart, and would give back the model's answers.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from foveate.data.dataset import GroupedDataset
from foveate.report.discovery.cues import Cue
from foveate.report.discovery.objects import Objects, find_objects
from foveate.report.discovery.observations import Observations, observe
from foveate.report.discovery.probes import Reader, balanced_score, out_of_fold
from foveate.report.discovery.slices import Slice

RIDGES = (0.02, 0.2, 2.0)
"""Strengths to choose from: a cue of many numbers read off few images wants a strong one."""
ROUNDS = 5
"""Times that the audited images are dealt into folds anew; what most rounds say counts."""


def groups_by_cue(
    cue: Cue,
    seen: Observations,
    answers: NDArray[np.int64],
    class_names: Sequence[str],
    objects: Objects,
    dataset: GroupedDataset | None = None,
) -> GroupedDataset:
    """The audited images, or those of ``dataset``, with what ``cue`` says as their attribute.

    Args:
        cue: one that was read off the images.
        seen: the audited images that were looked at.
        answers: what the model says about them, ``[n]``; negative for none.
        class_names: of the answers.
        objects: of the audited dataset.
        dataset: other images, for instance those of training.

    Unreadable images are left out.
    """
    values, told = seen.features[cue.key], answers >= 0
    ridge = best_ridge(values[told], answers[told], len(class_names))
    reader = Reader.fit(values[told], answers[told], len(class_names), ridge)
    names = [f"{cue.noun} like {name}" for name in class_names]
    own = dataset is None or dataset is objects.dataset
    target = objects.dataset if dataset is None else dataset
    if not own:
        found = observe(target, np.arange(len(target)), find_objects(target, objects.source))
        return _with_attributes(target.subset(found.positions), reader(found.features[cue.key]), names)
    read = cross_fitted(values, answers, len(class_names))
    others = np.setdiff1d(np.arange(len(target)), seen.positions)
    more = observe(target, others, objects) if len(others) else Observations(others)
    positions = np.concatenate([seen.positions, more.positions])
    if len(more.positions):
        read = np.concatenate([read, reader(more.features[cue.key])])
    order = np.argsort(positions, kind="stable")
    return _with_attributes(target.subset(positions[order]), read[order], names)


def cross_fitted(values: NDArray[np.float64], answers: NDArray[np.int64], classes: int) -> NDArray[np.int64]:
    """The class that every row of ``values`` ``[n, d]`` speaks for, by probes of ``answers`` that never saw the row.

    Rows without an answer (negative) are read by a probe of all the others.

    >>> rng = np.random.default_rng(0)
    >>> noise, said = rng.normal(size=(60, 200)), rng.integers(0, 2, 60)
    >>> by_heart = (Reader.fit(noise, said, 2)(noise) == said).mean()
    >>> bool(by_heart == 1.0), bool((cross_fitted(noise, said, 2) == said).mean() < 0.7)
    (True, True)
    """
    told = answers >= 0
    votes = np.zeros((len(values), classes), dtype=np.int64)
    inside = np.flatnonzero(told)
    ridge = best_ridge(values[told], answers[told], classes)
    for round_ in range(ROUNDS):
        read = out_of_fold(values[told], answers[told][:, None], classes, seed=round_, ridge=ridge)[:, 0]
        votes[inside, read] += 1
    if not told.all():
        votes[np.flatnonzero(~told), Reader.fit(values[told], answers[told], classes, ridge)(values[~told])] += 1
    return votes.argmax(1).astype(np.int64)


def best_ridge(values: NDArray[np.float64], answers: NDArray[np.int64], classes: int) -> float:
    """The strength with which probes name most answers of images they never saw, every class counted alike."""
    said = answers[:, None]

    def score(ridge: float) -> float:
        return float(balanced_score(out_of_fold(values, said, classes, ridge=ridge), said, classes)[0])

    return max(RIDGES, key=score)


def groups_by_slice(slices: Sequence[Slice], seen: Observations, dataset: GroupedDataset) -> GroupedDataset:
    """The audited images that were looked at, with their error slice as attribute."""
    values = np.zeros(len(seen.positions), dtype=np.int64)
    for number, s in enumerate(slices, start=1):
        values[list(s.members)] = number
    names = ["rest", *(f"slice {i + 1}" for i in range(len(slices)))]
    return _with_attributes(dataset.subset(seen.positions), values, names)


def _with_attributes(dataset: GroupedDataset, values: NDArray[np.int64], names: Sequence[str]) -> GroupedDataset:
    return GroupedDataset(
        dataset.images, dataset.labels, dataset.class_names, attributes=values, attribute_names=names,
        masks=dataset.masks, boxes=dataset.boxes, keypoints=dataset.keypoints, keypoint_names=dataset.keypoint_names,
        extras=dataset.extras, name=dataset.name,
    )  # fmt: skip
