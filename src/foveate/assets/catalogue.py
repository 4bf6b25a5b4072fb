"""What there is to know of a dataset without opening it, and whether it is here; no array library is imported.

The modules of the datasets are where the facts stand; ``datasets.json`` keeps a copy so that a list need not import
them (``python -m foveate.data.facts`` writes it again, and a test says when that is due).
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

from foveate.assets import store
from foveate.assets.registry import REGISTRY

Root = str | os.PathLike[str] | None
FACTS_FILE = "datasets.json"


@dataclass(frozen=True)
class DatasetFacts:
    """What a dataset is and what shows that it is here.

    Attributes:
        name: what :func:`foveate.data.load` takes.
        images: how many, None where not known beforehand.
        licence: what it may be used for.
        needs: what must be there: nothing, fetched assets, or a download of your own.
        folders: names its folder usually has, looked for under the root.
        markers: files or folders that must be inside; alternatives are divided by ``|``.
        others: datasets that it needs besides.
        assets: what is fetched for it.
    """

    name: str
    images: int | None
    licence: str
    needs: str
    folders: tuple[str, ...] = ()
    markers: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    assets: tuple[str, ...] = ()


@dataclass(frozen=True)
class DatasetEntry:
    """One row of the list of datasets: its facts, whether it is ready on this machine, and one line about it."""

    name: str
    images: int | None
    licence: str
    needs: str
    ready: bool
    title: str


def kept_facts() -> dict[str, DatasetFacts]:
    """The facts of this package's datasets by name, read from ``datasets.json``.

    >>> kept_facts()["celeba"].images
    202599
    """
    rows = json.loads((files("foveate.assets") / FACTS_FILE).read_text(encoding="utf-8"))
    found: dict[str, DatasetFacts] = {}
    for row in rows:
        told: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in row.items()}
        found[row["name"]] = DatasetFacts(**told)
    return found


def entries(facts: Mapping[str, DatasetFacts], titles: Mapping[str, str], root: Root = None) -> list[DatasetEntry]:
    """A row for each of ``facts``; nothing is opened or fetched."""
    here = {row.name: row.ready for row in store.status(list(REGISTRY.values()), root)}

    def ready(fact: DatasetFacts) -> bool:
        there = not fact.markers or any(holds(p, fact.markers) for p in places(fact.name, fact.folders, root))
        return there and all(ready(facts[o]) for o in fact.others) and all(here[a] for a in fact.assets)

    return [
        DatasetEntry(f.name, f.images, f.licence, f.needs, ready(f), titles.get(f.name, "")) for f in facts.values()
    ]


def base_folder(root: Root) -> Path:
    """The folder given, or the one :mod:`foveate.assets` keeps its files in."""
    return Path(root).expanduser() if root is not None else store.home()


def places(name: str, folders: Sequence[str], root: Root = None) -> list[Path]:
    """Folders that are looked at, in order: ``root/NAME``, its usual names under ``root``, ``root`` itself."""
    base = base_folder(root)
    names = dict.fromkeys((name, *folders))
    # an archive with files beside its main folder unpacks to NAME/NAME
    return [*(base / n for n in names), base, *(base / n / f for n in names for f in folders)]


def holds(place: Path, markers: Sequence[str]) -> bool:
    """Whether all ``markers`` are in a folder."""
    return place.is_dir() and all(any((place / one).exists() for one in marker.split("|")) for marker in markers)
