"""Datasets by name. Adding one is a loader function and a line here."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foveate import assets
from foveate.data.benchmark import Benchmark
from foveate.data.cmnist import cmnist
from foveate.data.critters import critters
from foveate.data.cue import cue_critters
from foveate.data.dominoes import dominoes
from foveate.data.sources import SOURCES, refuse_ambiguous
from foveate.data.tables import from_path
from foveate.errors import DataError, suggest


def own(root: str | Path) -> Benchmark:
    """Your own images by path (a CSV file, or a folder): what specs and the command line call ``own``."""
    return from_path(root)


LOADERS: dict[str, Callable[..., Benchmark]] = {
    "critters": critters,
    "critters-cue": cue_critters,
    "dominoes": dominoes,
    "cmnist": cmnist,
    "own": own,
    **{name: source.load for name, source in SOURCES.items()},
}


def list() -> builtins.list[str]:
    """Names that :func:`load` takes."""
    return sorted(LOADERS)


def load(name: str, root: str | Path | None = None, **options: Any) -> Benchmark:
    """A benchmark by name.

    Args:
        name: one of :func:`list`.
        root: folder with its files, for those that need any.
        options: passed on to the dataset's own function.

    >>> load("critters", train=8, target=8, val=8, test=8).name
    'critters'
    """
    refuse_ambiguous(name)
    if name not in LOADERS:
        raise DataError(
            f"unknown dataset '{name}'.{suggest(name, [*LOADERS])} Known: {', '.join(sorted(LOADERS))}. "
            "Your own images: from_csv(path) or from_folder(path)."
        )
    make = LOADERS[name]
    known = inspect.signature(make).parameters
    for option in options:
        if option not in known:
            named = [p for p in known if p != "root"]
            raise DataError(f"{name} has no option '{option}'.{suggest(option, named)} It has: {', '.join(named)}.")
    if root is None and name == "own":
        raise DataError("own images need to be told where they are: give a CSV file or a folder as root.")
    given = ", ".join(f"{k}={v!r}" for k, v in options.items())
    if root is not None and "root" in known:
        options["root"] = root
    try:
        return make(**options)
    except (KeyError, IndexError, AttributeError, OverflowError) as error:
        if name not in SOURCES:
            raise
        raise DataError(_not_as_published(name, error)) from error
    except (TypeError, ValueError) as error:
        if name in SOURCES and not given:
            raise DataError(_not_as_published(name, error)) from error
        if not given:  # nothing a user chose can be the reason
            raise
        raise DataError(f"{name} cannot be made with {given}: {error}. {_more_about(name)}") from error


def _not_as_published(name: str, error: Exception) -> str:
    return (
        f"the files of {name} are not as they were published ({type(error).__name__}: {error}). Download and unpack "
        f"them again; docs/datasets/{name}.md says what is expected."
    )


@dataclass(frozen=True)
class Entry:
    """One row of :func:`catalogue`.

    Attributes:
        name: what :func:`load` takes.
        images: how many, None where not known beforehand.
        licence: what it may be used for.
        needs: what must be there: nothing, fetched assets, or a download of your own.
        ready: whether that is here.
        title: what it is.
    """

    name: str
    images: int | None
    licence: str
    needs: str
    ready: bool
    title: str


_ASSETS: dict[str, tuple[str, ...]] = {"dominoes": ("mnist", "cifar10"), "cmnist": ("mnist",)}
_IMAGES = {"dominoes": 55_960, "cmnist": 60_900}


def catalogue(root: str | Path | None = None) -> builtins.list[Entry]:
    """Every dataset with size, licence, needs and whether it is ready; nothing is opened or fetched.

    >>> next(e for e in catalogue() if e.name == "critters").ready
    True
    """
    kept = {row.name: row for row in assets.status(root)}
    rows = []
    for name, make in sorted(LOADERS.items()):
        if (source := SOURCES.get(name)) is not None:
            needs = f"made by prepare from {source.made_from}" if source.made_from else "your download"
            rows.append(Entry(name, source.images, source.licence, needs, source.ready(root), source.title))
            continue
        wanted = _ASSETS.get(name, ())
        licence = "; ".join(dict.fromkeys(kept[w].licence for w in wanted)) or (
            "yours" if name == "own" else "drawn by this package, free to use"
        )
        here = all(kept[w].ready for w in wanted)
        needs = ", ".join(wanted) or ("your images" if name == "own" else "nothing")
        title = (make.__doc__ or "").strip().splitlines()[0]
        rows.append(Entry(name, _IMAGES.get(name), licence, needs, here, title))
    return rows


def _more_about(name: str) -> str:
    return f"See docs/datasets/{name}.md." if name in SOURCES else f"See help(foveate.data.{name})."
