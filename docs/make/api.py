"""The API reference: one page a folder with an entry for every public name, and one for the package itself."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import foveate

BESIDE = {
    "assemble": [
        "system.System", "pipeline.Pipeline", "parts.Parts", "needs.Needs", "network.Network", "trained.Trained",
        "probe.Probe", "probe.Prompted", "adapting.Adapting", "adapting.FrozenBase", "capabilities", "reading.Reading",
    ],
    "app": ["state.Session", "state.Change"],
}  # fmt: skip
"""Folders that list no public names of their own, and what of them people meet."""


def folders() -> list[str]:
    """The folders of the package that have a page."""
    return sorted({*foveate._FOLDERS, *BESIDE} - {"systems"})


def entries(folder: str) -> list[str]:
    """The addresses of everything public in ``folder``, each once."""
    names = BESIDE.get(folder) or list(importlib.import_module(f"foveate.{folder}").__all__)
    return [f"foveate.{folder}.{name}" for name in names]


def systems() -> list[str]:
    """Where each named system is defined."""
    from foveate.registries import SYSTEMS

    found = [SYSTEMS.get(name) for name in SYSTEMS.names()]
    return [f"{kind.__module__}.{kind.__qualname__}" for kind in found]


def top_level() -> list[str]:
    """Where the names of ``foveate`` itself are defined, systems and folders aside."""
    return [f"foveate.{module}.{name}" for name, module in foveate._NAMES.items()]


def documented() -> set[str]:
    """Every address that has an entry."""
    found = {*top_level(), *systems()}
    for folder in folders():
        found |= set(entries(folder))
    return found


def pages() -> Iterator[tuple[str, str]]:
    """``(address, Markdown)`` of every page of the reference that is made from docstrings."""
    yield "reference/foveate.md", _page("foveate", foveate.__doc__, top_level())
    yield "reference/systems.md", _page("foveate.systems", _says("systems"), systems())
    for folder in folders():
        yield f"reference/{folder}.md", _page(f"foveate.{folder}", _says(folder), entries(folder))
    yield "reference/errors.md", _page("foveate.errors", _says("errors"), _errors())


def _errors() -> list[str]:
    module: Any = importlib.import_module("foveate.errors")
    kinds = [v for v in vars(module).values() if isinstance(v, type) and issubclass(v, foveate.FoveateError)]
    return [f"foveate.errors.{kind.__name__}" for kind in kinds if kind is not foveate.FoveateError]


def _says(folder: str) -> str:
    return importlib.import_module(f"foveate.{folder}").__doc__ or ""


def _page(name: str, docstring: str | None, addresses: list[str]) -> str:
    from docs.make.docstrings import as_markdown

    entries_ = "\n\n".join(f"::: {address}" for address in addresses)
    return f"# {name}\n\n{as_markdown(docstring or '')}\n\n{entries_}\n"
