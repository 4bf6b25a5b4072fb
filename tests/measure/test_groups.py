"""Group metrics: hand-worked cases, then properties against a loop that counts one by one."""

from __future__ import annotations

import json
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foveate.errors import DataError
from foveate.measure import (
    METRICS,
    USES_GROUPS,
    SmallGroupWarning,
    average_auc,
    confusion_by_group,
    group_report,
    ifam_worst_group,
    minority_groups,
    wilson_interval,
    worst_group_auc,
)

WATERBIRDS = [[3498, 184], [56, 1057]]
CELEBA = [[71629, 66874], [22880, 1387]]


def case(correct: list[list[int]], n: list[list[int]]) -> tuple[list[int], list[int], list[int]]:
    """Predictions, labels, attributes with so many correct in every group; the wrong ones say another
    class."""
    p, y, a = [], [], []
    for label, row in enumerate(n):
        for attribute, size in enumerate(row):
            right = correct[label][attribute]
            p += [label] * right + [(label + 1) % len(n)] * (size - right)
            y += [label] * size
            a += [attribute] * size
    return p, y, a


def test_waterbirds_by_hand() -> None:
    # accuracies 0.95, 0.60, 0.50, 0.90 on 100, 50, 40, 60 test images
    report = group_report(*case([[95, 30], [20, 54]], [[100, 50], [40, 60]]), WATERBIRDS)
    assert report.average == pytest.approx((95 + 30 + 20 + 54) / 250)
    assert report.adjusted_average == pytest.approx(
        (3498 * 0.95 + 184 * 0.60 + 56 * 0.50 + 1057 * 0.90) / (3498 + 184 + 56 + 1057)
    )
    assert report.worst_group == 0.5
    assert report.worst_class == pytest.approx(min(125 / 150, 74 / 100))
    assert report.majority == pytest.approx((95 + 54) / 160)  # pooled, not the mean 0.925 of the two
    assert report.minority == pytest.approx((30 + 20) / 90)
    assert report.ifam_worst_group == 0.5
    assert [(r.name, r.n, r.correct, r.kind) for r in report.groups] == [
        ("0/0", 100, 95, "majority"), ("0/1", 50, 30, "minority"),
        ("1/0", 40, 20, "minority"), ("1/1", 60, 54, "majority"),
    ]  # fmt: skip
    assert report.worst is not None
    assert report.worst.name == "1/0"


def test_ifam_worst_group_ignores_bad_majority_groups() -> None:
    p, y, a = case([[10, 50], [40, 54]], [[100, 50], [40, 60]])  # landbirds on land: 10 %
    assert group_report(p, y, a, WATERBIRDS).worst_group == pytest.approx(0.1)
    assert ifam_worst_group(p, y, a, WATERBIRDS) == 1.0


def test_ifam_worst_group_pools_the_minority_groups_of_a_class() -> None:
    # Contexts 2 and 3 are unseen for class 0, 0 and 1 for class 1; class 0: (5 + 25) / 60, class 1: 30 / 30
    train = [[231, 380, 0, 0], [0, 0, 145, 367]]
    p, y, a = case([[0, 0, 5, 25], [30, 0, 0, 0]], [[0, 0, 30, 30], [30, 0, 0, 0]])
    assert ifam_worst_group(p, y, a, train) == 0.5


@pytest.mark.parametrize(
    ("counts", "minority"),
    [
        (WATERBIRDS, [[False, True], [True, False]]),
        (CELEBA, [[False, False], [False, True]]),  # only the blond men
        ([[9000, 473], [473, 9000]], [[False, True], [True, False]]),
        ([[100, 100], [50, 50]], [[False, False], [False, False]]),  # balanced
        ([[100, 95], [50, 52]], [[False, False], [False, False]]),  # balanced but for chance
        ([[60, 40], [40, 60]], [[False, True], [True, False]]),  # weak, but there
        ([[231, 380, 0, 0, 0], [0, 0, 145, 367, 0]], [[0, 0, 1, 1, 1], [1, 1, 0, 0, 1]]),  # MetaShift, shelf unseen
        ([[3156, 166, 166, 8], [8, 166, 165, 3153]], [[0, 1, 1, 1], [1, 1, 1, 0]]),  # UrbanCars
        ([[0, 0], [90, 10]], [[False, False], [False, True]]),  # a class never seen in training
    ],
)
def test_minority_groups(counts: list[list[int]], minority: list[list[bool]]) -> None:
    assert minority_groups(counts).tolist() == np.array(minority, dtype=bool).tolist()


