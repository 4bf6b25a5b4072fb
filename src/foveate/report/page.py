"""From findings to the page: decides what is shown and how; the looks are in audit.html and style.css."""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from foveate.measure import GroupRow, columns, wilson_interval
from foveate.report.charts import bar, heat_style
from foveate.report.discovery import Discovery, tables
from foveate.report.examples import Example
from foveate.report.findings import Findings, ModelRecord
from foveate.report.levels import Evidence
from foveate.report.sentences import percent, points, sections

MANY_GROUPS = 24
"""With more groups than this, the page shows the worst ones and folds the rest away."""
WORST_GROUPS = 12
MANY_CLASSES = 12
HEAT_CLASSES = 30
"""A heat map of more classes cannot be read; the most frequent mistakes are listed instead."""


def render(findings: Findings, pictures: Sequence[Example], discoveries: Mapping[str, Discovery] | None = None) -> str:
    """The whole page as text. Names from the data are escaped: they cannot add markup."""
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, finalize=_keep_together, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters.update(percent=percent, points=points)
    environment.globals.update(bar=bar, heat_style=heat_style)
    folder = files("foveate.report")
    template = environment.from_string(folder.joinpath("audit.html").read_text("utf-8"))
    return template.render(
        f=findings,
        style=Markup(folder.joinpath("style.css").read_text("utf-8")),
        several=len(findings.models) > 1,
        tones=tones(findings),
        summary=summary(findings),
        groups=group_rows(findings),
        grid=accuracy_grid(findings),
        confusions=confusions(findings),
        pictures=pictures,
        **_discovered(discoveries or {}),
    )


def _discovered(discoveries: Mapping[str, Discovery]) -> dict[str, Any]:
    """What the page says about shortcuts nobody named."""
    if not discoveries:
        return {"discovered": False}
    mask_rows, mask_sentences = tables.mask_rows(discoveries)
    return {
        "discovered": True,
        "experiments": tables.experiments(discoveries),
        "experiment_sentence": tables.experiment_sentence(discoveries),
        "mask_rows": mask_rows,
        "mask_sentences": mask_sentences,
        "probes": tables.probe_table(discoveries),
        "slices": tables.slice_cards(discoveries),
        "turned": tables.turned_pictures(discoveries),
        "object_source": next(iter(discoveries.values())).base.objects.words,
    }


def _keep_together(value: Any) -> Any:
    """No line break between a number and its per cent sign."""
    plain = isinstance(value, str) and not isinstance(value, Markup)
    return re.sub(r"(?<=\d) %", "\u00a0%", value) if plain else value


def tones(findings: Findings) -> dict[str, str]:
    """A colour for every model."""
    return {model.name: f"m{i % 8 + 1}" for i, model in enumerate(findings.models)}


@dataclass(frozen=True)
class SummaryCell:
    """A value as text, and whether it is the best of its column."""

    text: str
    best: bool


@dataclass(frozen=True)
class SummaryRow:
    """One model in the table of all."""

    model: ModelRecord
    cells: list[SummaryCell]
    gap: SummaryCell | None


@dataclass(frozen=True)
class Summary:
    """``(metric, name, meaning)`` of every column, and one row a model; ``gaps``: whether any has one."""

    columns: list[tuple[str, str, str]]
    rows: list[SummaryRow]
    gaps: bool


def summary(findings: Findings) -> Summary:
    """Columns and one row per model: the value of every metric and whether it is the best of its column."""
    models = findings.models
    had = {c.name: [v for m in models if (v := m.figures.get(c.name)) is not None] for c in columns("audit")}
    shown = [c for c in columns("audit") if had[c.name]]
    gaps = {
        m.name: m.verdict.gap.value for m in models if m.verdict.compared is Evidence.TRAINING and m.verdict.gap
    }  # fmt: skip
    rows = []
    for model in models:
        cells = []
        for c in shown:
            value = model.figures[c.name]
            best = c.higher_is_better is not None and value == max(had[c.name], key=c.goodness)
            cells.append(SummaryCell(percent(value) if c.unit == "%" else c.text(value), best))
        gap = gaps.get(model.name)
        smallest = min((abs(value) for value in gaps.values()), default=0.0)
        rows.append(
            SummaryRow(model, cells, None if gap is None else SummaryCell(points(gap), abs(gap) == smallest))
        )  # fmt: skip
    return Summary([(c.name, c.title.capitalize(), c.note) for c in shown], rows, bool(gaps))


@dataclass
class GroupBars:
    """A group (or class, without attributes) with one bar a model: its name and its row."""

    row: GroupRow
    bars: list[tuple[str, GroupRow]] = field(default_factory=list)

    @property
    def mean(self) -> float:
        return statistics.fmean(row.accuracy for _, row in self.bars)

    @property
    def n(self) -> int:
        return max(row.n for _, row in self.bars)


@dataclass(frozen=True)
class GroupBarsTable:
    """``shown`` come as bars and ``folded`` as a table, with what to say about them and about the rest."""

    shown: list[GroupBars]
    folded: list[GroupBars]
    sentence: str
    rest: str | None = None


def group_rows(findings: Findings) -> GroupBarsTable:
    """Every group with one bar per model: all as bars up to ``MANY_GROUPS``, else the worst ones."""
    by_name: dict[str, GroupBars] = {}
    for model in findings.models:
        for row in _rows_of(model):
            by_name.setdefault(row.name, GroupBars(row)).bars.append((model.name, row))
    order = {"majority": 0, "minority": 2}
    rows = sorted(by_name.values(), key=lambda e: (e.row.label, order.get(e.row.kind or "", 1), e.row.attribute))
    sentence = _group_sentence(findings)
    if len(rows) <= MANY_GROUPS:
        return GroupBarsTable(rows, [], sentence)
    worst = sorted(rows, key=lambda e: (e.mean, -e.n))
    rest = sections.other_groups([e.mean for e in worst[WORST_GROUPS:]], len(findings.models) > 1)
    return GroupBarsTable(worst[:WORST_GROUPS], rows, sentence, rest)


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


def _group_sentence(findings: Findings) -> str:
    parts = []
    for model in findings.models:
        rows = _rows_of(model)
        low = min(rows, key=lambda row: (row.accuracy, -row.n))
        high = max(rows, key=lambda row: (row.accuracy, row.n))
        parts.append(sections.least_and_most(model.name, low, high, len(findings.models) > 1))
    return ", ".join(parts) + "."


def accuracy_grid(findings: Findings) -> list[tuple[str, list[tuple[str, list[GroupRow | None]]]]]:
    """With many groups: a class × attribute table of accuracies per model, else nothing.

    ``(model, rows)``, a row ``(class, cells)``, a cell an attribute; None where there is no such image.
    """
    attributes, classes = findings.dataset.attributes, findings.dataset.classes
    if not attributes or max(len(attributes), len(classes)) > HEAT_CLASSES:
        return []
    if max(len(model.groups) for model in findings.models) <= MANY_GROUPS:
        return []
    out = []
    for model in findings.models:
        cells = {(r.label, r.attribute): r for r in model.groups}
        rows = [(name, [cells.get((y, a)) for a in range(len(attributes))]) for y, name in enumerate(classes)]
        out.append((model.name, rows))
    return out


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
