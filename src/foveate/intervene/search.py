"""Find the parts a fitted model does better without, on validation data, and say what an intervention changed."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from foveate.assemble.capabilities import HasParts
from foveate.assemble.parted import Parted
from foveate.assemble.system import System, aligned
from foveate.assess import evaluate, report_of
from foveate.data.dataset import GroupedDataset
from foveate.errors import ModelError, UnreadableImage
from foveate.intervene.leave_one_out import LeaveOneOut, leave_one_out
from foveate.intervene.rehearsal import Rehearsal
from foveate.measure import ForegroundIoU, GroupReport, SmallGroupWarning, check_selectable

How = Literal["leave-one-out", "greedy"]


def greedy_removal(
    score: Callable[[set[int]], float], parts: int | Iterable[int], *, min_gain: float = 0.0
) -> LeaveOneOut:
    """Remove the part that helps most, look again with it gone, and so on until nothing helps.

    Two parts that are bad only together, or good only in each other's absence, are told apart from those that are bad
    each: :func:`~foveate.intervene.leave_one_out` looks at every part alone.

    Args:
        score: the metric (higher is better) on *validation* data with a set of parts removed.
        parts: how many parts, or which.
        min_gain: how much better every step must be.

    >>> found = greedy_removal(lambda gone: {0: 1.0, 1: 2.0, 2: 2.5}[len(gone)] if 0 not in gone else 0.0, parts=3)
    >>> found.removed, found.after, found.steps
    ((1, 2), 2.5, ((1, 2.0), (2, 2.5)))
    """
    return leave_one_out(score, parts, greedy=True, min_gain=min_gain)


def search_parts(
    system: System,
    val: GroupedDataset,
    *,
    metric: str = "worst_group",
    how: How = "leave-one-out",
    min_gain: float = 0.0,
    **options: Any,
) -> tuple[System, LeaveOneOut]:
    """The system without the parts that ``val`` shows it to be better off without, and the scores behind that.

    Parts already removed stay so. The choice is written into ``selection_``, so that ``supervision()`` says which
    labels of ``val`` it used.

    Args:
        system: a fitted system of parts (iFAM, PDiscoFormer).
        val: validation data; a choice made on test data flatters.
        metric: of :class:`~foveate.measure.GroupReport`; one of which less is better counts with its sign turned.
        how: ``"leave-one-out"`` (every part alone) or ``"greedy"``.
        min_gain: how much the metric must rise.
        options: ``batch_size``, ``workers`` and ``on_bad`` as for ``predict``.
    """
    if how not in ("leave-one-out", "greedy"):
        raise ModelError(f"unknown way to choose parts '{how}'; use 'leave-one-out' or 'greedy'.")
    chosen = check_selectable(metric)
    if not isinstance(system, HasParts):
        raise ModelError(_no_parts(system))
    already = set(system.dropped_parts_ or ())
    candidates = [k for k in range(system.parts) if k not in already]

    report = _reports(system, val, options)

    def score(gone: set[int]) -> float:
        with warnings.catch_warnings():  # once for every part helps nobody
            warnings.simplefilter("ignore", SmallGroupWarning)
            return chosen.goodness(report(already | gone).value(metric))

    found = leave_one_out(score, candidates, greedy=how == "greedy", min_gain=min_gain)
    if len(found.removed) == len(candidates):
        advice = "Try how='greedy', or" if how == "leave-one-out" else "Do"
        raise ModelError(
            f"on {val.name} the model scores better without each of its {len(candidates)} parts, and without all of "
            f"them nothing is left to look at. {advice} train it anew, with another number of parts."
        )
    changed = copy.copy(system.with_parts_removed(already | set(found.removed)))
    before = system.selection_ or {"metric": "", "uses_groups": False}
    told = f"parts removed by {metric}"
    changed.selection_ = {
        "metric": f"{before['metric']}, {told}" if before["metric"] else told,
        "on": val.name,
        "uses_groups": bool(before["uses_groups"] or chosen.uses_groups),
    }
    return changed, found


def _reports(system: System, val: GroupedDataset, options: dict[str, Any]) -> Callable[[set[int]], GroupReport]:
    """Gives the report on ``val`` with a set of parts removed."""
    if not isinstance(system, Parted):
        assert isinstance(system, HasParts)
        return lambda gone: evaluate(system.with_parts_removed(gone), val, **options)
    limits = system.token_thresholds_
    val = aligned(system, val)
    rehearsal = Rehearsal(system, val, measure=None if limits is None else limits.measure, **options)

    def report(gone: set[int]) -> GroupReport:
        change = replace(system.intervention, parts=tuple(sorted(gone)))
        return report_of(system, val, rehearsal.predict(change))

    return report


def part_count(system: System) -> int:
    """How many parts ``system`` has; a sentence when it has none to remove."""
    if not isinstance(system, HasParts):
        raise ModelError(_no_parts(system))
    return system.parts


def _no_parts(system: System) -> str:
    return (
        f"{type(system).__name__} has no parts to remove; interventions are for models of parts, such as IFAM and "
        "PDiscoFormer."
    )


@dataclass(frozen=True)
class Effect:
    """What a model scores: accuracy as a whole, of the worst group, and how well its parts cover the object.

    ``worst_group`` is None without attributes, ``miou`` without masks or parts.
    """

    average: float
    worst_group: float | None
    miou: float | None


def effect(system: System, dataset: GroupedDataset, **options: Any) -> Effect:
    """Measure ``system`` on ``dataset`` for a before-and-after table."""
    report = evaluate(system, dataset, **options)
    worst = report.worst_group if dataset.attributes is not None else None
    return Effect(report.average, worst, foreground_overlap(system, dataset))


def foreground_overlap(system: System, dataset: GroupedDataset, batch_size: int = 64) -> float | None:
    """Foreground mIoU of the part maps with the true masks, as the network sees both; None without masks or parts."""
    if dataset.masks is None or not isinstance(system, HasParts):
        return None
    overlap, used = ForegroundIoU(), 0
    for start in range(0, len(dataset), batch_size):
        images, masks = [], []
        for i in range(start, min(start + batch_size, len(dataset))):
            try:
                sample = dataset[i]
            except UnreadableImage:
                continue
            if sample.mask is not None:
                images.append(sample.image)
                masks.append(system.preprocess_.prepare_mask(sample.mask))
        if images:
            overlap.update(system.part_maps(images), torch.stack(masks) > 0.5)
            used += len(images)
    return overlap.compute() if used else None
