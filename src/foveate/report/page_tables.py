"""The tables of the page: groups, experiments and mistakes, by model and for all models at once."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from foveate.measure import GroupRow, wilson_interval
from foveate.report.discovery.tables import ExperimentRow
from foveate.report.findings import Findings, ModelRecord
from foveate.report.sentences import of_100, sections

MANY_GROUPS = 24
"""With more groups than this, the page shows the worst ones and folds the rest away."""
WORST_GROUPS = 12
MANY_CLASSES = 12
HEAT_CLASSES = 30
"""A heat map of more classes cannot be read; the most frequent mistakes are listed instead."""


@dataclass(frozen=True)
class GroupBars:
    """The groups (or classes, without attributes) of one model: ``shown`` as bars, all as a table in ``folded``."""

    shown: list[GroupRow]
    folded: list[GroupRow]
    sentence: str
    rest: str | None = None


def group_bars(model: ModelRecord) -> GroupBars:
    """All groups as bars up to ``MANY_GROUPS``, else the worst ones."""
    order = {"majority": 0, "minority": 2}
    rows = sorted(_rows_of(model), key=lambda row: (row.label, order.get(row.kind or "", 1), row.attribute))
    low = min(rows, key=lambda row: (row.accuracy, -row.n))
    high = max(rows, key=lambda row: (row.accuracy, row.n))
    sentence = sections.least_and_most(model.name, low, high)
    if len(rows) <= MANY_GROUPS:
        return GroupBars(rows, [], sentence)
    worst = sorted(rows, key=lambda row: (row.accuracy, -row.n))
    return GroupBars(
        worst[:WORST_GROUPS], rows, sentence, sections.other_groups([r.accuracy for r in worst[WORST_GROUPS:]])
    )


@dataclass(frozen=True)
class MatrixCell:
    """A number in a table of all models: as text, how strongly it is tinted, whether it is outlined, in words."""

    text: str
    share: float
    mark: bool
    words: str


@dataclass(frozen=True)
class MatrixRow:
    """One thing and what every model makes of it; None where it has nothing to say."""

    name: str
    kind: str | None
    cells: list[MatrixCell | None]


def group_matrix(findings: Findings) -> list[MatrixRow]:
    """Every group against every model: how much is right; the worst group first."""
    rows: dict[str, dict[str, GroupRow]] = {}
    for model in findings.models:
        for row in _rows_of(model):
            rows.setdefault(row.name, {})[model.name] = row
    order = sorted(rows.values(), key=lambda by: statistics.fmean(row.accuracy for row in by.values()))
    out = []
    for by in order:
        first = next(iter(by.values()))
        cells = [_right(model.name, by.get(model.name)) for model in findings.models]
        out.append(MatrixRow(first.name, first.kind, cells))
    return out


def _right(model: str, row: GroupRow | None) -> MatrixCell | None:
    if row is None:
        return None
    return MatrixCell(of_100(row.accuracy), row.accuracy, False, f"{model} on {row.name}: {row.correct} of {row.n}")


def experiment_matrix(models: Sequence[str], by_model: Mapping[str, list[ExperimentRow]]) -> list[MatrixRow]:
    """Every cue against every model: how many of 100 answers follow it; the strongest first, outlined where it
    counts."""
    rows: dict[str, dict[str, ExperimentRow]] = {}
    for model, own in by_model.items():
        for row in own:
            rows.setdefault(row.key, {})[model] = row
    order = sorted(rows.values(), key=lambda by: -max(row.pull.value for row in by.values()))
    out = []
    for by in order:
        cells: list[MatrixCell | None] = []
        for model in models:
            if model not in by:
                cells.append(None)
                continue
            row, pull = by[model], by[model].pull
            words = f"{model}: {of_100(pull.value)} of 100, 95 % interval {of_100(pull.low)} to {of_100(pull.high)}"
            cells.append(MatrixCell(of_100(pull.value), pull.value, bool(row.tag), words))
        out.append(MatrixRow(next(iter(by.values())).name, None, cells))
    return out


def _rows_of(model: ModelRecord) -> list[GroupRow]:
    """The groups of a model, or its classes where it has none."""
    if model.groups:
        return model.groups
    rows = []
    for i, entry in enumerate(model.classes):
        correct = round(entry.accuracy * entry.n)
        rows.append(
            GroupRow(entry.name, i, 0, entry.n, correct, entry.accuracy, *wilson_interval(correct, entry.n))
        )  # fmt: skip
    return rows


def accuracy_grid(model: ModelRecord, findings: Findings) -> list[tuple[str, list[GroupRow | None]]]:
    """With many groups: a class × attribute table of accuracies, else nothing.

    A row is ``(class, cells)``, a cell an attribute; None where there is no such image.
    """
    attributes, classes = findings.dataset.attributes, findings.dataset.classes
    if not attributes or max(len(attributes), len(classes)) > HEAT_CLASSES or len(model.groups) <= MANY_GROUPS:
        return []
    cells = {(r.label, r.attribute): r for r in model.groups}
    return [(name, [cells.get((y, a)) for a in range(len(attributes))]) for y, name in enumerate(classes)]


@dataclass(frozen=True)
class ConfusionRow:
    """How often each class was named for one group or class; ``right`` is the column of the right answer."""

    name: str
    counts: list[int]
    right: int = -1
    kind: str | None = None

    @property
    def n(self) -> int:
        return sum(self.counts)

    @property
    def cells(self) -> list[tuple[int, float]]:
        """``(images, share)`` of every column."""
        return [(count, count / self.n if self.n else 0.0) for count in self.counts]


@dataclass(frozen=True)
class Confusion:
    """What one model said: rows, mistakes by attribute, and the most frequent mistakes ``(class, said, times)``."""

    model: str
    rows: list[ConfusionRow]
    by_attribute: list[ConfusionRow]
    mistakes: list[tuple[str, str, int]]


@dataclass(frozen=True)
class Confusions:
    """The tables of all models, whether their rows are groups, and whether there are many columns."""

    by_group: bool
    names: list[str]
    tables: list[Confusion]
    compact: bool


def confusions(findings: Findings) -> Confusions:
    """What was predicted, per group while that can be read, else per class (and per attribute, for mistakes)."""
    data, attributes = findings.dataset, findings.dataset.attributes
    names = list(data.predicted_classes)
    if any(model.unanswered for model in findings.models):
        names.append("(no answer)")
    groups = max(len(model.groups) for model in findings.models)
    by_group = bool(attributes) and groups <= MANY_GROUPS and len(names) <= MANY_CLASSES
    found = []
    for model in findings.models:
        counts = _with_unanswered(model, data.classes, len(names))
        summed = [[sum(per[k] for per in row) for k in range(len(names))] for row in counts]
        rows, by_attribute = [], []
        if by_group:
            order = sorted(model.groups, key=lambda r: (r.label, r.kind != "majority", r.attribute))
            rows = [ConfusionRow(r.name, counts[r.label][r.attribute], r.label, r.kind) for r in order]
        elif len(names) <= HEAT_CLASSES:
            rows = [ConfusionRow(name, summed[y], y) for y, name in enumerate(data.classes) if sum(summed[y])]
            if attributes and len(attributes) <= HEAT_CLASSES:
                by_attribute = _by_attribute(counts, attributes, names)
        found.append(Confusion(model.name, rows, by_attribute, _mistakes(summed, data.classes, names)[:12]))
    return Confusions(by_group, names, found, len(names) > 6)


def _with_unanswered(model: ModelRecord, classes: list[str], columns: int) -> list[list[list[int]]]:
    """The model's confusion ``[C][A][K]``, with a last column of images it had no answer to when ``columns`` has it."""
    counts = model.confusion
    if not counts or len(counts[0][0]) == columns:
        return counts
    if model.groups:
        silent = {(row.label, row.attribute): row.unanswered for row in model.groups}
    else:
        silent = {(y, 0): model.unanswered_by_class.get(name, 0) for y, name in enumerate(classes)}
    return [[[*cell, silent.get((y, a), 0)] for a, cell in enumerate(row)] for y, row in enumerate(counts)]


def _by_attribute(counts: list[list[list[int]]], attributes: list[str], names: list[str]) -> list[ConfusionRow]:
    """What the mistakes on images with each attribute were: a shortcut shows as one strong cell in each row."""
    rows = []
    for a, name in enumerate(attributes):
        wrong = [sum(row[a][k] for y, row in enumerate(counts) if y != k) for k in range(len(names))]
        if sum(wrong):
            rows.append(ConfusionRow(name, wrong))
    return rows


def _mistakes(summed: list[list[int]], classes: list[str], names: list[str]) -> list[tuple[str, str, int]]:
    found = [
        (classes[y], names[k], n)
        for y, row in enumerate(summed)
        for k, n in enumerate(row)
        if y != k and n
    ]  # fmt: skip
    return sorted(found, key=lambda entry: -entry[2])
