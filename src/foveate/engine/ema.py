"""A running mean of the weights, which is validated and kept instead of the weights themselves."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch
from torch import Tensor, nn


class RunningMean:
    """Exponential moving average of a model's weights and buffers (Polyak & Juditsky 1992).

    The first steps count more, ``decay`` is approached as ``(1 + t) / (10 + t)``: a short run would otherwise keep
    its random start. What is not a float (counters of BatchNorm) is copied.

    >>> model = nn.Linear(1, 1, bias=False)
    >>> _ = nn.init.zeros_(model.weight)
    >>> mean = RunningMean(model, decay=0.5)
    >>> _ = nn.init.ones_(model.weight)
    >>> mean.update(model)  # 2/11 of the old, 9/11 of the new
    >>> round(float(mean.state["weight"]), 4)
    0.8182
    >>> with mean.applied(model):
    ...     round(model.weight.item(), 4)
    0.8182
    >>> model.weight.item()
    1.0
    """

    def __init__(self, model: nn.Module, decay: float):
        self.decay = decay
        self.steps = 0
        self.state: dict[str, Tensor] = {k: v.detach().clone() for k, v in model.state_dict().items()}

    @torch.no_grad()
    def update(self, model: nn.Module) -> None:
        """Count the weights after one more step."""
        self.steps += 1
        decay = min(self.decay, (1 + self.steps) / (10 + self.steps))
        for name, value in model.state_dict().items():
            if value.is_floating_point():
                self.state[name].lerp_(value.to(self.state[name].device), 1 - decay)
            else:
                self.state[name].copy_(value)

    @contextlib.contextmanager
    def applied(self, model: nn.Module) -> Iterator[None]:
        """``model`` with the mean weights, put back afterwards."""
        own = {k: v.detach().clone() for k, v in model.state_dict().items()}
        model.load_state_dict(self.state)
        try:
            yield
        finally:
            model.load_state_dict(own)
