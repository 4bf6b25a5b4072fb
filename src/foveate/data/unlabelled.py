"""Images nobody has labelled yet: single files, folders, and CSV files without a label column."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from foveate.data.benchmark import Benchmark
from foveate.data.dataset import GroupedDataset
from foveate.data.images import IMAGE_SUFFIXES, FileImages
from foveate.data.scan import CSV_NAME, scan_csv
from foveate.data.tables import build, check_some_are_there
from foveate.errors import DataError

VIDEO = frozenset({".mp4", ".mov", ".avi", ".mkv", ".webm", ".m4v"})
UNKNOWN = "?"
"""The one class of images without labels."""


def from_images(paths: Sequence[str | os.PathLike[str]], name: str = "images") -> GroupedDataset:
    """A dataset of image files, and of those in folders, with no labels: its one class is called ``?``.

    Of a folder the images directly in it are taken, in natural order; where there are none, all below it.

    >>> import tempfile, PIL.Image
    >>> folder = Path(tempfile.mkdtemp())
    >>> for n in (10, 2):
    ...     PIL.Image.new("RGB", (4, 4)).save(folder / f"frame{n}.png")
    >>> found = from_images([folder])
    >>> [Path(found.where(i)).name for i in range(len(found))], found.class_names
    (['frame2.png', 'frame10.png'], ['?'])
    """
    files = named_images([Path(p) for p in paths], deep=True)
    return GroupedDataset(FileImages([str(p) for p in files]), np.zeros(len(files), np.int64), [UNKNOWN], name=name)


def from_csv_without_labels(path: Path, root: Path | None = None) -> Benchmark | None:
    """The benchmark of a CSV file that has no column ``label``; None when it has one (or is no such file)."""
    source = path / CSV_NAME if path.is_dir() else path
    if not source.is_file() or source.suffix.lower() in IMAGE_SUFFIXES:
        return None
    scan = scan_csv(source, root)
    if scan.labelled:
        return None
    scan.problems = [p for p in scan.problems if (p.kind, p.where) != ("missing-column", "label")]
    scan.raise_errors()
    check_some_are_there(scan)
    return build(scan)


def has_labels(path: Path) -> bool:
    """Whether a folder holds class folders: folders below it, and no images beside them."""
    inside = [p for p in path.iterdir() if not p.name.startswith(".")]
    return any(p.is_dir() for p in inside) and not any(_is_image(p) for p in inside)


def natural_key(path: Path) -> list[Any]:
    """Sorts frame2 before frame10.

    >>> [p.name for p in sorted([Path("frame10.png"), Path("frame2.png")], key=natural_key)]
    ['frame2.png', 'frame10.png']
    """
    return [(0, int(part), "") if part.isdigit() else (1, 0, part.lower()) for part in re.split(r"(\d+)", path.name)]


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in IMAGE_SUFFIXES and path.is_file() and not path.name.startswith(".")


def named_images(paths: Sequence[Path], deep: bool = False) -> list[Path]:
    """Every image named, and those directly in every folder named, in natural order.

    With ``deep``, a folder without images of its own stands for all below it.
    """
    found: list[Path] = []
    for path in (p.expanduser() for p in paths):
        if path.is_dir():
            inside = [p for p in path.iterdir() if _is_image(p)]
            if not inside and deep:
                inside = [p for p in path.rglob("*") if _is_image(p)]
            if not inside:
                where = f"in {path} or below it" if deep else f"directly in {path}; name the folder that holds them"
                raise DataError(f"there are no images {where}.")
            found += sorted(inside, key=lambda p: (str(p.parent), natural_key(p)))
        elif path.suffix.lower() in VIDEO:
            raise DataError(
                f"{path} is a video; write its frames to a folder first: ffmpeg -i {path.name} frames/%05d.png"
            )
        elif not path.is_file():
            raise DataError(f"there is no file or folder {path}.")
        else:
            found.append(path)
    if not found:
        raise DataError("name at least one image or folder of images to look at.")
    return found
