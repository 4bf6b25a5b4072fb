"""The rule that chooses: what counts, what is not allowed, and how much better is better."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from foveate.remedy.kinds import Attempt, Showing

REAL_DROP = 0.15
"""What the average on the images as they come may fall, unless the user says otherwise."""
LEAST_GAIN = 0.02
"""A remedy must win at least this much, however many images there are."""


@dataclass(frozen=True)
class Rule:
    """How a cure chooses.

    Attributes:
        allowed_drop: how far the average may fall, every cell counted alike.
        real_drop: how far the average on the real validation images as they come may fall; None sets no limit.
            Where these are biased like the training set, the shortcut itself earned a part of that average, so a cure
            may cost something there; a model that lost a large part of it is no cure.
        groups: whether the cells are given groups, or (real, exchanged) x class.
    """

    allowed_drop: float = 0.03
    real_drop: float | None = REAL_DROP
    groups: bool = False

    def allows(self, standing: Showing, before: Showing) -> bool:
        """Whether both averages are within their limits."""
        if self.real_drop is not None and standing.real < before.real - self.real_drop - 1e-9:
            return False
        return standing.average >= before.average - self.allowed_drop - 1e-9

    def margin(self, standing: Showing, before: Showing) -> float:
        """What a gain has to exceed: 1.64 standard errors of the difference of the two worst cells, at least 2 points.

        >>> from foveate.remedy.kinds import Counted
        >>> few, many = (Showing(0.9, (Counted("cat", n, n // 2),)) for n in (20, 2000))
        >>> round(Rule().margin(few, few), 2), round(Rule().margin(many, many), 3)
        (0.26, 0.026)
        """
        noise = sum(max(c.accuracy * (1 - c.accuracy), 1 / c.n) / c.n for c in (standing.worst, before.worst))
        return max(LEAST_GAIN, 1.64 * math.sqrt(noise))

    def choose(self, attempts: Sequence[Attempt], before: Showing) -> Attempt | None:
        """The best attempt that is allowed and beats the original by more than its noise; None keeps the original."""
        best: Attempt | None = None
        for attempt in attempts:
            found = attempt.standing
            if found is None or not self.allows(found, before):
                continue
            if found.worst.accuracy - before.worst.accuracy <= self.margin(found, before):
                continue
            if best is None or best.standing is None or _rank(found) > _rank(best.standing):
                best = attempt
        return best

    @property
    def words(self) -> str:
        """The rule in a sentence."""
        what, alike = (
            ("the accuracy of the worst group", "groups")
            if self.groups
            else ("the lowest accuracy of any class on real and on exchanged images", "classes, real and exchanged,")
        )
        limit = f"whose average (all {alike} counted alike) falls by at most {100 * self.allowed_drop:g} points"
        if self.real_drop is not None:
            limit += f" and whose average on the images as they come falls by at most {100 * self.real_drop:g}"
        return (
            f"Chosen is the remedy with the best worst case ({what}, on validation images) among those {limit}. It "
            f"must beat the original by more than 1.64 standard errors and {100 * LEAST_GAIN:g} points; otherwise the "
            "original is kept."
        )


def _rank(standing: Showing) -> tuple[float, float]:
    return standing.worst.accuracy, standing.average
