"""One table of what methods reach, by the labels they take: for readers who know which labels they have."""

from __future__ import annotations

from collections.abc import Sequence

from foveate.bench.records import Record
from foveate.bench.spec import Spec
from foveate.bench.table import Line, lines
from foveate.measure import described, difference_over_seeds

TAKES = ("without group labels", "with a balanced target set", "with group labels on train")
"""What a method learns from; choosing on validation images apart, which may use groups in all three."""


def taken(supervision: str) -> str:
    """Which of :data:`TAKES` a record's ``supervision`` is.

    >>> taken("train: labels; selection: group labels (minority)")
    'without group labels'
    >>> taken("train: base (labels); target: labels, attribute-balanced")
    'with a balanced target set'
    >>> taken("train: labels, groups")
    'with group labels on train'
    """
    parts = dict(part.strip().partition(": ")[::2] for part in supervision.split(";"))
    if "groups" in parts.get("train", ""):
        return TAKES[2]
    return TAKES[1] if "target" in parts else TAKES[0]


def summary_table(studies: Sequence[tuple[Spec, Sequence[Record]]]) -> str:
    """The Markdown table of all datasets that their spec marks ``summary``; empty when none has results.

    A row for every method that is not left out of it, by what it learns from; a column for every dataset with the
    metric of its study: the mean over seeds with Student's 95 % interval. The hours are of all trials of the method, on
    all seeds of these datasets.
    """
    columns, cells, hours = list[str](), dict[tuple[str, str], dict[str, str]](), dict[tuple[str, str], float]()
    for spec, records in studies:
        for dataset in (label for label, data in spec.sets().items() if data.summary):
            metric, shown = spec.metric_of(dataset), [m for m, method in spec.methods.items() if method.summary]
            mine = [r for r in records if r.dataset == dataset and r.method in shown]
            column = f"{spec.name}, {dataset}: {described(metric).title}"
            for line in (line for line in lines(mine, shown) if line.known(metric)):
                row = taken(line.supervision), line.method
                cells.setdefault(row, {})[column] = _cell(line, metric)
                hours[row] = hours.get(row, 0.0) + sum(r.seconds for r in mine if r.method == line.method) / 3600
                columns += [] if column in columns else [column]
    if not cells:
        return ""
    ordered = sorted(cells, key=lambda row: TAKES.index(row[0]))
    body = [[*row, *(cells[row].get(c, "–") for c in columns), f"{hours[row]:.1f}"] for row in ordered]
    head = ["learns", "method", *columns, "hours"]
    return "\n".join("| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *body])


def _cell(line: Line, metric: str) -> str:
    shown, values = described(metric), line.known(metric)
    found = difference_over_seeds(values, [0.0] * len(values))
    if len(values) == 1:
        return f"{shown.text(found.value)} (one seed)"
    low, high = max(found.low, 0.0), min(found.high, 1.0)
    return f"{shown.text(found.value)} [{shown.text(low)}, {shown.text(high)}]"
