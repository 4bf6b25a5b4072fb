"""GroupDRO: minimise the loss of the worst group."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveate.assemble.needs import Needs
from foveate.assemble.trained import Trained
from foveate.data.dataset import GroupedDataset
from foveate.data.loading import Batch
from foveate.decide import GroupDROLoss, automatic_adjustment, group_means, sampling_weights
from foveate.engine import Drawn, Objective, Plan, predict_feed
from foveate.errors import DataError, FoveateError
from foveate.parameters import configured

log = logging.getLogger("foveate")


class _Robust(nn.Module):
    """Per-image cross-entropy into :class:`~foveate.decide.GroupDROLoss`."""

    def __init__(self, loss: GroupDROLoss):
        super().__init__()
        self.loss = loss

    def forward(self, model: nn.Module, batch: Batch) -> Tensor:
        assert batch.groups is not None
        return self.loss(F.cross_entropy(model(batch.inputs), batch.labels, reduction="none"), batch.groups)


@configured
class GroupDRO(Trained):
    """Distributionally robust training over groups, with group-balanced batches.

    A group that has no training image starts, and stays, at weight zero; its name is logged.

    Args:
        step_size: how fast weight moves to groups that do badly (eta).
        adjustment: generalisation adjustment C; ``"auto"`` sets it after every epoch from the gap between
            validation and training loss of each group (needs ``val`` with attributes).
        absent: what groups that no image of a batch is of do with their weight: ``"keep"`` it, or count with loss 0
            as in the ``"reference"`` code (:class:`~foveate.decide.GroupDROLoss`).
        backbone …: and all other arguments of :class:`~foveate.systems.erm.ERM`.

    Reference: Sagawa et al. 2020, "Distributionally robust neural networks for group shifts", algorithm 1.

    >>> print(GroupDRO.needs)
    train: labels, groups
    >>> GroupDRO("micro_resnet", step_size=0.1, adjustment="auto").step_size
    0.1
    """

    needs: ClassVar[Needs] = Needs(train="labels, groups")
    step_size: float = 0.01
    adjustment: float | str = 0.0
    absent: Literal["keep", "reference"] = "keep"

    def check(self) -> None:
        super().check()
        if isinstance(self.adjustment, str) and self.adjustment != "auto":
            raise FoveateError(f"adjustment is a number or 'auto'; found '{self.adjustment}'.")
        if self.absent not in ("keep", "reference"):
            raise FoveateError(f"absent is 'keep' or 'reference'; found '{self.absent}'.")

    def _plan(self, train: GroupedDataset) -> Plan:
        return Drawn(sampling_weights(train.require_groups("GroupDRO")), seed=self.training.seed)

    def _objective(self, train: GroupedDataset) -> Objective:
        train.require_groups("GroupDRO")
        missing = [name for name, n in zip(train.group_names, train.group_counts, strict=True) if not n]
        if missing:
            log.warning(
                "GroupDRO: %d of %d groups have no training image and cannot be weighted: %s",
                len(missing), train.num_groups, ", ".join(missing[:5]),
            )  # fmt: skip
        fixed = 0.0 if self.adjustment == "auto" else float(self.adjustment)
        counts = train.group_counts.tolist()
        return _Robust(GroupDROLoss(train.num_groups, self.step_size, fixed, counts=counts, absent=self.absent))

    def _after_epoch(
        self, network: nn.Module, objective: Objective, train: GroupedDataset, val: GroupedDataset | None
    ) -> Callable[[int, nn.Module], None] | None:
        if self.adjustment != "auto":
            return None
        if val is None:
            raise DataError("GroupDRO with adjustment='auto' needs a validation set: fit(train, val=...).")
        val.require_groups("GroupDRO with adjustment='auto'")
        assert isinstance(objective, _Robust)

        def group_losses(ds: GroupedDataset) -> tuple[Tensor, Tensor]:
            device = next(network.parameters()).device
            logits, at = predict_feed(network, self._feed(ds, augment=False), device)
            losses = F.cross_entropy(torch.from_numpy(logits), torch.from_numpy(ds.labels[at]), reduction="none")
            return group_means(losses, torch.from_numpy(ds.require_groups("GroupDRO")[at]), ds.num_groups)

        def adjust(epoch: int, model: nn.Module) -> None:
            (held, there), (seen, here) = group_losses(val), group_losses(train)
            gap = automatic_adjustment(held, seen, torch.from_numpy(train.group_counts))
            # a group that is missing on one side has no gap to go by; a loss of 0 would stand for it otherwise
            objective.loss.set_adjustment(torch.where(there & here, gap, 0.0))

        return adjust
