"""Subsampling: every group cut to the size of the smallest."""

from __future__ import annotations

import logging
from typing import ClassVar

from foveate.assemble.needs import Needs
from foveate.assemble.trained import Trained
from foveate.data.dataset import GroupedDataset
from foveate.decide import subsample
from foveate.engine import Plan, Shuffled
from foveate.parameters import configured

log = logging.getLogger("foveate")


@configured
class Subsample(Trained):
    """ERM on a balanced subset: the same number of images, drawn once, from every non-empty group.

    Takes the arguments of :class:`~foveate.systems.erm.ERM`.

    Reference: Idrissi et al. 2022, "Simple data balancing achieves competitive worst-group-accuracy".

    >>> print(Subsample.needs)
    train: labels, groups
    >>> Subsample("micro_resnet", epochs=30).training.epochs
    30
    """

    needs: ClassVar[Needs] = Needs(train="labels, groups")

    def _plan(self, train: GroupedDataset) -> Plan:
        kept = subsample(train.require_groups("Subsample"), self.training.seed)
        log.info("Subsample keeps %d of %d images", len(kept), len(train))
        return Shuffled(kept, self.training.seed)
