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
    "report",
    "restrict",
    "systems",
)
_NAMES = {
    "evaluate": "systems",
    "entanglement": "systems",
    "load": "systems",
    "wrap": "systems",
    "Wrapped": "systems",
    "audit": "report",
    "FoveateError": "errors",
}
_SYSTEMS = (
    "ERM", "CVaRDRO", "CnC", "DAR", "DFR", "GroupDRO", "JTT", "Reweight", "SpectralDecoupling", "Subsample",
    "IFAM", "PDiscoFormer", "EarlyMask", "LateMask", "AIMProbe", "EPProbe",
    "A2", "CentreCrop", "FullImage", "Glimpse", "RandomCrops", "S2",
    "A2Adapter", "A2ZeroShot", "TTR", "ZeroShot",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    """Load parts when they are first used, so that ``import foveate`` is quick."""
    if name in _FOLDERS:
        return importlib.import_module(f"foveate.{name}")
    home = _NAMES.get(name) or ("systems" if name in _SYSTEMS else None)
    if home is None:
        raise AttributeError(f"module 'foveate' has no attribute '{name}'")
    return getattr(importlib.import_module(f"foveate.{home}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_FOLDERS, *_NAMES, *_SYSTEMS])
