"""Tables and plots from records: hand-worked means, bold, supervision; test never takes part in a choice."""

from __future__ import annotations

from pathlib import Path

import pytest

from foveate.bench.plot import plot
from foveate.bench.records import Record
from foveate.bench.table import lines, table
from foveate.errors import FoveateError


def record(method: str, seed: int, score: float, average: float, dataset: str = "critters", **point: object) -> Record:
    metrics = {"average": average, "worst_group": average / 2}
    return Record(
        "s", "d", dataset, method, seed, dict(point), score=score, metrics=metrics, supervision="train: labels"
    )


ROWS = [
    record("ERM", 0, 0.5, 0.6),
    record("ERM", 1, 0.5, 0.8),
    record("DAR", 0, 0.9, 0.7, lr=1),
    record("DAR", 0, 0.8, 0.99, lr=2),  # better on test, worse on val: not chosen
    record("DAR", 1, 0.7, 0.9, lr=2),
    Record("s", "d", "critters", "broken", 0, {}, state="failed", error="no"),
]


def test_markdown_by_hand() -> None:
    assert table(ROWS, metrics=["average", "worst_group"]) == (
        "| method | average | worst group | seeds | labels used |\n"
        "| --- | --- | --- | --- | --- |\n"
        "| ERM | 70.0 ± 14.1 | 35.0 ± 7.1 | 2 | train: labels |\n"
        "| DAR | **80.0 ± 14.1** | **40.0 ± 7.1** | 2 | train: labels |"
    )


def test_latex_and_csv() -> None:
    text = table(ROWS, "latex", ["average"])
    assert r"DAR & $\mathbf{80.0 \pm 14.1}$ & 2 & train: labels \\" in text
    assert text.startswith(r"\begin{tabular}{llll}")
    assert text.endswith(r"\end{tabular}")
    assert table(ROWS, "csv", ["average"]).splitlines()[2] == "critters,DAR,0.8000,0.1414,2,train: labels"


def test_best_is_of_a_dataset_and_ties_are_both_bold() -> None:
    rows = [
        *ROWS[:2],
        record("same", 0, 0.1, 0.7),
        record("ERM", 0, 0.1, 0.2, "other"),
        record("same", 0, 0.1, 0.1, "other"),
    ]
    text = table(rows, metrics=["average"])
    assert "| critters | ERM | **70.0 ± 14.1** |" in text
    assert "| critters | same | **70.0** |" in text  # one seed has no deviation
    assert "| other | ERM | **20.0** |" in text
    assert "| other | same | 10.0 |" in text
    assert table(rows, "csv", ["average"]).splitlines()[2] == "critters,same,0.7000,,1,train: labels"


def test_less_may_be_better_and_some_are_not_ranked() -> None:
    rows = [
        Record("s", "d", "x", name, 0, {}, score=0.5, metrics={"kp": kp, "coverage": c, "average": 0.5})
        for name, kp, c in (("A", 0.1, 0.2), ("B", 0.2, 0.3))
    ]
    text = table(rows)
    assert "| A | **50.0** | 20.0 | **10.0** | 1 |" in text
    assert "| B | **50.0** | 30.0 | 20.0 | 1 |" in text


def test_order_and_unknown_metrics() -> None:
    assert [line.method for line in lines(ROWS, ["DAR", "ERM"])] == ["DAR", "ERM"]
    with pytest.raises(FoveateError, match="Did you mean 'average'"):
        table(ROWS, metrics=["averag"])
    with pytest.raises(FoveateError, match="no finished trials"):
        table(ROWS[-1:])


def test_plots(tmp_path: Path) -> None:
    sized = [record("ERM", s, 0.5, 0.5 + n / 1000, train_size=n) for n in (10, 100) for s in (0, 1)]
    pairs = [record("A2", 0, 0.5, 0.5, attention=a, embedder=e) for a in "sb" for e in "sb"]
    for rows, kind, more in (
        (ROWS, "bars", {}),
        (sized, "scaling", {"x": "train_size"}),
        (sized, "layers", {"x": "train_size"}),
        (pairs, "matrix", {"x": "attention", "y": "embedder"}),
    ):
        path = plot(rows, kind, "average", tmp_path / f"{kind}.png", **more)
        assert path.stat().st_size > 5000
    with pytest.raises(FoveateError, match="known: train_size"):
        plot(sized, "scaling", "average", tmp_path / "x.png", x="size")
    with pytest.raises(FoveateError, match="no finished record has the metric"):
        plot(sized, "bars", "cgp", tmp_path / "x.png")
    with pytest.raises(FoveateError, match="unknown kind"):
        plot(sized, "pie", "average", tmp_path / "x.png")
