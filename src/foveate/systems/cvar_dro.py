"""CVaR-DRO: minimise the mean of the worst losses, without knowing groups."""

from __future__ import annotations

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from foveate.assemble.needs import Needs
from foveate.assemble.trained import Trained
from foveate.data.dataset import GroupedDataset
from foveate.data.loading import Batch
from foveate.decide import cvar
from foveate.engine import Objective
from foveate.errors import FoveateError
from foveate.parameters import configured


@configured
class CVaRDRO(Trained):
    """Trains on the worst ``alpha`` share of every batch.

    Args:
        alpha: share of the batch that counts, in (0, 1]; ``alpha * batch_size`` must reach 1.
        backbone …: and all other arguments of :class:`~foveate.systems.erm.ERM`.

    Reference: Levy et al. 2020, "Large-scale methods for distributionally robust optimization".

    >>> print(CVaRDRO.needs)
    train: labels
    >>> system = CVaRDRO("micro_resnet", alpha=0.25, batch_size=32)
    >>> system.alpha * system.training.batch_size  # images of a batch that count
    8.0
    """

    needs: ClassVar[Needs] = Needs(train="labels")
    alpha: float = 0.2

    def check(self) -> None:
        super().check()
        if not 0 < self.alpha <= 1 or self.alpha * self.training.batch_size < 1:
            raise FoveateError(
                f"alpha={self.alpha} with batch_size={self.training.batch_size} leaves less than one image; "
                "choose alpha in (0, 1] so that alpha * batch_size is at least 1."
            )

    def _objective(self, train: GroupedDataset) -> Objective:
        alpha = self.alpha

        def worst_share(model: nn.Module, batch: Batch) -> Tensor:
            return cvar(F.cross_entropy(model(batch.inputs), batch.labels, reduction="none"), alpha)

        return worst_share
