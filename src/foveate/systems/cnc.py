"""CnC: pull together images of one class that a first model tells apart."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import field
from typing import Any, ClassVar

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from foveate.assemble.needs import Needs
from foveate.assemble.system import Callbacks
from foveate.assemble.trained import Trained, first_model
from foveate.data.dataset import GroupedDataset
from foveate.data.loading import Batch
from foveate.decide import cnc_batches, cnc_two_sided_loss
from foveate.engine import Fixed, Objective, Plan, derived_seed
from foveate.errors import FoveateError
from foveate.measure import UNREADABLE
from foveate.parameters import configured

log = logging.getLogger("foveate")


@configured
class CnC(Trained):
    """Correct-n-Contrast: a first model's predictions stand for the unknown attribute.

    Every step contrasts anchors (right in the first model) with positives (same class, wrong) and negatives
    (other class, taken for the anchors' class), plus cross-entropy on the same images. When the first model
    leaves a role empty, all images that could play it do (see :func:`~foveate.decide.cnc_batches`), and a
    warning says so. Runs on one device.

    Args:
        first_epochs: how long the first model trains.
        first_weight_decay: its weight decay; None takes the same as the second's.
        samples: anchors, positives and negatives of a step.
        anchor_share: share of the anchors used in an epoch.
        temperature: of the contrast.
        contrast: weight of the contrastive loss; cross-entropy gets the rest.
        backbone …: and all other arguments of :class:`~foveate.systems.erm.ERM`.

    Reference: Zhang et al. 2022, "Correct-n-Contrast", section 4.

    >>> print(CnC.needs)
    train: labels
    >>> system = CnC("micro_resnet", samples=8, contrast=0.5)
    >>> system.samples, system.contrast
    (8, 0.5)
    """

    needs: ClassVar[Needs] = Needs(train="labels")
    first_epochs: int = 1
    first_weight_decay: float | None = None
    samples: int = 16
    anchor_share: float = 1.0
    temperature: float = 0.1
    contrast: float = 0.75
    first_predictions_: NDArray[np.int64] = field(init=False)

    def check(self) -> None:
        super().check()
        if not 0 <= self.contrast <= 1:
            raise FoveateError(f"contrast={self.contrast} must lie in [0, 1]; cross-entropy gets the rest.")
        if self.training.devices not in (1, "1"):
            raise FoveateError("CnC builds its batches by role and runs on one device; set devices=1.")

    def _first(self, train: GroupedDataset, callbacks: Callbacks) -> None:
        first = first_model(self, self.first_epochs, self.first_weight_decay).fit(train)
        self.first_predictions_ = first.predict(train, on_bad=self.on_bad)
        for note in self._epoch(train, 0)[1]:
            log.warning("CnC: %s", note)

    def _epoch(self, train: GroupedDataset, epoch: int) -> tuple[list[NDArray[np.int64]], list[str]]:
        """Batches of one epoch (anchors, positives, negatives, easy negatives in a row) and remarks."""
        readable = np.flatnonzero(self.first_predictions_ != UNREADABLE)
        made = cnc_batches(
            self.first_predictions_[readable], train.labels[readable], self.samples, self.samples, self.samples,
            anchor_share=self.anchor_share, rng=derived_seed(self.training.seed, epoch),
        )  # fmt: skip
        # a step of one anchor would leave BatchNorm and the contrast little to work with
        kept = [readable[b.indices] for b in made.batches if len(b.anchors) > 1]
        if not kept:
            raise FoveateError("CnC: no step has two anchors; use samples of at least 2 and more training images.")
        return kept, made.notes

    def _plan(self, train: GroupedDataset) -> Plan:
        def make(epoch: int) -> Sequence[NDArray[np.int64]]:
            return self._epoch(train, epoch)[0]

        return Fixed(make)

    def _objective(self, train: GroupedDataset) -> Objective:
        samples, temperature, contrast = self.samples, self.temperature, self.contrast

        def contrasted(model: Any, batch: Batch) -> Tensor:
            z = model.embed(batch.inputs)
            sizes = [len(z) - 3 * samples, samples, samples, samples]
            anchors, positives, negatives, easy = z.split(sizes)
            pulled = cnc_two_sided_loss(anchors, positives, negatives, easy, temperature)
            return contrast * pulled + (1 - contrast) * F.cross_entropy(model.head(z), batch.labels)

        return contrasted
