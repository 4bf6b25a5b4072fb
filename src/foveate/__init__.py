"""foveate finds the shortcut an image classifier takes, and makes it look at the object instead.

>>> import foveate as fv
>>> fv.data.critters(train=8, target=8, val=8, test=8)
Benchmark(critters: train 8, target 8, val 8, test 8)
"""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_FOLDERS = (
    "assemble",
    "assess",
    "assets",
    "bench",
    "data",
    "decide",
    "engine",
    "export",
    "extract",
    "intervene",
    "look",
    "measure",
    "pool",
    "remedy",
    "report",
    "restrict",
    "systems",
)
_NAMES = {
    "evaluate": "assess",
    "entanglement": "assess",
    "load": "assemble.saving",
    "wrap": "assemble.wrapping",
    "Wrapped": "assemble.wrapping",
    "Restricted": "assemble.wrapping",
    "audit": "report",
    "cure": "remedy",
    "FoveateError": "errors",
}


def __getattr__(name: str) -> Any:
    """Load parts when they are first used, so that ``import foveate`` is quick."""
    if name in _FOLDERS:
        return importlib.import_module(f"foveate.{name}")
    if name in _NAMES:
        return getattr(importlib.import_module(f"foveate.{_NAMES[name]}"), name)
    if not name.startswith("_") and name in _systems().names():
        return _systems().get(name)
    raise AttributeError(f"module 'foveate' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted(["__version__", *_FOLDERS, *_NAMES, *_systems().names()])


def _systems() -> Any:
    return importlib.import_module("foveate.registries").SYSTEMS
