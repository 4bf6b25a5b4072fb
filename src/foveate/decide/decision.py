"""DECIDE as an object: fitted on vectors, gives logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from foveate.data.dataset import GroupedDataset
from foveate.decide.dfr import C_GRID, DFRHead
from foveate.decide.linear import LinearDecision, LinearHead
from foveate.engine import TensorFeed, check_metric
from foveate.errors import FoveateError
from foveate.parameters import Part, configured

On = Literal["train", "target", "both"]
"""What is learned from: ``train``; ``target``, or ``train`` when there is none; or both joined."""


class Decision(Part):
    """What every decision has. A subclass gives ``fit`` and :meth:`__call__`."""

    on: On
    select: str | None
    usual_select = "average"
    """The metric on ``val`` that choices are made by, where ``select`` is None."""
    learns_maps = False
    """Whether it is trained by gradient, so that a pool with weights can learn with it."""
    uses = "labels"
    """Which labels it consumes."""

    def check(self) -> None:
        """Raise when the settings do not fit together."""
        if self.on not in ("train", "target", "both"):
            raise FoveateError(f"on is 'train', 'target' or 'both'; found '{self.on}'.")
        check_metric(self.select)

    def expects(self, data: GroupedDataset, who: str) -> None:
        """Raise when ``data`` lacks what it is fitted on; before anything is read."""
        if "groups" in self.uses:
            data.require_groups(who if who == "DFR" else f"{who} with a DFR head")

    def strengths(self) -> tuple[float, ...]:
        """What to choose from on validation images; one value is no choice."""
        return (1.0,)

    def tunes_itself(self) -> bool:
        """Whether it chooses among its strengths without validation images."""
        return False

    def __call__(self, vectors: Tensor) -> Tensor:
        """Logits ``[B, C]`` of vectors ``[B, D]``."""
        raise NotImplementedError

    def as_layer(self) -> nn.Module:
        """The same decision as a float32 module."""
        raise NotImplementedError


class LinearFit(Decision):
    """Decisions that end as one linear map on raw features, found by a solver in double precision."""

    head_: LinearDecision
    C_: float

    def candidate(self, strength: float) -> LinearFit:
        """This decision with one strength, as quick to fit as a comparison allows."""
        raise NotImplementedError

    def with_strength(self, strength: float) -> LinearFit:
        """This decision with one strength, as it is kept."""
        return replace(self, C=strength)  # type: ignore[type-var]

    def fit(self, feed: TensorFeed) -> LinearFit:
        """Fit to the features of ``feed``, with one strength."""
        raise NotImplementedError

    def __call__(self, vectors: Tensor) -> Tensor:
        return torch.from_numpy(self.head_.decision_function(vectors.float().cpu().numpy())).float()

    def as_layer(self) -> nn.Module:
        return self.head_.to_linear()

    def learned(self) -> dict[str, Any]:
        return {"one_vs_rest": self.head_.one_vs_rest_}

    def tensors(self) -> dict[str, Tensor]:
        return {
            "weight": torch.from_numpy(self.head_.weight_.copy()),
            "bias": torch.from_numpy(self.head_.bias_.copy()),
        }

    def restore(self, learned: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        state = {name: tensors[name].numpy() for name in ("weight", "bias")}
        self.head_ = LinearDecision().load_state({**state, "one_vs_rest": np.array([learned["one_vs_rest"]])})


@configured
class Logistic(LinearFit):
    """Logistic regression (:class:`~foveate.decide.LinearHead`).

    Args:
        C: inverse strength of the regularisation; several are chosen from on ``val``.
        standardize: scale every feature to mean 0 and spread 1 first.
        select: metric on ``val`` for every choice.
        on: what it is fitted on.

    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=32).train
    >>> decision = Logistic().fit(TensorFeed(torch.nn.functional.one_hot(torch.from_numpy(data.labels)).float(), data))
    >>> decision(torch.tensor([[1.0, 0.0], [0.0, 1.0]])).argmax(1)
    tensor([0, 1])
    """

    C: float | Sequence[float] = field(default=1.0, kw_only=False)
    standardize: bool = True
    select: str = "average"
    on: On = "train"

    def strengths(self) -> tuple[float, ...]:
        return numbers(self.C)

    def candidate(self, strength: float) -> Logistic:
        return replace(self, C=strength)

    def fit(self, feed: TensorFeed) -> Logistic:
        """Fit to the features and labels of ``feed``."""
        (strength,) = numbers(self.C)
        head = LinearHead(strength, standardize=self.standardize)
        self.head_ = head.fit(_flat(feed), feed.dataset.labels, num_classes=feed.dataset.num_classes)
        self.C_ = strength
        return self


@configured
class BalancedLogistic(LinearFit):
    """The decision of DFR: L1 logistic regressions on group-balanced subsets, averaged.

    Args:
        C: inverse strengths to choose from, on ``val`` or, without one, on a held-out half of the data given.
        refits: balanced subsets that are averaged.
        standardize: scale every feature to mean 0 and spread 1 first.
        select: metric on ``val`` for every choice; by default ``worst_group``, or ``worst_class`` where no groups are
            known.
        on: what it is fitted on.
        seed: chooses the subsets.
    """

    C: float | Sequence[float] = field(default=C_GRID, kw_only=False)
    refits: int = 20
    standardize: bool = True
    select: str | None = None
    on: On = "target"
    seed: int = 0
    usual_select = "worst_group"
    uses = "labels, groups"

    def strengths(self) -> tuple[float, ...]:
        return numbers(self.C)

    def candidate(self, strength: float) -> BalancedLogistic:
        return replace(self, C=strength, refits=1)

    def tunes_itself(self) -> bool:
        return True

    def fit(self, feed: TensorFeed) -> BalancedLogistic:
        """Fit to the features, labels and groups of ``feed``."""
        data, strengths = feed.dataset, numbers(self.C)
        grid = strengths[0] if len(strengths) == 1 else strengths
        head = DFRHead(grid, refits=self.refits, standardize=self.standardize, seed=self.seed)
        groups = data.require_groups("DFR")
        self.head_ = head.fit(
            _flat(feed), data.labels, groups, num_classes=data.num_classes, num_groups=data.num_groups
        )
        self.C_ = head.C_
        return self


def numbers(values: float | Sequence[float]) -> tuple[float, ...]:
    """One strength or several as floats.

    >>> numbers(1), numbers([0.1, 1])
    ((1.0,), (0.1, 1.0))
    """
    found = (float(values),) if isinstance(values, (int, float)) else tuple(float(v) for v in values)
    if not found:
        raise FoveateError("C is an empty list; give at least one strength.")
    return found


def _flat(feed: TensorFeed) -> Any:
    rows = feed.plain()
    return rows.reshape(len(rows), -1)
