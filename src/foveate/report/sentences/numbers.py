"""Numbers and lists as people write them."""

from __future__ import annotations

import math
from collections.abc import Sequence


def percent(share: float | None) -> str:
    """A share as text; a decimal only where rounding would claim all or nothing.

    >>> percent(0.5), percent(0.996), percent(1.0), percent(None)
    ('50 %', '99.6 %', '100 %', '–')
    """
    if share is None or math.isnan(share):
        return "–"
    value = 100 * share
    close = 0 < value < 0.995 or 99.0 < value < 100
    text = f"{value:.1f}" if close and f"{value:.1f}" not in ("0.0", "100.0") else f"{value:.0f}"
    return f"{text} %"


def points(difference: float) -> str:
    """A difference of shares in percentage points, as text.

    >>> points(0.574), points(-0.01)
    ('57 points', '-1 point')
    """
    value = round(100 * difference)
    return f"{value} point{'' if abs(value) == 1 else 's'}"


def of_100(share: float) -> str:
    """A share of answers as people count them.

    >>> of_100(0.414), of_100(-0.02), of_100(1.01)
    ('41', '0', '100')
    """
    return str(min(100, max(0, round(100 * share))))


def listed(names: Sequence[str]) -> str:
    """Names in a row.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
