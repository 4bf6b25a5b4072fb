"""Metrics as data: one new metric, one line, and every table, the selection and the bench know it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import foveate as fv
from foveate.bench.records import Record
from foveate.bench.table import table
from foveate.errors import DataError, FoveateError
from foveate.measure import Answers, Metric, check_selectable, columns, described, group_report, reported
from foveate.registries import METRICS

FILE = '''
"""How much worse the worst class is than the best."""

from foveate.measure import Metric


def spread(answers):
    counts = answers.counts
    share = (counts.class_correct / counts.class_n.clip(1))[counts.class_n > 0]
    return float(share.max() - share.min())


SPREAD = Metric("class_spread", "class spread", spread, higher_is_better=False, note="best minus worst class")
'''


@pytest.fixture
def spread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One file and one registry line."""
    (tmp_path / "class_spread_metric.py").write_text(FILE)
    monkeypatch.syspath_prepend(str(tmp_path))
    with METRICS.temporarily("class_spread", "class_spread_metric:SPREAD", "best minus worst class"):
        yield


@pytest.fixture(scope="module")
def critters() -> Any:
    return fv.data.critters(train=60, target=0, val=40, test=40, size=32)


@pytest.mark.usefixtures("spread")
def test_a_new_metric_is_in_the_report_of_evaluate() -> None:
    report = group_report([0, 0, 1, 0], [0, 0, 1, 1], None)
    assert report.value("class_spread") == report.figures["class_spread"] == 0.5
    assert report.to_dict()["class_spread"] == 0.5
    assert "class spread" in str(report)
    assert "50.0" in next(line for line in str(report).splitlines() if "class spread" in line)


@pytest.mark.usefixtures("spread")
def test_a_model_can_be_selected_by_it(critters: Any) -> None:
    system = fv.ERM("micro_resnet", epochs=6, lr=0.01, batch_size=16, progress=False, select="class_spread").fit(
        critters.train, val=critters.val
    )
    seen = [row["val_class_spread"] for row in system.history_.epochs]
    assert len(set(seen)) > 1, "the epochs must differ for the choice to mean anything"
    assert system.history_.best_score == min(seen)  # less is better
    assert seen[system.history_.best_epoch - 1] == min(seen)
    assert system.selection_ == {"metric": "class_spread", "on": "critters/val", "uses_groups": False}


@pytest.mark.usefixtures("spread")
def test_it_is_a_column_of_the_bench_and_the_smallest_is_best() -> None:
    records = [
        Record("s", "d", "critters", method, 0, {}, score=0.5, metrics={"average": average, "class_spread": value})
        for method, average, value in (("ERM", 0.9, 0.30), ("DFR", 0.8, 0.05))
    ]
    head, _, erm, dfr = table(records).splitlines()
    assert "| average | class spread |" in head
    assert "| **90.0** | 30.0 |" in erm
    assert "| 80.0 | **5.0** |" in dfr


@pytest.mark.usefixtures("spread")
def test_a_trial_records_it_and_a_sweep_wants_less_of_it(critters: Any, tmp_path: Path) -> None:
    pytest.importorskip("yaml", reason="specs need the extra [bench]")
    from foveate.bench.spec import parse_spec
    from foveate.bench.trial import Bench, Cell

    spec = parse_spec(
        "name: tiny\nselect: class_spread\nnetwork: {backbone: micro_resnet}\n"
        "data: {name: critters, options: {train: 60, target: 8, val: 40, test: 40, size: 32}}\n"
        "methods: {base: {system: ERM}}\n"
    )
    bench, cell = Bench(spec, tmp_path), Cell("critters", "base", 0)
    system = fv.ERM("micro_resnet", epochs=1, progress=False).fit(critters.train)
    assert bench.metrics(system, cell)[0]["class_spread"] >= 0
    assert bench.score(system, cell) == -fv.evaluate(system, bench.data("critters", 0).val).value("class_spread")


@pytest.mark.usefixtures("spread")
def test_it_is_on_the_page_of_an_audit_and_has_a_limit(critters: Any) -> None:
    models = {
        name: fv.ERM("micro_resnet", epochs=1, progress=False, seed=seed).fit(critters.train)
        for name, seed in (("one", 0), ("two", 1))
    }
    report = fv.audit(models, critters.test, discover=False)
    assert "Class spread" in report.html()
    alone = fv.audit(models["one"], critters.test, discover=False)
    assert re.search(r"<dt>Class spread</dt><dd>[\d.]+\u00a0%<small>best minus worst class", alone.html())
    worst = max(entry["class_spread"] for entry in report.to_dict()["models"])
    assert report.failures({"class_spread": 1.0}) == []
    said = report.failures({"class_spread": worst - 0.01})
    assert any(f"class_spread is {100 * worst:.1f}, over {100 * worst - 1:.1f}." in line for line in said)


