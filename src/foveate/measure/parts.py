"""How good discovered parts are: foreground overlap, keypoints, agreement with named parts, background gap.

Part maps are ``[B, K + 1, h, w]`` with the background last. Reference: arXiv 2506.08915 (foreground mIoU, Kp,
BG-GAP) and PDiscoFormer (NMI, ARI).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from foveate.errors import DataError
from foveate.measure.answers import UNREADABLE
from foveate.measure.metric import Metric


class ForegroundIoU:
    """Overlap of all parts together with the object, pooled over the pixels of a whole dataset, batch by
    batch.

    Args:
        align_corners: how part maps are enlarged. True stretches them so that the outer patches' middles come to lie on
            the outer pixels, as in the authors' code (github.com/ananthu-aniraj/pdiscoformer, engine/eval_fg_bg.py);
            False leaves every patch over the pixels it was made from, which is where the mask is compared with them.

    >>> overlap = ForegroundIoU()
    >>> overlap.update(torch.tensor([[[1, 1], [0, 0]]]), torch.tensor([[[1, 0], [0, 0]]]))
    >>> overlap.compute()
    0.5
    """

    def __init__(self, *, align_corners: bool = True) -> None:
        self.align_corners = align_corners
        self.both = 0
        self.either = 0
        self.truth = 0

    def update(self, prediction: Tensor, masks: Tensor) -> None:
        """Count a batch.

        Args:
            prediction: part maps ``[B, K + 1, h, w]``, upsampled bilinearly to the masks before the arg-max;
                or hard foreground masks ``[B, h, w]``, upsampled to the nearest.
            masks: true object masks ``[B, H, W]``; above 0.5 is object.
        """
        if masks.ndim != 3 or len(prediction) != len(masks) or prediction.ndim not in (3, 4):
            raise DataError(
                "foreground overlap: expected part maps [B, K + 1, h, w] or masks [B, h, w], and true masks "
                f"[B, H, W]; got {list(prediction.shape)} and {list(masks.shape)}."
            )
        size = (masks.shape[1], masks.shape[2])
        if prediction.ndim == 4:
            maps = F.interpolate(prediction.float(), size, mode="bilinear", align_corners=self.align_corners)
            found = maps.argmax(1) < maps.shape[1] - 1
        else:
            found = F.interpolate(prediction[:, None].float(), size, mode="nearest-exact")[:, 0] > 0.5
        truth = masks.to(found.device) > 0.5
        self.both += int((found & truth).sum())
        self.either += int((found | truth).sum())
        self.truth += int(truth.sum())

    def compute(self) -> float:
        """Intersection over union of everything counted so far."""
        if self.truth == 0:
            raise DataError("foreground overlap: the true masks hold no object pixel.")
        return self.both / self.either


def foreground_miou(prediction: Tensor, masks: Tensor, *, align_corners: bool = True) -> float:
    """Binary Jaccard index of the parts against the object, pooled over all pixels (not a mean over images).

    See :class:`ForegroundIoU` for the arguments and for datasets that do not fit into memory.

    >>> maps = torch.zeros(2, 3, 4, 4)
    >>> maps[0, 0], maps[1, 2] = 1.0, 1.0  # part 0 everywhere in the first image, background in the second
    >>> foreground_miou(maps, torch.stack([torch.ones(4, 4), torch.ones(4, 4)]))
    0.5
    """
    overlap = ForegroundIoU(align_corners=align_corners)
    overlap.update(prediction, masks)
    return overlap.compute()


@dataclass(frozen=True)
class PartPoints:
    """Part centroids and true keypoints of N images, both relative to the object's box (0 to 1 inside it).

    Attributes:
        centroids: ``[N, K, 2]`` as (x, y).
        active: ``[N, K]``, whether the part is there (its map exceeds 0.5 somewhere).
        keypoints: ``[N, P, 2]``.
        visible: ``[N, P]``.
    """

    centroids: NDArray[np.float64]
    active: NDArray[np.bool_]
    keypoints: NDArray[np.float64]
    visible: NDArray[np.bool_]

    @classmethod
    def join(cls, batches: Iterable[PartPoints]) -> PartPoints:
        """The points of several batches together."""
        rows = [(b.centroids, b.active, b.keypoints, b.visible) for b in batches]
        if not rows:
            raise DataError("there are no part points to join.")
        return cls(*(np.concatenate(column) for column in zip(*rows, strict=True)))


CellPlaces = Literal["corner", "centre"]


def part_centroids(maps: Tensor, image_size: tuple[int, int], *, cells: CellPlaces = "centre") -> tuple[Tensor, Tensor]:
    """Map-weighted mean position of every foreground part in pixels, ``[B, K, 2]`` as (x, y), and whether the
    part is active, ``[B, K]`` (its map exceeds 0.5 somewhere).

    Args:
        maps: ``[B, K + 1, h, w]``.
        image_size: ``(height, width)``.
        cells: where in a patch its value lies: in the ``"centre"``, or in the upper left ``"corner"`` as in the
            authors' code.

    >>> maps = torch.zeros(1, 2, 2, 2)
    >>> maps[0, 0, 0, 1] = 1.0
    >>> part_centroids(maps, (8, 8))
    (tensor([[[6., 2.]]]), tensor([[True]]))
    """
    foreground = maps[:, :-1].float()
    if cells not in ("corner", "centre"):
        raise DataError(f"part centroids: cells must be 'corner' or 'centre'; got '{cells}'.")
    height, width = maps.shape[-2:]
    inside = 0.5 if cells == "centre" else 0.0
    y = (torch.arange(height, device=maps.device) + inside) * (image_size[0] / height)
    x = (torch.arange(width, device=maps.device) + inside) * (image_size[1] / width)
    mass = foreground.sum((2, 3)).clamp(min=1e-12)
    centre = torch.stack([(foreground.sum(2) * x).sum(2) / mass, (foreground.sum(3) * y).sum(2) / mass], dim=2)
    return centre, foreground.amax((2, 3)) > 0.5


def part_points(
    maps: Tensor, keypoints: ArrayLike, boxes: ArrayLike, image_size: tuple[int, int], *, cells: CellPlaces = "corner"
) -> PartPoints:
    """Centroids of ``maps [B, K + 1, h, w]`` and ``keypoints [B, P, 3]`` (x, y, visible), relative to
    ``boxes [B, 4]`` (x0, y0, x1, y1), all in pixels of images of ``image_size`` (height, width).

    ``cells`` is as in :func:`part_centroids`, but the authors' ``"corner"`` by default, so that Kp compares with the
    papers' (github.com/ananthu-aniraj/pdiscoformer, utils/get_landmark_coordinates.py).
    """
    centroids, active = part_centroids(maps.detach().cpu(), image_size, cells=cells)
    points = np.asarray(keypoints, dtype=np.float64)
    box = np.asarray(boxes, dtype=np.float64)[:, None]
    if points.ndim != 3 or points.shape[2] != 3 or box.shape != (len(maps), 1, 4) or len(points) != len(maps):
        raise DataError(
            f"part points: expected keypoints [{len(maps)}, P, 3] and boxes [{len(maps)}, 4]; got {list(points.shape)} "
            f"and {list(np.asarray(boxes).shape)}."
        )
    corner, size = box[..., :2], box[..., 2:] - box[..., :2]
    if not (size > 0).all():
        raise DataError("part points: some boxes are empty or unknown; leave these images out.")
    return PartPoints(
        (centroids.double().numpy() - corner) / size,
        active.numpy(),
        (points[..., :2] - corner) / size,
        points[..., 2] > 0,
    )


def keypoint_error(train: PartPoints, test: PartPoints, *, standardise: Literal["all", "active"] = "all") -> float:
    """Kp: how well part centroids predict keypoints, mean distance in percent of the object's box (lower is
    better).

    For every keypoint a linear regression without intercept from all centroids, on standardised data, fitted
    on ``train``; parts that are not active count as 0 after standardisation. The mean is over the visible
    keypoints of ``test``; keypoints never visible in ``train`` are left out.

    Args:
        train, test: from :func:`part_points`.
        standardise: mean and spread of a part's centroid over ``"all"`` images, those where it is not active included,
            as in the authors' code (engine/eval_interpretability_nmi_ari_keypoint.py); or over those where it is
            ``"active"``, so that where a part is not leaves no trace: then 0 really is its mean.

    >>> rng = np.random.default_rng(0)
    >>> centroids = rng.random((20, 3, 2))
    >>> keypoints = centroids[:, :1] * 0.5 + centroids[:, 1:2] + 0.1
    >>> points = PartPoints(centroids, np.ones((20, 3), bool), keypoints, np.ones((20, 1), bool))
    >>> round(keypoint_error(points, points), 6)
    0.0
    """
    if train.centroids.shape[1:] != test.centroids.shape[1:] or train.keypoints.shape[1:] != test.keypoints.shape[1:]:
        raise DataError(
            f"keypoint error: train has {train.centroids.shape[1]} parts and {train.keypoints.shape[1]} keypoints, "
            f"test {test.centroids.shape[1]} and {test.keypoints.shape[1]}; they must be of one model and one dataset."
        )
    if standardise not in ("all", "active"):
        raise DataError(f"keypoint error: standardise must be 'all' or 'active'; got '{standardise}'.")
    errors = []
    for landmark in range(train.keypoints.shape[1]):
        seen, asked = train.visible[:, landmark], test.visible[:, landmark]
        if not seen.any() or not asked.any():
            continue
        # standardised where this keypoint is visible: without intercept, both sides must have mean 0 there
        active = train.active[seen]
        counted = active if standardise == "active" else np.ones_like(active)
        mean, spread = _statistics(train.centroids[seen], counted)
        inputs, questions = (
            np.where(p.active[rows, :, None], (p.centroids[rows] - mean) / spread, 0.0).reshape(int(rows.sum()), -1)
            for p, rows in ((train, seen), (test, asked))
        )
        truth = train.keypoints[seen, landmark]
        centre, scale = _statistics(truth, np.ones(len(truth), dtype=bool))
        # the smallest solution, so that parts that never vary get no weight
        weights = np.linalg.lstsq(inputs, (truth - centre) / scale, rcond=None)[0]
        predicted = questions @ weights * scale + centre
        errors.append(np.linalg.norm(predicted - test.keypoints[asked, landmark], axis=1))
    if not errors:
        raise DataError("keypoint error: no keypoint is visible in both train and test.")
    return 100 * float(np.concatenate(errors).mean())


def _statistics(
    values: NDArray[np.float64], counted: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Mean and standard deviation over the first axis of what is ``counted``; 0 and 1 where nothing is or
    varies."""
    weight = counted[..., None].astype(np.float64)
    number = np.maximum(weight.sum(0), 1)
    mean = (np.where(weight > 0, values, 0)).sum(0) / number
    spread = np.sqrt((np.where(weight > 0, values - mean, 0) ** 2).sum(0) / number)
    return mean, np.where(spread > 1e-12, spread, 1.0)


