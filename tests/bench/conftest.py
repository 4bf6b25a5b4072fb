"""A system whose trials take no time, registered for the tests of the bench only."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

ROOT = Path(__file__).parents[2]


@pytest.fixture
def kills() -> Iterator[Any]:
    """``benchmarks.kill_sweep``, with its QuickTrial among the systems for as long as the test runs."""
    pytest.importorskip("optuna", reason="sweeps need the extra [bench]")
    torch.set_num_threads(1)
    if str(ROOT) not in sys.path:
        sys.path.insert(0, str(ROOT))
    from foveate.registries import SYSTEMS

    module = importlib.import_module("benchmarks.kill_sweep")
    SYSTEMS.add("QuickTrial", module.QuickTrial)
    yield module
    SYSTEMS.remove("QuickTrial")
