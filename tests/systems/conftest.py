"""One thread for the tests of all systems: their networks are too small for more."""

from __future__ import annotations

import pytest
import torch


@pytest.fixture(scope="session", autouse=True)
def _quiet_machine() -> None:
    torch.set_num_threads(1)
