"""What keeps bad input harmless and quick: no network, no registry clients, one thread, little memory."""

from __future__ import annotations

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

MEMORY = 4 << 30
"""Bytes a case may take beyond what is in use already: absurd sizes must fail here, not take the machine with them."""


@contextlib.contextmanager
def isolated(root: Path) -> Iterator[None]:
    """For as long as it lasts nothing outside this machine is asked for anything."""
    import torch

    from foveate.assets import sources

    def refused(*given: object, **options: object) -> bytes:
        raise sources.SourceError("there is no network here")

    limits = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, limits[1]))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    places = {"FOVEATE_DATA": str(root / "cache"), "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "COLUMNS": "200"}
    before = Path.cwd()
    os.chdir(root)
    try:
        with mock.patch.object(sources, "run", refused), mock.patch.object(sources, "_get", refused), \
                mock.patch.dict(os.environ, places):  # fmt: skip
            yield
    finally:
        os.chdir(before)
        torch.set_num_threads(threads)
        resource.setrlimit(resource.RLIMIT_AS, limits)
