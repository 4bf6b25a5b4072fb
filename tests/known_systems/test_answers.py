"""Every system gives the answers it gave before the five decisions became five objects.

On the machine the answers were made on, ``FOVEATE_EXACT=1`` compares every bit; elsewhere another order of sums may
move the last digits, so logits are compared with a tolerance.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import foveate as fv

sys.path.insert(0, str(Path(__file__).parent))
from worlds import ANSWERS, CASES, SAVED, digest

KNOWN = json.loads(ANSWERS.read_text())
KNOWN_SAVED = json.loads((SAVED.parent / "saved.json").read_text())
NEEDS_CLIP = ("ZeroShot", "A2ZeroShot", "TTR", "TTR, mean")


def same(found: np.ndarray, wanted: np.ndarray) -> bool:
    scale = max(1.0, float(np.abs(wanted).max()))
    return found.shape == wanted.shape and bool(np.abs(found - wanted).max() <= 2e-3 * scale)


def test_every_system_is_among_the_cases() -> None:
    assert {KNOWN[name]["system"] for name in CASES} | {"Pipeline"} == set(fv.systems.list_systems())


@pytest.mark.parametrize("name", CASES)
def test_answers_stay(name: str) -> None:
    if name in NEEDS_CLIP:
        pytest.importorskip("open_clip")
    case, known = CASES[name], KNOWN[name]
    system = case.fitted()
    found = case.logits(system)
    assert system.supervision() == known["supervision"]
    if os.environ.get("FOVEATE_EXACT"):
        assert digest(found) == known["digest"]
    assert same(found, np.asarray(known["logits"], dtype=np.float32))


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.saved])
def test_models_saved_before_still_load(name: str, tmp_path: Path) -> None:
    if name in NEEDS_CLIP:
        pytest.importorskip("open_clip")
    case, known = CASES[name], KNOWN_SAVED[name]
    system = fv.load(SAVED / name.replace(" ", "-"))
    if "store" in system.get_params():
        system.store = str(tmp_path)
    found = case.logits(system)
    assert type(system).__name__ == known["system"]
    assert system.supervision() == known["supervision"]
    if os.environ.get("FOVEATE_EXACT"):
        assert digest(found) == known["digest"]
    assert same(found, np.asarray(known["logits"], dtype=np.float32))
    pictures = [case.world().test[i].image for i in range(2)]
    if name != "EarlyMask":  # reads true masks, which a batch of images has not
        assert system.look(pictures).map.shape[0] == 2
