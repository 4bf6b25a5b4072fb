"""One seed for everything, and seeds derived from it."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy and PyTorch."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def derived_seed(*parts: int) -> int:
    """A seed for a part of a run, the same on every machine.

    >>> derived_seed(0, 1) == derived_seed(0, 1) != derived_seed(1, 0)
    True
    """
    return int(np.random.SeedSequence(list(parts)).generate_state(1)[0])


def random_state() -> dict[str, Any]:
    """The state of PyTorch's generators, as tensors (safe to load with ``weights_only``)."""
    state: dict[str, Any] = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state_all()
    return state


def restore_random_state(state: dict[str, Any]) -> None:
    """Put PyTorch's generators back to a state from :func:`random_state`."""
    torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["cuda"])
