"""Accuracy by group: average, adjusted average, worst group, worst class, majority and minority.

A group is a label together with an attribute, ``g = label * num_attributes + attribute``.

References: Sagawa et al. 2020, "Distributionally robust neural networks for group shifts" (worst group,
adjusted average); the DAR paper, arXiv 2605.20732 (pooled majority and minority accuracy);
arXiv 2506.08915 (the narrower worst-group accuracy of iFAM).
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate import notebook
from foveate.errors import DataError, suggest
from foveate.measure.answers import NO_ANSWER, UNREADABLE
from foveate.measure.counts import GroupRow, GroupTable, check_lengths, indices, wilson_interval
from foveate.measure.metric import METRICS, Answers, columns, reported

SMALL_GROUP = 20


class SmallGroupWarning(UserWarning):
    """A group is so small that its accuracy, and any minimum over groups, says little."""


@dataclass(frozen=True)
class GroupReport:
    """What :func:`group_report` measured. Shares are in [0, 1]; what cannot be known is None."""

    figures: dict[str, float | None]
    """Every metric of the registry that is computed from answers, by name."""
    groups: list[GroupRow]
    classes: list[tuple[str, int, float]]
    """``(name, n, accuracy)`` of every class that occurs."""
    n: int
    """Images counted."""
    skipped: int = 0
    """Images left out because they could not be read (prediction -1)."""
    empty: list[str] = field(default_factory=list)
    """Names of the groups without a test image."""
    missing: str | None = None
    """Why the metrics that are None are None."""
    unanswered: int = 0
    """Images counted as wrong because the model named no class (prediction -2: NaN or infinite logits)."""
    unanswered_by_class: dict[str, int] = field(default_factory=dict)
    """How many those are of each class that has any."""

    def value(self, name: str) -> float:
        """The metric called ``name``; a :class:`DataError` says why when it cannot be had.

        >>> group_report([0, 1], [0, 1], None).value("average")
        1.0
        """
        if name not in self.figures:
            if name in METRICS:
                raise DataError(f"the metric '{name}' is not part of this report; it is measured by something else.")
            known = list(self.figures)
            raise DataError(f"unknown metric '{name}'.{suggest(name, known)} Known: {', '.join(known)}.")
        value = self.figures[name]
        if value is None:
            if not self.groups:
                raise DataError(
                    f"the metric '{name}' needs groups, but the data have no attributes. Add an 'attribute' "
                    "column to the CSV (or attribute sub-folders), or choose 'average' or 'worst_class'."
                )
            raise DataError(f"the metric '{name}' cannot be computed: {self.missing}")
        return value

    @property
    def average(self) -> float:
        """Plain accuracy."""
        return self.value("average")

    @property
    def worst_class(self) -> float:
        """The minimum over classes."""
        return self.value("worst_class")

    @property
    def worst_group(self) -> float | None:
        """The minimum over all non-empty groups."""
        return self.figures["worst_group"]

    @property
    def adjusted_average(self) -> float | None:
        """Group accuracies weighted by the training counts."""
        return self.figures["adjusted_average"]

    @property
    def majority(self) -> float | None:
        """Pooled accuracy of the majority groups of training."""
        return self.figures["majority"]

    @property
    def minority(self) -> float | None:
        """Pooled accuracy of the minority groups of training."""
        return self.figures["minority"]

    @property
    def ifam_worst_group(self) -> float | None:
        """See :func:`ifam_worst_group`."""
        return self.figures["ifam_worst_group"]

    @property
    def worst(self) -> GroupRow | None:
        """The row of the worst group (the larger one when two tie)."""
        return min(self.groups, key=lambda row: (row.accuracy, -row.n)) if self.groups else None

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain numbers, strings, lists and dictionaries, ready for JSON."""
        return {
            **self.figures,
            "n": self.n,
            "skipped": self.skipped,
            "unanswered": self.unanswered,
            "unanswered_by_class": dict(self.unanswered_by_class),
            "groups": [vars(row).copy() for row in self.groups],
            "classes": [{"name": name, "n": n, "accuracy": accuracy} for name, n, accuracy in self.classes],
            "empty_groups": list(self.empty),
        }

    def remarks(self) -> list[str]:
        """Sentences on images that were not counted, and on images that the model had no answer to.

        >>> group_report([0, -1, -2, -2], [0, 0, 1, 1], None, class_names=["cat", "dog"]).remarks()[1]
        'no answer for 2 of 3 images (dog 2 of 2): the model gave NaN or no class at all; they count as wrong.'
        """
        said = []
        if self.skipped:
            said.append(f"{self.skipped} images could not be read and are not counted.")
        if self.unanswered:
            sizes = {name: n for name, n, _ in self.classes}
            where = [f"{name} {count} of {sizes[name]}" for name, count in self.unanswered_by_class.items()]
            named = ", ".join(where[:8]) + (", …" if len(where) > 8 else "")
            said.append(
                f"no answer for {self.unanswered} of {self.n} images ({named}): the model gave NaN or no class at all; "
                "they count as wrong."
            )
        return said

    def table(self, most: int = 30) -> str:
        """A table for people: the summary, then the ``most`` worst groups.

        >>> labels, attributes = [0, 1, 1, 1] * 20, [0, 0, 1, 1] * 20
        >>> print(group_report([0, 0, 1, 1] * 20, labels, attributes, [[9, 1], [1, 9]]).table())
        average            75.0    adjusted average   94.7
        majority          100.0    minority            0.0
        worst group         0.0    worst class        66.7
        group        n   accuracy   95 % interval    train
        1/0         20        0.0     0.0 …  16.1        1  minority
        1/1         40      100.0    91.2 … 100.0        9  majority
        0/0         20      100.0    83.9 … 100.0        9  majority
        """

        def share(value: float | None, width: int) -> str:
            return f"{'–' if value is None else f'{100 * value:.1f}':>{width}}"

        shown = [metric for metric in columns("evaluate") if metric.name in self.figures]
        width = max(16, *(len(metric.title) for metric in shown)) + 1
        cells = [f"{metric.title:<{width}}{metric.text(self.figures[metric.name]):>6}" for metric in shown]
        lines = ["    ".join(cells[i : i + 2]) for i in range(0, len(cells), 2)]
        if self.groups:
            width = max(8, *(len(row.name) for row in self.groups))
            lines.append(f"{'group':<{width}} {'n':>5} {'accuracy':>10}   95 % interval    train")
            for row in sorted(self.groups, key=lambda row: (row.accuracy, -row.n))[:most]:
                train = "–" if row.train_count is None else str(row.train_count)
                lines.append(
                    f"{row.name:<{width}} {row.n:>5} {share(row.accuracy, 10)}  {share(row.low, 6)} … "
                    f"{share(row.high, 5)} {train:>8}  {row.kind or ''}".rstrip()
                )
            if len(self.groups) > most:
                lines.append(f"… and {len(self.groups) - most} groups that do better")
        lines += self.remarks()
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.table()

    def __repr__(self) -> str:
        known = [f"{m.title} {m.text(v)}" for m in columns("evaluate") if (v := self.figures.get(m.name)) is not None]
        return f"GroupReport({', '.join(known)}; {self.n} images)"

    def _repr_html_(self) -> str:
        known = [m for m in columns("evaluate") if self.figures.get(m.name) is not None]
        parts = [notebook.table([m.title for m in known], [[m.text(self.figures[m.name]) for m in known]])]
        if self.groups:
            rows = [
                [
                    notebook.text(row.name), str(row.n), notebook.share_bar(row.accuracy, row.low, row.high),
                    f"{100 * row.low:.1f} … {100 * row.high:.1f}",
                    "–" if row.train_count is None else f"{row.train_count} {row.kind or ''}",
                ]
                for row in sorted(self.groups, key=lambda row: (row.accuracy, -row.n))[:30]
            ]  # fmt: skip
            parts.append(notebook.table(["group", "images", "accuracy", "95 % interval", "in training"], rows))
        parts += [f"<div>{notebook.text(remark)}</div>" for remark in self.remarks()]
        return notebook.card(f"{self.n} images", *parts)

    def plot(self, ax: Any = None) -> Any:
        """A Matplotlib figure: accuracy of every group (of every class, without groups) with its 95 % interval.

        ``ax`` are axes to draw on instead of a figure of its own.

        >>> group_report([0, 1, 1, 0] * 20, [0, 1, 1, 1] * 20, [0, 0, 1, 1] * 20).plot().axes[0].get_xlabel()
        'accuracy in percent'
        """
        rows = [(r.name, r.n, r.accuracy) for r in self.groups] or self.classes
        rows = sorted(rows, key=lambda row: -row[2])
        if ax is None:
            ax = notebook.figure(5.5, 0.8 + 0.32 * len(rows)).subplots()
        spans = np.asarray([wilson_interval(round(share * n), n) for _, n, share in rows])
        shares = np.asarray([share for _, _, share in rows])
        errors = np.abs(np.stack([shares - spans[:, 0], spans[:, 1] - shares]))
        colours = [notebook.colour_of(share) for share in shares]
        ax.barh(
            [name for name, _, _ in rows], 100 * shares, xerr=100 * errors, color=colours, ecolor="#555", height=0.65
        )
        ax.set(xlim=(0, 100), xlabel="accuracy in percent")
        ax.spines[["top", "right"]].set_visible(False)
        return ax.figure


