"""``foveate reproduce``: a published table, what can be run here, and published | ours | difference | command."""

from __future__ import annotations

import csv
import io
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from foveate.bench.ledger import PAPERS, FigurePlace, Ledger, Published, format_rows
from foveate.bench.needs import COUNTS, PRINTED_METRICS, first_obstacle, hours, loader_name, obstacle, opened, recipe
from foveate.bench.run import commit
from foveate.bench.status import duration
from foveate.data.benchmark import Benchmark
from foveate.errors import FoveateError
from foveate.files import from_csv_cell, read_text, write_rows


@dataclass(frozen=True)
class Ours(FigurePlace):
    """A figure made here for a published row, and what made it."""

    value: float
    seconds: float
    command: str
    commit: str
    supervision: str = ""


class Reproduction:
    """One published table on this machine.

    Args:
        ledger: the published figures.
        what: ``paper/table``.
        root: folder with the datasets' files.
        command: what the user typed, for the record.
    """

    def __init__(self, ledger: Ledger, what: str, root: Path | None = None, command: str = ""):
        self.rows = ledger.rows(what)
        self.root = root
        self.command = command or f"foveate reproduce {what}"
        self.ours: dict[tuple[str, ...], Ours] = {}

    def obstacles(self) -> list[str | None]:
        """For every row, why it cannot be run here, or None."""
        return [obstacle(row, self.root) for row in self.rows]

    def report(self, dry: bool = False) -> str:
        """The published table, what can and cannot be run, and, unless ``dry``, the comparison."""
        first, missing = self.rows[0], self.obstacles()
        parts = [f"{first.id}: {PAPERS.get(first.paper, first.paper)}, {len(self.rows)} published figures"]
        head = [["dataset", "method", "models", "setting", "metric", "published"]]
        parts.append(format_rows(head + [_printed(row) for row in self.rows]))
        reasons: dict[str, int] = {}
        for reason in missing:
            if reason is not None:
                reasons[reason] = reasons.get(reason, 0) + 1
        free = [row for row, reason in zip(self.rows, missing, strict=True) if reason is None]
        parts.append(f"this machine can run {len(free)} of {len(self.rows)}" + (":" if reasons else ""))
        parts[-1] += "".join(f"\n  {count} not: {reason}" for reason, count in reasons.items())
        estimates = [h for row in self.rows if (h := hours(row)) is not None]
        if estimates:
            what = "these" if len(estimates) == len(self.rows) else f"{len(estimates)} of these"
            parts.append(f"with data and weights, {what} would take about {duration(3600 * sum(estimates))} here")
        if dry or not free:
            return "\n\n".join(parts)
        for row in free:
            self.ours[row.key] = self.make(row)
        parts.append(format_rows(self.comparison()))
        return "\n\n".join(parts)

    def make(self, row: Published) -> Ours:
        """Our figure for one row, in the unit that is printed."""
        began = time.perf_counter()
        data = opened(loader_name(row) or "", None if self.root is None else str(self.root))
        value, used = (_count(row, data), "") if row.metric in COUNTS else _measured(row, data)
        shared = {f.name: getattr(row, f.name) for f in fields(FigurePlace)}
        spent = round(time.perf_counter() - began, 1)
        return Ours(**shared, value=value, seconds=spent, command=self.command, commit=commit(), supervision=used)

    def comparison(self) -> list[list[str]]:
        """published | ours | difference | command, of the rows that were run."""
        rows = [["row", "published", "ours", "difference", "command"]]
        for row in self.rows:
            if (mine := self.ours.get(row.key)) is not None:
                rows.append([row.name(), *compared(row, mine), mine.command])
        return rows

    def to_list(self) -> list[dict[str, Any]]:
        """Every row as JSON values: what is published, ours where it was made, and what stands in the way."""
        return [
            {
                **{f.name: getattr(row, f.name) for f in fields(FigurePlace)},
                "published": row.value,
                "std": row.std,
                "ours": None if (mine := self.ours.get(row.key)) is None else mine.value,
                "obstacle": reason,
            }
            for row, reason in zip(self.rows, self.obstacles(), strict=True)
        ]

    def keep(self, path: Path) -> Path:
        """Add the figures to a CSV file, in place of older ones for the same rows."""
        kept = {mine.key: mine for mine in (read_ours(path) if path.exists() else [])} | self.ours
        names = [f.name for f in fields(Ours)]
        return write_rows(path, [names, *([asdict(kept[key])[n] for n in names] for key in sorted(kept))], "\n")


def _printed(row: Published) -> list[str]:
    models = "×".join(m for m in (row.backbone_attn, row.backbone_embed) if m)
    value = row.value + (f" ± {row.std}" if row.std else "")
    return [row.dataset, row.method, models, row.setting, row.metric, value]


def compared(row: Published, mine: Ours) -> list[str]:
    """Published, ours and the difference, with the digits that are printed."""
    digits = len(row.value.partition(".")[2])
    shown = row.value + (f" ± {row.std}" if row.std else "")
    if not row.value:
        return ["–", f"{mine.value:.{digits}f}", "–"]
    return [shown, f"{mine.value:.{digits}f}", f"{mine.value - float(row.value):+.{digits}f}"]


