"""Where output goes to a file, work that takes long says so in plain lines; what is quick says nothing."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from foveate.engine import progress
from foveate.engine.progress import Progress


def test_a_line_now_and_then(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = {"now": 0.0}
    monkeypatch.setattr(progress.time, "perf_counter", lambda: clock["now"])
    with Progress("training", total=100) as bar:
        for _ in range(10):
            clock["now"] += 5.0
            bar.advance(10, 0.5)
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["training: 20 %, 2/s, 40 s left loss 0.500", "training: 80 %, 2/s, 10 s left loss 0.500"]


def test_what_is_quick_or_not_wanted_is_silent(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Progress("training", total=4) as bar:
        bar.advance(4)
    monkeypatch.setattr(progress, "FIRST", 0.0)
    with Progress("training", total=4, shown=False) as bar:
        bar.advance(4)
    assert capsys.readouterr().err == ""


def test_a_piped_fit_tells_how_far_it_is() -> None:
    code = (
        "import foveate as fv\n"
        "from foveate.engine import progress\n"
        "progress.FIRST = progress.EVERY = 0.0\n"
        "data = fv.data.critters(train=64, target=0, val=0, test=0, size=32)\n"
        "fv.ERM('micro_resnet', epochs=2).fit(data.train)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    lines = [line for line in done.stderr.splitlines() if "%" in line]
    assert lines
    assert all(re.search(r": \d+ %, [\d,]+/s", line) for line in lines)
    assert "\x1b" not in done.stderr
    assert done.stdout == ""
