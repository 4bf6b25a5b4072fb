"""Whether a fit was worth it: no better on validation images than guessing, or than what it started from."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar

import numpy as np

from foveate.data.dataset import GroupedDataset
from foveate.errors import warn_caller

Figures = Mapping[str, float | None]
"""Metrics of a model by name: those of a report, or of an epoch."""
_asked: ContextVar[bool] = ContextVar("asked", default=True)


class NoBetterWarning(UserWarning):
    """A fitted model is no better on validation images than guessing, or than the model it started from."""


def no_better(name: str, val: GroupedDataset, found: Figures, before: Figures | None = None) -> list[str]:
    """Sentences about a model that is no better on ``val`` than guessing, or than its base; usually none.

    Guessing is to name the most frequent class every time. Against the base counts the worst group, where groups are
    known (else the worst class): that is what a system on a base is fitted for.

    Args:
        name: what to call the model.
        val: validation images, with the labels that the model learned.
        found: its ``average``, ``worst_class`` and, where groups are known, ``worst_group`` on them.
        before: those of the base.
    """
    told = []
    average = found["average"] or 0.0
    guessing = float(np.bincount(val.labels).max()) / max(len(val), 1)
    if average <= guessing:
        told.append(
            f"{name} is right on {100 * average:.1f} % of {val.name}: no better than naming the most frequent "
            f"class every time ({100 * guessing:.1f} %). Train longer, on more images, or with pretrained weights."
        )
    if before is not None:
        grouped = None not in (found.get("worst_group"), before.get("worst_group"))
        metric = "worst_group" if grouped else "worst_class"
        was, now, all_of_it = before[metric] or 0.0, found[metric] or 0.0, before["average"] or 0.0
        if now <= was:
            told.append(
                f"{name} is no better than its base on {val.name}: {metric.replace('_', ' ')} {100 * now:.1f} % "
                f"(base {100 * was:.1f} %), average {100 * average:.1f} % (base {100 * all_of_it:.1f} %). "
                "More target images, or another system, may help; the base is as good as this."
            )
    return told


def warn_unless_better(
    name: str, val: GroupedDataset, found: Figures | None, before: Callable[[], Figures | None] = lambda: None
) -> None:
    """Give :func:`no_better` as a :class:`NoBetterWarning`; nothing is asked of ``before`` where nobody wants to know.

    Without figures (no epoch was trained, nothing was chosen on ``val``) there is nothing to say.
    """
    if found is None or not _asked.get():
        return
    for sentence in no_better(name, val, found, before()):
        warn_caller(sentence, NoBetterWarning)


@contextlib.contextmanager
def measured_elsewhere() -> Iterator[None]:
    """Fits in here do not ask whether they were worth it: whoever calls them measures the models anyway."""
    token = _asked.set(False)
    try:
        yield
    finally:
        _asked.reset(token)
