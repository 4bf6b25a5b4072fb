"""Datasets by name. Adding one is a loader function and a line here."""

from __future__ import annotations

import builtins
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

from foveate.data.benchmark import Benchmark
from foveate.data.cmnist import cmnist
from foveate.data.critters import critters
from foveate.data.dominoes import dominoes
from foveate.errors import DataError, suggest

LOADERS: dict[str, Callable[..., Benchmark]] = {
    "critters": critters,
    "dominoes": dominoes,
    "cmnist": cmnist,
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
    given = ", ".join(f"{k}={v!r}" for k, v in options.items())
    if root is not None and "root" in known:
        options["root"] = root
    try:
        return make(**options)
    except (TypeError, ValueError) as error:
        if not given:  # nothing a user chose can be the reason
            raise
        raise DataError(f"{name} cannot be made with {given}: {error}. See help(foveate.data.{name}).") from error