def parts_at_keypoints(
    maps: Tensor, keypoints: ArrayLike, image_size: tuple[int, int], *, upsample: bool = True
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The strongest part (background: K) where each visible keypoint lies, and the number of that keypoint,
    ``[M]`` each: the two labellings that :func:`part_agreement` compares.

    Args:
        maps: part maps ``[B, K + 1, h, w]``.
        keypoints: ``[B, P, 3]`` (x, y, visible) in pixels of ``image_size``.
        image_size: ``(height, width)``.
        upsample: read the maps at the keypoint's pixel after bilinear upsampling to ``image_size``, as the authors do
            (github.com/ananthu-aniraj/pdiscoformer, engine/eval_interpretability_nmi_ari_keypoint.py); otherwise at
            the patch that the keypoint lies in, which is what :meth:`~foveate.systems.System.look` shows. They
            differ for 5 to 14 % of keypoints, at the borders of parts.

    >>> maps = torch.tensor([[0.6, 0.0], [0.4, 1.0]]).view(1, 2, 1, 2)  # part 0 ahead in the left patch, not by much
    >>> [parts_at_keypoints(maps, [[[3.5, 2.5, 1]]], (5, 8), upsample=u)[0].tolist() for u in (False, True)]
    [[0], [1]]
    """
    points = torch.from_numpy(np.asarray(keypoints, dtype=np.float32))
    visible, at = points[..., 2] > 0, points[..., :2]
    size = torch.tensor([image_size[1], image_size[0]], dtype=torch.float32)
    if upsample:
        # the pixel that grid_sample calls nearest, with its roundings; then the upsampled value of this pixel alone
        pixel = ((((at / size * 2 - 1) + 1) * size - 1) / 2).round().clamp(min=torch.zeros(2), max=size - 1)
        at, mode = pixel + 0.5, "bilinear"
    else:
        at, mode = at.floor() + 0.5, "nearest"
    read = F.grid_sample(
        maps.detach().float().cpu(),
        (2 * at / size - 1)[:, :, None],
        mode=mode,
        padding_mode="border",
        align_corners=False,
    )  # [B, K + 1, P, 1]
    return read.argmax(1)[..., 0][visible].numpy(), torch.nonzero(visible)[:, 1].numpy()


def part_agreement(found: ArrayLike, truth: ArrayLike) -> tuple[float, float]:
    """Normalised mutual information and adjusted Rand index between two labellings ``[M]`` of the same
    places.

    The numbering of the parts does not matter: 1 and 1 for the same split, 0 and about 0 for unrelated ones.

    >>> part_agreement([2, 2, 0, 0], [0, 0, 1, 1])
    (1.0, 1.0)
    """
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    a, b = np.asarray(found), np.asarray(truth)
    if a.shape != b.shape or a.ndim != 1 or len(a) == 0:
        raise DataError(f"part agreement: expected two labellings [M] of the same places; got {a.shape} and {b.shape}.")
    return float(normalized_mutual_info_score(b, a)), float(adjusted_rand_score(b, a))


def bg_gap(
    same: ArrayLike, rand: ArrayLike, labels: ArrayLike | None = None, rand_labels: ArrayLike | None = None
) -> float:
    """BG-GAP: accuracy on backgrounds of the image's own class minus accuracy on random backgrounds.

    Args:
        same: accuracy on Mixed-Same, or a 0/1 for every image whether it was right; with ``labels``,
            predictions.
        rand: the same for Mixed-Rand.
        labels: true classes of ``same``; a prediction of -1 (unreadable) is left out, one of -2 (no answer, or no
            superclass) is always wrong.
        rand_labels: true classes of ``rand``; by default ``labels``, for paired images.

    Reference: Xiao et al. 2021, "Noise or Signal", section 3.

    >>> round(bg_gap(0.862, 0.789), 3), bg_gap([0, 1, 1, -2], [0, 0, 1, -2], labels=[0, 1, 1, 0])
    (0.073, 0.25)
    """
    shares = []
    for given, truth in ((same, labels), (rand, labels if rand_labels is None else rand_labels)):
        values = np.asarray(given)
        if truth is not None:
            if values.shape != np.asarray(truth).shape:
                raise DataError(f"BG-GAP: {values.shape} predictions but {np.asarray(truth).shape} labels.")
            values = (values == np.asarray(truth))[values != UNREADABLE]
        if values.size == 0 or values.min() < 0 or values.max() > 1:
            raise DataError("BG-GAP: expected accuracies between 0 and 1, or predictions together with labels.")
        shares.append(float(values.mean()))
    return shares[0] - shares[1]


MIOU = Metric("miou", tables=("bench",))
MASS = Metric("mass", tables=("bench",))
COVERAGE = Metric("coverage", higher_is_better=None, tables=("bench",))
KP = Metric("kp", higher_is_better=False, tables=("bench",))