def _count(row: Published, data: Benchmark) -> float:
    """How many images a split (or one of its cells ``y=…;a=…``, ``class=…``) has."""
    split = data[row.metric.removesuffix("_count")]
    given = row.settings
    chosen = split.labels >= 0
    label = given.get("y", given.get("class", "all"))
    if label not in ("all", "yes"):
        chosen &= split.labels == _position(label, split.class_names)
    if "a" in given and split.attributes is not None:
        chosen &= split.attributes == _position(given["a"], split.attribute_names or [])
    return float(chosen.sum())


def _position(name: str, known: Sequence[str]) -> int:
    """Where ``name`` is among ``known``; ``digit_3`` may be called ``3``."""
    for candidate in (name, name.replace("_", " "), name.rpartition("_")[2]):
        if candidate in known:
            return list(known).index(candidate)
    raise FoveateError(f"the data have no '{name}' (they have: {', '.join(known)}).")


def _measured(row: Published, data: Benchmark) -> tuple[float, str]:
    from foveate.assess import evaluate
    from foveate.systems import get_system

    made = recipe(row)
    assert made is not None  # rows without a recipe have an obstacle
    kind: Any = get_system(made.system)
    system = kind(**made.settings, progress=False)
    target = data.get("target") if made.on_target and row.settings.get("dfr") != "train" else None
    system.fit(data.train, target, data.get("val"))
    report = evaluate(system, data[row.split])
    share = report.value(PRINTED_METRICS[row.metric])
    return (100 * share if float(row.value) > 1 else share), system.supervision()


def read_ours(path: Path) -> list[Ours]:
    """The figures of a CSV file written by :meth:`Reproduction.keep`."""
    try:
        reader = csv.DictReader(io.StringIO(read_text(path), newline=""))
        rows = [{k: from_csv_cell(v) if isinstance(v, str) else v for k, v in row.items()} for row in reader]
        numbers: list[dict[str, Any]] = [{"value": float(r["value"]), "seconds": float(r["seconds"])} for r in rows]
        return [Ours(**{**row, **given}) for row, given in zip(rows, numbers, strict=True)]
    except (OSError, TypeError, KeyError, ValueError, csv.Error) as error:
        raise FoveateError(f"{path} is not a CSV file of reproduced figures: {error}.") from error


def reproduction_page(ledger: Ledger, records: Path | None) -> str:
    """``docs/reproduction.md``: every published table, our figures beside it, or why there are none."""
    ours = {mine.key: mine for mine in (read_ours(records) if records is not None else [])}
    results = [row for row in ledger.all if row.metric not in COUNTS]
    done = sum(row.key in ours for row in results)
    sizes = sum(row.key in ours for row in ledger.all if row.metric in COUNTS)
    source = "no records" if records is None else f"`{records.as_posix()}`"
    parts = [
        "# Reproduction",
        f"Made by `foveate reproduce --page` from the published figures in the package and {source}. "
        f"{len(ledger.all):,} figures of {len(ledger.ids())} tables are in the ledger: {len(results):,} results "
        f"of a method and {len(ledger.all) - len(results)} sizes of a dataset. **{done or 'No'} "
        f"{'result is' if done == 1 else 'results are'} reproduced.** {sizes} group sizes come out of our loader as "
        "printed: that checks the loader, and reproduces nothing. `foveate reproduce paper/table` runs a table where "
        "its data and weights are; nothing else is claimed.",
    ]
    for paper, title in PAPERS.items():
        parts.append(f"## {paper}: {title}")
        lines = [
            "| table | datasets | figures | results reproduced | sizes checked | why not all |",
            "|---|---|---|---|---|---|",
        ]
        made: list[str] = []
        for what in [i for i in ledger.ids() if i.startswith(f"{paper}/")]:
            rows = ledger.rows(what)
            mine = [(row, ours[row.key]) for row in rows if row.key in ours]
            sets = ", ".join(dict.fromkeys(row.dataset for row in rows))
            why = "; ".join(reasons(row for row in rows if row.key not in ours))
            checks = sum(row.metric in COUNTS for row, _ in mine)
            lines.append(f"| {what} | {sets} | {len(rows)} | {len(mine) - checks} | {checks} | {why or '–'} |")
            if mine:
                made += [f"### {what}" + (": a check of the loader" if checks == len(mine) else ""), _comparison(mine)]
        parts += ["\n".join(lines), *made]
    return "\n\n".join(parts) + "\n"


def reasons(rows: Iterable[Published]) -> list[str]:
    """Why rows were not run, most rows first; only what is the same on every machine, so that the page is too."""
    found: dict[str, int] = {}
    for row in rows:
        what = first_obstacle(row, weights=False) or "not run: the weights or images were not available"
        found[what] = found.get(what, 0) + 1
    return [f"{what} ({count})" for what, count in sorted(found.items(), key=lambda item: (-item[1], item[0]))]


def _comparison(pairs: Sequence[tuple[Published, Ours]]) -> str:
    lines = ["| row | published | ours | difference | command | commit |", "|---|---|---|---|---|---|"]
    for row, mine in pairs:
        cells = [row.name(), *compared(row, mine), f"`{mine.command}`", mine.commit]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)
