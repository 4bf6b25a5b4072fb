"""How many images pass through a network at once: as many as are quickest and memory holds, found out."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from foveate.data.memory import free_bytes

MOST = 128
"""Images a pass takes on a GPU where memory allows; more of them are hardly quicker."""
CACHED = 16
"""Images a pass takes on two cores at most: what 128 leave between two layers is beyond the caches of a processor,
which makes a MobileNetV2 take twice as long and a ResNet-50 a quarter longer."""
HELD = 40
"""Bytes that a pass holds at its widest for each byte of a normalised image, about, as a ResNet-50 does."""
SHARE = 0.5
"""Share of the free memory that a pass may take."""


def quickest_batch() -> int:
    """How many images in a pass are quickest here, memory aside."""
    return MOST if torch.cuda.is_available() else min(MOST, CACHED * max(1, torch.get_num_threads() // 2))


def batch_that_fits(height: int, width: int, most: int | None = None, free: int | None = None) -> int:
    """Images of ``height`` x ``width`` pixels that one pass takes: ``most``, or half, a quarter … of it, at least 1.

    Args:
        most: by default what is quickest here.
        free: bytes of memory; by default what is free now.

    >>> [batch_that_fits(224, 224, most=128, free=gigabytes << 30) for gigabytes in (16, 4, 1, 0)]
    [128, 64, 16, 1]
    """
    most = quickest_batch() if most is None else most
    room = int(SHARE * (free_bytes() if free is None else free)) // (HELD * 3 * 4 * height * width)
    while most > max(room, 1):
        most //= 2
    return most


def as_memory_allows(call: Callable[[Tensor], Tensor], inputs: Tensor) -> Tensor:
    """``call(inputs)``; when that takes more memory than there is, of the halves one after the other, and so on.

    Args:
        call: one row for every image, ``[B, ...]``.
        inputs: ``[B, ...]``. A single image that does not fit is an error.

    >>> def small(x):
    ...     if len(x) > 2:
    ...         raise torch.OutOfMemoryError("too much")
    ...     return 2 * x
    >>> as_memory_allows(small, torch.arange(5)).tolist()
    [0, 2, 4, 6, 8]
    """
    try:
        return call(inputs)
    except (RuntimeError, MemoryError) as error:
        if len(inputs) < 2 or not out_of_memory(error):
            raise
    if torch.cuda.is_available():  # after the except, which holds on to what was computed
        torch.cuda.empty_cache()
    half = len(inputs) // 2
    return torch.cat([as_memory_allows(call, inputs[:half]), as_memory_allows(call, inputs[half:])])


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory was not enough, on a GPU or a CPU.

    >>> out_of_memory(RuntimeError("shape mismatch")), out_of_memory(RuntimeError("can't allocate memory: 12 GB"))
    (False, True)
    """
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(error)
