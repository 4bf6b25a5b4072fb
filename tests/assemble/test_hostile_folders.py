"""A model folder is somebody else's data: every field of it, edited, gives a sentence or a model, and runs no code."""

from __future__ import annotations

import copy
import json
import os
import pickle
import random
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import foveate as fv
from foveate.errors import FoveateError

SAVED = Path(__file__).parents[1] / "known_systems" / "saved"
FOLDERS = sorted(p.name for p in SAVED.iterdir())
SAMPLE = 160


class Bomb:
    """Writes a file when it is unpickled."""

    def __init__(self, path: str):
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if at:
        yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in inner:
        yield from places(child, (*at, key))


def wicked(old: Any, bomb: str, rng: random.Random) -> Any:
    return rng.choice([
        None, True, -1, 0, 3, 1e300, -1e-300, 10**30, "", "x", "../../etc/passwd", bomb, "hf-hub:evil", [], [1, 2], {},
        {"a": 1}, [[[]]], "\x1b[31m", "é" * 50, old * 2 if isinstance(old, (str, list)) else [old], str(old)[:40],
        {"checkpoint_path": bomb}, {"pretrained_cfg": {"file": bomb}},
    ])  # fmt: skip


def edited(described: dict[str, Any], bomb: str, rng: random.Random) -> tuple[dict[str, Any], str]:
    """A copy with one field changed, removed or added."""
    changed = copy.deepcopy(described)
    at = rng.choice(list(places(changed)))
    owner = changed
    for key in at[:-1]:
        owner = owner[key]
    how = rng.random()
    if how < 0.15:
        del owner[at[-1]]
        return changed, f"without {at}"
    if how < 0.3 and isinstance(owner, dict):
        name = rng.choice(["checkpoint_path", "pretrained_cfg", "cache_dir", "weights", "store", "base", "__class__"])
        owner[name] = bomb
        return changed, f"{at[:-1]} with {name}"
    owner[at[-1]] = wicked(owner[at[-1]], bomb, rng)
    return changed, f"{at} = {owner[at[-1]]!r}"[:200]


def run_edits(count: int, seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    canary = tmp_path / "canary"
    bomb = tmp_path / "bomb.pth"
    bomb.write_bytes(pickle.dumps({"state_dict": Bomb(str(canary))}))
    folder = tmp_path / "model"
    image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    refused = 0
    for number in range(count):
        name = FOLDERS[number % len(FOLDERS)]
        if name in ("A2ZeroShot", "TTR", "ZeroShot"):
            pytest.importorskip("open_clip")
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(SAVED / name, folder)
        described = json.loads((folder / "system.json").read_text())
        changed, what = edited(described, str(bomb), rng)
        text = json.dumps(changed)
        if rng.random() < 0.03:
            text, what = text[: rng.randrange(len(text))], "cut short"
        (folder / "system.json").write_text(text)
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
