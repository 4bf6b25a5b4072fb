"""Learning rates as pure functions of the step, so that a resumed run needs no scheduler state."""

from __future__ import annotations

import math


def rate_factor(schedule: str, step: int, total: int, warmup: float = 0.0) -> float:
    """Share of the peak learning rate at ``step`` of ``total``.

    ``constant`` stays at 1; ``cosine`` falls from 1 to 0; ``onecycle`` rises from 1/25 over the first 30 %
    and falls to nearly 0 (Smith & Topin 2019). ``warmup`` is the share of steps of a linear rise before
    ``constant`` or ``cosine``.

    >>> [round(rate_factor("cosine", s, 4), 3) for s in range(4)]
    [1.0, 0.854, 0.5, 0.146]
    >>> rate_factor("constant", 0, 10, warmup=0.5)
    0.2
    """
    if schedule == "onecycle":
        peak = 0.3 * total
        if step < peak:
            return _between(1 / 25, 1.0, step / max(peak, 1e-9))
        return _between(1.0, 1e-5, (step - peak) / max(total - 1 - peak, 1e-9))
    rise = round(warmup * total)
    if step < rise:
        return (step + 1) / rise
    if schedule == "constant":
        return 1.0
    if schedule == "cosine":
        return 0.5 * (1 + math.cos(math.pi * (step - rise) / max(total - rise, 1)))
    raise ValueError(f"unknown schedule '{schedule}'")


def _between(start: float, end: float, share: float) -> float:
    return end + (start - end) * 0.5 * (1 + math.cos(math.pi * min(max(share, 0.0), 1.0)))
