"""Reweighting: rare groups count more, in the loss or by being drawn more often."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.assemble.needs import Needs
from foveate.assemble.trained import Trained
from foveate.data.dataset import GroupedDataset
from foveate.data.loading import Batch
from foveate.decide import reweight, sampling_weights
from foveate.engine import Drawn, Objective, Plan
from foveate.errors import FoveateError
from foveate.parameters import configured


@configured
class Reweight(Trained):
    """ERM in which every group (or class) counts the same.

    Args:
        by: ``"loss"`` weights each image's loss by the inverse size of its group; ``"sampler"`` draws images
            so that all groups are equally likely. Under SGD the two do not give the same model.
        over: balance ``"group"`` or ``"class"``.
        backbone …: and all other arguments of :class:`~foveate.systems.erm.ERM`.

    Reference: Idrissi et al. 2022, "Simple data balancing achieves competitive worst-group-accuracy".

    >>> print(Reweight.needs)
    train: labels, groups
    >>> Reweight("micro_resnet", by="sampler").get_params()["over"]
    'group'
    """

    needs: ClassVar[Needs] = Needs(train="labels, groups")
    by: Literal["loss", "sampler"] = "loss"
    over: Literal["group", "class"] = "group"

    def check(self) -> None:
        super().check()
        if self.by not in ("loss", "sampler") or self.over not in ("group", "class"):
            raise FoveateError(
                f"by is 'loss' or 'sampler' and over 'group' or 'class'; found '{self.by}' and '{self.over}'."
            )

    def _strata(self, train: GroupedDataset) -> NDArray[np.int64]:
        return train.labels if self.over == "class" else train.require_groups("Reweight")

    def _plan(self, train: GroupedDataset) -> Plan:
        if self.by == "loss":
            return super()._plan(train)
        return Drawn(sampling_weights(self._strata(train)), seed=self.training.seed)

    def _objective(self, train: GroupedDataset) -> Objective:
        if self.by == "sampler":
            return super()._objective(train)
        weights = reweight(self._strata(train))
        by_class = self.over == "class"

        def weighted(model: nn.Module, batch: Batch) -> Tensor:
            losses = F.cross_entropy(model(batch.inputs), batch.labels, reduction="none")
            of = batch.labels if by_class else batch.groups
            shares = weights.to(losses.device)[of]
            return (losses * shares).sum() / shares.sum()

        return weighted
