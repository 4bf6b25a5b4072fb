"""What tests of several folders share: a small world with a biased model, and a browser for pages."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import foveate as fv
from foveate.data.benchmark import Benchmark

FLAGS = (
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip
SMALL = {"model_args": {"width": 12, "layers": [1, 1, 1], "stem_stride": 2}, "progress": False}


@pytest.fixture(scope="session")
def data() -> Benchmark:
    return fv.data.critters(seed=0, size=32, train=600, target=120, val=80, test=200, strength=0.95)


@pytest.fixture(scope="session")
def erm(data: Benchmark) -> fv.ERM:
    return fv.ERM("micro_resnet", epochs=6, lr=3e-3, **SMALL).fit(data.train, val=data.val)


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Headless Chromium, one for a module."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright drives the browser")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no Chromium on this machine")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=list(FLAGS))
        yield started
        started.close()
