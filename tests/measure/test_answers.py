"""An image that was not read is left out; a model that says NaN is wrong. Figures with known answers for both."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from foveate.data.sources import urbancars_gaps
from foveate.decide import LinearHead
from foveate.errors import DataError
from foveate.measure import (
    NO_ANSWER,
    UNREADABLE,
    NoAnswerWarning,
    answered,
    average_auc,
    bg_gap,
    confusion_by_group,
    decided,
    decided_by_shares,
    figures_of,
    group_report,
    ifam_worst_group,
    shares_of,
    worst_group_auc,
)

NAN, INF = float("nan"), float("inf")
LOGITS = arrays(np.float32, (5, 3), elements=st.floats(width=32, allow_nan=True, allow_infinity=True))


@given(LOGITS)
def test_after_answered_there_is_no_nan_and_both_roads_give_the_same_class(raw: np.ndarray) -> None:
    with np.errstate(all="ignore"):
        logits = answered(raw)
        assert not np.isnan(logits).any()
        told = decided(logits)
        silent = np.isnan(raw).any(1) | (raw == INF).any(1) | (raw == -INF).all(1)
        assert ((told == NO_ANSWER) == silent).all()
        assert (told[~silent] == raw[~silent].argmax(1)).all()
        shares = shares_of(logits)
        assert np.allclose(shares.sum(1), np.where(silent, 0, 1), atol=1e-5)
        by_shares = decided_by_shares(shares)
        assert ((by_shares == NO_ANSWER) == silent).all()
        assert answered(logits).tolist() == logits.tolist()


def test_a_row_that_was_not_read_stays_unread() -> None:
    logits = np.array([[NAN, NAN], [-INF, -INF], [3.0, 1.0]], np.float32)
    assert decided(logits).tolist() == [UNREADABLE, NO_ANSWER, 0]
    shares = shares_of(logits)
    assert np.isnan(shares[0]).all()
    assert decided_by_shares(shares).tolist() == [UNREADABLE, NO_ANSWER, 0]
    assert shares.dtype == np.float32


def test_no_answer_counts_as_wrong_in_every_figure() -> None:
    y, a = np.repeat([0, 1], 40), np.tile([0, 1], 40)
    counts = [[90, 10], [10, 90]]
    said = np.where(y == 1, NO_ANSWER, y)
    report = group_report(said, y, a, counts, class_names=["cat", "dog"], attribute_names=["sea", "land"])
    assert (report.average, report.worst_group, report.worst_class) == (0.5, 0.0, 0.0)
    assert (report.majority, report.minority, report.ifam_worst_group) == (0.5, 0.5, 0.0)
    assert (report.n, report.skipped, report.unanswered) == (80, 0, 40)
    assert report.unanswered_by_class == {"dog": 40}
    assert {row.name: row.unanswered for row in report.groups}["dog/sea"] == 20
    assert "no answer for 40 of 80 images (dog 40 of 40)" in str(report)
    assert report.to_dict()["unanswered"] == 40
    assert figures_of(report)["unanswered"] == 0.5
    assert ifam_worst_group(said, y, a, counts) == 0.0
    # no class was named, so no column has it
    assert confusion_by_group(said, y, a).sum() == 40


def test_unreadable_images_are_left_out_and_both_together_are_told_apart() -> None:
    y, a = np.repeat([0, 1], 40), np.tile([0, 1], 40)
    said = np.where(np.arange(80) < 10, UNREADABLE, np.where(y == 1, NO_ANSWER, y))
    report = group_report(said, y, a)
    assert (report.n, report.skipped, report.unanswered, report.average) == (70, 10, 40, 30 / 70)
    assert len(report.remarks()) == 2
    only = group_report(np.where(np.arange(80) < 10, UNREADABLE, y), y, a)
    assert (only.average, only.skipped, only.unanswered, len(only.remarks())) == (1.0, 10, 0, 1)
    assert "unanswered" not in figures_of(only)
    assert group_report([NO_ANSWER, NO_ANSWER], [0, 1], None).average == 0.0
    with pytest.raises(DataError, match="2 could not be read"):
        group_report([UNREADABLE, UNREADABLE], [0, 1], None)


def test_auc_loses_every_comparison_without_an_answer() -> None:
    with pytest.warns(NoAnswerWarning, match="2 of 4 scores"):
        assert average_auc([0.1, NAN, NAN, 0.8], [0, 0, 1, 1]) == 0.25  # 1 of the 4 pairs is still right
    with pytest.warns(NoAnswerWarning):
        assert average_auc([NAN] * 4, [0, 0, 1, 1]) == 0.0
    with pytest.warns(NoAnswerWarning):
        assert worst_group_auc([0.1, 0.2, NAN, 0.9], [0, 0, 1, 1], [0, 1, 0, 1]) == 0.0


def test_gaps_leave_out_what_was_not_read_and_nothing_else() -> None:
    assert bg_gap([0, UNREADABLE], [0, NO_ANSWER], labels=[0, 1]) == 0.5
    y, a = np.repeat([0, 1], 8), np.tile([0, 1, 2, 3], 4)
    some = np.arange(16) < 2
    assert urbancars_gaps(np.where(some, UNREADABLE, y), y, a).in_distribution == 1.0
    assert urbancars_gaps(np.where(some, NO_ANSWER, y), y, a).in_distribution < 1.0


def test_a_head_names_no_class_for_features_that_are_not_finite() -> None:
    head = LinearHead(1.0).fit([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1])
    assert head.predict([[0.5], [NAN], [2.5]]).tolist() == [0, NO_ANSWER, 1]
