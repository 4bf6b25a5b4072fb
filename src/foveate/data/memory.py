"""How much memory there is to spend: what the machine has free, or what its container leaves."""

from __future__ import annotations

import os
from pathlib import Path

UNKNOWN = 4 << 30
"""What is assumed where nothing tells how much memory is free."""
CACHE_SHARE = 0.25
"""Share of the free memory that the decoded images of one dataset may take."""


def free_bytes(proc: str | Path = "/proc/meminfo", group: str | Path = "/sys/fs/cgroup") -> int:
    """Bytes of memory that can be had without swapping, container limits counted.

    >>> free_bytes() > 0
    True
    """
    return max(min(_machine(Path(proc)), _container(Path(group))), 0)


def cache_bytes() -> int:
    """Bytes that the decoded images of one dataset may take."""
    return int(CACHE_SHARE * free_bytes())


def _machine(proc: Path) -> int:
    try:
        for line in proc.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
    except (OSError, ValueError, AttributeError):  # Windows has no sysconf
        return UNKNOWN


def _container(group: Path) -> int:
    """What a memory limit of a container leaves; no limit is a very large number."""
    try:
        return int((group / "memory.max").read_text()) - int((group / "memory.current").read_text())
    except (OSError, ValueError):  # no such file, or "max"
        return 1 << 62
