"""Metrics of discovered parts against hand-worked answers."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LinearRegression
from sklearn.preprocessing import StandardScaler

from foveate import compat  # noqa: F401  (before torchmetrics)
from foveate.errors import DataError
from foveate.measure import (
    ForegroundIoU,
    PartPoints,
    bg_gap,
    foreground_miou,
    keypoint_error,
    part_agreement,
    part_centroids,
    part_points,
    parts_at_keypoints,
)

from torchmetrics.classification import BinaryJaccardIndex  # isort: skip


def one_hot(assigned: torch.Tensor, parts: int) -> torch.Tensor:
    return torch.nn.functional.one_hot(assigned, parts + 1).movedim(-1, 1).float()


def test_perfect_parts_have_iou_one() -> None:
    assigned = torch.full((2, 8, 8), 2)
    assigned[:, 2:4, 2:6] = 0
    assigned[:, 4:6, 2:6] = 1
    assert foreground_miou(one_hot(assigned, 2), assigned < 2) == 1.0
    assert foreground_miou(assigned < 2, assigned < 2) == 1.0
    assert foreground_miou(assigned == 0, assigned < 2) == 0.5


def test_pixels_are_pooled_over_the_dataset() -> None:
    """A big object found whole and a small one missed: pooled 16/20, the mean over images would be 1/2."""
    maps = one_hot(torch.tensor([0, 1])[:, None, None].expand(2, 4, 4), 1)
    truth = torch.ones(2, 4, 4)
    truth[1, 1:] = 0
    assert foreground_miou(maps, truth) == 0.8
    overlap = ForegroundIoU()
    for i in range(2):
        overlap.update(maps[i : i + 1], truth[i : i + 1])
    assert overlap.compute() == 0.8


def test_maps_are_upsampled_before_the_argmax() -> None:
    """Two columns, foreground 0.9 and 0.0: upsampled to 8 px the line where 0.5 is crossed moves right of the
    middle."""
    foreground = torch.tensor([0.9, 0.0]).view(1, 1, 1, 2)
    maps = torch.cat([foreground, 1 - foreground], 1)
    truth = torch.zeros(1, 4, 8)
    truth[..., :4] = 1
    # at pixel centres 2.5, 3.5, 4.5 the foreground is 0.7875, 0.5625, 0.3375: four columns
    assert foreground_miou(maps, truth, align_corners=False) == 1.0
    # from 0.9 at the first pixel to 0 at the last: 0.9, 0.7714, 0.6429, 0.5143, 0.3857: four columns too
    assert foreground_miou(maps, truth) == 1.0
    maps = torch.cat([0.6 * foreground / 0.9, 1 - 0.6 * foreground / 0.9], 1)
    # 0.6, 0.6, 0.525, 0.375: three columns
    assert foreground_miou(maps, truth, align_corners=False) == 0.75
    # 0.6, 0.5143, 0.4286: two columns
    assert foreground_miou(maps, truth) == 0.5


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000))
def test_overlap_as_the_authors_count_it(seed: int) -> None:
    """Against the enlarged maps with aligned corners and torchmetrics' Jaccard index over the whole dataset."""
    generator = torch.Generator().manual_seed(seed)
    maps = torch.randn(6, 4, 5, 5, generator=generator).softmax(1)
    truth = torch.rand(6, 20, 20, generator=generator) < 0.5
    metric = BinaryJaccardIndex()
    overlap = ForegroundIoU()
    for rows in (slice(0, 4), slice(4, 6)):
        large = torch.nn.functional.interpolate(maps[rows], (20, 20), mode="bilinear", align_corners=True)
        metric.update((large.argmax(1) != 3).int(), truth[rows].int())
        overlap.update(maps[rows], truth[rows])
    assert overlap.compute() == pytest.approx(float(metric.compute()))


def test_iou_errors() -> None:
    with pytest.raises(DataError, match="no object pixel"):
        foreground_miou(torch.ones(1, 4, 4), torch.zeros(1, 4, 4))
    with pytest.raises(DataError, match="expected part maps"):
        foreground_miou(torch.ones(1, 2, 4, 4), torch.zeros(2, 4, 4))


def test_centroids_by_hand() -> None:
    maps = torch.zeros(1, 4, 2, 4)
    maps[0, 0, 0, 0] = maps[0, 0, 0, 1] = 1.0  # between the first two cells of the upper row
    maps[0, 1] = 0.5  # everywhere, never above a half
    maps[0, 2, 1, 3], maps[0, 2, 1, 2] = 0.75, 0.25
    centroids, active = part_centroids(maps, (20, 40))
    assert centroids[0].tolist() == [[10.0, 5.0], [20.0, 10.0], [32.5, 15.0]]
    assert active.tolist() == [[True, False, True]]
    corners, _ = part_centroids(maps, (20, 40), cells="corner")  # half a patch of 10 px less
    assert corners[0].tolist() == [[5.0, 0.0], [15.0, 5.0], [27.5, 10.0]]
    with pytest.raises(DataError, match="'corner' or 'centre'"):
        part_centroids(maps, (20, 40), cells=cast(Any, "middle"))


