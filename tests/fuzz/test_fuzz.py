"""Bad input over every verb and every format: no traceback, no hang, no wrong exit code.

A sample runs with the other tests; all of it with ``make fuzz`` (or ``python -m tests.fuzz``, which counts by group).
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from tests.fuzz.harness import BAD, Case, Outcome, run, sample, summary
from tests.fuzz.isolation import isolated
from tests.fuzz.suite import all_cases
from tests.fuzz.verbs import VERBS
from tests.fuzz.world import World, make_world

from foveate.cli.main import app

SEED = int(os.environ.get("FOVEATE_FUZZ_SEED", "0"))
SAMPLE = 150
LEAST, LEAST_EDITS = 3_000, 1_000
"""Cases of the whole suite: bad lines and files, and edited model folders."""

for package in ("onnx", "onnxruntime", "yaml", "optuna", "datasets", "gradio"):
    pytest.importorskip(package, reason="the suite covers every extra")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    root = tmp_path_factory.mktemp("world")
    with isolated(root):
        yield make_world(root)


def judged(cases: list[Case]) -> None:
    outcomes = [run(case) for case in cases]
    bad = [o for o in outcomes if o.faults]
    told = "\n\n".join(f"{o.case}: {', '.join(o.faults)} (exit {o.code})\n{o.told[-600:]}" for o in bad[:10])
    assert not bad, f"{summary(outcomes)}\n\n{told}"


def test_a_sample(world: World) -> None:
    chosen = sample(all_cases(world, SEED), SAMPLE, SEED)
    assert 120 <= len(chosen) <= 200
    judged(chosen)


@pytest.mark.slow
def test_all(world: World) -> None:
    cases = all_cases(world, SEED)
    edits = sum(case.group.startswith("model:") for case in cases)
    assert edits >= LEAST_EDITS
    assert len(cases) - edits >= LEAST
    judged(cases)


def test_the_same_seed_gives_the_same_cases(world: World, tmp_path: Path) -> None:
    def words(seed: int) -> list[str]:
        return [str(case) for case in all_cases(world, seed)]

    assert words(5) == words(5)
    groups = {name.partition(": ")[0] for name in words(5)}
    assert {
        "line:fit",
        "line:app",
        "file:csv",
        "file:yaml",
        "file:onnx",
        "file:archive",
        "file:image",
        "model:app",
    } <= groups


def test_every_option_of_every_verb_is_fuzzed() -> None:
    """A new option needs a line in VERBS."""
    flags = {
        "--help", "--json", "--strict", "--overwrite", "--reuse", "--retry-failed", "--list", "--dry", "--with-target",
        "--ignore-attributes", "--discover", "--trust", "--clear", "--share", "--browser", "--schema",
        "--assets", "--force", "--again", "--scratch", "--shortcuts", "--yes",
    }  # fmt: skip
    found: dict[str, set[str]] = {}

    def walk(command: object, words: tuple[str, ...]) -> None:
        for name, inner in getattr(command, "commands", {}).items():
            walk(inner, (*words, name))
        if not hasattr(command, "commands"):
            longs = {o for p in command.params for o in p.opts if o.startswith("--")}  # type: ignore[attr-defined]
            found[" ".join(words)] = longs - flags

    walk(typer.main.get_command(app), ())
    for verb, options in found.items():
        assert verb in VERBS, f"{verb} is not fuzzed"
        assert options <= set(VERBS[verb].options), verb


# -- the harness itself ---------------------------------------------------------------------


def outcome(call: object, allowed: frozenset[int] = BAD) -> Outcome:
    return run(Case("x", "y", lambda folder: call, allowed), seconds=1.0)  # type: ignore[arg-type,return-value]


def test_a_hang_a_traceback_and_a_wrong_code_are_seen() -> None:
    began = time.perf_counter()
    assert outcome(lambda: time.sleep(30)).faults == ["hang"]
    assert time.perf_counter() - began < 10
    assert outcome(lambda: {}["x"]).faults == ["traceback"]
    assert outcome(lambda: None).faults == ["exit code"]
    assert outcome(["--version"]).faults == ["exit code"]
    assert outcome(["--nonsense"]).faults == []
    assert outcome(["eval", "\x1b[2J", "--data", "x"]).faults == []


def test_a_pipe_that_blocks_is_a_hang(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert outcome((tmp_path / "pipe").read_text).faults == ["hang"]
