"""Figures in running text: notes name a figure, the page fills it in from the records, and nobody types one.

- ``{mean STUDY/DATASET: METHOD}`` is the mean over seeds of the study's metric; ``{seeds STUDY/DATASET: METHOD}`` gives
  every seed, as ``72 / 62 / 72``. Another metric may follow after ``|``: ``{mean ifam/critters: IFAM K=4 | miou}``.
  ``METHOD or METHOD`` takes on every seed the one that validation prefers.
- ``{order STUDY/DATASET: A > B}`` is a sentence on two methods that says what the interval allows. The spec must ask
  for it, except in another metric than the study's, which the text must then call an afterthought.
- ``results/FILE`` in place of ``STUDY/DATASET`` reads ``FILE.csv`` of the folder ``results`` beside the records, which
  studies with a script of their own write; orders take any two methods there, and their interval is over seeds alone.
"""

from __future__ import annotations

import csv
import io
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from foveate.bench.orders import OrderFound, measured
from foveate.bench.records import Record
from foveate.bench.spec import Order, Spec
from foveate.bench.table import lines
from foveate.errors import FoveateError, suggest
from foveate.files import read_text
from foveate.measure import described, difference_over_seeds

FIGURE = re.compile(r"\{(mean|seeds|order)\s+([\w-]+)/([\w-]+):\s+([^{}|]+?)\s*(?:\|\s*(\w+)\s*)?\}")
OWN = "results"


class Quoted:
    """Fills figures into a text.

    Args:
        studies: every spec with its records.
        results: folder of the CSV files of studies with a script of their own.
    """

    def __init__(self, studies: Sequence[tuple[Spec, Sequence[Record]]], results: Path):
        self.studies = {spec.name: (spec, records) for spec, records in studies}
        self.results = results

    def fill(self, text: str) -> str:
        """``text`` with figures in place of their names; one that cannot be had is an error that names it."""
        return FIGURE.sub(lambda found: self._figure(found.group(0), *found.groups()), text)

    def _figure(self, whole: str, kind: str, study: str, dataset: str, what: str, metric: str | None) -> str:
        what = " ".join(what.split())
        try:
            if kind == "order":
                if metric is None:
                    self._check_asked(study, dataset, what)
                return self.order(study, dataset, what, metric).sentence()
            values, metric = self._values(study, dataset, what, metric)
        except FoveateError as error:
            raise FoveateError(f"the notes ask for {whole}: {error}") from error
        shown: Callable[[float], str] = described(metric).text
        return shown(statistics.fmean(values)) if kind == "mean" else " / ".join(shown(v) for v in values)

    def _study(self, name: str, dataset: str) -> tuple[Spec, Sequence[Record]]:
        if name not in self.studies:
            raise FoveateError(f"there is no study '{name}'.{suggest(name, list(self.studies))}")
        spec, records = self.studies[name]
        if dataset not in spec.sets():
            raise FoveateError(f"{name} has no dataset '{dataset}'.{suggest(dataset, list(spec.sets()))}")
        return spec, records

    def order(self, study: str, dataset: str, what: str, metric: str | None = None) -> OrderFound:
        """The difference of any two methods of a study, ``A > B``, whether its spec asks for it or not."""
        better, _, than = what.partition(" > ")
        if not than:
            raise FoveateError(f"an order is written 'A > B'; found '{what}'.")
        order = Order(better=better, than=than)
        if study == OWN:
            found: OrderFound | None = self._own_order(dataset, order, metric or "worst_group")
        else:
            spec, records = self._study(study, dataset)
            found = measured(order, spec, records, dataset, metric)
        if found is None:
            raise FoveateError("no seed has a result of both methods.")
        return found

    def _check_asked(self, study: str, dataset: str, what: str) -> None:
        """A study with a spec tells of the orders that its spec asks for."""
        if study == OWN:
            return
        spec, _ = self._study(study, dataset)
        if not any(str(order) == what and order.asked_of(dataset) for order in spec.orders):
            raise FoveateError(f"the spec does not ask for the order '{what}'; add it to its 'orders'.")

    def _values(self, study: str, dataset: str, method: str, metric: str | None) -> tuple[list[float], str]:
        if study == OWN:
            metric = metric or "worst_group"
            return list(self._by_seed(dataset, method, metric).values()), metric
        spec, records = self._study(study, dataset)
        metric = metric or spec.metric_of(dataset)
        pooled = [
            replace(r, method=method) for r in records if r.dataset == dataset and r.method in method.split(" or ")
        ]
        found = lines(pooled)
        values = found[0].known(metric) if found else []
        if not values:
            raise FoveateError(f"no record of '{method}' has '{metric}'.")
        return values, metric

    def _by_seed(self, file: str, method: str, metric: str) -> dict[int, float]:
        """The figure of every seed, in a file of the folder ``results``."""
        path = self.results / f"{file}.csv"
        try:
            rows = [row for row in csv.DictReader(io.StringIO(read_text(path))) if _method(row) == method]
            values = {int(row["seed"]): float(row[metric]) for row in rows}
        except (OSError, KeyError, ValueError, TypeError, UnicodeDecodeError, csv.Error) as error:
            raise FoveateError(f"{path} has no '{metric}' that can be read: {error}.") from error
        if not values:
            raise FoveateError(f"{path} has no row '{method}'.")
        if len(values) < len(rows):
            raise FoveateError(f"{path} has several rows of '{method}' for one seed; give each a name of its own.")
        # these files have the keypoint error in percent, as records have not
        return {seed: v / 100 for seed, v in values.items()} if metric == "kp" else values

    def _own_order(self, file: str, order: Order, metric: str) -> OrderFound | None:
        first, second = (self._by_seed(file, method, metric) for method in (order.better, order.than))
        seeds = tuple(sorted({*first} & {*second}))
        if not seeds:
            return None
        found = difference_over_seeds([first[s] for s in seeds], [second[s] for s in seeds])
        return OrderFound(order, file, metric, seeds, found)


def _method(row: dict[str, str]) -> str:
    return row.get("method") or row.get("system") or ""