def points(n: int, parts: int, seed: int, matrix: np.ndarray, active: float = 1.0) -> PartPoints:
    rng = np.random.default_rng(seed)
    centroids = rng.random((n, parts, 2))
    keypoints = (centroids.reshape(n, -1) @ matrix + 0.3).reshape(n, -1, 2)
    return PartPoints(centroids, rng.random((n, parts)) < active, keypoints, rng.random((n, keypoints.shape[1])) < 0.8)


def test_keypoints_that_depend_linearly_on_centroids_have_no_error() -> None:
    matrix = np.random.default_rng(1).normal(size=(6, 8))
    assert keypoint_error(points(50, 3, 0, matrix), points(40, 3, 5, matrix)) == pytest.approx(0, abs=1e-6)
    assert keypoint_error(points(50, 3, 0, matrix, 0.6), points(40, 3, 5, matrix, 0.6)) > 1


def test_keypoint_error_by_hand() -> None:
    """One part that never moves: the prediction is the mean keypoint, here (0.5, 0.5)."""
    still = np.full((2, 1, 2), 0.5)
    seen = np.ones((2, 1), dtype=bool)
    train = PartPoints(still, seen, np.array([[[0.2, 0.5]], [[0.8, 0.5]]]), seen)
    test = PartPoints(still, seen, np.array([[[0.5, 0.8]], [[0.9, 0.8]]]), seen)
    assert keypoint_error(train, test) == pytest.approx(100 * (0.3 + 0.5) / 2)
    hidden = PartPoints(still, seen, test.keypoints, np.array([[True], [False]]))
    assert keypoint_error(train, hidden) == pytest.approx(30)


def test_inactive_parts_count_as_average() -> None:
    """The keypoint is where the part is; where the part is not active, the prediction is the training
    mean."""
    x = np.array([[[0.1, 0.0]], [[0.9, 0.0]], [[0.5, 0.0]]])
    on = np.ones((3, 1), dtype=bool)
    train = PartPoints(x, on, x.copy(), on)
    test = PartPoints(x[:1], np.array([[False]]), x[:1], on[:1])
    assert keypoint_error(train, test) == pytest.approx(40)
    assert keypoint_error(train, PartPoints(x[:1], on[:1], x[:1], on[:1])) == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize("active", [1.0, 0.6])
def test_keypoint_error_as_the_authors_fit_it(active: float) -> None:
    """Against scikit-learn's scaler and regression, a keypoint at a time."""
    matrix = np.random.default_rng(1).normal(size=(6, 8))
    train, test = points(60, 3, 0, matrix, active), points(40, 3, 5, matrix, active)
    distances: list[float] = []
    for k in range(4):
        seen, asked = train.visible[:, k], test.visible[:, k]
        inputs, truths = StandardScaler(), StandardScaler()
        x = inputs.fit_transform(train.centroids[seen].reshape(seen.sum(), -1))
        y = truths.fit_transform(train.keypoints[seen, k])
        x = np.where(train.active[seen].repeat(2, 1), x, 0)
        model = LinearRegression(fit_intercept=False).fit(x, y)
        z = inputs.transform(test.centroids[asked].reshape(asked.sum(), -1))
        z = np.where(test.active[asked].repeat(2, 1), z, 0)
        away = truths.inverse_transform(model.predict(z)) - test.keypoints[asked, k]
        distances += np.linalg.norm(away, axis=1).tolist()
    assert keypoint_error(train, test) == pytest.approx(100 * np.mean(distances))
    other = keypoint_error(train, test, standardise="active")
    assert bool(abs(other - 100 * np.mean(distances)) < 1e-6) == (active == 1.0)
    with pytest.raises(DataError, match="'all' or 'active'"):
        keypoint_error(train, test, standardise=cast(Any, "some"))


