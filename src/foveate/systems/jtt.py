"""JTT: what a first model gets wrong counts more in the second."""

from __future__ import annotations

import logging
from dataclasses import field
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from foveate.assemble.needs import Needs
from foveate.assemble.system import Callbacks
from foveate.assemble.trained import Trained, first_model
from foveate.data.dataset import GroupedDataset
from foveate.decide import error_set, upsample_errors
from foveate.engine import Drawn, Plan, Shuffled
from foveate.errors import FoveateError
from foveate.measure import UNREADABLE
from foveate.parameters import configured

log = logging.getLogger("foveate")


@configured
class JTT(Trained):
    """Just Train Twice.

    When the first model makes no error there is nothing to upweight: the second model then equals ERM, and
    a warning says so (train the first one for fewer epochs, or with more weight decay).

    Args:
        first_epochs: how long the first model trains (T).
        upweight: extra copies of each error in the second training (lambda).
        by: ``"copies"`` repeats the errors, so an epoch grows with them; ``"sampler"`` draws an epoch of the usual
            length in which they are as much more likely.
        first_weight_decay: weight decay of the first model; strong decay is what makes its errors telling.
            None takes the same as the second.
        backbone …: and all other arguments of :class:`~foveate.systems.erm.ERM`.

    Attributes:
        errors_: positions of the first model's errors in the training set.

    Reference: Liu et al. 2021, "Just train twice: improving group robustness without training group
    information", algorithm 1.

    >>> print(JTT.needs)
    train: labels
    >>> system = JTT("micro_resnet", first_epochs=2, upweight=5, epochs=10)
    >>> system.first_epochs, system.upweight, system.training.epochs
    (2, 5, 10)
    """

    needs: ClassVar[Needs] = Needs(train="labels")
    first_epochs: int = 1
    upweight: int = 20
    by: Literal["copies", "sampler"] = "copies"
    first_weight_decay: float | None = None
    errors_: NDArray[np.int64] = field(init=False)

    def check(self) -> None:
        super().check()
        if self.by not in ("copies", "sampler"):
            raise FoveateError(f"by is 'copies' or 'sampler'; found '{self.by}'.")

    def _first(self, train: GroupedDataset, callbacks: Callbacks) -> None:
        first = first_model(self, self.first_epochs, self.first_weight_decay).fit(train)
        guesses = first.predict(train, on_bad=self.on_bad)
        # an unreadable image has no prediction: it is no error, and must not be counted as many; no answer is an error
        self.errors_ = error_set(np.where(guesses == UNREADABLE, train.labels, guesses), train.labels)
        if not len(self.errors_):
            log.warning("JTT: the first model makes no error in training, so the second is plain ERM.")

    def _plan(self, train: GroupedDataset) -> Plan:
        positions = upsample_errors(len(train), self.errors_, self.upweight)
        if self.by == "sampler":
            return Drawn(np.bincount(positions, minlength=len(train)), seed=self.training.seed)
        return Shuffled(positions, self.training.seed)
