"""All fuzzers together; a new one is a generator of cases and a line here."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from tests.fuzz import formats_data as data
from tests.fuzz import formats_downloads as downloads
from tests.fuzz import formats_models as models
from tests.fuzz import formats_study as study
from tests.fuzz.formats_folders import model_folders
from tests.fuzz.harness import Case
from tests.fuzz.lines import command_lines
from tests.fuzz.world import World

Fuzzer = Callable[[World, random.Random], Iterator[Case]]
FUZZERS: tuple[Fuzzer, ...] = (
    command_lines, data.tables, data.images, data.folders, data.compositions, study.specs, study.records,
    models.onnx_files, models.state_dicts, models.sidecars, model_folders, downloads.archives,
    downloads.published_lists, downloads.hugging_face,
)  # fmt: skip


def all_cases(world: World, seed: int = 0) -> list[Case]:
    """Every case; the same ones for the same seed."""
    return [case for fuzzer in FUZZERS for case in fuzzer(world, random.Random(f"{seed}-{fuzzer.__name__}"))]
