"""``foveate WORDS`` in this process, as on the command line."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from foveate.cli import main as entry

Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Runs a command, errors handled as on the command line; gives exit code, output and error stream."""

    def run(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["foveate", *words])
        with pytest.raises(SystemExit) as stopped:
            entry()
        captured = capsys.readouterr()
        return int(stopped.value.code or 0), captured.out, captured.err

    return run
