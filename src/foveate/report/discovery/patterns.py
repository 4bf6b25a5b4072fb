"""Things that come along: a text, a badge, a ball, found by how it looks, wherever in the picture it is.

Pictures are cut into overlapping patches, and patches that look alike (colour, contrast, direction of detail) are put
together over all pictures. A thing is a kind of patch that few places of a picture show, and that answers follow
*beyond the label and beyond the scene*, once what these say is taken from both. That tells a text on a sea from the
sea. Which kind it is, is looked for in one half of the pictures; what it does to answers is measured in the other.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from foveate.report.discovery.cues.cue import luminance
from foveate.report.discovery.donors import left_out
from foveate.report.discovery.outlines import spread

PATCHES = 8
"""Patches side by side; each overlaps its neighbours by half."""
KINDS = 24
"""Kinds of patches that are told apart."""
FEWEST = 2
"""A picture shows a kind when it has at least so many patches of it."""
LARGEST = 0.12
"""A thing covers at most this share of a picture, in the median of those that show it."""
SHOWN_BY = 12
"""Pictures that must show a kind, and that must not, before anything is said."""
QUANTILES = (0.25, 0.5)
"""Of what is read off its patches, to say what a whole picture is like; a thing with much detail is above them."""
FEW, STEPS = 6, 5
"""A cue that is read in at most so many numbers is also told in steps."""
SURELY = 3.5
"""Standard errors by which answers must follow a kind of patch: chance makes one of 4,000 kinds do so."""
TRIED = 3
"""Kinds of patch that are tried, where the first is not found to turn answers."""


@dataclass(frozen=True)
class Patches:
    """The patches of ``n`` pictures.

    Attributes:
        kinds: which kind each is, ``[n, rows, columns]``.
        overall: what the whole picture is like, ``[n, d]``: quantiles of all that is read off its patches. A thing that
            covers little of the picture hardly moves them; a blur, a lamp, a coarse encoding does.
    """

    kinds: NDArray[np.int64]
    overall: NDArray[np.float64]


def read_patches(images: Tensor, seed: int = 0) -> Patches:
    """Put patches that look alike together, over the pictures ``uint8 [n, 3, H, W]``; the kinds are found in every
    second one.

    >>> flat = torch.full((6, 3, 32, 32), 90, dtype=torch.uint8)
    >>> flat[::2, :, 4:12, 4:12] = 250
    >>> kinds = read_patches(flat).kinds
    >>> kinds.shape, bool((kinds[1] == kinds[1, 0, 0]).all()), len(np.unique(kinds[0])) > 1
    ((6, 15, 15), True, True)
    """
    from sklearn.cluster import KMeans

    described = np.concatenate([_described(images[start : start + 64]) for start in range(0, len(images), 64)])
    described -= described.mean((0, 1, 2))
    described /= described.std((0, 1, 2)) + 1e-6
    overall = np.concatenate(np.quantile(described.reshape(len(described), -1, described.shape[-1]), QUANTILES, 1), 1)
    seen = described[::2].reshape(-1, described.shape[-1])[::2]
    different = len(np.unique(seen.round(3), axis=0))
    found = KMeans(min(KINDS, different), n_init=1, random_state=seed, max_iter=20).fit(seen)
    kinds = found.predict(described.reshape(-1, described.shape[-1])).reshape(described.shape[:3])
    return Patches(kinds.astype(np.int64), overall.astype(np.float64))


def _described(images: Tensor) -> NDArray[np.float32]:
    """Each patch in numbers, ``[B, rows, columns, 10]``: mean colour, lightest and darkest place, contrast, and how
    much changes across and down."""
    x = images.float()
    light = luminance(x)[:, None]
    side, step = _sizes(x.shape[-2], x.shape[-1])
    across = F.pad(light.diff(dim=3).abs(), (0, 1))
    down = F.pad(light.diff(dim=2).abs(), (0, 0, 0, 1))

    def mean(values: Tensor) -> Tensor:
        return F.avg_pool2d(values, side, step)

    def logarithm(values: Tensor) -> Tensor:
        return (values + 2).log()

    spread = (mean(light**2) - mean(light) ** 2).clamp(min=0).sqrt()
    ways = [logarithm(mean(across)), logarithm(mean(down))]
    ends = [F.max_pool2d(light, side, step), -F.max_pool2d(-light, side, step)]
    parts = [mean(x), *ends, logarithm(spread), *ways, ways[0] - ways[1]]
    return torch.cat(parts, 1).permute(0, 2, 3, 1).numpy()


def _sizes(height: int, width: int) -> tuple[int, int]:
    """Side of a patch and the step to the next, in pixels."""
    side = max(2, min(height, width) // PATCHES)
    return side, max(1, side // 2)


def in_steps(features: NDArray[np.float64]) -> NDArray[np.float64]:
    """Features ``[n, d]``; few of them also as steps, so that a blur that is there or not is told as such.

    >>> in_steps(np.arange(10.0)[:, None]).shape, in_steps(np.zeros((10, 40))).shape
    ((10, 6), (10, 40))
    """
    if features.shape[1] > FEW:
        return features
    edges = np.quantile(features, np.arange(1, STEPS + 1) / (STEPS + 1), axis=0)
    return np.concatenate([features, *(features > edge for edge in edges)], 1)


def find_things(
    patches: Patches,
    labels: NDArray[np.int64],
    answers: NDArray[np.int64],
    told: NDArray[np.float64],
    half: NDArray[np.bool_],
) -> list[int]:
    """The kinds of patch that answers follow surely beyond the label, what the whole picture is like, and what else is
    told, the surest first, at most ``TRIED``.

    Args:
        patches: from :func:`read_patches`.
        labels, answers: ``[n]``.
        told: the surroundings, and other cues that answers may follow, in numbers, ``[n, d]``.
        half: the pictures that may be looked at, ``[n]``.
    """
    kinds, told = patches.kinds, np.concatenate([told, patches.overall], 1)
    places = kinds.shape[1] * kinds.shape[2]
    many = np.stack([(kinds == kind).sum((1, 2)) for kind in range(int(kinds.max()) + 1)], 1)
    there = many >= FEWEST
    able = [
        kind
        for kind in range(there.shape[1])
        if min(there[half, kind].sum(), (~there[half, kind]).sum()) >= SHOWN_BY
        and np.median(many[there[:, kind], kind]) <= LARGEST * places
    ]
    if not able:
        return []
    classes = np.unique(answers[answers >= 0])
    sure = follows(answers[:, None] == classes, there[:, able], told, labels, half).max(0)
    return [able[place] for place in np.argsort(-sure)[:TRIED] if sure[place] >= SURELY]


def follows(
    hits: NDArray[np.bool_],
    there: NDArray[np.bool_],
    told: NDArray[np.float64],
    labels: NDArray[np.int64],
    half: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """By how many standard errors each of ``hits`` ``[n, A]`` goes with each of ``there`` ``[n, B]`` beyond the labels
    and what is ``told`` ``[n, d]``: ``[A, B]``, over one ``half`` ``[n]``.

    Both are freed of what labels and ``told`` say of them, each picture by a regression that leaves it out; what is
    left of the two is multiplied.

    Reference: Shah and Peters 2020, "The hardness of conditional independence testing and the generalised covariance
    measure".
    """
    values = within_labels(np.concatenate([hits, there], 1).astype(np.float64), labels)
    rest = (values - left_out(within_labels(told, labels), values))[half]
    both = rest[:, : hits.shape[1], None] * rest[:, None, hits.shape[1] :]
    return np.asarray(both.mean(0) / (both.std(0) + 1e-9) * np.sqrt(len(rest)))


def within_labels(values: NDArray[np.float64], labels: NDArray[np.int64]) -> NDArray[np.float64]:
    """``values`` ``[n, d]`` less the mean of their label's.

    >>> within_labels(np.array([[1.0], [3.0], [5.0]]), np.array([0, 0, 1])).tolist()
    [[-1.0], [1.0], [0.0]]
    """
    out = values.copy()
    for label in np.unique(labels):
        out[labels == label] -= out[labels == label].mean(0)
    return out


def regions(kinds: NDArray[np.int64], kind: int, height: int, width: int) -> Tensor:
    """Where pictures show a kind of patch, ``uint8 [n, H, W]``; nothing where they show fewer than ``FEWEST`` patches.

    >>> regions(np.array([[[1, 1, 0, 0, 0], *[[0] * 5] * 4]]), 1, 6, 6)[0].tolist()[0]
    [1, 1, 1, 0, 0, 0]
    """
    side, step = _sizes(height, width)
    out = torch.zeros(len(kinds), height, width, dtype=torch.uint8)
    shown = kinds == kind
    shown &= shown.sum((1, 2), keepdims=True) >= FEWEST
    for row, down, across in np.argwhere(shown):
        out[row, down * step : down * step + side, across * step : across * step + side] = 1
    return out


def with_rim(marks: Tensor) -> Tensor:
    """Marks ``uint8 [n, H, W]`` with half a patch around them: the ends of a thing look like no patch of it."""
    return spread(marks.float(), _sizes(*marks.shape[-2:])[1]).to(torch.uint8)


def on_the_object(marks: Tensor, objects: Tensor) -> tuple[float, float]:
    """Which share of the marks lies on the objects, and which share of its object a mark covers, both ``[n, H, W]``:
    the median over the pictures that have both.

    >>> marks, objects = torch.zeros(1, 4, 4), torch.zeros(1, 4, 4)
    >>> marks[0, :2, :2], objects[0, :2] = 1.0, 1.0
    >>> on_the_object(marks, objects)
    (1.0, 0.5)
    """
    mark, thing = (marks > 0.5).float().flatten(1), (objects > 0.5).float().flatten(1)
    both = (mark.sum(1) > 0) & (thing.sum(1) > 0)
    if not both.any():
        return 0.0, 0.0
    met, mark, thing = (mark * thing)[both].sum(1), mark[both].sum(1), thing[both].sum(1)
    return float((met / mark).median()), float((met / thing).median())
