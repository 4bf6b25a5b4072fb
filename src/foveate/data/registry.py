"""Datasets by name. Adding one is a loader function and a line in :mod:`foveate.registries`."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from foveate import assets
from foveate.assets.catalogue import DatasetEntry, DatasetFacts, entries
from foveate.data.benchmark import Benchmark
from foveate.data.sources import Source, refuse_ambiguous
from foveate.data.tables import from_path
from foveate.errors import DataError, suggest
from foveate.registries import DATASETS


def own(root: str | Path) -> Benchmark:
    """Your own images by path (a CSV file, or a folder): what specs and the command line call ``own``."""
    return from_path(root)


def loader(name: str) -> Callable[..., Benchmark]:
    """The function that loads the dataset called ``name``; a :class:`DataError` when there is none.

    >>> loader("critters").__name__
    'critters'
    """
    found: Source | Callable[..., Benchmark] = DATASETS.get(name)
    return found.load if isinstance(found, Source) else found


def list() -> builtins.list[str]:
    """Names that :func:`load` takes."""
    return DATASETS.names()


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
    make = loader(name)
    known = inspect.signature(make).parameters
    for option in options:
        if option not in known:
            named = [p for p in known if p != "root"]
            raise DataError(f"{name} has no option '{option}'.{suggest(option, named)} It has: {', '.join(named)}.")
    if root is None and name == "own":
        raise DataError("own images need to be told where they are: give a CSV file or a folder as root.")
    published = isinstance(DATASETS.get(name), Source)
    given = ", ".join(f"{k}={v!r}" for k, v in options.items())
    if root is not None and "root" in known:
        options["root"] = root
    try:
        return make(**options)
    except (KeyError, IndexError, AttributeError, OverflowError) as error:
        if not published:
            raise
        raise DataError(_not_as_published(name, error)) from error
    except (TypeError, ValueError) as error:
        if published and not given:
            raise DataError(_not_as_published(name, error)) from error
        if not given:  # nothing a user chose can be the reason
            raise
        raise DataError(f"{name} cannot be made with {given}: {error}. {_more_about(name)}") from error


def _not_as_published(name: str, error: Exception) -> str:
    return (
        f"the files of {name} are not as they were published ({type(error).__name__}: {error}). Download and unpack "
        f"them again; docs/datasets/{name}.md says what is expected."
    )


_ASSETS: dict[str, tuple[str, ...]] = {"dominoes": ("mnist", "cifar10"), "cmnist": ("mnist",)}
_IMAGES = {"dominoes": 55_960, "cmnist": 60_900}


def facts() -> dict[str, DatasetFacts]:
    """What every dataset's own module says of it, by name: what ``assets/datasets.json`` keeps for quick listing."""
    return {name: _facts_of(name, thing) for name, thing in sorted(DATASETS.things().items())}


def _facts_of(name: str, thing: Any) -> DatasetFacts:
    if isinstance(thing, Source):
        needs = f"made by prepare from {thing.made_from}" if thing.made_from else "your download"
        others = tuple(other.name for other in thing.others)
        return DatasetFacts(name, thing.images, thing.licence, needs, thing.folders, thing.markers, others)
    if not thing.__module__.startswith("foveate."):
        return DatasetFacts(name, None, "not stated", "not stated")
    wanted = _ASSETS.get(name, ())
    licence = "; ".join(dict.fromkeys(assets.get(w).licence for w in wanted)) or (
        "yours" if name == "own" else "drawn by this package, free to use"
    )
    needs = ", ".join(wanted) or ("your images" if name == "own" else "nothing")
    return DatasetFacts(name, _IMAGES.get(name), licence, needs, assets=wanted)


def catalogue(root: str | Path | None = None) -> builtins.list[DatasetEntry]:
    """Every dataset with size, licence, needs and whether it is ready; nothing is opened or fetched.

    >>> next(e for e in catalogue() if e.name == "critters").ready
    True
    """
    return entries(facts(), DATASETS.summaries(), root)


def _more_about(name: str) -> str:
    ours = isinstance(DATASETS.get(name), Source)
    return f"See docs/datasets/{name}.md." if ours else f"See help(foveate.data.registry.loader('{name}'))."
