"""All fuzzers together; a new one is a generator of cases and a line here."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from tests.fuzz import formats, lines
from tests.fuzz.harness import Case
from tests.fuzz.world import World

Fuzzer = Callable[[World, random.Random], Iterator[Case]]
FUZZERS: tuple[Fuzzer, ...] = (
    lines.command_lines, formats.tables, formats.images, formats.specs, formats.records, formats.onnx_files,
    formats.state_dicts, formats.sidecars, formats.archives, formats.published_lists, formats.hugging_face,
    formats.folders, formats.compositions,
)  # fmt: skip


def all_cases(world: World, seed: int = 0) -> list[Case]:
    """Every case; the same ones for the same seed."""
    return [case for fuzzer in FUZZERS for case in fuzzer(world, random.Random(f"{seed}-{fuzzer.__name__}"))]