def group_report(
    predictions: ArrayLike,
    labels: ArrayLike,
    attributes: ArrayLike | None,
    train_counts: ArrayLike | None = None,
    *,
    class_names: Sequence[str] | None = None,
    attribute_names: Sequence[str] | None = None,
    logits: NDArray[np.floating] | None = None,
) -> GroupReport:
    """Accuracy as a whole, by class and by group, and every other metric of the registry.

    - ``average``: plain accuracy.
    - ``adjusted_average``: group accuracies weighted by the training counts (Waterbirds' habit), over the
      groups that have test images.
    - ``worst_group``: the minimum over *all* non-empty test groups.
    - ``worst_class``: the minimum over classes.
    - ``majority``, ``minority``: pooled accuracy (every image counts the same) over the images of majority
      and of minority groups, as :func:`~foveate.measure.minority_groups` tells them apart; both None when
      training is balanced.
    - ``ifam_worst_group``: see :func:`ifam_worst_group`.

    Args:
        predictions: predicted class per image, ``[N]``; -1 (``UNREADABLE``) marks an image that could not be read,
            which is left out and counted in ``skipped``; -2 (``NO_ANSWER``) one that the model named no class for,
            which is wrong and counted in ``unanswered``.
        labels: true class, ``[N]``.
        attributes: attribute, ``[N]``, or None when unknown: then every group metric is None.
        train_counts: images per training group, ``[num_classes, num_attributes]`` or flat
            ``[num_classes * num_attributes]``; without it, what depends on training is None.
        class_names, attribute_names: names for the rows; default to the indices.
        logits: ``[N, C]``, for the metrics that need them (``loss``); without, those are left out.

    Warns with :class:`SmallGroupWarning`, once, when groups have fewer than 20 images.

    >>> report = group_report([0, 0, 1, 0] * 25, [0, 0, 1, 1] * 25, [0, 1, 1, 0] * 25, [[90, 10], [10, 90]])
    >>> report.average, report.worst_group, report.majority, report.minority
    (0.75, 0.0, 1.0, 0.5)
    """
    table = GroupTable.of(predictions, labels, attributes, train_counts, class_names, attribute_names)
    classes = [
        (table.class_names[c], int(n), float(right / n))
        for c, (n, right) in enumerate(zip(table.class_n, table.class_correct, strict=True))
        if n
    ]
    silent = {table.class_names[c]: int(n) for c, n in enumerate(table.class_unanswered) if n}
    p, y = indices("predictions", predictions), indices("labels", labels)
    a = None if attributes is None else indices("attributes", attributes)
    z = None if logits is None else np.asarray(logits)
    if z is not None and (z.ndim != 2 or len(z) != len(p)):
        raise DataError(f"logits must be [N, C], a row for each of {len(p)} predictions; got shape {z.shape}.")
    if table.skipped:
        read = p != UNREADABLE
        p, y, a, z = p[read], y[read], None if a is None else a[read], None if z is None else z[read]
    answers = Answers(p, y, a, table, z)
    wanted = {n: metric for n, metric in reported().items() if logits is not None or not metric.uses_logits}
    figures = {name: metric.of(answers) for name, metric in wanted.items()}
    if table.n is None:
        return GroupReport(
            figures, [], classes, n=int(table.class_n.sum()), skipped=table.skipped,
            missing="the data have no attributes, hence no groups.",
            unanswered=sum(silent.values()), unanswered_by_class=silent,
        )  # fmt: skip

    rows, empty = table.rows()
    small = [row for row in rows if row.n < SMALL_GROUP]
    if small:
        named = ", ".join(f"{row.name} ({row.n})" for row in small[:8]) + (", …" if len(small) > 8 else "")
        warnings.warn(
            f"{len(small)} of {len(rows)} groups have fewer than {SMALL_GROUP} images: {named}. "
            "Their accuracies, and the worst group, are very uncertain; look at the intervals.",
            SmallGroupWarning,
            stacklevel=2,
        )
    missing = "give train_counts, the number of training images in every group."
    if table.train is not None:
        missing = "training has no minority groups, or the test split has no images of the kind asked for."
    return GroupReport(
        figures=figures,
        groups=rows,
        classes=classes,
        n=int(table.class_n.sum()),
        skipped=table.skipped,
        empty=empty,
        missing=missing,
        unanswered=sum(silent.values()),
        unanswered_by_class=silent,
    )


