"""Whether a fitted model was worth fitting: no better than guessing, or than what it started from."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from foveate.assemble.system import System, aligned
from foveate.assess.evaluate import evaluate
from foveate.data.dataset import GroupedDataset
from foveate.measure import GroupReport, SmallGroupWarning


def misgivings(
    system: System,
    val: GroupedDataset,
    base: System | None = None,
    *,
    report: GroupReport | None = None,
    **options: Any,
) -> list[str]:
    """Sentences about a fitted system that is no better on ``val`` than guessing, or than its ``base``; usually none.

    Guessing is to name the most frequent class of ``val`` every time. Against the base counts the worst group, where
    groups are known (else the worst class): that is what a system on a base is fitted for.

    Args:
        system: a fitted system.
        val: images it was not fitted on.
        base: the fitted system it started from, when there is one.
        report: its report on ``val``, when that is there already.
        options: passed on to ``predict``.

    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=32)
    >>> base = fv.ERM("micro_resnet", epochs=0, progress=False).fit(data.train)
    >>> "no better than" in misgivings(base, data.val)[0]
    True
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallGroupWarning)
        found = report or evaluate(system, val, **options)
        before = None if base is None else evaluate(base, val, **options)
    name = type(system).__name__
    told = []
    guessing = float(np.bincount(aligned(system, val).labels).max()) / max(len(val), 1)
    if found.average <= guessing:
        told.append(
            f"{name} is right on {100 * found.average:.1f} % of {val.name}: no better than naming the most frequent "
            f"class every time ({100 * guessing:.1f} %). Train longer, on more images, or with pretrained weights."
        )
    if before is not None:
        metric = "worst_class" if found.worst_group is None or before.worst_group is None else "worst_group"
        was, now = before.value(metric), found.value(metric)
        if now <= was:
            told.append(
                f"{name} is no better than its base on {val.name}: {metric.replace('_', ' ')} {100 * now:.1f} % "
                f"(base {100 * was:.1f} %), average {100 * found.average:.1f} % (base {100 * before.average:.1f} %). "
                "More target images, or another system, may help; the base is as good as this."
            )
    return told
