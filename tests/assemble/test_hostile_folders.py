"""A model folder is somebody else's data: every field of it, edited, gives a sentence or a model, and runs no code.

The same edits under the verbs of the command line are a part of the fuzz suite (``tests/fuzz/formats_folders.py``).
"""

from __future__ import annotations

import json
import random
import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.fuzz.folder_edits import BY_TEXT, NAMES, SAVED, edit_folder, write_bomb

import foveate as fv
from foveate.errors import FoveateError, ModelError

SAMPLE = 160


def run_edits(count: int, seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    bomb, canary = write_bomb(tmp_path)
    folder = tmp_path / "model"
    image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    refused = 0
    for number in range(count):
        name = NAMES[number % len(NAMES)]
        if name in BY_TEXT:
            pytest.importorskip("open_clip")
        shutil.rmtree(folder, ignore_errors=True)
        what = edit_folder(SAVED / name, folder, bomb, rng)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                system = fv.load(folder)
                if name != "EarlyMask":
                    system.predict([image])
        except FoveateError as error:
            refused += bool(str(error).strip())
        except Exception as error:
            raise AssertionError(f"{name}: {what}: {type(error).__name__}: {error}") from error
        assert not canary.exists(), f"{name}: {what} ran code"
    assert refused > count // 10  # the edits do reach what is checked


def test_a_sample_of_edits(tmp_path: Path) -> None:
    run_edits(SAMPLE, 0, tmp_path)


@pytest.mark.slow
def test_a_thousand_edits(tmp_path: Path) -> None:
    run_edits(1200, 1, tmp_path)


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (("train_counts", 0), 10**30),  # no number of images; NumPy has none as large
        (("train_counts", 0), -1),
        (("learned", "pool_needs"), ["nowhere", "labels"]),  # found only when a table was printed
    ],
)
def test_what_is_printed_about_a_model_is_looked_at_when_it_is_loaded(
    at: tuple[Any, ...], value: Any, tmp_path: Path
) -> None:
    model = fv.load(SAVED / "FullImage").save(tmp_path / "model")
    described = json.loads((model / "system.json").read_text())
    owner = described
    for key in at[:-1]:
        owner = owner[key]
    owner[at[-1]] = value
    (model / "system.json").write_text(json.dumps(described))
    with pytest.raises(ModelError):
        fv.load(model)
