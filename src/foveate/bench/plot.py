"""Figures from records: ablation bars, scaling and per-layer curves, the cross-model matrix, the grid's heat map."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foveate.bench.records import Record
from foveate.bench.table import lines
from foveate.errors import FoveateError
from foveate.measure import described
from foveate.report.figures import COLOURS, ablation_bars, save_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from foveate.bench.grid import Combination

PLOTS = ("bars", "scaling", "layers", "matrix")


def plot(
    records: Sequence[Record],
    kind: str,
    metric: str,
    path: str | Path,
    *,
    x: str | None = None,
    y: str | None = None,
    order: Sequence[str] | None = None,
) -> Path:
    """Draw records and write the picture; the suffix of ``path`` chooses PNG, SVG or PDF.

    Args:
        records: of a spec, a CSV file or a database.
        kind: ``bars``, a bar a method with every seed as a dot; ``scaling``, the metric against a setting ``x`` (a
            number, on a log scale, or names in the order met), a line a method; ``layers``, the same on a plain
            scale, ``x`` by default ``layer``; ``matrix``, a setting ``x`` in rows against ``y`` in columns.
        metric: a test metric of the records.
    """
    if kind not in PLOTS:
        raise FoveateError(f"unknown kind of plot '{kind}'; known: {', '.join(PLOTS)}.")
    done = [r for r in records if r.state == "done" and math.isfinite(r.metrics.get(metric, math.nan))]
    if not done:
        known = sorted({name for r in records for name in r.metrics})
        raise FoveateError(f"no finished record has the metric '{metric}'; known: {', '.join(known) or 'none yet'}.")
    if kind == "bars":
        figure = _bars(done, metric, order)
    elif kind == "matrix":
        if x is None or y is None:
            raise FoveateError("a matrix needs the settings of its rows and columns: --x attention --y embedder.")
        figure = cross_matrix(done, metric, x, y)
    else:
        figure = curves(done, metric, x or ("layer" if kind == "layers" else ""), log=kind == "scaling")
    return save_figure(figure, path)


def _bars(records: Sequence[Record], metric: str, order: Sequence[str] | None) -> Figure:
    rows = [row for row in lines(records, order) if row.values.get(metric)]
    several, shown = len({row.dataset for row in rows}) > 1, described(metric)
    values = {
        f"{row.method}\n{row.dataset}" if several else row.method: [shown.scaled(v) for v in row.values[metric]]
        for row in rows
    }
    return ablation_bars(values, ", ".join(dict.fromkeys(r.spec for r in records)), shown.axis)


def setting(record: Record, name: str) -> Any:
    """A setting of a record, from its point or its other settings; lists become text."""
    value = record.point.get(name, record.settings.get(name))
    return json.dumps(value) if isinstance(value, (list, dict)) else value


def gathered(records: Sequence[Record], metric: str, *names: str) -> dict[tuple[Any, ...], list[float]]:
    """Values of a metric in its unit by dataset, method and the settings called ``names``; all seeds together."""
    found: dict[tuple[Any, ...], list[float]] = {}
    shown = described(metric)
    for record in records:
        values = tuple(setting(record, name) for name in names)
        if None not in values:
            found.setdefault((record.dataset, record.method, *values), []).append(shown.scaled(record.metrics[metric]))
    if not found:
        known = sorted({n for r in records for n in {**r.point, **r.settings}})
        raise FoveateError(f"no record has the setting {' and '.join(names)}; known: {', '.join(known)}.")
    return found


def curves(records: Sequence[Record], metric: str, x: str, log: bool) -> Figure:
    """A line a method (and dataset): mean over seeds with its spread, against the setting ``x``."""
    if not x:
        raise FoveateError("a curve needs the setting of its x axis: --x train_size, say.")
    found = gathered(records, metric, x)
    numbers = all(isinstance(key[2], (int, float)) for key in found)
    places = sorted({key[2] for key in found}) if numbers else list(dict.fromkeys(key[2] for key in found))
    several = len({key[0] for key in found}) > 1
    figure, ax = _figure(5.2, 3.4)
    for number, (dataset, method) in enumerate(dict.fromkeys(key[:2] for key in found)):
        mine = [p for p in places if (dataset, method, p) in found]
        values = [found[dataset, method, p] for p in mine]
        at = mine if numbers else [places.index(p) for p in mine]
        colour = COLOURS[number % len(COLOURS)]
        means = [statistics.fmean(v) for v in values]
        spread = [statistics.stdev(v) if len(v) > 1 else 0.0 for v in values]
        ax.plot(at, means, marker="o", color=colour, label=f"{method}, {dataset}" if several else method)
        low, high = ([m + s * d for m, d in zip(means, spread, strict=True)] for s in (-1, 1))
        ax.fill_between(at, low, high, color=colour, alpha=0.15, linewidth=0)
    if log and numbers and min(places) > 0:
        ax.set_xscale("log")
    if not numbers:
        ax.set_xticks(range(len(places)), [str(p) for p in places])
    ax.set_xlabel(x.replace("_", " "))
    ax.set_ylabel(described(metric).axis)
    ax.legend(fontsize=8)
    return figure


def cross_matrix(records: Sequence[Record], metric: str, x: str, y: str) -> Figure:
    """Mean over seeds for every pair of settings: ``x`` in rows, ``y`` in columns."""
    means = {key[2:]: statistics.fmean(v) for key, v in gathered(records, metric, x, y).items()}
    return _heat(
        list(dict.fromkeys(k[0] for k in means)), list(dict.fromkeys(k[1] for k in means)), means,
        described(metric).axis, x.replace("_", " "), y.replace("_", " "),
    )  # fmt: skip


def grid_heatmap(means: Mapping[Combination, float], metric: str) -> Figure:
    """The grid: look, restriction and backbone in rows, pool and decision in columns; empty where invalid."""
    shown = described(metric)
    cells = {
        (f"{c.look} → {c.restrict} → {c.extract}", f"{c.pool}\n{c.decide}"): shown.scaled(value)
        for c, value in means.items()
    }
    rows, columns = (list(dict.fromkeys(key[i] for key in cells)) for i in (0, 1))
    outlined = {
        (f"{c.look} → {c.restrict} → {c.extract}", f"{c.pool}\n{c.decide}"): name
        for c in means
        if (name := c.known_as())
    }
    return _heat(rows, columns, cells, f"{shown.axis} (named: rows with a name)", "", "", outlined)


def _heat(
    rows: Sequence[Any],
    columns: Sequence[Any],
    values: Mapping[tuple[Any, ...], float],
    title: str,
    row_name: str,
    column_name: str,
    names: Mapping[tuple[Any, ...], str] | None = None,
) -> Figure:
    import numpy as np

    figure, ax = _figure(1.1 * len(columns) + 3.0, 0.42 * len(rows) + 1.4)
    table = np.full((len(rows), len(columns)), np.nan)
    for (row, column), value in values.items():
        table[rows.index(row), columns.index(column)] = value
    ax.set_facecolor("#e5e7eb")  # what was not run
    drawn = ax.imshow(table, cmap="viridis", aspect="auto")
    middle = (np.nanmin(table) + np.nanmax(table)) / 2
    for (row, column), value in values.items():
        text = f"{value:.1f}" + (f"\n{names[row, column]}" if names and (row, column) in names else "")
        colour = "white" if value < middle else "black"
        ax.text(columns.index(column), rows.index(row), text, ha="center", va="center", fontsize=7, color=colour)
    ax.set_xticks(range(len(columns)), [str(c) for c in columns], fontsize=8)
    ax.set_yticks(range(len(rows)), [str(r) for r in rows], fontsize=8)
    ax.set_xlabel(column_name)
    ax.set_ylabel(row_name)
    ax.set_title(title, fontsize=10)
    figure.colorbar(drawn, ax=ax, shrink=0.8)
    return figure


def _figure(width: float, height: float) -> tuple[Figure, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)  # drawn without a window system
    return figure, figure.subplots()
