"""Datasets and weights: where they come from, what they may be used for, and that they are what they claim.

>>> from foveate import assets
>>> "mnist" in assets.list()
True
>>> assets.get("cifar10").licence
'no licence stated by the publisher; research use is customary, cite Krizhevsky 2009'
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from foveate.assets import store as _store
from foveate.assets.registry import REGISTRY
from foveate.assets.store import Asset, AssetFile, AssetStatus, MappedArray, home
from foveate.errors import DataError, suggest

__all__ = ["Asset", "AssetFile", "AssetStatus", "MappedArray", "fetch", "get", "home", "list", "status"]


def get(name: str) -> Asset:
    """The registry entry called ``name``."""
    if name not in REGISTRY:
        known = builtins.list(REGISTRY)
        raise DataError(f"unknown asset '{name}'.{suggest(name, known)} The assets are: {', '.join(known)}.")
    return REGISTRY[name]


def fetch(
    name: str | Asset,
    root: str | os.PathLike[str] | None = None,
    sources: Sequence[str] | None = None,
    *,
    verify: bool = False,
    tell: Callable[[str], None] | None = None,
) -> Path:
    """The folder with the checked files of an asset; see :func:`foveate.assets.store.fetch`."""
    asset = name if isinstance(name, Asset) else get(name)
    return _store.fetch(asset, root, sources, verify=verify, tell=tell)


def status(root: str | os.PathLike[str] | None = None) -> builtins.list[AssetStatus]:
    """One row per registered asset: name, size, licence, whether it is ready, its sources."""
    return _store.status(builtins.list(REGISTRY.values()), root)


def list() -> builtins.list[str]:
    """Names of all registered assets."""
    return builtins.list(REGISTRY)
