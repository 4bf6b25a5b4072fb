"""What tests share: time limits, an honest end when a worker dies, a small world with a biased model, a browser."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import foveate as fv
from foveate.data.benchmark import Benchmark
from foveate.registries import SYSTEMS

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


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What is kept between runs must not come from an earlier one, nor stay on the machine."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FOVEATE_CACHE", str(tmp_path_factory.mktemp("features")))
        patch.setenv("FOVEATE_OFFLINE", "1")  # a network by name starts from what is on the machine, or from nothing
        yield


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("store")


@pytest.fixture
def _listed_for_now() -> Iterator[None]:
    """Systems that a test lists by importing a module are struck off after it."""
    before = dict(SYSTEMS._lines)
    yield
    SYSTEMS._lines.clear()
    SYSTEMS._lines.update(before)


SLOW_SECONDS = 3600
_lost: list[str] = []


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_SECONDS))


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.get_closest_marker("bf16"):
        from foveate.engine import bf16_problem

        if problem := bf16_problem():
            pytest.skip(problem)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """A worker of pytest-xdist is gone; with ``error``, before its time."""
    if error:
        _lost.append(node.gateway.id)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    # a worker that dies while it collects leaves "no tests ran" and exit code 0 behind
    if _lost and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.INTERNAL_ERROR


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
