"""A traced network on disk is data: edited, it gives a sentence or a model, and asks for nothing it should not."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.fuzz.folder_edits import edit_folder, write_bomb
from torch import nn

import foveate as fv
from foveate.data.preprocess import Preprocess
from foveate.errors import FoveateError, ModelError
from foveate.extract.traced.operators import ALLOWED, operator
from foveate.extract.traced.program import Program, TracedStep

SAMPLE = 120


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A wrapped module, DAR on it, and a restriction around it."""
    place = tmp_path_factory.mktemp("programs")
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
    data = fv.data.critters(size=32, train=8, target=16, val=8, test=8)
    base = fv.wrap(net.eval(), ["cat", "duck"], preprocess=Preprocess((32, 32)))
    dar = fv.DAR(base, epochs=1, queries=1, store=place / "store", progress=False).fit(data.target)
    shown = fv.Restricted(base, "micro-vit", shares=(0.5,), select="loss").fit(data.target, val=data.val)
    shown.share_, shown.preprocess_ = 0.5, Preprocess((64, 64), mean=(0.0,) * 3, std=(1.0,) * 3, flip=False)
    return {name: system.save(place / name) for name, system in (("base", base), ("dar", dar), ("shown", shown))}


def test_a_sample_of_edits(saved: dict[str, Path], tmp_path: Path) -> None:
    rng = random.Random(0)
    bomb, canary = write_bomb(tmp_path)
    image = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    refused = 0
    for number in range(SAMPLE):
        folder = tmp_path / "model"
        shutil.rmtree(folder, ignore_errors=True)
        what = edit_folder(list(saved.values())[number % 3], folder, bomb, rng)
        try:
            fv.load(folder).predict([image])
        except FoveateError as error:
            refused += bool(str(error).strip())
        except Exception as error:
            raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error
        assert not canary.exists(), what
    assert refused > SAMPLE // 10


def step(told: dict[str, Any], number: int = 0) -> dict[str, Any]:
    return told["learned"]["backbone"]["program"]["steps"][number]


def program(told: dict[str, Any]) -> dict[str, Any]:
    return told["learned"]["backbone"]["program"]


EDITS: dict[str, tuple[Callable[[dict[str, Any]], Any], str]] = {
    "an operator that reads a file": (lambda t: step(t).update(op="from_file.default"), "may not use the operator"),
    "an operator that writes": (lambda t: step(t, 1).update(op="relu_.default"), "may not use the operator"),
    "no operator": (lambda t: step(t).update(op="__import__"), "may not use the operator"),
    "a step from the future": (lambda t: step(t).update(args=[{"step": 7}]), "reads what is not there"),
    "a weight nobody has": (lambda t: step(t).update(args=[{"weight": "none"}]), "reads what is not there"),
    "a word nobody knows": (lambda t: step(t).update(args=[{"file": "/etc/passwd"}]), "no argument of a step"),
    "a path as a word": (lambda t: step(t, 1).update(args=["../../secret/$HOME"]), "no word for an argument"),
    "other arguments": (lambda t: step(t, 1).update(args=[{"step": 0}, 1, 2, 3]), "of a saved network fails"),
    "all the memory there is": (
        lambda t: step(t, 1).update(op="repeat.default", args=[{"step": 0}, [1, 1, 60000, 60000]]), "too much memory"
    ),
    "weights without end": (
        lambda t: program(t)["weights"].update(more={"shape": [2**20, 2**20], "dtype": "float32"}), "none of ours"
    ),
    "another type": (lambda t: program(t)["weights"].update(x={"shape": [1], "dtype": "object"}), "a weight is one of"),
    "another embedding": (lambda t: t["learned"]["backbone"]["cuts"].update(dim=9), "says that a step gives"),
    "cuts elsewhere": (lambda t: t["learned"]["backbone"]["cuts"].update(maps=99), "steps it does not have"),
    "no cuts": (lambda t: t["learned"]["backbone"].pop("cuts"), "where its maps and its embedding are"),
    "another kind of head": (lambda t: t["learned"]["head"].update(kind="pickle"), "head of a saved model"),
    "another way of holding": (lambda t: t["learned"].update(kind="script"), "saved model from elsewhere is one of"),
}  # fmt: skip


@pytest.mark.parametrize("edit", EDITS)
def test_what_a_program_may_not_say(edit: str, saved: dict[str, Path], tmp_path: Path) -> None:
    folder = tmp_path / "model"
    shutil.copytree(saved["base"], folder)
    told = json.loads((folder / "system.json").read_text())
    change, said = EDITS[edit]
    change(told)
    (folder / "system.json").write_text(json.dumps(told))
    with pytest.raises(ModelError, match=said):
        fv.load(folder)


def test_every_operator_on_the_list_is_one_and_writes_nothing() -> None:
    known = 0
    for name in ALLOWED:
        try:
            found: Any = operator(name)
        except ModelError:  # of another version of torch
            continue
        known += 1
        assert not found._schema.is_mutable, name
        assert not any(word in name for word in ("random", "bernoulli", "file", "set_", "resize", "strided")), name
    assert known > 0.95 * len(ALLOWED)


def test_results_nobody_reads_are_let_go_and_slices_agree() -> None:
    steps = [
        TracedStep("mul.Tensor", [{"step": -1}, {"weight": "w"}]),
        TracedStep("relu.default", [{"step": 0}]),
        TracedStep("add.Tensor", [{"step": 1}, {"step": 0}]),
        TracedStep("sum.dim_IntList", [{"step": 2}, [1]]),
    ]
    whole = Program(steps, {"w": torch.tensor([1.0, -2.0])})
    x = torch.tensor([[3.0, 4.0]])
    assert whole.run(x).tolist() == [6.0 - 8.0]
    middle = whole.run(x, end=0)
    assert whole.run(middle, start=0).tolist() == [-2.0]
    cut, place = whole.cut(0, 3)
    assert (len(cut.steps), place[3], cut.run(middle).tolist()) == (3, 2, [-2.0])
    assert whole.path(-1, 3)[2] == (2, [1, 0]) or whole.path(-1, 3)[2] == (2, [0, 1])
