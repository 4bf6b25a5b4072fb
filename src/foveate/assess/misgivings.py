"""Whether a fitted model was worth fitting: no better than guessing, or than what it started from."""

from __future__ import annotations

import warnings
from typing import Any

from foveate.assemble.system import System, aligned
from foveate.assemble.worth import no_better
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

    What ``fit`` warns of (:class:`~foveate.assemble.worth.NoBetterWarning`) where it reads ``val``, for any system and
    any images. Guessing is to name the most frequent class of ``val`` every time. Against the base counts the worst
    group, where groups are known (else the worst class): that is what a system on a base is fitted for.

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
    was = None if before is None else before.figures
    return no_better(type(system).__name__, aligned(system, val), found.figures, was)
