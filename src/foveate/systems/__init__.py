"""Named systems: one file each. Their names stand in :data:`foveate.registries.SYSTEMS`; a file is read when asked for.

>>> import foveate as fv
>>> fv.systems.get_system("erm") is fv.systems.ERM is fv.ERM
True
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from foveate.registries import SYSTEMS

if TYPE_CHECKING:
    from foveate.assemble.system import System

_BESIDE = {
    "Needs": "assemble.needs", "Network": "assemble.network", "System": "assemble.system", "load": "assemble.saving",
    "Wrapped": "assemble.wrapping", "wrap": "assemble.wrapping",
    "Restricted": "assemble.wrapping",
    "Entanglement": "assess", "PartQuality": "assess", "entanglement": "assess", "evaluate": "assess",
    "part_quality": "assess",
}  # fmt: skip
"""What belongs to systems and has its home in another folder."""


def get_system(name: str) -> type[System]:
    """The system class called ``name`` (case does not matter)."""
    return SYSTEMS.get(name)


def list_systems() -> list[str]:
    """Names of all systems."""
    return SYSTEMS.names()


def __getattr__(name: str) -> Any:
    if name in _BESIDE:
        return getattr(importlib.import_module(f"foveate.{_BESIDE[name]}"), name)
    if name in SYSTEMS.names():  # the case matters here: systems.erm is a file, systems.ERM what is in it
        return SYSTEMS.get(name)
    raise AttributeError(f"module 'foveate.systems' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*globals(), *_BESIDE, *SYSTEMS.names()])
