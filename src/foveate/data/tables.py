"""Your own images: a CSV file or a folder tree, read as a benchmark, and any benchmark written as a CSV.

Nothing is decoded when a benchmark is read. What is wrong with the file or folder itself (a missing column,
an unknown split, an empty cell) is raised as one clear :class:`~foveate.errors.DataError`;
:func:`~foveate.data.check.check` lists everything, the images included.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image

from foveate.data.benchmark import SPLITS, Benchmark
from foveate.data.dataset import GroupedDataset
from foveate.data.images import FileImages
from foveate.data.scan import (
    BOX,
    CSV_NAME,
    KEYPOINT,
    KNOWN,
    Problem,
    Scan,
    ordered_names,
    scan_csv,
    scan_folder,
    scan_path,
    some,
)
from foveate.errors import DataError
from foveate.files import atomic_folder, write_rows


def from_csv(
    path: str | os.PathLike[str],
    root: str | os.PathLike[str] | None = None,
    name: str | None = None,
    on_missing_files: Literal["keep", "skip", "error"] = "keep",
    *,
    columns: Mapping[str, str] | None = None,
    split: str = "train",
) -> Benchmark:
    """Read a benchmark from a CSV file.

    Columns ``path`` and ``label`` are required. Understood when there: ``attribute``, ``split``, ``mask`` (a
    file, or empty), ``x0,y0,x1,y1`` (the object's box in pixels, end exclusive, or empty) and
    ``kp_<name>_x``, ``kp_<name>_y``, ``kp_<name>_v`` (keypoints). All other columns land in ``extras``.
    Comma, semicolon and tab are taken as delimiters, UTF-8 and UTF-16 as encodings. Classes and attributes
    are the names found in the whole file, sorted (as numbers when they are numbers), the same for every
    split. Nothing is decoded here.

    Args:
        path: the CSV file.
        root: what relative paths are relative to; by default the folder of the CSV file.
        name: what to call the benchmark; by default after the file.
        on_missing_files: ``"keep"`` lists them (reading one raises ``UnreadableImage``), ``"skip"`` leaves
            them out and counts them in ``notes["missing_files"]``, ``"error"`` raises. When no file at all
            can be found this is an error whatever is chosen: the root is wrong.
        columns: other names for the columns, such as ``{"path": "img_filename", "label": "y"}``.
        split: where all rows go when there is no ``split`` column. Split names are train, target, val and
            test, with the usual other spellings (:data:`~foveate.data.scan.SPLIT_ALIASES`).

    >>> import tempfile, pathlib, numpy as np, PIL.Image
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> PIL.Image.fromarray(np.zeros((4, 6, 3), np.uint8)).save(folder / "a.png")
    >>> _ = (folder / "mine.csv").write_text("path,label,attribute\\na.png,cat,sea\\na.png,dog,forest\\n")
    >>> from_csv(folder / "mine.csv").train.group_names
    ['cat/forest', 'cat/sea', 'dog/forest', 'dog/sea']
    """
    if on_missing_files not in ("keep", "skip", "error"):
        raise DataError(f"on_missing_files must be 'keep', 'skip' or 'error', found '{on_missing_files}'.")
    scan = scan_csv(path, root, name, columns=columns, split=split)
    scan.raise_errors()
    _settle_missing(scan, on_missing_files)
    return _strict(scan)


def from_folder(path: str | os.PathLike[str], name: str | None = None) -> Benchmark:
    """Read a benchmark from class folders, with optional split folders above and attribute folders below.

    ``class/image``, ``class/attribute/image``, ``split/class/image`` and ``split/class/attribute/image`` are
    told apart by themselves: the top level holds splits when one of its folders is called train, val or test
    (or another usual spelling), or when all of them are split names. Hidden files are ignored; files that are
    not images are counted and named in ``notes["ignored_files"]``. Without split folders everything is
    ``train``.

    >>> import tempfile, pathlib, numpy as np, PIL.Image
    >>> root = pathlib.Path(tempfile.mkdtemp())
    >>> for folder in ("train/cat/sea", "train/dog/forest", "test/cat/forest"):
    ...     (root / folder).mkdir(parents=True)
    ...     PIL.Image.fromarray(np.zeros((4, 6, 3), np.uint8)).save(root / folder / "1.png")
    >>> from_folder(root, name="pets")
    Benchmark(pets: train 2, test 1)
    """
    scan = scan_folder(path, name)
    scan.raise_errors()
    return _strict(scan)


def from_path(path: str | os.PathLike[str], name: str | None = None) -> Benchmark:
    """Read a benchmark from a CSV file, a folder that holds ``benchmark.csv``, or class folders."""
    scan = scan_path(path, name)
    scan.raise_errors()
    if scan.source.is_file():
        _settle_missing(scan, "keep")
    return _strict(scan)


def write_csv(benchmark: Benchmark, folder: str | os.PathLike[str], overwrite: bool = False) -> Path:
    """Write a benchmark as PNG images (lossless), masks and ``benchmark.csv``; :func:`from_csv` reads it
    back.

    Pixels, labels, attributes, masks, boxes, keypoints and one-dimensional extras come back as they were;
    class and attribute names come back sorted. The folder appears whole or not at all. A folder that is there
    and not empty is only replaced with ``overwrite=True``, and only when it holds a ``benchmark.csv`` (an
    earlier export).

    Returns:
        The path of the CSV file.

    >>> import tempfile, pathlib, numpy as np
    >>> from foveate.data.images import ArrayImages
    >>> ds = GroupedDataset(ArrayImages(np.full((2, 4, 6, 3), 7, np.uint8)), [0, 1], ["cat", "dog"])
    >>> path = write_csv(Benchmark("pets", {"train": ds}), pathlib.Path(tempfile.mkdtemp()) / "pets")
    >>> int(from_csv(path).train[1].image.max()), path.name
    (7, 'benchmark.csv')
    """
    target = Path(folder).expanduser()
    if target.is_dir() and any(target.iterdir()) and not (overwrite and (target / CSV_NAME).is_file()):
        raise DataError(
            f"{target} is there and not empty, so nothing was written. Choose a new folder"
            + (", or pass overwrite=True to replace this benchmark." if (target / CSV_NAME).is_file() else ".")
        )
    rows: list[dict[str, Any]] = []
    with atomic_folder(target) as temporary:
        for split, ds in benchmark.splits.items():
            for kind in ("images", "masks"):
                if kind == "images" or ds.masks is not None:
                    (temporary / kind / split).mkdir(parents=True, exist_ok=True)
            for i in range(len(ds)):
                rows.append(_export(ds, i, split, temporary))
        columns = list(dict.fromkeys(c for row in rows for c in row))
        write_rows(temporary / CSV_NAME, [columns, *([row.get(c, "") for c in columns] for row in rows)])
    return target / CSV_NAME


def _export(ds: GroupedDataset, i: int, split: str, folder: Path) -> dict[str, Any]:
    """Write image and mask ``i`` under ``folder``; gives its row of the CSV file."""
    path = f"images/{split}/{i:06d}.png"
    Image.fromarray(ds.images.read(i)).save(folder / path, compress_level=1)
    row: dict[str, Any] = {"path": path, "label": ds.class_names[ds.labels[i]]}
    if ds.attributes is not None and ds.attribute_names is not None:
        row["attribute"] = ds.attribute_names[ds.attributes[i]]
    row["split"] = split
    mask = None if ds.masks is None else ds.masks.read(i)
    if mask is not None and mask.size:
        row["mask"] = f"masks/{split}/{i:06d}.png"
        Image.fromarray(mask).save(folder / row["mask"], compress_level=1)
    if ds.boxes is not None and not np.isnan(ds.boxes[i]).any():
        row |= {c: f"{v:.9g}" for c, v in zip(BOX, ds.boxes[i], strict=True)}  # 9 digits: float32 exactly
    if ds.keypoints is not None:
        names = ds.keypoint_names or [str(k) for k in range(ds.keypoints.shape[1])]
        for name, point in zip(names, ds.keypoints[i], strict=True):
            row |= {f"kp_{name}_{axis}": f"{v:.9g}" for axis, v in zip("xyv", point, strict=True)}
    for name, column in ds.extras.items():
        if column.ndim == 1:
            row[f"extra_{name}" if name in KNOWN else name] = column[i]
    return row


def unseen_labels(benchmark: Benchmark) -> list[Problem]:
    """One problem for every label that a split has and ``train`` never shows (none without ``train``)."""
    train = benchmark.get("train")
    if train is None:
        return []
    seen = {train.class_names[k] for k in np.unique(train.labels)}
    found = []
    for split, ds in benchmark.splits.items():
        for k in np.unique(ds.labels):
            if (label := ds.class_names[k]) not in seen:
                n = int((ds.labels == k).sum())
                message = (
                    f"label '{label}' has {n} image{'s' * (n != 1)} in '{split}' but never occurs in 'train' "
                    f"(labels there: {some(ordered_names(seen), 10)}), so it cannot be learned. "
                    "Add training images of it, correct the label, or leave those rows out."
                )
                found.append(Problem("label-not-in-train", "error", f"{split}: {label}", message))
    return found


def check_some_are_there(scan: Scan) -> None:
    """A :class:`DataError` when not one of the files looked for can be found: then the root is wrong."""
    frame = scan.frame
    probe = frame["path"].iloc[:: max(1, len(frame) // 50)]
    if not any(os.path.exists(p) for p in probe):
        raise DataError(
            f"{scan.source}: none of {len(probe)} files looked for is there (for instance {probe.iloc[0]}). "
            f"Paths are relative to {scan.root}; give another folder as root."
        )


def _settle_missing(scan: Scan, mode: str) -> None:
    check_some_are_there(scan)
    if mode == "keep":
        return
    frame = scan.frame
    there = np.array([os.path.exists(p) for p in frame["path"]])
    if "mask" in frame:
        there &= np.array([not p or os.path.exists(p) for p in frame["mask"]])
    if there.all():
        return
    missing = list(frame.loc[~there, "path"])
    if mode == "error":
        raise DataError(
            f"{scan.source}: {len(missing)} of {len(frame)} images (or their masks) are not there: "
            f"{some(missing, 3)}. Restore them, or leave them out with on_missing_files='skip'."
        )
    scan.notes["missing_files"] = {"count": len(missing), "first": missing[:10]}
    scan.frame = frame[there].reset_index(drop=True)


def _strict(scan: Scan) -> Benchmark:
    benchmark = build(scan)
    if unseen := unseen_labels(benchmark):
        raise DataError(f"{scan.source}: {unseen[0].message}")
    return benchmark


def build(scan: Scan) -> Benchmark:
    """The benchmark of a scan's rows; rows of unknown splits form splits of their own."""
    frame = scan.frame
    if not len(frame):
        return Benchmark(scan.name, {}, scan.notes)
    class_names = ordered_names(frame["label"])
    attribute_names = ordered_names(frame["attribute"]) if "attribute" in frame else None
    triples: dict[str, set[str]] = {}
    for column in frame.columns:
        if match := KEYPOINT.fullmatch(str(column)):
            triples.setdefault(match[1], set()).add(match[2])
    points = [k for k, axes in triples.items() if {"x", "y"} <= axes]
    used = {"line ", *KNOWN, *(f"kp_{k}_{a}" for k in points for a in "xyv")}
    extras = {str(c): _extra(frame[c]) for c in frame.columns if c not in used}
    present = list(dict.fromkeys(frame["split"]))
    order = [s for s in SPLITS if s in present] + [s for s in present if s not in SPLITS]
    splits = {}
    for split in order:
        rows = np.flatnonzero(frame["split"] == split)
        part = frame.iloc[rows]
        masks = boxes = keypoints = None
        if "mask" in part and (part["mask"] != "").any():
            masks = FileImages([p or None for p in part["mask"]], masks=True)
        if "x0" in part and part["x0"].notna().any():
            boxes = part[list(BOX)].to_numpy(np.float32)
        if points:
            keypoints = _keypoints(part, points)
        attributes = None if attribute_names is None else _indices(attribute_names, part["attribute"])
        splits[split] = GroupedDataset(
            FileImages(list(part["path"])),
            _indices(class_names, part["label"]),
            class_names,
            attributes=attributes,
            attribute_names=attribute_names,
            masks=masks,
            boxes=boxes,
            keypoints=keypoints,
            keypoint_names=points if keypoints is not None else None,
            extras={k: v[rows] for k, v in extras.items()},
            name=f"{scan.name}/{split}",
        )  # fmt: skip
    return Benchmark(scan.name, splits, scan.notes)


def _indices(names: list[str], values: pd.Series) -> NDArray[np.int64]:
    index = {name: k for k, name in enumerate(names)}
    return np.array([index[v] for v in values], np.int64)


def _keypoints(part: pd.DataFrame, points: list[str]) -> NDArray[np.float32]:
    """``[N, P, 3]`` of (x, y, visible); a point without coordinates is (0, 0, not visible)."""
    array = np.zeros((len(part), len(points), 3), np.float32)
    for k, point in enumerate(points):
        xy = part[[f"kp_{point}_x", f"kp_{point}_y"]].to_numpy(np.float64)
        known = ~np.isnan(xy).any(axis=1)
        array[known, k, :2] = xy[known]
        seen = part[f"kp_{point}_v"].to_numpy(np.float64) if f"kp_{point}_v" in part else np.ones(len(part))
        array[known, k, 2] = np.nan_to_num(seen[known], nan=1.0)
    return array


def _extra(column: pd.Series) -> NDArray[Any]:
    """A further column as whole numbers, numbers or text, whichever fits all of it."""
    numbers = pd.to_numeric(column, errors="coerce")
    if numbers.notna().all():
        return numbers.to_numpy()
    return column.astype(str).to_numpy(dtype=object)