def test_dominoes_diagonal_is_the_majority() -> None:
    counts = np.full((10, 10), 24)
    np.fill_diagonal(counts, 4180)
    assert (minority_groups(counts) == ~np.eye(10, dtype=bool)).all()
    y, a = (v.ravel() for v in np.indices((10, 10)).repeat(20, axis=2))
    report = group_report(a, y, a, counts)  # follows the digit
    assert (report.majority, report.minority, report.worst_group) == (1.0, 0.0, 0.0)
    assert report.average == pytest.approx(0.1)


def test_balanced_training_has_neither() -> None:
    report = group_report(*case([[20, 20], [20, 10]], [[20, 20], [20, 20]]), [[50, 50], [50, 50]])
    assert (report.majority, report.minority, report.ifam_worst_group) == (None, None, None)
    assert report.adjusted_average == pytest.approx(0.875)
    with pytest.raises(DataError, match="no minority groups"):
        report.value("minority")


def test_without_train_counts() -> None:
    report = group_report(*case([[20, 20], [20, 10]], [[20, 20], [20, 20]]))
    assert (report.adjusted_average, report.majority, report.minority) == (None, None, None)
    assert report.worst_group == 0.5
    with pytest.raises(DataError, match="train_counts"):
        report.value("adjusted_average")


def test_without_attributes() -> None:
    report = group_report([0, 1, 1], [0, 1, 0], None)
    assert report.average == pytest.approx(2 / 3)
    assert report.value("worst_class") == 0.5
    assert (report.worst_group, report.groups, report.worst) == (None, [], None)
    for name in sorted(USES_GROUPS):
        with pytest.raises(DataError, match=f"'{name}' needs groups.*attribute"):
            report.value(name)
    assert "worst class" in str(report)


def test_unknown_metric_is_named_with_the_known_ones() -> None:
    report = group_report([0, 1], [0, 1], None)
    with pytest.raises(DataError, match=r"Did you mean 'worst_group'.*worst_class"):
        report.value("worst_grop")
    assert set(METRICS) >= USES_GROUPS


def test_empty_groups_do_not_count() -> None:
    p, y, a = case([[20, 0], [0, 15]], [[20, 0], [0, 20]])
    report = group_report(p, y, a, [[1, 1000], [1, 3]])
    assert report.worst_group == 0.75
    assert report.adjusted_average == pytest.approx((1 * 1.0 + 3 * 0.75) / 4)  # over the groups there are
    assert report.empty == ["0/1", "1/0"]


def test_unreadable_images_are_left_out_and_counted() -> None:
    report = group_report([0, -1, 1, -1], [0, 0, 1, 1], None)
    assert (report.average, report.n, report.skipped) == (1.0, 2, 2)
    assert "2 images could not be read" in report.table()
    with pytest.raises(DataError, match="could not be read"):
        group_report([-1, -1], [0, 1], None)


def test_small_groups_warn_once_and_are_named() -> None:
    p, y, a = case([[19, 3], [20, 20]], [[19, 3], [20, 20]])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        group_report(p, y, a, class_names=["cat", "dog"], attribute_names=["in", "out"])
    assert [w.category for w in caught] == [SmallGroupWarning]
    assert "cat/in (19), cat/out (3)" in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        group_report(*case([[20, 20], [20, 20]], [[20, 20], [20, 20]]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 1], [0], None), "2 predictions for 1 labels"),
        (([0, 1], [0, 1], [0]), "1 attributes"),
        (([[0.2, 0.8]], [1], None), "one index per image"),
        (([0.3, 0.9], [0, 1], None), "whole numbers"),
        (([0, 1], [0, 1], [0, 1], [[1, 2, 3]]), "train_counts"),
        (([0, 1], [0, 1], [0, 1], [1, 2, 3]), "train_counts"),
        (([0, 1], [0, -1], None), "labels run from -1"),
        (([], [], None), "no predictions"),
    ],
)
def test_bad_input_is_explained(arguments: tuple, message: str) -> None:
    with pytest.raises(DataError, match=message):
        group_report(*arguments)


