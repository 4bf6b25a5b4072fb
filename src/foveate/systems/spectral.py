"""Spectral decoupling: cross-entropy with a penalty on the logits."""

from __future__ import annotations

from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from foveate.data.dataset import GroupedDataset
from foveate.data.loading import Batch
from foveate.decide import spectral_decoupling
from foveate.engine import Objective
from foveate.systems.erm import ERM
from foveate.systems.system import Needs


class SpectralDecoupling(ERM):
    """ERM with ``penalty`` times the mean squared logits added to the loss.

    Args:
        backbone: as in :class:`~foveate.systems.erm.ERM`.
        penalty: weight of the squared logits, summed over classes.
        options: all other arguments of :class:`~foveate.systems.erm.ERM`.

    Reference: Pezeshki et al. 2021, "Gradient starvation: a learning proclivity in neural networks".

    >>> print(SpectralDecoupling.needs)
    train: labels
    >>> SpectralDecoupling("micro_resnet", penalty=0.01).penalty
    0.01
    """

    needs: ClassVar[Needs] = Needs(train="labels")

    def __init__(self, backbone: str = "resnet18", *, penalty: float = 0.1, **options: Any):
        super().__init__(backbone, **options)
        self.penalty = penalty

    def _objective(self, train: GroupedDataset) -> Objective:
        penalty = self.penalty

        def decoupled(model: nn.Module, batch: Batch) -> Tensor:
            logits = model(batch.inputs)
            return F.cross_entropy(logits, batch.labels) + spectral_decoupling(logits, penalty)

        return decoupled
