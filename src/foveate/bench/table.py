"""Tables from records: mean ± sample deviation over seeds, the best in bold, and what labels each method used."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from foveate.bench.records import Record
from foveate.bench.standing import choose
from foveate.bench.trial import Cell
from foveate.errors import FoveateError, suggest
from foveate.files import csv_cell
from foveate.measure import columns as usual
from foveate.measure import described

Format = Literal["markdown", "latex", "csv", "json"]


@dataclass(frozen=True)
class Line:
    """One method on one dataset: the chosen trial of every seed."""

    dataset: str
    method: str
    seeds: tuple[int, ...]
    values: dict[str, list[float]]
    supervision: str

    def known(self, metric: str) -> list[float]:
        """The values of the seeds that have one: NaN is none."""
        return [value for value in self.values.get(metric, ()) if math.isfinite(value)]

    def mean(self, metric: str) -> float | None:
        found = self.known(metric)
        return statistics.fmean(found) if found else None

    def std(self, metric: str) -> float | None:
        """The sample standard deviation over seeds (n - 1); None for fewer than two."""
        found = self.known(metric)
        return statistics.stdev(found) if len(found) > 1 else None

    def partial(self, metric: str) -> str:
        """Of how many of the seeds a figure is, where it is not of all that measured it."""
        known, measured = len(self.known(metric)), len(self.values.get(metric, ()))
        return f"{known} of {measured}" if 0 < known < measured else ""


def lines(records: Sequence[Record], order: Sequence[str] | None = None) -> list[Line]:
    """A line for every dataset and method: on every seed the trial that validation chose, never test.

    >>> rows = [Record("s", "d", "critters", "DFR", seed, {"c": c}, score=s, metrics={"average": a})
    ...         for seed, c, s, a in [(0, 1, 0.7, 0.6), (0, 2, 0.9, 0.5), (1, 1, 0.8, 0.7)]]
    >>> [(line.method, line.seeds, line.values) for line in lines(rows)]
    [('DFR', (0, 1), {'average': [0.5, 0.7]})]
    """
    rows = list(records)
    pairs = list(dict.fromkeys((r.dataset, r.method) for r in rows))
    if order is not None:
        rank = {name: place for place, name in enumerate(order)}
        datasets = list(dict.fromkeys(d for d, _ in pairs))
        pairs.sort(key=lambda p: (datasets.index(p[0]), rank.get(p[1], len(rank))))
    found = []
    for dataset, method in pairs:
        seeds = sorted({r.seed for r in rows if (r.dataset, r.method) == (dataset, method)})
        chosen = [c for s in seeds if (c := choose(rows, Cell(dataset, method, s))) is not None]
        if not chosen:
            continue
        names = dict.fromkeys(name for record in chosen for name in record.metrics)
        values = {n: [r.metrics[n] for r in chosen if n in r.metrics] for n in names}
        used = " / ".join(dict.fromkeys(r.supervision for r in chosen if r.supervision))
        found.append(Line(dataset, method, tuple(r.seed for r in chosen), values, used))
    return found


def table(
    records: Sequence[Record],
    style: Format = "markdown",
    metrics: Sequence[str] | None = None,
    order: Sequence[str] | None = None,
) -> str:
    """The table of ``records``, shares in percent; the best mean of a dataset in bold.

    Args:
        records: of one spec or of several.
        style: ``markdown``, ``latex`` (booktabs), ``csv`` or ``json`` (plain numbers).
        metrics: columns; by default the usual ones that occur.
        order: methods in this order; by default as they were finished.
    """
    rows = lines(records, order)
    if not rows:
        raise FoveateError("there are no finished trials yet; see `foveate bench status`.")
    known = list(dict.fromkeys(name for row in rows for name in row.values))
    for name in metrics or ():
        if name not in known:
            raise FoveateError(f"no record has the metric '{name}'.{suggest(name, known)} Known: {', '.join(known)}.")
    columns = list(metrics or [m.name for m in usual("bench") if m.name in known])
    if style == "csv":
        return _csv(rows, columns)
    if style == "json":
        return _json(rows, columns)
    best = _best(rows, columns)
    several = len({row.dataset for row in rows}) > 1
    cells = []
    for row in rows:
        figures = [_cell(row, c, (row.dataset, row.method) in best.get((row.dataset, c), ()), style) for c in columns]
        cells.append([*([row.dataset] if several else []), row.method, *figures, str(len(row.seeds)), row.supervision])
    head = [
        *(["dataset"] if several else []),
        "method",
        *(described(c).title for c in columns),
        "seeds",
        "labels used",
    ]
    return _latex(head, cells) if style == "latex" else _markdown(head, cells)


def _best(rows: Sequence[Line], columns: Sequence[str]) -> Mapping[tuple[str, str], set[tuple[str, str]]]:
    """The methods with the best mean, as printed, of every dataset and column; none where there is only one method."""
    found: dict[tuple[str, str], set[tuple[str, str]]] = {}
    for dataset in {row.dataset for row in rows}:
        for metric in (m for m in map(described, columns) if m.higher_is_better is not None):
            means = {
                (dataset, row.method): round(metric.scaled(mean), metric.digits)
                for row in rows
                if row.dataset == dataset
                and (mean := row.mean(metric.name)) is not None
                and not row.partial(metric.name)
            }
            if len(means) > 1:
                top = max(means.values(), key=metric.goodness)
                found[dataset, metric.name] = {name for name, value in means.items() if value == top}
    return found


def _cell(row: Line, column: str, bold: bool, style: Format) -> str:
    metric, mean, std = described(column), row.mean(column), row.std(column)
    if mean is None:
        return "–" if style == "markdown" else "--"
    text = metric.text(mean)
    if std is not None:  # one seed has no deviation
        text += f" \\pm {metric.text(std)}" if style == "latex" else f" ± {metric.text(std)}"
    if few := row.partial(column):  # the other seeds gave NaN
        text += f"\\ ({few})" if style == "latex" else f" ({few})"
    if style == "latex":
        return f"$\\mathbf{{{text}}}$" if bold else f"${text}$"
    return f"**{text}**" if bold else text


def _markdown(head: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    rows = [head, ["---"] * len(head), *cells]
    return "\n".join("| " + " | ".join(c.replace("|", "\\|") for c in row) + " |" for row in rows)


def _latex(head: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    def plain(text: str) -> str:
        if text.startswith("$"):
            return text
        for sign in "&%#_":
            text = text.replace(sign, f"\\{sign}")
        return text

    body = [" & ".join(plain(c) for c in row) + r" \\" for row in cells]
    top = " & ".join(plain(c) for c in head) + r" \\"
    start, end = r"\begin{tabular}{" + "l" * len(head) + "}", r"\end{tabular}"
    return "\n".join([start, r"\toprule", top, r"\midrule", *body, r"\bottomrule", end])


def _json(rows: Sequence[Line], columns: Sequence[str]) -> str:
    told = [
        {
            "dataset": row.dataset, "method": row.method, "seeds": list(row.seeds), "supervision": row.supervision,
            "metrics": {c: {"mean": row.mean(c), "std": row.std(c), "seeds": len(row.known(c))} for c in columns},
        }
        for row in rows
    ]  # fmt: skip
    return json.dumps(told, indent=2, ensure_ascii=False)


def _csv(rows: Sequence[Line], columns: Sequence[str]) -> str:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    head = [part for c in columns for part in (c, f"{c}_std")]
    writer.writerow(["dataset", "method", *head, "seeds", "supervision"])
    for row in rows:
        figures = [f for c in columns for f in (row.mean(c), row.std(c))]
        shown = ["" if f is None else f"{f:.4f}" for f in figures]
        cells = [row.dataset, row.method, *shown, len(row.seeds), row.supervision]
        writer.writerow([csv_cell(cell) for cell in cells])
    return out.getvalue().rstrip("\n")
