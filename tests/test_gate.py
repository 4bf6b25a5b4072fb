"""What the gate promises: a run ends, with a failure, whatever its tests do to their process."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GOOD = "import time\ndef test_x(): time.sleep(0.2)\ndef test_y(): time.sleep(0.2)\n"
DIES = "import os, signal\ndef test_before(): pass\ndef test_dies(): os.kill(os.getpid(), signal.{how})\n"
# gone while it collects, and only one of the workers
UNBORN = """
import os, signal
if os.environ.get("PYTEST_XDIST_WORKER") == "gw1":
    os.kill(os.getpid(), signal.SIGILL)
def test_x(): pass
"""
SLEEPS = "import time\ndef test_sleeps(): time.sleep(600)\n"
# a lock taken twice in C: no signal brings Python back
STUCK = """
import ctypes
def test_stuck():
    c, lock = ctypes.CDLL(None), ctypes.create_string_buffer(64)
    c.pthread_mutex_lock(lock)
    c.pthread_mutex_lock(lock)
"""
pytest.importorskip("xdist", reason="it is pytest-xdist that is tested")


def run(folder: Path, files: dict[str, str], *options: str) -> tuple[int, str, float]:
    """A project of its own with this one's settings and conftest.py, as ``make test`` runs it."""
    shutil.copy(ROOT / "pyproject.toml", folder)
    (folder / "tests").mkdir()
    shutil.copy(ROOT / "tests" / "conftest.py", folder / "tests")
    (folder / "src").mkdir()
    for name, text in files.items():
        (folder / "tests" / f"test_{name}.py").write_text(text)
    clean = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST_")}
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadfile", "-p", "no:cacheprovider", *options],
        cwd=folder, env=clean, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr, time.monotonic() - began


def test_a_worker_that_dies_ends_the_run_with_a_failure(tmp_path: Path) -> None:
    files = {name: GOOD for name in "abcxyz"} | {"m": DIES.format(how="SIGILL")}
    code, told, _ = run(tmp_path, files)  # without --max-worker-restart=0 this one never ends
    assert code == 1, told
    assert "crashed while running 'tests/test_m.py::test_dies'" in told


@pytest.mark.gate
@pytest.mark.parametrize(
    ("files", "told"),
    [
        ({"m": DIES.format(how="SIGKILL"), "a": GOOD}, "crashed while running 'tests/test_m.py::test_dies'"),
        ({"c": UNBORN, "d": GOOD}, "crashed and worker restarting disabled"),
        ({"s": SLEEPS, "d": GOOD}, "Timeout"),
        ({"s": STUCK, "d": GOOD}, "crashed while running 'tests/test_s.py::test_stuck'"),
    ],
    ids=["killed", "dies while collecting", "sleeps", "stuck in C"],
)
def test_every_other_way_to_go_wrong_ends_it_too(files: dict[str, str], told: str, tmp_path: Path) -> None:
    limits = ["-o", "timeout=3", "-o", "faulthandler_timeout=6", "-o", "faulthandler_exit_on_timeout=true"]
    code, out, seconds = run(tmp_path, files, *limits)
    assert code != 0, out
    assert told in out
    assert seconds < 200


def test_ci_ends_a_stage_that_does_not_end(tmp_path: Path) -> None:
    (tmp_path / ".ci").mkdir()
    script = (ROOT / ".ci" / "run").read_text()
    (tmp_path / ".ci" / "run").write_text(
        re.sub(r"stage \d+ check", "stage 1 check", script).replace("--kill-after=20", "--kill-after=1")
    )
    # deaf to the first signal, as a stuck process may be
    (tmp_path / "Makefile").write_text("setup:\n\t@true\ncheck:\n\t@trap '' TERM; sleep 60 & wait; sleep 60\n")
    done = subprocess.run(["bash", ".ci/run"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert done.returncode != 0
    assert "make check did not end within 1 seconds" in done.stderr
    # every stage goes through the same function
    assert [line.split()[-1] for line in script.splitlines() if line.startswith("stage ")] == [
        "setup", "check", "test", "gate",
    ]  # fmt: skip


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
@pytest.mark.parametrize(
    ("given", "index"),
    [
        ([], None),
        (["INDEX=cpu"], "https://download.pytorch.org/whl/cpu"),
        (["INDEX=https://example.org/simple"], "https://example.org/simple"),
    ],
)
def test_the_index_is_the_one_that_was_asked_for(given: list[str], index: str | None, tmp_path: Path) -> None:
    told = subprocess.run(
        ["make", "-n", "demo", f"VENV={tmp_path / 'none'}", *given],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert ("--extra-index-url" in told) == (index is not None)
    assert index is None or f"--extra-index-url {index} -c constraints.txt" in told
