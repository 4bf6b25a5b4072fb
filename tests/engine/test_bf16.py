"""bf16 is tried where a crash does no harm, once, and a processor that cannot do it gets a sentence."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import foveate as fv
from foveate.engine import TensorFeed, TrainSettings, bf16, train
from foveate.engine.bf16 import bf16_problem, require_bf16
from foveate.errors import FoveateError


@pytest.fixture(autouse=True)
def _afresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv(bf16.OVERRIDE, raising=False)
    monkeypatch.delenv(bf16.LIMIT, raising=False)
    bf16_problem.cache_clear()
    yield
    bf16_problem.cache_clear()


@pytest.mark.parametrize(
    ("trial", "told"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGILL)", r"SIGILL \(Illegal instruction\)"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"),
        ("assert False, 'a wrong product'", "AssertionError: a wrong product"),
        ("raise SystemExit(3)", "exit 3"),
        ("import time; time.sleep(60)", "had not ended after 1 s"),
    ],
)
def test_a_trial_that_dies_is_a_sentence_here(trial: str, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bf16, "TRIAL", trial)
    monkeypatch.setattr(bf16, "PATIENCE", 1 if "sleep" in trial else 60)
    with pytest.raises(FoveateError, match=told) as caught:
        require_bf16("bf16-mixed")
    assert "set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 in the environment before Python starts" in str(caught.value)
    assert "precision='32-true'" in str(caught.value)


def test_it_is_tried_once_and_only_when_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def spy(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        return subprocess.CompletedProcess(args, 0, "", "")

    monkeypatch.setattr(bf16.subprocess, "run", spy)
    for precision in ("32-true", "16-mixed"):
        require_bf16(precision)
    assert calls == []
    for precision in ("bf16-mixed", "bf16-true", "bf16-mixed"):
        require_bf16(precision)
    assert len(calls) == 1


def test_the_variable_decides_without_a_trial(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bf16, "TRIAL", "raise SystemExit(1)")
    monkeypatch.setenv(bf16.OVERRIDE, "usable")
    assert bf16_problem() is None
    bf16_problem.cache_clear()
    monkeypatch.setenv(bf16.OVERRIDE, "perhaps")
    with pytest.raises(FoveateError, match="'usable' or 'unusable'; found 'perhaps'"):
        bf16_problem()


def test_where_the_cure_is_taken_already_it_is_not_advised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(bf16.OVERRIDE, "unusable")
    monkeypatch.setenv(bf16.LIMIT, "AVX2")
    with pytest.raises(FoveateError, match="ONEDNN_MAX_CPU_ISA=AVX2 does not help; use another precision"):
        require_bf16("bf16-mixed")


def test_training_refuses_before_it_dies(monkeypatch: pytest.MonkeyPatch) -> None:
    if torch.cuda.is_available():
        pytest.skip("the training would run on the GPU")
    monkeypatch.setenv(bf16.OVERRIDE, "unusable")
    data = fv.data.critters(train=40, target=0, val=0, test=8, size=32).train
    feed = TensorFeed(torch.zeros(len(data), 4), data)
    with pytest.raises(FoveateError, match="precision='bf16-mixed' does not work on this processor"):
        train(torch.nn.Linear(4, 2), feed, TrainSettings(precision="bf16-mixed", progress=False))
    train(torch.nn.Linear(4, 2), feed, TrainSettings(epochs=1, progress=False))


def test_the_true_trial_gives_an_answer() -> None:
    problem = bf16_problem()
    assert problem is None or "bf16" in problem