@pytest.mark.usefixtures("spread")
def test_it_is_in_the_table_of_several_models() -> None:
    from rich.table import Table

    from foveate.cli.inputs import comparison_table

    made = comparison_table({"ERM": group_report([0, 0, 1, 0], [0, 0, 1, 1], None)}, {"ERM": "labels"})
    table, used = made.renderables
    assert isinstance(table, Table)
    assert table.columns[-1].header == "class spread"
    assert list(table.columns[-1].cells) == ["50.0"]
    assert "labels: ERM" in str(used)


def test_without_the_line_nobody_knows_it() -> None:
    report = group_report([0, 1], [0, 1], None)
    assert "class_spread" not in report.figures
    with pytest.raises(DataError, match="unknown metric 'class_spread'"):
        report.value("class_spread")
    with pytest.raises(FoveateError, match="unknown metric 'class_spread'"):
        fv.engine.check_metric("class_spread")


def test_the_lists_are_as_published() -> None:
    assert list(reported()) == [
        "average", "adjusted_average", "majority", "minority", "worst_group", "worst_class", "ifam_worst_group", "loss",
    ]  # fmt: skip
    assert [m.name for m in columns("bench")] == [
        "average", "majority", "minority", "worst_group", "unanswered", "cep_feature", "cep_output", "cap", "cgp",
        "miou", "mass", "coverage", "kp",
    ]  # fmt: skip
    assert [m.name for m in columns("audit")] == ["average", "majority", "minority", "worst_group", "worst_class"]
    fewer = {name for name, metric in METRICS.things().items() if metric.higher_is_better is False}
    assert fewer == {"loss", "kp", "unanswered"}
    assert described("coverage").higher_is_better is None


def test_what_a_metric_needs_decides_where_it_applies() -> None:
    plain = group_report([0, 1], [0, 1], None)
    assert {name for name, value in plain.figures.items() if value is not None} == {"average", "worst_class"}
    assert "loss" not in plain.figures
    logits = np.log(np.array([[0.75, 0.25], [0.5, 0.5]], dtype=np.float32))
    with_logits = group_report([0, 1], [0, 1], None, logits=logits)
    assert with_logits.value("loss") == pytest.approx(-(np.log(0.75) + np.log(0.5)) / 2)
    with pytest.raises(DataError, match="not part of this report"):
        plain.value("loss")
    with pytest.raises(DataError, match=r"a row for each of 2 predictions; got shape \(1, 2\)"):
        group_report([0, 1], [0, 1], None, logits=logits[:1])


def test_unreadable_images_reach_no_metric() -> None:
    seen: list[Answers] = []
    spy = Metric("spy", function=lambda answers: seen.append(answers) or 0.0, tables=())
    with METRICS.temporarily("spy", spy):
        group_report([0, -1, 1], [0, 1, 1], [0, 0, 1], logits=np.zeros((3, 2), np.float32))
    (answers,) = seen
    assert answers.predictions.tolist() == [0, 1]
    assert answers.labels.tolist() == [0, 1]
    assert answers.attributes is not None
    assert answers.attributes.tolist() == [0, 1]
    assert answers.logits is not None
    assert answers.logits.shape == (2, 2)


def test_what_is_measured_elsewhere_cannot_choose_a_model() -> None:
    for name in ("cep_feature", "coverage", "nonsense"):
        with pytest.raises(DataError, match=f"unknown metric '{name}'.*Known: average, .*loss"):
            check_selectable(name)
    assert check_selectable("worst_group").uses_groups


def test_a_metric_of_records_that_nobody_listed_is_still_shown() -> None:
    records = [Record("s", "d", "critters", "ERM", 0, {}, score=0.5, metrics={"Odd-Name": 0.5})]
    assert "| Odd-Name |" in table(records, metrics=["Odd-Name"])


@pytest.mark.parametrize("name", ["Upper", "two words", "n", "groups", "shortcut"])
def test_names_that_would_collide_are_refused(name: str) -> None:
    with pytest.raises(FoveateError, match=f"cannot be called '{name}'"):
        Metric(name, function=lambda answers: 1.0)


def test_only_a_metric_of_the_same_name_may_be_listed() -> None:
    with pytest.raises(FoveateError, match="expected a Metric, found function"):
        METRICS.add("mine", test_the_lists_are_as_published)
    with pytest.raises(FoveateError, match="listed as 'mine' calls itself 'yours'"):
        METRICS.add("mine", Metric("yours", function=lambda answers: 1.0))
    assert "mine" not in METRICS


def test_a_metric_that_fails_says_which_it_was() -> None:
    bad = Metric("bad", function=lambda answers: 1 / 0)
    failed = pytest.raises(FoveateError, match="the metric 'bad' failed: ZeroDivisionError")
    with METRICS.temporarily("bad", bad), failed:
        group_report([0, 1], [0, 1], None)
