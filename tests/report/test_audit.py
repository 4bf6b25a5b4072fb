"""The audit: what may be said from known counts, and a page that holds it all and nothing foreign."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages
from foveate.errors import DataError, StorageError, UnreadableImage
from foveate.look.gaze import Gaze
from foveate.measure import group_report
from foveate.measure.groups import SmallGroupWarning
from foveate.report import audit
from foveate.report.charts import bar
from foveate.report.examples import worst_examples
from foveate.report.findings import VerdictRecord
from foveate.report.gaps import Gap, Share, difference, widest_spread, within_class_gap
from foveate.report.groups import judge_groups
from foveate.report.heat import choose_images
from foveate.report.sentences import percent
from foveate.report.verdict import join

BIASED = np.array([[95, 5], [5, 95]])


def judge(cells: dict[tuple[int, int], tuple[int, int]], counts: Any = None, classes: int = 2) -> VerdictRecord:
    """The verdict on a model that gets ``correct`` of ``n`` right in every ``(label, attribute)``; each mistake
    names the class after the true one."""
    p, y, a = [], [], []
    for (label, attribute), (correct, n) in cells.items():
        p += [label] * correct + [(label + 1) % classes] * (n - correct)
        y += [label] * n
        a += [attribute] * n
    values = max(attribute for _, attribute in cells) + 1
    report = group_report(
        p, y, a, counts, class_names=[f"c{i}" for i in range(classes)], attribute_names=list("uvwxyz"[:values])
    )  # fmt: skip
    confusion = np.zeros((classes, values, classes), dtype=np.int64)
    np.add.at(confusion, (y, a, p), 1)
    said = judge_groups(
        report, confusion, train_counts=None if counts is None else np.asarray(counts),
        class_names=[f"c{i}" for i in range(classes)],
    )  # fmt: skip
    return VerdictRecord.of(join("ERM", said, attribute="habitat"))


class TestVerdict:
    def test_shortcut_is_found_with_its_numbers(self) -> None:
        found = judge({(0, 0): (98, 100), (0, 1): (41, 100), (1, 0): (41, 100), (1, 1): (98, 100)}, BIASED)
        assert found.level == "found"
        assert found.sentences[0].startswith("ERM leans on the habitat: it is right on 98")
        assert "on 41" in found.sentences[0]
        assert "a gap of 57 points" in found.sentences[0]
        assert found.gap is not None
        assert found.gap.value == pytest.approx(0.57)
        assert [side.n for side in found.sides] == [200, 200]

    def test_equal_groups_are_not_accused(self) -> None:
        found = judge({(y, a): (900, 1000) for y in (0, 1) for a in (0, 1)}, BIASED)
        assert found.level == "none"
        assert found.sentences[0].startswith("No sign that ERM leans on the habitat")

    def test_overlapping_intervals_are_not_accused(self) -> None:
        found = judge({(0, 0): (27, 30), (0, 1): (25, 30), (1, 0): (25, 30), (1, 1): (27, 30)}, BIASED)
        assert found.level == "unclear"
        assert "too few images to tell" in found.sentences[0]

    def test_small_but_sure_gap_is_a_hint(self) -> None:
        found = judge({(0, 0): (950, 1000), (0, 1): (900, 1000), (1, 0): (900, 1000), (1, 1): (950, 1000)}, BIASED)
        assert found.level == "hint"
        assert "real but small" in found.sentences[0]

    def test_hard_class_alone_is_no_shortcut(self) -> None:
        """Pooled, majority is far better (82 % against 58 %), but inside each class nothing differs."""
        cells = {(0, 0): (900, 1000), (0, 1): (90, 100), (1, 0): (100, 200), (1, 1): (100, 200)}
        found = judge(cells, BIASED)
        assert found.level == "none"
        assert found.gap is not None
        assert found.gap.value == pytest.approx(0.0)
        assert "compared class by class" in found.sentences[0]

    def test_without_training_counts_groups_of_a_class_are_compared(self) -> None:
        found = judge({(0, 0): (95, 100), (0, 1): (40, 100), (1, 0): (90, 100), (1, 1): (90, 100)})
        assert (found.level, found.evidence) == ("found", "spread")
        assert "95 % of c0/u and 40 % of c0/v" in found.sentences[0].replace("\u00a0", " ")
        assert "in training is not known" in found.sentences[1]

    def test_balanced_training_has_no_usual_group(self) -> None:
        found = judge({(y, a): (900, 1000) for y in (0, 1) for a in (0, 1)}, [[50, 50], [50, 50]])
        assert (found.level, found.evidence) == ("none", "spread")
        assert "no minority groups" in found.sentences[1]

    def test_widest_of_many_equal_groups_is_not_accused(self) -> None:
        """100 groups of one accuracy differ by luck; the widest pair must not count as evidence."""
        levels = []
        for seed in range(10):
            right = np.random.default_rng(seed).binomial(60, 0.8, size=(10, 10))
            cells = {(y, a): (int(right[y, a]), 60) for y in range(10) for a in range(6)}
            levels.append(judge(cells, classes=10).level)
        assert "found" not in levels
        assert levels.count("hint") <= 1

    def test_single_class(self) -> None:
        found = judge({(0, 0): (95, 100), (0, 1): (40, 100)}, [[95, 5], [0, 0]])
        assert (found.level, found.evidence) == ("found", "training")

    def test_one_attribute_per_class_cannot_be_compared(self) -> None:
        found = judge({(0, 0): (95, 100), (1, 1): (40, 100)}, BIASED)
        assert found.level == "untested"
        assert "nothing can be compared within a class" in found.sentences[0]

    def test_mistakes_that_follow_the_attribute_are_counted(self) -> None:
        counts = np.full((3, 3), 5) + 90 * np.eye(3, dtype=int)
        cells = {(y, a): (95, 100) if y == a else (50, 100) for y in range(3) for a in range(3)}
        # every mistake names class y + 1, which is the attribute's class in half of the minority groups
        found = judge(cells, counts, classes=3)
        assert "Of its 300 mistakes there, 150 (50" in found.sentences[1]

    def test_a_model_that_learned_nothing_is_not_praised(self) -> None:
        found = judge({(y, a): (500, 1000) for y in (0, 1) for a in (0, 1)}, BIASED)
        assert found.level == "none"
        assert "hardly better than always naming the most frequent class" in found.sentences[-1]

    def test_pure_shortcut_averages_at_chance_and_is_still_found(self) -> None:
        found = judge({(0, 0): (100, 100), (0, 1): (0, 100), (1, 0): (0, 100), (1, 1): (100, 100)}, BIASED)
        assert found.level == "found"
        assert "hardly better" not in " ".join(found.sentences)


def test_newcombe_known_answer_and_single_class_agree() -> None:
    gap = difference(Share(56, 70), Share(48, 80))
    assert (gap.value, gap.low, gap.high) == pytest.approx((0.2, 0.0524, 0.3339), abs=1e-4)
    with pytest.warns(SmallGroupWarning):
        rows = group_report(
            [0] * 56 + [1] * 14 + [0] * 48 + [1] * 32 + [1] * 3, [0] * 150 + [1] * 3, [0] * 70 + [1] * 80 + [1] * 3,
            BIASED,
        ).groups  # fmt: skip
    assert within_class_gap(rows) == gap
    assert widest_spread([rows[2]]) is None


@given(st.integers(1, 300), st.integers(1, 300), st.floats(0, 1), st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_gap_interval_holds_the_gap_and_turns_with_the_sides(n: int, m: int, p: float, q: float) -> None:
    a, b = Share(round(p * n), n), Share(round(q * m), m)
    forth, back = difference(a, b), difference(b, a)
    assert -1 - 1e-9 <= forth.low <= forth.value + 1e-12
    assert forth.value <= forth.high + 1e-12 <= 1 + 1e-8
    assert (back.low, back.high) == pytest.approx((-forth.high, -forth.low))
    if Gap(forth.value, forth.low, forth.high).level == "found":
        assert forth.value >= 0.1


def test_percent_never_rounds_to_all_or_nothing() -> None:
    assert [percent(v).replace("\u00a0", " ") for v in (0.999, 0.004, 1.0, 0.0)] == ["99.9 %", "0.4 %", "100 %", "0 %"]


def test_bar_escapes_words_and_clips() -> None:
    drawn = bar(1.2, -0.1, 1.0, words='"><script>')
    assert "<script>" not in drawn
    assert 'width="100"' in drawn
    assert "-" not in re.findall(r'x1="([^"]*)"', drawn)


def test_examples_come_from_the_worst_groups_most_confident_first() -> None:
    labels = np.array([0, 0, 0, 0, 1, 1, 1, 1])
    predictions = np.array([1, 1, 1, 0, 0, 1, 1, -1])
    confidence = np.array([0.5, 0.9, 0.7, 0.99, 0.95, 0.9, 0.9, 0.0])
    assert worst_examples(predictions, confidence, labels, labels, n=3) == [1, 2, 4]
    assert worst_examples(labels, confidence, labels, labels, n=3) == []


def test_gaze_sample_is_half_right_and_spread() -> None:
    right = np.arange(100) < 90
    groups = np.arange(100) % 2
    chosen = choose_images(right, ~right, groups, 20, seed=0)
    assert len(set(chosen)) == 20
    assert (chosen >= 90).sum() == 10
    assert (groups[chosen] == 0).sum() == 10
    assert len(choose_images(right, ~right, groups, 60, seed=0)) == 60


# -- the whole report -----------------------------------------------------------------------------


class Fake:
    """Right with the given chance per ``(label, attribute)``; looks at the top left quarter."""

    needs = "train: labels"

    def __init__(self, data: GroupedDataset, usual: float, unusual: float, counts: Any = None, seed: int = 0):
        rng = np.random.default_rng(seed)
        self.class_names_ = list(data.class_names)
        self.train_counts_ = counts
        attributes = data.labels if data.attributes is None else data.attributes
        chance = np.where(attributes == data.labels, usual, unusual)
        right = rng.random(len(data)) < chance
        shift = rng.integers(1, max(data.num_classes, 2), len(data))
        self.answers = np.where(right, data.labels, (data.labels + shift) % data.num_classes)
        self.bad: list[int] = []

    def predict_proba(self, data: GroupedDataset) -> np.ndarray:
        out = np.full((len(data), len(self.class_names_)), 0.1)
        out[np.arange(len(data)), self.answers] = 0.9
        out[self.bad] = np.nan
        return out / out.sum(1, keepdims=True)

    def look(self, images: list[torch.Tensor]) -> Gaze:
        heat = torch.zeros(len(images), 4, 4)
        heat[:, :2, :2] = 1.0
        return Gaze(heat, kind="grad-cam")


class Blind(Fake):
    look: Any = None


def made(n: int, classes: list[str], attributes: list[str] | None, masks: bool = False) -> GroupedDataset:
    rng = np.random.default_rng(0)
    mask = np.zeros((n, 8, 8), np.uint8)
    mask[:, :4, :] = 255
    cells = np.arange(n)
    return GroupedDataset(
        ArrayImages(rng.integers(0, 255, (n, 8, 8, 3), dtype=np.uint8), "toy"),
        cells % len(classes),
        classes,
        attributes=None if attributes is None else cells // len(classes) % len(attributes),
        attribute_names=attributes,
        masks=ArrayImages(mask) if masks else None,
        name="toy",
    )


def text_of(html: str) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html.replace("&nbsp;", " "))).replace("\u00a0", " ")


def test_report_of_one_model_holds_every_number_and_nothing_foreign(tmp_path: Any) -> None:
    data = made(400, ["cat", "dog"], ["forest", "sea"], masks=True)
    result = audit(Fake(data, 0.97, 0.4, BIASED), data, attribute="scene", examples=6)
    path = result.save(tmp_path / "report.html")
    html = path.read_text("utf-8")
    assert "Fake leans on the scene" in result.verdict
    assert result.verdict in text_of(html)
    for row in result.findings.models[0].groups:
        assert re.search(rf"{row.name} .{{0,40}}?{percent(row.accuracy)[:-2]} % .{{0,30}}?n = {row.n}", text_of(html))
    assert not re.search(r"https?:|//[a-z]|<link|@import|url\(", re.sub(r"data:image[^\"]*", "", html))
    assert html.count("<script") == 1
    assert html.count("data:image/jpeg;base64,") == 2 + 12  # the first mistake opens the page as well
    assert html.count("<svg") == html.count('role="img" aria-label=')
    assert "{{" not in html
    assert not list(tmp_path.glob(".*"))


def test_heat_on_the_object_is_measured(tmp_path: Any) -> None:
    data = made(200, ["cat", "dog"], ["forest", "sea"], masks=True)
    gaze = audit(Fake(data, 0.9, 0.5, BIASED), data).findings.models[0].gaze
    assert gaze.images == 64
    assert gaze.right.on_object == pytest.approx(1.0)
    assert gaze.wrong.area == pytest.approx(0.5)
    assert gaze.sentence.startswith("Where it looks (Grad-CAM, 64 images): when it is right, 100")
    assert "more than an even spread" in gaze.sentence


def test_boxes_serve_when_there_are_no_masks() -> None:
    data = made(80, ["cat", "dog"], ["forest", "sea"])
    boxes = np.tile(np.array([4.0, 4.0, 8.0, 8.0], np.float32), (80, 1))  # bottom right: where Fake never looks
    boxes[::2] = np.nan
    boxed = GroupedDataset(
        data.images, data.labels, data.class_names, attributes=data.attributes,
        attribute_names=data.attribute_names, boxes=boxes,
    )  # fmt: skip
    gaze = audit(Fake(boxed, 0.9, 0.5, BIASED), boxed).findings.models[0].gaze
    sides = [side for side in (gaze.right, gaze.wrong) if side]
    assert all(side.on_object == 0 for side in sides)
    assert "less than an even spread" in gaze.sentence


def test_several_models_side_by_side() -> None:
    data = made(400, ["cat", "dog"], ["forest", "sea"])
    models = {"DAR": Fake(data, 0.9, 0.9, seed=1), "ERM": Fake(data, 0.97, 0.3, BIASED), "Blind": Blind(data, 0.9, 0.8)}
    result = audit(models, data, examples=4)
    levels = {m.name: m.verdict.level for m in result.findings.models}
    assert levels["ERM"] == "found"
    assert levels["DAR"] in ("none", "unclear")
    assert result.findings.training.source == "ERM"
    assert result.findings.examples_by == "ERM"
    html = result.html()
    assert html.count("no heat map") == 4
    assert html.count("data:image/jpeg") == 2 + 4 * 3
    assert all(len(entry.answers) == 3 for entry in result.findings.examples)


def test_names_from_the_data_cannot_add_markup() -> None:
    evil = "<script>alert(1)</script>"
    data = made(80, [evil, 'a"b'], ["<img src=x>", "{{ 7*7 }}"])
    html = audit({"<b>m</b>": Fake(data, 0.9, 0.3, BIASED)}, data, title="<i>t</i>", attribute="<u>").html()
    for raw in ("<script>alert", "<img src=x", "<b>m", "<i>t", "<u>"):
        assert raw not in html
    assert html.count("<script") == 1
    assert "&lt;script&gt;alert(1)" in html
    assert "{{ 7*7 }}" in html


def test_findings_round_trip_through_json(tmp_path: Any) -> None:
    data = made(60, ["cat", "dog"], ["forest", "sea"], masks=True)
    result = audit(Fake(data, 0.9, 0.4, BIASED), data)
    path = result.save(tmp_path / "findings.json")
    assert json.loads(path.read_text()) == result.to_dict()
    json.dumps(result.to_dict(), allow_nan=False)


def test_unreadable_images_are_named_and_left_out() -> None:
    class Broken(ArrayImages):
        def read(self, i: int) -> np.ndarray:
            if i in (3, 7):
                raise UnreadableImage(self.where(i), "broken")
            return super().read(i)

    data = made(100, ["cat", "dog"], ["forest", "sea"])
    assert isinstance(data.images, ArrayImages)
    data.images = Broken(data.images.array)
    model = Fake(data, 0.9, 0.4, BIASED)
    model.bad = [3, 7]
    result = audit(model, data)
    assert result.findings.unreadable == ["array[3]", "array[7]"]
    assert sum(row.n for row in result.findings.models[0].groups) == 98
    assert "2 of 100 images could not be read" in text_of(result.html())


def test_without_attributes_the_report_says_so() -> None:
    data = made(90, ["cat", "dog", "owl"], None)
    result = audit(Fake(data, 0.8, 0.8), data)
    assert "no attributes were given" in result.verdict
    assert result.findings.models[0].verdict.level == "untested"
    words = text_of(result.html())
    assert "Accuracy by class" in words
    assert "n = 30" in words


def test_hundred_groups_show_the_worst_and_fold_the_rest() -> None:
    names = [f"class{i}" for i in range(10)]
    data = made(2500, names, [str(i) for i in range(10)])
    counts = np.full((10, 10), 5) + 900 * np.eye(10, dtype=int)
    result = audit(Fake(data, 0.95, 0.5, counts), data, attribute="digit", examples=0)
    words = text_of(result.html())
    assert "the 12 worst of 100 groups" in words
    assert "The 88 other groups lie between" in words
    for row in result.findings.models[0].groups:
        assert re.search(rf"{row.name} m\w+ n = {row.n} {re.escape(percent(row.accuracy)[:-2])} %", words)
    assert len(result.html()) < 400_000


def test_many_classes_list_their_mistakes() -> None:
    names = [f"class{i}" for i in range(40)]
    data = made(800, names, None)
    assert "The most frequent mistakes" in audit(Fake(data, 0.5, 0.5), data, examples=0).html()


def test_perfect_model_has_nothing_to_show() -> None:
    data = made(400, ["cat", "dog"], ["forest", "sea"], masks=True)
    result = audit(Fake(data, 1.0, 1.0, BIASED), data)
    assert result.findings.models[0].verdict.level == "none"
    assert "There is no mistake to show" in result.html()


def test_classes_in_another_order_and_classes_only_the_model_knows() -> None:
    data = made(200, ["cat", "dog"], ["forest", "sea"])
    model = Fake(data, 0.97, 0.4)
    model.class_names_ = ["owl", "dog", "cat"]
    model.answers = np.where(model.answers == 0, 2, 1)
    model.train_counts_ = np.array([[7, 7], [5, 95], [95, 5]])
    plain = Fake(data, 0.97, 0.4, BIASED)
    turned, straight = audit(model, data).findings, audit(plain, data).findings
    assert turned.models[0].groups == straight.models[0].groups
    assert turned.dataset.predicted_classes == ["cat", "dog", "owl"]


def test_bad_input_gets_a_sentence(tmp_path: Any) -> None:
    data = made(40, ["cat", "dog"], ["forest", "sea"])
    with pytest.raises(DataError, match="no models"):
        audit({}, data)
    with pytest.raises(DataError, match="no predict_proba"):
        audit({"x": object()}, data)
    with pytest.raises(DataError, match="no images"):
        audit(Fake(data, 1, 1), data.subset([]))
    model = Fake(data, 1, 1)
    model.class_names_ = ["cat", "owl"]
    with pytest.raises(DataError, match="does not know the class dog"):
        audit(model, data)
    with pytest.raises(DataError, match="train_counts"):
        audit(Fake(data, 1, 1), data, train_counts=[1, 2, 3])
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        audit(Fake(data, 1, 1), data).save(tmp_path / "file" / "report.html")
