"""What a training run tells whoever asked: one :class:`EpochEnd` after every epoch, and a way to say "enough"."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class EpochEnd:
    """An epoch that is over, validation included.

    Attributes:
        epoch: its number, from 1.
        epochs: how many the run was asked for.
        metrics: what was measured: ``loss`` of training, and ``val_…`` of every metric on the validation data.
        score: the selection metric, turned so that larger is better; None when nothing is selected on.
    """

    epoch: int
    epochs: int
    metrics: dict[str, float]
    score: float | None


Callback = Callable[[EpochEnd], None]
"""Called after every epoch. :class:`StopTraining` ends the training; any other exception ends the run."""


class StopTraining(Exception):
    """Raised by a callback: train no further, and keep the best epoch so far (without selection: the last).

    >>> import torch
    >>> from foveate.data import critters
    >>> from foveate.engine import TensorFeed, TrainSettings, train
    >>> data = critters(train=40, target=16, val=16, test=16, size=32).train
    >>> def enough(end: EpochEnd) -> None:
    ...     if end.epoch == 3:
    ...         raise StopTraining
    >>> feed, settings = TensorFeed(torch.zeros(len(data), 2), data), TrainSettings(epochs=30, progress=False)
    >>> len(train(torch.nn.Linear(2, 2), feed, settings, callbacks=[enough]).epochs)
    3
    """
