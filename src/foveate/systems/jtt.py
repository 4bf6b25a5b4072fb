"""JTT: what a first model gets wrong counts more in the second."""

from __future__ import annotations

import logging
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from foveate.data.dataset import GroupedDataset
from foveate.decide import error_set, upsample_errors
from foveate.engine import Drawn, Plan, Shuffled, TrainSettings
from foveate.errors import FoveateError
from foveate.measure import UNREADABLE
from foveate.systems.erm import ERM
from foveate.systems.system import Needs

log = logging.getLogger("foveate")


class JTT(ERM):
    """Just Train Twice.

    When the first model makes no error there is nothing to upweight: the second model then equals ERM, and
    a warning says so (train the first one for fewer epochs, or with more weight decay).

    Args:
        backbone: as in :class:`~foveate.systems.erm.ERM`.
        first_epochs: how long the first model trains (T).
        upweight: extra copies of each error in the second training (lambda).
        by: ``"copies"`` repeats the errors, so an epoch grows with them; ``"sampler"`` draws an epoch of the usual
            length in which they are as much more likely.
        first_weight_decay: weight decay of the first model; strong decay is what makes its errors telling.
            None takes the same as the second.
        options: all other arguments of :class:`~foveate.systems.erm.ERM`.

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
    errors_: NDArray[np.int64]

    def __init__(
        self,
        backbone: str = "resnet18",
        *,
        first_epochs: int = 1,
        upweight: int = 20,
        by: Literal["copies", "sampler"] = "copies",
        first_weight_decay: float | None = None,
        **options: Any,
    ):
        super().__init__(backbone, **options)
        if by not in ("copies", "sampler"):
            raise FoveateError(f"by is 'copies' or 'sampler'; found '{by}'.")
        self.first_epochs = first_epochs
        self.upweight = upweight
        self.by = by
        self.first_weight_decay = first_weight_decay

    def _first(self, train: GroupedDataset) -> None:
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


def first_model(system: ERM, epochs: int, weight_decay: float | None) -> ERM:
    """A plain ERM with the settings of ``system``, but trained for ``epochs`` with ``weight_decay``."""
    taken = {*ERM.setting_names(), *TrainSettings.model_fields}
    shared = {k: v for k, v in system.get_params().items() if k in taken}
    decay = {} if weight_decay is None else {"weight_decay": weight_decay}
    # a checkpoint file belongs to the second stage; the first is short and runs again
    return ERM(**{**shared, "epochs": epochs, "checkpoint": None, **decay})
