"""Which of a study's orders its records support: paired differences, and a sentence made from the interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from foveate.bench.hits import KeptHits
from foveate.bench.records import Record
from foveate.bench.spec import Order, Spec
from foveate.bench.standing import choose
from foveate.bench.trial import Cell
from foveate.measure import HIT_METRICS, Difference, described, difference_over_images, difference_over_seeds

VERDICTS = {1: "holds", -1: "the reverse holds", 0: "not decided"}


@dataclass(frozen=True)
class OrderFound:
    """An order of a study, measured.

    Attributes:
        order: what was asked.
        dataset, metric: of what.
        seeds: on which both methods have a result.
        by_seed: the difference with Student's interval over seeds.
        by_image: with the bootstrap over test images, where the records have the answers.
    """

    order: Order
    dataset: str
    metric: str
    seeds: tuple[int, ...]
    by_seed: Difference
    by_image: Difference | None = None

    @property
    def sign(self) -> int:
        """1 where the order holds, -1 where its reverse does, 0 where an interval contains zero (or there is none)."""
        signs = {d.sign for d in (self.by_seed, self.by_image) if d is not None}
        up = described(self.metric).higher_is_better is not False
        return 0 if len(signs) != 1 else signs.pop() * (1 if up else -1)

    @property
    def verdict(self) -> str:
        if len(self.seeds) == 1:
            return "one seed: not decided"
        return VERDICTS[self.sign]

    def sentence(self) -> str:
        """What may be said, and no more."""
        title, a, b = described(self.metric).title, self.order.better, self.order.than
        figures = f"{self.points(self.by_seed)}, {_seeds(len(self.seeds))}"
        if self.sign > 0:
            return f"{a} is above {b} in {title} ({figures})"
        if self.sign < 0:
            return f"{a} is *below* {b} in {title} ({figures})"
        return f"{a} and {b} cannot be told apart in {title} ({figures})"

    def points(self, found: Difference | None) -> str:
        """The difference in points with its interval: ``+1.2 [-0.4, 2.8]``."""
        if found is None:
            return "–"
        metric = described(self.metric)
        value = f"{metric.scaled(found.value):+.{metric.digits}f}"
        if len(self.seeds) == 1 and found is self.by_seed:
            return value
        ends = [f"{metric.scaled(end):.{metric.digits}f}" for end in (found.low, found.high)]
        return f"{value} [{ends[0]}, {ends[1]}]"


def orders_of(spec: Spec, records: Sequence[Record], dataset: str) -> list[OrderFound]:
    """The orders of ``spec`` that the ``records`` of ``dataset`` tell something about."""
    asked = (measured(order, spec, records, dataset) for order in spec.orders if order.asked_of(dataset))
    return [found for found in asked if found is not None]


def measured(
    order: Order, spec: Spec, records: Sequence[Record], dataset: str, metric: str | None = None
) -> OrderFound | None:
    """One order, on the seeds on which validation chose a trial of both methods; None when there is no such seed.

    ``metric`` is that of the study where none is given.
    """
    metric, pairs = metric or spec.metric_of(dataset), []
    for seed in spec.seeds_of(dataset):
        first, second = (choose(records, Cell(dataset, method, seed)) for method in (order.better, order.than))
        if first is not None and second is not None and _has(first, metric) and _has(second, metric):
            pairs.append((seed, first, second))
    if not pairs:
        return None
    seeds = tuple(seed for seed, _, _ in pairs)
    by_seed = difference_over_seeds([a.metrics[metric] for _, a, _ in pairs], [b.metrics[metric] for _, _, b in pairs])
    return OrderFound(order, dataset, metric, seeds, by_seed, _by_image(metric, [(a, b) for _, a, b in pairs]))


def _has(record: Record, metric: str) -> bool:
    value = record.metrics.get(metric)
    return value is not None and math.isfinite(value)


def _by_image(metric: str, pairs: Sequence[tuple[Record, Record]]) -> Difference | None:
    kept = [(KeptHits.unpacked(a.answers), KeptHits.unpacked(b.answers)) for a, b in pairs]
    both = [(a, b) for a, b in kept if a is not None and b is not None]
    if metric not in HIT_METRICS or len(both) < len(pairs):
        return None
    return difference_over_images([a.right for a, _ in both], [b.right for _, b in both], metric, both[0][0].minority)


def orders_table(found: Sequence[OrderFound]) -> str:
    """A Markdown table of one dataset's orders; empty when there are none."""
    if not found:
        return ""
    title = described(found[0].metric).title
    head = (
        f"| order in {title} | expected by | difference [95 % over seeds] | [95 % over test images] | seeds | verdict |"
    )
    rows = [
        f"| {f.order} | {f.order.says or '–'} | {f.points(f.by_seed)} | {f.points(f.by_image)} | {len(f.seeds)} | "
        f"{f.verdict if f.sign <= 0 else f'**{f.verdict}**'} |"
        for f in found
    ]
    return "\n".join([head, "|" + " --- |" * 6, *rows])


def _seeds(count: int) -> str:
    return "one seed" if count == 1 else f"{count} seeds"
