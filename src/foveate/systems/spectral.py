"""Spectral decoupling: cross-entropy with a penalty on the logits."""

from __future__ import annotations

from typing import ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from foveate.assemble.needs import Needs
from foveate.assemble.trained import Trained
from foveate.data.dataset import GroupedDataset
from foveate.data.loading import Batch
from foveate.decide import spectral_decoupling
from foveate.engine import Objective
from foveate.parameters import configured


@configured
class SpectralDecoupling(Trained):
    """ERM with ``penalty`` times the mean squared logits added to the loss.

    Args:
        penalty: weight of the squared logits, summed over classes.
        backbone …: and all other arguments of :class:`~foveate.systems.erm.ERM`.

    Reference: Pezeshki et al. 2021, "Gradient starvation: a learning proclivity in neural networks".

    >>> print(SpectralDecoupling.needs)
    train: labels
    >>> SpectralDecoupling("micro_resnet", penalty=0.01).penalty
    0.01
    """

    needs: ClassVar[Needs] = Needs(train="labels")
    penalty: float = 0.1

    def _objective(self, train: GroupedDataset) -> Objective:
        penalty = self.penalty

        def decoupled(model: nn.Module, batch: Batch) -> Tensor:
            logits = model(batch.inputs)
            return F.cross_entropy(logits, batch.labels) + spectral_decoupling(logits, penalty)

        return decoupled