def test_part_points_are_relative_to_the_box() -> None:
    maps = one_hot(torch.tensor([[[0, 1], [1, 1]]]), 1)  # part 0 in the upper left quarter
    found = part_points(maps, [[[30, 20, 1], [0, 0, 0]]], [[10, 0, 50, 40]], (40, 40))
    assert found.centroids.tolist() == [[[-0.25, 0.0]]]  # the patch's upper left corner, as the authors have it
    centred = part_points(maps, [[[30, 20, 1], [0, 0, 0]]], [[10, 0, 50, 40]], (40, 40), cells="centre")
    assert centred.centroids.tolist() == [[[0.0, 0.25]]]
    assert found.keypoints[0, 0].tolist() == [0.5, 0.5]
    assert found.visible.tolist() == [[True, False]]
    assert len(PartPoints.join([found, found]).active) == 2
    with pytest.raises(DataError, match="empty or unknown"):
        part_points(maps, [[[30, 20, 1]]], [[10, 0, 10, 40]], (40, 40))
    with pytest.raises(DataError, match="one model and one dataset"):
        keypoint_error(found, PartPoints(np.zeros((1, 2, 2)), np.ones((1, 2), bool), found.keypoints, found.visible))
    blind = PartPoints(found.centroids, found.active, found.keypoints, np.zeros((1, 2), dtype=bool))
    with pytest.raises(DataError, match="no keypoint is visible"):
        keypoint_error(found, blind)


def test_agreement_with_named_parts() -> None:
    assigned = torch.tensor([[[0, 1], [1, 2]]])
    keypoints = [[[5, 5, 1], [15, 5, 1], [5, 15, 0], [19.9, 20, 1]]]
    found, truth = parts_at_keypoints(one_hot(assigned, 2), keypoints, (20, 20))
    assert found.tolist() == [0, 1, 2]
    assert truth.tolist() == [0, 1, 3]
    assert part_agreement(found, truth) == (1.0, 1.0)
    assert part_agreement([5, 5, 3, 3], [0, 0, 1, 1]) == pytest.approx((1.0, 1.0))
    assert part_agreement([0, 1, 0, 1], [0, 0, 1, 1]) == pytest.approx((0.0, -0.5))
    assert part_agreement([0, 0, 0, 0], [0, 0, 1, 1]) == pytest.approx((0.0, 0.0))
    with pytest.raises(DataError, match="same places"):
        part_agreement([0, 1], [0])


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), whole=st.booleans(), oblong=st.booleans())
def test_parts_are_read_where_the_authors_read_them(seed: int, whole: bool, oblong: bool) -> None:
    """Against all pixels upsampled and sampled to the nearest, written out."""
    generator = torch.Generator().manual_seed(seed)
    maps = torch.randn(3, 5, 6, 8 if oblong else 6, generator=generator).softmax(1)
    height, width = 42, 56 if oblong else 42
    at = torch.rand(3, 7, 2, generator=generator) * torch.tensor([width - 1.0, height - 1.0])
    at = at.round() if whole else at  # whole numbers lie between two pixels: the hard case
    visible = torch.rand(3, 7, generator=generator) < 0.7
    found, truth = parts_at_keypoints(maps, torch.cat([at, visible[..., None]], 2).numpy(), (height, width))
    large = torch.nn.functional.interpolate(maps, (height, width), mode="bilinear", align_corners=False)
    where = (at / torch.tensor([width, height], dtype=torch.float32) * 2 - 1)[:, :, None]
    read = torch.nn.functional.grid_sample(large, where, mode="nearest", align_corners=False)
    assert found.tolist() == read.argmax(1)[:, :, 0][visible].tolist()
    assert truth.tolist() == torch.arange(7).expand(3, 7)[visible].tolist()
    patch, _ = parts_at_keypoints(
        maps, torch.cat([at, visible[..., None]], 2).numpy(), (height, width), upsample=False
    )  # fmt: skip
    rows, columns = (at[..., 1] * 6 / height).long(), (at[..., 0] * maps.shape[-1] / width).long()
    assert patch.tolist() == maps.argmax(1)[torch.arange(3)[:, None], rows, columns][visible].tolist()


def test_no_visible_keypoint() -> None:
    found, truth = parts_at_keypoints(torch.rand(2, 3, 4, 4), np.zeros((2, 5, 3)), (8, 8))
    assert len(found) == len(truth) == 0


def test_bg_gap() -> None:
    assert bg_gap(0.862, 0.789) == pytest.approx(0.073)
    blind = [0, 1, 2, -1]  # a model that does not see backgrounds answers both alike
    assert bg_gap(blind, blind, labels=[0, 1, 0, 0]) == 0
    assert bg_gap([0, 1], [1, 1, 1, 0], labels=[0, 1], rand_labels=[1, 1, 0, 1]) == 0.5
    assert bg_gap([True, True], [True, False]) == 0.5
    with pytest.raises(DataError, match="together with labels"):
        bg_gap([0, 7], [3, 7])
    with pytest.raises(DataError, match="labels"):
        bg_gap([0, 1], [0, 1], labels=[0])
