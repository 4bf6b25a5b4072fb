"""Edits of a saved model's folder, as somebody might make them who wants code to run on another's machine.

Used on :func:`foveate.load` (``tests/assemble/test_hostile_folders.py``) and on the verbs (``formats_folders.py``).
"""

from __future__ import annotations

import copy
import json
import os
import pickle
import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SAVED = Path(__file__).parents[1] / "known_systems" / "saved"
NAMES = tuple(sorted(p.name for p in SAVED.iterdir()))
"""Systems that were saved by earlier versions, one folder each."""
BY_TEXT = ("A2ZeroShot", "TTR", "ZeroShot")
"""Those of a CLIP model: loading one needs open_clip."""


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, path: str):
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (self.path,)


def write_bomb(folder: Path) -> tuple[str, Path]:
    """A file in ``folder`` that must not be unpickled, and the place where it shows when it was."""
    bomb, canary = folder / "bomb.pth", folder / "canary"
    bomb.write_bytes(pickle.dumps({"state_dict": Bomb(str(canary))}))
    return str(bomb), canary


def edit_folder(saved: Path, folder: Path, bomb: str, rng: random.Random) -> str:
    """Copy the model ``saved`` to ``folder`` with one field of its description changed; says which and how."""
    shutil.copytree(saved, folder)
    described = json.loads((folder / "system.json").read_text(encoding="utf-8"))
    changed, what = edited(described, bomb, rng)
    text = json.dumps(changed)
    if rng.random() < 0.03:
        text, what = text[: rng.randrange(len(text))], "cut short"
    (folder / "system.json").write_text(text, encoding="utf-8")
    return what


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


def places(value: Any, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every field of nested dictionaries and lists."""
    if at:
        yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in inner:
        yield from places(child, (*at, key))


def wicked(old: Any, bomb: str, rng: random.Random) -> Any:
    """Something else in place of ``old``."""
    return rng.choice([
        None, True, -1, 0, 3, 1e300, -1e-300, 10**30, "", "x", "../../etc/passwd", bomb, "hf-hub:evil", [], [1, 2], {},
        {"a": 1}, [[[]]], "\x1b[31m", "é" * 50, old * 2 if isinstance(old, (str, list)) else [old], str(old)[:40],
        {"checkpoint_path": bomb}, {"pretrained_cfg": {"file": bomb}},
    ])  # fmt: skip
