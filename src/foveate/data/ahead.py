"""Reading ahead: images are decoded in threads while the network computes, where that has been seen to help."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")
BATCHES = 2
"""How many batches are read ahead; memory stays flat however many there are."""
GAIN = 1.2
"""Threads are used when they read a batch this much quicker than one alone did."""
WORTH = 2e-4
"""Seconds an image must take before threads are tried."""


def cores() -> int:
    """Processor cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class Ahead(Generic[T, R]):
    """Calls ``read`` for the items of every batch, in order, in threads when that is quicker.

    Which it is, is measured and not asked: the first batch is read by one thread and the second by all of them.
    Decoders let other threads run while they work; Python code does not.

    Args:
        read: gives what is read of an item; must be safe to call from several threads.
        threads: how many; by default one a core. 1 reads in place.

    >>> list(Ahead(lambda i: i * i, threads=2)([[1, 2], [3], [4]]))
    [[1, 4], [9], [16]]
    """

    def __init__(self, read: Callable[[T], R], threads: int | None = None):
        self.read = read
        self.threads = cores() if threads is None else threads
        self.helps: bool | None = None if self.threads > 1 else False
        self._alone: float | None = None

    def __call__(self, batches: Sequence[Sequence[T]]) -> Iterator[list[R]]:
        left = deque(batches)
        while left and self.helps is None:
            yield self._tried(left.popleft())
        if self.helps and left:
            yield from self._threaded(left)
            return
        for batch in left:
            yield [self.read(item) for item in batch]

    def _tried(self, batch: Sequence[T]) -> list[R]:
        """Read a batch alone, the next one in threads, and remember which was quicker an item."""
        began = time.perf_counter()
        if self._alone is None:
            found = [self.read(item) for item in batch]
            self._alone = (time.perf_counter() - began) / max(len(batch), 1)
            if self._alone < WORTH:
                self.helps = False
            return found
        with ThreadPoolExecutor(self.threads) as pool:
            found = list(pool.map(self.read, batch))
        self.helps = self._alone / ((time.perf_counter() - began) / max(len(batch), 1)) >= GAIN
        return found

    def _threaded(self, left: deque[Sequence[T]]) -> Iterator[list[R]]:
        waiting: deque[list[Future[R]]] = deque()
        with ThreadPoolExecutor(self.threads, thread_name_prefix="reading") as pool:
            try:
                while left or waiting:
                    while left and len(waiting) <= BATCHES:
                        waiting.append([pool.submit(self.read, item) for item in left.popleft()])
                    yield [future.result() for future in waiting.popleft()]
            finally:  # whoever asked may have stopped: what has not begun is not read
                for batch in waiting:
                    for future in batch:
                        future.cancel()
