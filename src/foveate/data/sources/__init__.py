"""Published datasets: loaders for what you have downloaded, with published counts to check them against.

>>> from foveate.data import sources
>>> sources.SOURCES["celeba"].images
202599
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from foveate.data.scan import Problem
from foveate.data.sources.archives import md5_of
from foveate.data.sources.imagenet import background_pair, to_superclasses
from foveate.data.sources.layout import Root, Source, check_counts, unpack_archives, unpack_besides
from foveate.data.sources.urbancars import Gaps, urbancars_gaps
from foveate.errors import DataError, suggest
from foveate.registries import DATASETS

__all__ = [
    "AMBIGUOUS", "SOURCES", "Gaps", "Source", "background_pair", "check", "get", "prepare", "to_superclasses",
    "urbancars_gaps",
]  # fmt: skip


class _Published(Mapping[str, Source]):
    """The datasets of the registry that are published ones, with all that is known about them."""

    def __getitem__(self, name: str) -> Source:
        if isinstance(name, str) and name in DATASETS and isinstance(found := DATASETS.get(name), Source):
            return found
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name, thing in DATASETS.things().items() if isinstance(thing, Source))

    def __len__(self) -> int:
        return sum(1 for _ in self)


SOURCES: Mapping[str, Source] = _Published()
"""Published datasets by name, loaded when asked for; they are listed in :mod:`foveate.registries`."""

_CATDOG = ("metashift-catdog-disc", "metashift-catdog-unmixed")
AMBIGUOUS: dict[str, tuple[str, ...]] = {
    "spawrious": ("spawrious-o2o-hard", "spawrious-m2m-hard", "spawrious-dar"),
    "metashift": (*_CATDOG, "metashift-animals"),
    **dict.fromkeys(("metashift-catdog", "catdog", "cat-dog", "cat-vs-dog", "metashift-cat-dog"), _CATDOG),
}
"""Common names that several datasets go by: they are refused, with the names to choose from."""


def get(name: str) -> Source:
    """The entry called ``name``; common names of several datasets are refused."""
    refuse_ambiguous(name)
    if name not in SOURCES:
        raise DataError(f"unknown dataset '{name}'.{suggest(name, list(SOURCES))} Known: {', '.join(SOURCES)}.")
    return SOURCES[name]


def refuse_ambiguous(name: str) -> None:
    """A :class:`DataError` for a name that several datasets go by."""
    if (several := AMBIGUOUS.get(name.lower().replace("_", "-").replace(" ", "-"))) is not None:
        listed = "; ".join(f"{n} ({SOURCES[n].title})" for n in several)
        raise DataError(f"'{name}' is what several datasets are called. Choose one: {listed}.")


def prepare(name: str, root: Root = None, tell: Callable[[str], None] = lambda line: None) -> Path:
    """Make a dataset ready from the files you have downloaded; returns its folder.

    An official archive that lies in ``root`` is checked (where its publisher gives a checksum) and unpacked, and so
    is what may be had besides (CUB's masks); ``tell`` hears what is not there. Some datasets are composed or
    converted. Nothing happens when the dataset is there already, and no folder that is there is replaced.
    """
    source = get(name)
    if source.prepare is not None:
        return source.prepare(root, tell)
    if not source.ready(root):
        unpack_archives(source, root, tell)
    folder = source.find(root)
    unpack_besides(source, root, folder, tell)
    tell(f"{name} is at {folder}")
    return folder


def check(name: str, root: Root = None, **options: Any) -> list[Problem]:
    """Compare a dataset's counts with the published ones, and its lists with their checksums; empty when all is well.

    Images are not decoded: ``foveate data check NAME`` does both.
    """
    source = get(name)
    benchmark = source.load(root=root, **options)
    problems = check_counts(benchmark, source.expected, source.exact)
    folder = source.find(root)
    for file, md5 in source.archives.items():
        path = folder / file
        if md5 is not None and path.is_file() and (found := md5_of(path)) != md5:
            problems.append(
                Problem("unexpected-checksum", "error", str(path), f"its MD5 is {found}, published is {md5}.")
            )
    return problems
