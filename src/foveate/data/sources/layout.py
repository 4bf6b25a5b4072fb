"""What the loaders of published datasets share: finding the folder, tables of rows, exact counts, checks."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from foveate.assets.catalogue import Root, base_folder, holds, places
from foveate.data.benchmark import SPLITS, Benchmark
from foveate.data.dataset import GroupedDataset
from foveate.data.images import IMAGE_SUFFIXES, FileImages
from foveate.data.scan import BOX, Problem
from foveate.data.sources.archives import unpack
from foveate.errors import DataError
from foveate.registries import DATASETS

Expected = Mapping[str, int | Mapping[str, int]]
"""By split: the number of images, or that of every group (``class/attribute``) or class."""


@dataclass(frozen=True)
class Source:
    """A published dataset: what it is, what it may be used for, where to get it, and how it lies on disk.

    Attributes:
        name: what :func:`foveate.data.load` calls it.
        images: how many images it has over all splits, None where that is not published.
        licence: what it may be used for.
        homepage: where it comes from.
        get: a sentence: what to download and where to put it.
        folders: names its folder usually has, looked for under the root.
        markers: files or folders that must be inside; alternatives are divided by ``|``.
        load: the loader.
        expected: published counts, for :func:`check_counts`.
        archives: official archives that :func:`~foveate.data.sources.prepare` unpacks, with their MD5 or None.
        besides: archives that may be had besides: what they bring, the folder that each becomes, and its MD5 or None.
        prepare: does more than unpacking; called with root and ``tell``.
        made_from: what ``prepare`` makes it from, for datasets that are not downloads themselves.
        others: datasets that it needs besides, under the same root.
        exact: False when the published recipe leaves choices open, so other counts are no fault of the files.
    """

    name: str
    images: int | None
    licence: str
    homepage: str
    get: str
    folders: tuple[str, ...]
    markers: tuple[str, ...]
    load: Callable[..., Benchmark]
    expected: Expected = field(default_factory=dict)
    archives: Mapping[str, str | None] = field(default_factory=dict)
    besides: Mapping[str, tuple[str, str, str | None]] = field(default_factory=dict)
    prepare: Callable[[Root, Callable[[str], None]], Path] | None = None
    made_from: str = ""
    others: tuple[Source, ...] = ()
    exact: bool = True

    @property
    def title(self) -> str:
        """One line about it: what the registry says."""
        return DATASETS.summaries().get(self.name, "")

    def places(self, root: Root = None) -> list[Path]:
        """Folders that are looked at, in order: ``root/NAME``, its usual names under ``root``, ``root`` itself."""
        return places(self.name, self.folders, root)

    def find(self, root: Root = None) -> Path:
        """The folder that holds this dataset; a :class:`DataError` that says what to get and where to put it."""
        for place in self.places(root):
            if self.holds(place):
                return place
        base = base_folder(root)
        there = base / self.folders[0]
        wanted = ", ".join(m.replace("|", " or ") for m in self.markers)
        seen = f"there is no folder {base}" if not base.is_dir() else f"no folder with {wanted} under {base}"
        raise DataError(
            f"{self.name} is not here: {seen}. {self.get} Put it at {there} (or pass its folder as root), "
            f"so that {there.name}/{self.markers[0].split('|')[0]} exists. See docs/datasets/{self.name}.md."
        )

    def ready(self, root: Root = None) -> bool:
        """Whether :meth:`find` would find it (nothing is opened)."""
        return any(map(self.holds, self.places(root))) and all(other.ready(root) for other in self.others)

    def holds(self, place: Path) -> bool:
        """Whether all markers are in a folder."""
        return holds(place, self.markers)


def unpack_archives(source: Source, root: Root, tell: Callable[[str], None]) -> None:
    """Unpack the first official archive that lies under ``root``; a folder that is there already is never replaced."""
    base = base_folder(root)
    for archive, md5 in source.archives.items():
        if not (base / archive).is_file() or not archive.endswith((".tar", ".gz", ".tgz", ".zip")):
            continue
        pictures_only = archive == "img_align_celeba.zip"
        # where the usual place holds what another archive brought (Spawrious comes in several), both stay
        names = ("img_align_celeba",) if pictures_only else (source.folders[0], source.name)
        free = [base / name for name in names if not (base / name).exists()]
        if free:
            holds = (lambda folder: True) if pictures_only else source.holds
            unpack(base / archive, free[0], md5, tell, holds)
        return


def unpack_besides(source: Source, root: Root, folder: Path, tell: Callable[[str], None]) -> None:
    """Unpack what may be had besides a dataset, and say what is not there."""
    base = base_folder(root)
    for archive, (brings, name, md5) in source.besides.items():
        if any((place / name).is_dir() for place in (folder, folder.parent, base)):
            continue
        if (base / archive).is_file():
            unpack(base / archive, folder.parent / name, md5, tell)
        else:
            tell(f"without {brings}: neither {folder.parent / name} nor {base / archive} is there")


def image_files(folder: Path, suffixes: frozenset[str] = IMAGE_SUFFIXES) -> list[Path]:
    """Images directly in ``folder``, sorted by name (numbers as numbers); hidden files are left out."""
    if not folder.is_dir():
        raise DataError(f"expected a folder of images at {folder}; there is none. Unpack the download again.")
    names = [e.name for e in os.scandir(folder) if not e.name.startswith(".") and e.is_file()]
    chosen = [n for n in names if Path(n).suffix.lower() in suffixes]
    return [folder / n for n in sorted(chosen, key=natural)]


def natural(name: str) -> tuple[tuple[int, int | str], ...]:
    """Sort key that puts ``dog_2`` before ``dog_10``.

    >>> sorted(["dog_10.png", "dog_2.png"], key=natural)
    ['dog_2.png', 'dog_10.png']
    """
    parts: list[tuple[int, int | str]] = []
    digits = ""
    for c in name + "\0":
        if c.isascii() and c.isdigit():
            digits += c
            continue
        if digits:
            parts.append((0, int(digits)))
            digits = ""
        parts.append((1, c))
    return tuple(parts)


def rows_of(cells: Mapping[tuple[str, int, int], Sequence[Path]], **columns: Any) -> pd.DataFrame:
    """A table with one row per image from ``{(split, label, attribute): files}``."""
    paths = [p for files in cells.values() for p in files]
    keys = [key for key, files in cells.items() for _ in files]
    table = pd.DataFrame(keys, columns=["split", "label", "attribute"])
    table["path"] = np.array(paths, dtype=object) if paths else []
    return table.assign(**columns)


def benchmark_of(
    name: str,
    table: pd.DataFrame,
    classes: Sequence[str],
    attributes: Sequence[str] | None = None,
    *,
    extras: Sequence[str] = (),
    notes: Mapping[str, Any] | None = None,
) -> Benchmark:
    """A benchmark from a table with the columns ``path``, ``label``, ``split`` and maybe more; nothing is decoded.

    Understood besides: ``attribute``, ``mask`` (a path, or None where unknown) and ``x0, y0, x1, y1``.
    """
    splits = {}
    for split in SPLITS:
        rows = table[table["split"] == split]
        if not len(rows):
            continue
        masks = [None if pd.isna(m) else m for m in rows["mask"]] if "mask" in table else []
        splits[split] = GroupedDataset(
            FileImages(list(rows["path"])),
            rows["label"].to_numpy(np.int64),
            classes,
            attributes=rows["attribute"].to_numpy(np.int64) if attributes is not None else None,
            attribute_names=attributes,
            masks=FileImages(masks, masks=True) if any(m is not None for m in masks) else None,
            boxes=rows[list(BOX)].to_numpy(np.float32) if set(BOX) <= set(table.columns) else None,
            extras={column: rows[column].to_numpy() for column in extras},
            name=f"{name}/{split}",
        )
    if not splits:
        raise DataError(f"{name}: no images were found. Unpack the download again.")
    return Benchmark(name, splits, dict(notes or {}))


Cells = Mapping[tuple[int, int], int]


def draw_splits(
    name: str, table: pd.DataFrame, plan: Mapping[str, Cells], seed: int, group: Callable[[int, int], str]
) -> pd.DataFrame:
    """Rows of ``table`` dealt to splits with exact counts; no row is used twice.

    Args:
        name: of the dataset, for messages.
        table: rows with ``label`` and ``attribute``.
        plan: by split, images of every (label, attribute) cell.
        seed: which rows are drawn.
        group: name of a cell, for messages.
    """
    rng = np.random.default_rng(seed)
    labels, attributes = table["label"].to_numpy(), table["attribute"].to_numpy()
    cells = sorted({cell for counts in plan.values() for cell in counts})
    parts = []
    for cell in cells:
        rows = rng.permutation(np.flatnonzero((labels == cell[0]) & (attributes == cell[1])))
        needed = sum(counts.get(cell, 0) for counts in plan.values())
        if needed > len(rows):
            wanted = ", ".join(f"{split} {counts[cell]:,}" for split, counts in plan.items() if counts.get(cell))
            raise DataError(
                f"{name} needs {needed:,} images of {group(*cell)} ({wanted}), but the files hold {len(rows):,}. "
                "The download is not complete, or smaller counts must be asked for."
            )
        start = 0
        for split, counts in plan.items():
            taken = rows[start : start + counts.get(cell, 0)]
            start += len(taken)
            parts.append(table.iloc[np.sort(taken)].assign(split=split))
    return pd.concat(parts, ignore_index=True)


def check_counts(benchmark: Benchmark, expected: Expected, exact: bool = True) -> list[Problem]:
    """Where the images of a benchmark are not as many as published; an empty list when all agree."""
    problems = []
    for split, wanted in expected.items():
        ds = benchmark.get(split)
        if ds is None:
            problems.append(
                Problem("missing-split", "error", f"{benchmark.name}/{split}", "this split has no images at all.")
            )
            continue
        if isinstance(wanted, int):
            found, wanted = {"all images": len(ds)}, {"all images": wanted}
        elif ds.attributes is None or not any("/" in group for group in wanted):
            found = dict(zip(ds.class_names, ds.class_counts.tolist(), strict=True))
        else:
            found = dict(zip(ds.group_names, ds.group_counts.tolist(), strict=True))
        for group, n in wanted.items():
            if found.get(group, 0) != n:
                why = (
                    "files are missing, or this is another release." if exact else
                    "the published recipe leaves choices open, so figures on this copy are not comparable."
                )  # fmt: skip
                problems.append(
                    Problem(
                        "unexpected-count", "error" if exact else "warning", f"{benchmark.name}/{split}",
                        f"{group}: published {n:,}, found {found.get(group, 0):,}; {why}",
                    )
                )  # fmt: skip
    return problems
