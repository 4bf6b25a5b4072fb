"""One table of what methods reach, by the labels they take: for readers who know which labels they have."""

from __future__ import annotations

import math
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

    Every figure is the mean over seeds of the study's metric with Student's 95 % interval; the hours are of all trials
    of the method on all seeds.
    """
    rows: list[str] = []
    for take in TAKES:
        for spec, records in studies:
            for dataset in (label for label, data in spec.sets().items() if data.summary):
                mine = [r for r in records if r.dataset == dataset]
                for line in lines(mine, list(spec.methods)):
                    if taken(line.supervision) == take and line.known(spec.metric_of(dataset)):
                        hours = sum(r.seconds for r in mine if r.method == line.method) / 3600
                        rows.append(_row(take, spec, dataset, line, hours))
    if not rows:
        return ""
    head = "| learns | study, dataset | metric | method | mean [95 % over seeds] | seeds | hours |"
    return "\n".join([head, "|" + " --- |" * 7, *rows])


def _row(take: str, spec: Spec, dataset: str, line: Line, hours: float) -> str:
    metric = described(spec.metric_of(dataset))
    values = line.known(metric.name)
    found = difference_over_seeds(values, [0.0] * len(values))
    text = metric.text(found.value)
    if math.isfinite(found.low):
        text += f" [{metric.text(max(found.low, 0.0))}, {metric.text(min(found.high, 1.0))}]"
    return (
        f"| {take} | {spec.name}, {dataset} | {metric.title} | {line.method} | {text} | {len(values)} | {hours:.1f} |"
    )
