"""Reading ahead keeps the order, stays within its window, and uses threads only where they help."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from foveate.data import memory
from foveate.data.ahead import BATCHES, Ahead

LISTS = [list(range(i, i + 4)) for i in range(0, 40, 4)]


def waits(item: int) -> int:
    time.sleep(0.004)  # as a decoder: other threads run meanwhile
    return -item


def test_threads_are_used_where_they_help() -> None:
    def long_waits(item: int) -> int:
        time.sleep(0.05)  # long beside what a busy machine takes from a thread
        return -item

    reading = Ahead(long_waits, threads=4)
    assert list(reading(LISTS)) == [[-i for i in batch] for batch in LISTS]
    assert reading.helps
    assert list(reading(LISTS[:3])) == [[-i for i in batch] for batch in LISTS[:3]]  # at once, without another trial


def test_threads_are_left_alone_where_they_do_not() -> None:
    lock, names = threading.Lock(), set()

    def stuck(item: int) -> int:
        with lock:  # as Python code: one at a time
            names.add(threading.current_thread().name)
            return waits(item)

    reading = Ahead(stuck, threads=4)
    assert list(reading(LISTS)) == [[-i for i in batch] for batch in LISTS]
    assert reading.helps is False
    names.clear()
    list(reading(LISTS[:2]))
    assert names == {"MainThread"}


def test_nothing_is_tried_for_what_takes_no_time_or_has_one_core() -> None:
    for reading in (Ahead(lambda i: i, threads=4), Ahead(waits, threads=1)):
        list(reading(LISTS[:1]))
        assert reading.helps is False


def test_no_more_is_read_than_the_window() -> None:
    begun: list[int] = []

    def noted(item: int) -> int:
        begun.append(item)
        return waits(item)

    reading = Ahead(noted, threads=2)
    reading.helps = True
    batches = reading(LISTS)
    next(batches)
    time.sleep(0.1)
    assert len(begun) <= 4 * (1 + BATCHES + 1)
    batches.close()  # who asked has stopped
    stopped = len(begun)
    time.sleep(0.05)
    assert len(begun) == stopped


def test_an_error_reaches_who_asked() -> None:
    reading = Ahead(lambda i: 1 // (i - 9), threads=2)
    reading.helps = True
    with pytest.raises(ZeroDivisionError):
        list(reading(LISTS))


def test_free_memory_is_that_of_the_container_when_it_has_less(tmp_path: Path) -> None:
    proc = tmp_path / "meminfo"
    proc.write_text("MemTotal:       2000 kB\nMemAvailable:   1000 kB\n")
    assert memory.free_bytes(proc, tmp_path) == 1000 * 1024
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("100\n")
    assert memory.free_bytes(proc, tmp_path) == 1000 * 1024
    (tmp_path / "memory.max").write_text("5100\n")
    assert memory.free_bytes(proc, tmp_path) == 5000
    assert memory.free_bytes(tmp_path / "none", tmp_path / "none") > 0
