"""What the fuzzers of files share; the formats themselves are in ``formats_*.py``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.fuzz.harness import CHECKED, MAYBE, Case
from tests.fuzz.lines import unharmed
from tests.fuzz.world import World

Build = Callable[[Path], list[str]]


def case(group: str, number: object, build: Build, allowed: frozenset[int] = MAYBE) -> Case:
    return Case(f"file:{group}", str(number), build, allowed, unharmed)


def readers(world: World, data: Path, number: int) -> tuple[list[str], frozenset[int]]:
    """A verb that reads a dataset, another one for every number; the cheap one most often."""
    cheap = (["data", "check", str(data)], CHECKED)
    others = (
        (["eval", str(world.erm), "--data", str(data)], MAYBE),
        (["predict", str(world.erm), str(data), "--on-bad", "skip"], MAYBE),
        (["verify", str(world.ifam), str(data), "--images", "2"], CHECKED),
        (["audit", str(world.erm), "-d", str(data), "-o", str(data.parent / "a.html"), "--no-discover"], CHECKED),
    )
    return cheap if number % 3 else others[number // 3 % len(others)]
