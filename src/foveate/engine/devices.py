"""Where predictions run."""

from __future__ import annotations

import torch


def default_device(accelerator: str = "auto") -> torch.device:
    """Where predictions run: a GPU when there is one and it is wanted."""
    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return torch.device("cuda")
    if accelerator in ("auto", "gpu", "mps") and torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")