def test_flat_train_counts_and_json() -> None:
    p, y, a = case([[20, 20], [20, 10]], [[20, 20], [20, 20]])
    flat = group_report(p, y, a, [3498, 184, 56, 1057])
    table = group_report(p, y, a, WATERBIRDS)
    assert flat == table
    again = json.loads(json.dumps(flat.to_dict()))
    assert again["groups"][3]["accuracy"] == 0.5
    assert again["worst_group"] == 0.5


def test_wilson_by_hand() -> None:
    # z² = 3.8415, n = 10, p = 0.5: middle 0.5; half = z/(1+0.38415) * sqrt(0.025 + 0.0096036) = 0.26341
    assert wilson_interval(5, 10) == pytest.approx((0.23659, 0.76341), abs=1e-5)
    # all of n correct: the low end is n / (n + z²)
    assert wilson_interval(20, 20) == pytest.approx((20 / 23.841459, 1.0), abs=1e-6)
    assert wilson_interval(0, 20) == pytest.approx((0.0, 3.841459 / 23.841459), abs=1e-6)
    assert wilson_interval(0, 0) == (0.0, 1.0)
    with pytest.raises(DataError):
        wilson_interval(3, 2)


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_holds_the_share(pair: tuple[int, int]) -> None:
    correct, n = pair
    low, high = wilson_interval(correct, n)
    assert 0 <= low <= correct / n <= high <= 1
    assert wilson_interval(n - correct, n) == pytest.approx((1 - high, 1 - low))


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=60))
def test_report_against_counting(rows: list[tuple[int, int, int]]) -> None:
    counts = [[5, 1], [1, 5], [2, 2]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallGroupWarning)
        report = group_report(*zip(*rows, strict=True), counts)
    by_group: dict[tuple[int, int], list[bool]] = {}
    for p, y, a in rows:
        by_group.setdefault((y, a), []).append(p == y)
    accuracy = {g: sum(r) / len(r) for g, r in by_group.items()}
    assert report.worst_group == pytest.approx(min(accuracy.values()))
    assert report.adjusted_average == pytest.approx(
        sum(counts[y][a] * v for (y, a), v in accuracy.items()) / sum(counts[y][a] for y, a in accuracy)
    )
    few = [r for g in ((0, 1), (1, 0)) for r in by_group.get(g, [])]
    assert report.minority == (pytest.approx(sum(few) / len(few)) if few else None)
    assert report.worst_group <= report.worst_class <= report.average + 1e-12
    confusion = confusion_by_group(*zip(*rows, strict=True), num_classes=3, num_attributes=2)
    assert confusion.sum() == len(rows)
    assert np.trace(confusion.sum(1)) == pytest.approx(report.average * len(rows))


def test_confusion_by_group() -> None:
    out = confusion_by_group([0, 1, 1, 0, -1], [0, 0, 1, 1, 1], [0, 1, 1, 0, 0])
    assert out.shape == (2, 2, 2)
    assert out[:, 1].tolist() == [[0, 1], [0, 1]]
    assert out.sum() == 4


def test_auc_by_hand() -> None:
    # pairs (positive, negative): 0.35 beats 0.1 only, 0.8 beats both: 3 of 4
    assert average_auc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]) == 0.75
    assert average_auc([7.0] * 6, [0, 1] * 3) == 0.5  # constant scores
    assert average_auc([-1e9, 50.0, 51.0], [0, 0, 1]) == 1.0  # logits far outside [0, 1]
    with pytest.raises(DataError, match="both classes"):
        average_auc([0.1, 0.2], [1, 1])


def test_worst_group_auc_sees_the_shortcut() -> None:
    y, a = np.array([1] * 8 + [0] * 8), np.array([1] * 6 + [0] * 2 + [0] * 6 + [1] * 2)
    by_attribute = 0.8 * a + 0.01 * y
    assert average_auc(by_attribute, y) == pytest.approx((6 * 8 + 2 * 6) / 64)
    assert worst_group_auc(by_attribute, y, a) == 0.0
    assert worst_group_auc(by_attribute, y, a, [[90, 10], [10, 90]]) == 0.0
    assert worst_group_auc(y, y, a) == 1.0
    with pytest.raises(DataError, match="train_counts"):
        worst_group_auc([0.1, 0.2, 0.3], [0, 1, 1], [0, 1, 2])
