"""Where predictions run, and how processes that trained together part."""

from __future__ import annotations

import atexit

import torch


def default_device(accelerator: str = "auto") -> torch.device:
    """Where predictions run: a GPU when there is one and it is wanted."""
    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return torch.device("cuda")
    if accelerator in ("auto", "gpu", "mps") and torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


def part_at_exit() -> None:
    """Let this process leave its group before Python ends: gloo's threads, left running, sometimes abort it then."""
    atexit.unregister(_part)  # once, however often a method trains
    atexit.register(_part)


def _part() -> None:
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
