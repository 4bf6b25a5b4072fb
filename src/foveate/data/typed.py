"""What people type: settings as name=value, and a dataset as a path or a name with options."""

from __future__ import annotations

import ast
import inspect
from pathlib import Path
from typing import Any

from foveate.data.benchmark import Benchmark
from foveate.data.registry import load, loader
from foveate.data.tables import from_csv, from_path
from foveate.errors import DataError, FoveateError
from foveate.parameters import MAX_SEED
from foveate.registries import DATASETS


def value_of(text: str) -> Any:
    """A number, list, None or truth value when ``text`` reads as one, otherwise the text itself."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return {"true": True, "false": False, "none": None}.get(text.lower(), text)


def settings_of(pairs: list[str] | None) -> dict[str, Any]:
    """``["lr=0.1", "epochs=3"]`` as a dictionary."""
    settings = {}
    for pair in pairs or []:
        name, equals, text = pair.partition("=")
        if not equals or not name:
            raise FoveateError(f"expected name=value, found '{pair}'.")
        settings[name.strip().replace("-", "_")] = value_of(text.strip())
    return settings


def open_data(what: str, root: Path | None = None, seed: int | None = None) -> Benchmark:
    """A benchmark from a path (CSV or folder), or a name with options: ``critters:strength=0.9,size=48``.

    ``root`` is the folder with a named dataset's files, or what the paths in a CSV file are relative to; ``seed`` is
    for named datasets that take one and were not given one.

    >>> open_data("critters:train=8,target=8,val=8,test=8,size=32", seed=3).notes["seed"]
    3
    """
    name, _, options = what.partition(":")
    if name in DATASETS and not Path(what).exists():
        given = settings_of([o for o in options.split(",") if o])
        if "root" in given:
            raise DataError(f"the folder of {name} is not one of its options; give it as root (--root).")
        chosen = given.get("seed", 0)
        if not isinstance(chosen, int) or not 0 <= chosen <= MAX_SEED:
            raise DataError(f"a seed is a whole number from 0 to {MAX_SEED}; found {chosen!r}.")
        if seed is not None and "seed" in inspect.signature(loader(name)).parameters:
            given.setdefault("seed", seed)
        return load(name, root, **given)
    place = Path(what).expanduser()
    if root is not None and place.is_dir():
        raise DataError("--root goes with a CSV file or a named dataset; paths in a folder are where they are.")
    if root is not None and place.is_file():
        return from_csv(place, root)
    if place.exists() or "/" in what or what.endswith(".csv"):
        return from_path(what)
    return load(name, root)  # raises with the known names