def figures_of(report: GroupReport) -> dict[str, float]:
    """The metrics of ``report`` that could be had, as records keep them: shares with four decimals.

    ``unanswered``, the share of images that the model had no answer to, is there only when there are such images.

    >>> figures_of(group_report([0, -2], [0, 1], None))
    {'average': 0.5, 'worst_class': 0.0, 'unanswered': 0.5}
    """
    found = {name: round(v, 4) for name, v in report.figures.items() if v is not None}
    return found | ({"unanswered": round(report.unanswered / report.n, 4)} if report.unanswered else {})


def ifam_worst_group(
    predictions: ArrayLike, labels: ArrayLike, attributes: ArrayLike, train_counts: ArrayLike
) -> float:
    """Worst-group accuracy as the iFAM paper counts it: the minimum over classes of the accuracy on the
    images of *training-minority* groups alone.

    Narrower than ``worst_group``, which is the minimum over all groups: on Waterbirds only waterbirds on land
    and landbirds on water count, on MetaShift only the images with an unseen context. The two are not
    comparable.

    Reference: arXiv 2506.08915, evaluation protocol.

    >>> ifam_worst_group([0, 1, 1, 1], [0, 0, 1, 1], [0, 1, 0, 1], [[9, 1], [1, 9]])
    0.0
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SmallGroupWarning)
        value = group_report(predictions, labels, attributes, train_counts).ifam_worst_group
    if value is None:
        raise DataError("ifam_worst_group: no image belongs to a group that is a minority in train_counts.")
    return value


def confusion_by_group(
    predictions: ArrayLike,
    labels: ArrayLike,
    attributes: ArrayLike,
    *,
    num_classes: int | None = None,
    num_attributes: int | None = None,
) -> NDArray[np.int64]:
    """How often each group was predicted as each class: ``int [num_classes, num_attributes, num_classes]``.

    ``out[y, a, k]`` counts images of class ``y`` with attribute ``a`` predicted as ``k``; ``out[:, a, :]`` is
    the confusion matrix of attribute ``a``. Images without a predicted class are in no column: unreadable ones (-1),
    and those that the model had no answer to (-2).

    >>> confusion_by_group([0, 1, 1], [0, 0, 1], [0, 1, 1])[0]
    array([[1, 0],
           [0, 1]])
    """
    p, y = indices("predictions", predictions), indices("labels", labels)
    a = indices("attributes", attributes)
    check_lengths(p, y, a)
    named = (p != UNREADABLE) & (p != NO_ANSWER)
    p, y, a = p[named], y[named], a[named]
    classes = num_classes or int(max(p.max(initial=0), y.max(initial=0))) + 1
    values = num_attributes or int(a.max(initial=0)) + 1
    out = np.zeros((classes, values, classes), dtype=np.int64)
    np.add.at(out, (y, a, p), 1)
    return out
