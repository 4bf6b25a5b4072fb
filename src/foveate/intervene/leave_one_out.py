"""Which parts a model would do better without, found on validation data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from foveate.errors import ModelError


@dataclass(frozen=True)
class LeaveOneOut:
    """What removing parts does to a score.

    Attributes:
        baseline: the score with every part.
        scores: the score without part k (and nothing else), for every k.
        removed: the parts to remove; empty when no removal helps.
        after: the score without all of ``removed``.
        steps: in greedy search, the part removed at each step and the score it gave.
    """

    baseline: float
    scores: dict[int, float]
    removed: tuple[int, ...]
    after: float
    steps: tuple[tuple[int, float], ...] = ()


def leave_one_out(
    score: Callable[[set[int]], float],
    parts: int | Iterable[int],
    greedy: bool = False,
    *,
    min_gain: float = 0.0,
) -> LeaveOneOut:
    """Remove each part in turn and keep those removals that raise the score.

    Args:
        score: the metric (higher is better, e.g. worst-group accuracy) on *validation* data with a set of parts
            removed. The papers' tables use the evaluation set here, which flatters.
        parts: how many parts, or which.
        greedy: remove the part that helps most, then look again with it gone, until nothing helps. Otherwise
            every part whose removal alone helps is removed; together they may help less, see ``after``.
        min_gain: how much better the score must become.

    Reference: arXiv 2506.08915, automated leave-one-out.

    >>> worth = {0: 3.0, 1: -2.0, 2: 1.0}
    >>> found = leave_one_out(lambda gone: sum(v for k, v in worth.items() if k not in gone), parts=3)
    >>> found.baseline, found.scores, found.removed, found.after
    (2.0, {0: -1.0, 1: 4.0, 2: 1.0}, (1,), 4.0)
    """
    candidates = list(range(parts)) if isinstance(parts, int) else sorted(set(parts))
    if not candidates:
        raise ModelError("leave-one-out needs at least one part.")
    baseline = float(score(set()))
    scores = {k: float(score({k})) for k in candidates}
    if not greedy:
        removed = tuple(k for k in candidates if scores[k] > baseline + min_gain)
        if len(removed) == 0:
            after = baseline
        else:
            after = scores[removed[0]] if len(removed) == 1 else float(score(set(removed)))
        return LeaveOneOut(baseline, scores, removed, after)

    gone: set[int] = set()
    current, steps, options = baseline, [], scores
    while options:
        best = max(options, key=lambda k: options[k])
        if not options[best] > current + min_gain:
            break
        gone.add(best)
        current = options[best]
        steps.append((best, current))
        options = {k: float(score(gone | {k})) for k in candidates if k not in gone}
    return LeaveOneOut(baseline, scores, tuple(sorted(gone)), current, tuple(steps))
