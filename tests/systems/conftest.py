"""A small critters benchmark and a biased base model, shared by the tests of all systems."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import foveate as fv
from foveate.data.benchmark import Benchmark

SMALL = {"model_args": {"width": 12, "layers": [1, 1, 1], "stem_stride": 2}, "progress": False}


@pytest.fixture(scope="session", autouse=True)
def _quiet_machine() -> None:
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def data() -> Benchmark:
    return fv.data.critters(seed=0, size=32, train=600, target=120, val=80, test=200, strength=0.95)


@pytest.fixture(scope="session")
def erm(data: Benchmark) -> fv.ERM:
    return fv.ERM("micro_resnet", epochs=6, lr=3e-3, **SMALL).fit(data.train, val=data.val)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")
