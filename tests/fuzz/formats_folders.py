"""Saved model folders under the verbs that open one: a field of the description changed, or bytes of the weights."""

from __future__ import annotations

import importlib.util
import random
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.fuzz.corrupt import spoil_bytes
from tests.fuzz.folder_edits import BY_TEXT, NAMES, SAVED, edit_folder, write_bomb
from tests.fuzz.harness import CHECKED, Case
from tests.fuzz.lines import unharmed
from tests.fuzz.world import World

ROW = "Pipeline"
"""The name here of a pipeline put together from parts; there is none among those that were saved long ago."""


def model_folders(world: World, rng: random.Random, count: int = 1_050) -> Iterator[Case]:
    """Every verb that opens a model, on models saved long ago and on the same ones saved today."""
    clip = importlib.util.find_spec("open_clip") is not None
    names = [name for name in (*NAMES, ROW) if clip or name not in BY_TEXT]
    for number in range(count):
        name, verb = names[number % len(names)], list(OPENERS)[number // len(names) % len(OPENERS)]
        old = name != ROW and rng.random() < 0.5
        yield _case(world, name, verb, old, number, rng.randrange(2**32))


def _case(world: World, name: str, verb: str, old: bool, number: int, seed: int) -> Case:
    def build(folder: Path) -> list[str] | Callable[[], object]:
        bomb, _ = write_bomb(folder)
        rng = random.Random(seed)
        model = folder / "model"
        edit_folder(SAVED / name if old else saved_today(world, name), model, bomb, rng)
        if rng.random() < 0.15:
            weights = model / "weights.safetensors"
            weights.write_bytes(spoil_bytes(weights.read_bytes(), rng))
        return OPENERS[verb](world, model)

    def after(folder: Path) -> str | None:
        return "code of the model folder was run" if (folder / "canary").exists() else unharmed(folder)

    return Case(f"model:{verb}", f"{number} {name} {'old' if old else 'new'}", build, CHECKED, after)


def saved_today(world: World, name: str) -> Path:
    """A model in the present format, made when it is first asked for."""
    import foveate as fv

    folder = world.root / "models" / name
    if not folder.exists():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            (_pipeline(world) if name == ROW else fv.load(SAVED / name)).save(folder)
    return folder


def _pipeline(world: World) -> Any:
    import foveate as fv

    row = fv.Pipeline(
        look=fv.look.ClsAttention("micro-vit"), restrict=fv.restrict.TopTokens(keep=0.3),
        extract=fv.extract.Frozen("micro-vit"), decide=fv.decide.Logistic(), store=tempfile.mkdtemp(dir=world.root),
        progress=False,
    )  # fmt: skip
    return row.fit(fv.data.from_path(world.data).train)


def _open_page(world: World, model: Path) -> Callable[[], object]:
    """What ``foveate app`` does before it serves: models, data, and the page with its first pictures."""

    def opened() -> None:
        from foveate.app.page import Page
        from foveate.app.state import Session
        from foveate.assemble.saving import load
        from foveate.data.typed import open_data

        session = Session({"model": load(model)}, open_data(str(world.data)), folders={"model": model}, limit=8)
        page = Page(session)
        try:
            first = {"split": session.split, "row": 0}
            page._select(first, {"model": session.saved("model")})
        finally:
            page.close()

    return opened


OPENERS: dict[str, Callable[[World, Path], list[str] | Callable[[], object]]] = {
    "eval": lambda world, model: ["eval", str(model), "--data", str(world.data)],
    "audit": lambda world, model: [
        "audit", str(model), "-d", str(world.data), "-o", str(model.parent / "a.html"), "--no-discover",
    ],
    "predict": lambda world, model: ["predict", str(model), str(world.data)],
    "look": lambda world, model: ["look", str(model), str(world.root / "image.png"), "-o", str(model.parent / "l.png")],
    "app": _open_page,
}  # fmt: skip
