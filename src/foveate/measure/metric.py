"""A metric is data: its name, how it is computed, which way is better, what it needs, where it is shown.

All of them stand in :data:`foveate.registries.METRICS`; tables, reports, model selection and the bench read that list.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Set
from dataclasses import dataclass
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from foveate.errors import DataError, FoveateError, suggest
from foveate.measure.counts import GroupTable
from foveate.registries import METRICS

Place = Literal["evaluate", "compare", "audit", "bench"]
PLACES: tuple[Place, ...] = ("evaluate", "compare", "audit", "bench")
"""Tables with columns of their own: of one model, of several, of an audit's page, of a study."""

_S = TypeVar("_S")
_TAKEN = ("n", "name", "needs", "skipped", "groups", "classes", "empty_groups", "shortcut")


@dataclass(frozen=True)
class Answers:
    """What a metric is computed from; images that could not be read are left out.

    Attributes:
        predictions: predicted class, ``int64 [n]``.
        labels: true class, ``int64 [n]``.
        attributes: ``int64 [n]``, or None when unknown.
        counts: right answers and images by class and by group, and the training images of every group.
        logits: ``float [n, C]``, or None where only the predictions are known.
    """

    predictions: NDArray[np.int64]
    labels: NDArray[np.int64]
    attributes: NDArray[np.int64] | None
    counts: GroupTable
    logits: NDArray[np.floating] | None = None


@dataclass(frozen=True)
class Metric:
    """One figure about a model.

    Args:
        name: what code calls it: lower case, words joined by ``_``. The same as in the registry.
        title: what people call it; by default the name with spaces.
        function: gives it from :class:`Answers`, or None when they do not tell. Without a function it is measured by
            something else (CEP by swapping pixels, mIoU from part maps) and only described here.
        higher_is_better: which way is better; None when neither is, then it is not ranked and nothing is chosen by it.
        uses_groups: reads group labels; whoever selects by it consumes group supervision.
        uses_train_counts: also needs the number of training images in every group.
        uses_logits: needs more than the predicted classes.
        note: a few words under its title in a report.
        tables: where it is a column without being asked for: ``evaluate``, ``compare``, ``audit``, ``bench``.
        unit, scale, digits: how it is printed; a share in [0, 1] in percent by default.

    >>> macro = Metric("macro", function=lambda a: float((a.counts.class_correct / a.counts.class_n).mean()))
    >>> macro.title, macro.text(0.5), macro.text(None), macro.better(0.6, than=0.5)
    ('macro', '50.0', '–', True)
    """

    name: str
    title: str = ""
    function: Callable[[Answers], float | None] | None = None
    higher_is_better: bool | None = True
    uses_groups: bool = False
    uses_train_counts: bool = False
    uses_logits: bool = False
    note: str = ""
    tables: tuple[Place, ...] = PLACES
    unit: str = "%"
    scale: float = 100.0
    digits: int = 1

    def __post_init__(self) -> None:
        # what is only described may have any name: records of others do
        if self.function and (not re.fullmatch(r"[a-z][a-z0-9_]*", self.name) or self.name in _TAKEN):
            raise FoveateError(
                f"a metric cannot be called '{self.name}'; use lower-case letters, digits and '_', and not "
                f"{', '.join(_TAKEN)}."
            )
        if unknown := [place for place in self.tables if place not in PLACES]:
            raise FoveateError(f"the metric '{self.name}': unknown table '{unknown[0]}'; known: {', '.join(PLACES)}.")
        if not self.title:
            object.__setattr__(self, "title", self.name.replace("_", " "))

    # -- measuring ------------------------------------------------------------------------

    def applies(self, answers: Answers) -> bool:
        """Whether ``answers`` hold what it needs."""
        return not (
            self.function is None
            or (self.uses_groups and answers.attributes is None)
            or (self.uses_train_counts and answers.counts.train is None)
            or (self.uses_logits and answers.logits is None)
        )

    def of(self, answers: Answers) -> float | None:
        """Its value, or None when it cannot be had from ``answers``."""
        if self.function is None or not self.applies(answers):
            return None
        try:
            value = self.function(answers)
        except FoveateError:
            raise
        except Exception as error:  # its author must hear which of the metrics it was
            raise FoveateError(f"the metric '{self.name}' failed: {type(error).__name__}: {error}") from error
        return None if value is None else float(value)

    # -- comparing ------------------------------------------------------------------------

    @property
    def selectable(self) -> bool:
        """Whether a model can be chosen by it on validation data."""
        return self.function is not None and self.higher_is_better is not None

    def goodness(self, value: float) -> float:
        """``value`` turned so that larger is better."""
        return -value if self.higher_is_better is False else value

    def better(self, value: float, than: float) -> bool:
        """Whether ``value`` is better, not just as good."""
        return self.higher_is_better is not None and self.goodness(value) > self.goodness(than)

    # -- printing -------------------------------------------------------------------------

    def scaled(self, value: float) -> float:
        """``value`` in its unit, a share in percent."""
        return self.scale * value

    def text(self, value: float | None) -> str:
        """``value`` in its unit, without it; a dash for None."""
        return "–" if value is None else f"{self.scaled(value):.{self.digits}f}"

    @property
    def axis(self) -> str:
        """Title and unit, for an axis.

        >>> Metric("worst_group").axis
        'worst group, %'
        """
        return f"{self.title}, {self.unit}" if self.unit else self.title


def reported() -> dict[str, Metric]:
    """The metrics that are computed from answers, in the order of the registry.

    >>> list(reported())[:3]
    ['average', 'adjusted_average', 'majority']
    """
    return {name: metric for name, metric in METRICS.things().items() if metric.function is not None}


def columns(table: Place) -> list[Metric]:
    """The metrics that are columns of ``table`` without being asked for.

    >>> [metric.name for metric in columns("compare")]
    ['average', 'majority', 'minority', 'worst_group']
    """
    return [metric for metric in METRICS.things().values() if table in metric.tables]


def described(name: str) -> Metric:
    """The metric called ``name``; one that nobody listed (in records of others, say) is a share, more is better."""
    known: dict[str, Metric] = METRICS.things()
    return known.get(name) or Metric(name, function=None, tables=())


def check_selectable(name: str) -> Metric:
    """The metric called ``name``; a :class:`DataError` with a suggestion unless a model can be chosen by it."""
    known = {n: metric for n, metric in reported().items() if metric.selectable}
    if name not in known:
        raise DataError(f"unknown metric '{name}'.{suggest(name, list(known))} Known: {', '.join(known)}.")
    return known[name]


class _Having(Set[str]):
    """Names of the reported metrics with a property, read from the registry whenever they are asked for."""

    def __init__(self, has: Callable[[Metric], bool]) -> None:
        self._has = has

    def __iter__(self) -> Iterator[str]:
        return (name for name, metric in reported().items() if self._has(metric))

    def __contains__(self, name: object) -> bool:
        return any(name == one for one in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @classmethod
    def _from_iterable(cls, names: Iterable[_S]) -> frozenset[_S]:
        return frozenset(names)  # a union or a difference is plain names


USES_GROUPS: Set[str] = _Having(lambda metric: metric.uses_groups)
"""The metrics that read group labels: whoever selects by one of them consumes group supervision."""

USES_TRAIN_COUNTS: Set[str] = _Having(lambda metric: metric.uses_train_counts)
"""The metrics that also need the group counts of the training split."""
