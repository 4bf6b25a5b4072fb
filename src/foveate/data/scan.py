"""A tolerant first look at a CSV file or a folder tree: every fault is collected, sound rows are kept.

``foveate data check`` starts from this look, and :func:`~foveate.data.tables.from_csv` and
:func:`~foveate.data.tables.from_folder` raise what it found. No image is opened.
"""

from __future__ import annotations

import csv
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from foveate.data.benchmark import SPLITS
from foveate.data.images import IMAGE_SUFFIXES
from foveate.errors import DataError, suggest, visible
from foveate.files import from_csv_cell, open_regular, recover_folder

MAX_COLUMNS = 5_000
"""Columns of a CSV file at most: a header of a million is a mistake, and would take hours to look at."""
_WIDE = "Is this a table of images? Expected columns path, label and a few more."
BOX = ("x0", "y0", "x1", "y1")
CSV_NAME = "benchmark.csv"
SPLIT_ALIASES = {
    **{name: name for name in SPLITS},
    "training": "train", "validation": "val", "valid": "val", "dev": "val", "testing": "test",
    "0": "train", "1": "val", "2": "test",
}  # fmt: skip
"""Split names that are understood, in any case; 0, 1, 2 are those of the Waterbirds metadata file."""

KNOWN = ("path", "label", "attribute", "split", "mask", *BOX)
_OTHER_WORDS = {
    "path": ("image_path", "img_path", "file_path", "filename", "file_name", "img_filename", "file", "image"),
    "label": ("class", "class_name", "y", "target", "category", "species"),
}  # fmt: skip
KEYPOINT = re.compile(r"kp_(.+)_([xyv])")


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a dataset.

    Attributes:
        kind: a short fixed word for programs (``"missing-file"``, ``"unknown-split"`` …).
        severity: ``"error"`` (results on this data would be wrong or cannot be had) or ``"warning"``.
        where: the file, line or group it is about.
        message: a sentence for people.
    """

    kind: str
    severity: Literal["error", "warning"]
    where: str
    message: str


@dataclass
class Scan:
    """What a tolerant look at a CSV file or a folder found; no image was opened.

    ``frame`` holds the rows that make sense, as text: ``path`` (absolute), ``label``, ``split`` and, where
    known, ``attribute``, ``mask``, the box, keypoints and other columns. ``labelled`` is False when there is
    no label column.
    """

    name: str
    source: Path
    root: Path
    frame: pd.DataFrame
    problems: list[Problem] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    labelled: bool = True

    def report(self, kind: str, where: str, message: str, *, warning: bool = False) -> None:
        self.problems.append(Problem(kind, "warning" if warning else "error", where, message))

    def raise_errors(self) -> None:
        """Raise the first error as a :class:`DataError` that also tells how many more there are."""
        errors = [p for p in self.problems if p.severity == "error"]
        if errors:
            more = f" ({len(errors) - 1} more: foveate data check {self.source} lists all.)" if errors[1:] else ""
            raise DataError(f"{self.source}: {errors[0].message}{more}")


def ordered_names(values: Iterable[str]) -> list[str]:
    """The distinct names, sorted: as numbers when all of them are numbers, else as text.

    >>> ordered_names(["10", "9", "9"]), ordered_names(["dog", "cat", "10"])
    (['9', '10'], ['10', 'cat', 'dog'])
    """
    names = set(values)
    try:
        return sorted(names, key=lambda n: (float(n), n))
    except ValueError:
        return sorted(names)


def some(items: Iterable[Any], n: int = 5) -> str:
    """The first ``n`` of the items in words, and how many more there are."""
    items = [str(i) for i in items]
    return ", ".join(items[:n]) + (f" and {len(items) - n} more" if len(items) > n else "")


# -- CSV ----------------------------------------------------------------------------------


def scan_csv(
    path: str | os.PathLike[str],
    root: str | os.PathLike[str] | None = None,
    name: str | None = None,
    *,
    columns: Mapping[str, str] | None = None,
    split: str = "train",
) -> Scan:
    """Look at a CSV file and collect its faults; raises only when there is no such file."""
    source = Path(path).expanduser()
    if source.is_dir():
        raise DataError(f"{source} is a folder, expected a CSV file. Use from_folder for class folders.")
    if not source.is_file():
        raise DataError(f"there is no file {source}. Give a CSV file with columns path and label.")
    base = source.parent if root is None else Path(root).expanduser()
    if not base.is_dir():
        raise DataError(f"there is no folder {base} (root, what the paths in {source.name} are relative to).")
    default = source.parent.resolve().name if source.name == CSV_NAME else source.stem
    scan = Scan(name or default, source, base, pd.DataFrame())
    header, rows = _read_rows(scan)
    renamed = {found: wanted for wanted, found in (columns or {}).items()}
    for given in renamed:
        if given not in header:
            scan.report("missing-column", given, f"there is no column '{given}'; found: {', '.join(header)}.")
    names = [renamed.get(h, h) for h in header]
    frame = pd.DataFrame([r for _, r in rows], columns=names, dtype=object)
    frame.insert(0, "line ", [n for n, _ in rows])  # the space keeps it apart from a user's own column
    _check_columns(scan, frame)
    if "path" in frame and rows:
        _tidy(scan, frame, SPLIT_ALIASES.get(split, split))
    return scan


def _read_rows(scan: Scan) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Header and (line number, cells) of a CSV file; malformed lines become problems."""
    with open_regular(scan.source) as file:
        raw = file.read()
    encoding = "utf-16" if raw[:2] in (b"\xff\xfe", b"\xfe\xff") else "utf-8-sig"
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        message = f"this is not a UTF-8 text file ({error.reason} at byte {error.start}); save it as CSV in UTF-8."
        scan.report("unreadable-csv", str(scan.source), message)
        return [], []
    lines = text.splitlines(keepends=True)
    first = next((line for line in lines if line.strip()), "")
    delimiter = max(",;\t", key=first.count)  # max keeps the comma on a tie
    if (wide := first.count(delimiter) + 1) > MAX_COLUMNS:
        scan.report("unreadable-csv", "line 1", f"{wide:,} columns; at most {MAX_COLUMNS:,} are read. {_WIDE}")
        return [], []
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True)
    header: list[str] = []
    rows: list[tuple[int, list[str]]] = []
    try:
        for cells in reader:
            cells = [from_csv_cell(c.strip()) for c in cells]
            if not any(cells):
                continue
            if not header:
                header = cells
                while header and not header[-1]:  # a delimiter at the end of every line
                    header.pop()
                continue
            while len(cells) > len(header) and not cells[-1]:
                cells.pop()
            if len(cells) != len(header):
                where = f"line {reader.line_num}"
                message = f"{where} has {len(cells)} cells, the header has {len(header)} columns."
                scan.report("malformed-row", where, message)
                continue
            rows.append((reader.line_num, cells))
    except csv.Error as error:
        scan.report("unreadable-csv", f"line {reader.line_num}", f"line {reader.line_num}: {error}.")
    if repeated := sorted(name for name, n in Counter(header).items() if n > 1):
        scan.report("repeated-column", ", ".join(repeated), f"column '{repeated[0]}' occurs more than once.")
        return [], []
    if not header:
        scan.report("empty", str(scan.source), "the file is empty; expected columns path, label and one row per image.")
    elif not rows:
        scan.report("empty", str(scan.source), f"there are no rows under the header ({', '.join(header)}).")
    return header, rows


def _check_columns(scan: Scan, frame: pd.DataFrame) -> None:
    found = [str(c) for c in frame.columns[1:]]
    if not found:
        return
    unused = [c for c in found if c not in KNOWN]
    lower = {c.lower(): c for c in unused}
    for wanted in ("path", "label"):
        if wanted in found:
            continue
        close = next((lower[w] for w in (wanted, *_OTHER_WORDS[wanted]) if w in lower), None)
        hint = f" Did you mean '{close}'?" if close else suggest(wanted, unused)
        message = (
            f"there is no column '{wanted}'; the columns are: {', '.join(found)}.{hint} "
            f"Rename the column, or say from_csv(..., columns={{'{wanted}': {close or '...'!r}}})."
        )
        scan.report("missing-column", wanted, message)
    some_box = [c for c in BOX if c in found]
    if some_box and len(some_box) < 4:
        missing = [c for c in BOX if c not in found]
        message = f"a box needs all of x0, y0, x1, y1; there is no column {', '.join(missing)}."
        scan.report("missing-column", ", ".join(missing), message)
        frame.drop(columns=some_box, inplace=True)


def _tidy(scan: Scan, frame: pd.DataFrame, default_split: str) -> None:
    """Sort good rows from bad, make paths absolute, settle the splits; fills ``scan.frame``."""
    if "label" not in frame:
        scan.labelled = False
        frame["label"] = "?"
    keep = pd.Series(True, index=frame.index)
    for column in ("attribute", "split", "mask"):
        if column in frame and (frame[column] == "").all():
            frame.drop(columns=column, inplace=True)
    if "split" not in frame:
        frame["split"] = default_split
        scan.notes["hint"] = (
            f"There is no split column: all {len(frame)} images are '{default_split}'. Add a column 'split' "
            "(train, target, val, test), or hold images out with benchmark.with_val(fraction)."
        )
    for column in ("path", "label", "attribute", "split"):
        if column in frame and (empty := frame[column] == "").any():
            lines = frame.loc[empty, "line "]
            message = f"{len(lines)} row{'s' * (len(lines) > 1)} without {column}: line {some(lines)}. Fill it in."
            scan.report(f"empty-{column}", f"line {some(lines)}", message)
            keep &= ~empty
    keep &= _numbers(scan, frame)
    frame = frame[keep].reset_index(drop=True)
    splits = frame["split"].str.lower().map(SPLIT_ALIASES) if len(frame) else frame["split"]
    for unknown in sorted(set(frame.loc[splits.isna(), "split"])):
        lines = frame.loc[frame["split"] == unknown, "line "]
        message = (
            f"unknown split '{unknown}' in {len(lines)} row{'s' * (len(lines) > 1)} (line {some(lines)}); "
            f"the splits are {', '.join(SPLITS)}.{suggest(unknown.lower(), list(SPLIT_ALIASES))}"
        )
        scan.report("unknown-split", f"line {some(lines)}", message)
    frame["split"] = splits.where(splits.notna(), frame["split"])
    base = str(scan.root)
    for column in ("path", "mask"):
        if column in frame:
            frame[column] = [os.path.join(base, p) if p else "" for p in frame[column]]
    scan.frame = frame


def _numbers(scan: Scan, frame: pd.DataFrame) -> pd.Series:
    """Turn box and keypoint cells into numbers, in place; says which rows are sound."""
    sound = pd.Series(True, index=frame.index)
    boxes = [c for c in BOX if c in frame]
    columns = boxes + [c for c in frame.columns if KEYPOINT.fullmatch(str(c))]
    for column in columns:
        values = pd.to_numeric(frame[column].replace("", np.nan), errors="coerce")
        wrong = values.isna() & (frame[column] != "")
        if wrong.any():
            lines = frame.loc[wrong, "line "]
            message = f"column '{column}' holds something that is not a number: line {some(lines)}."
            scan.report("not-a-number", f"line {some(lines)}", message)
        sound &= ~wrong
        frame[column] = values
    if boxes:
        given = frame[boxes].notna().sum(axis=1)
        if (partial := sound & (given > 0) & (given < 4)).any():
            lines = frame.loc[partial, "line "]
            message = f"a box needs all of x0, y0, x1, y1 (or none): line {some(lines)}."
            scan.report("partial-box", f"line {some(lines)}", message)
            sound &= ~partial
    return sound


def read_frame(path: Path, **options: Any) -> pd.DataFrame:
    """``pandas.read_csv`` for a list that a dataset is published with; a file that is none is a :class:`DataError`."""
    try:
        with open_regular(path) as file:
            start = file.readline(1 << 20)
            if max(start.count(d) for d in b",; \t") > MAX_COLUMNS:
                raise DataError(f"{path} has more than {MAX_COLUMNS:,} columns. {_WIDE}")
            file.seek(0)
            frame = pd.read_csv(file, **options)
    except (ValueError, OSError, OverflowError, IndexError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or " ".join(str(error).split())
        raise DataError(f"{path} cannot be read as a table: {reason}. Download or unpack it again.") from error
    for column in frame.select_dtypes(include=["object", "string"]).columns:
        frame[column] = frame[column].map(lambda cell: from_csv_cell(cell) if isinstance(cell, str) else cell)
    return frame


# -- folders ------------------------------------------------------------------------------


def scan_path(path: str | os.PathLike[str], name: str | None = None) -> Scan:
    """Look at whatever ``path`` is (a CSV file or a folder); raises only when it is not there."""
    source = recover_folder(Path(path).expanduser())
    if not source.exists():
        raise DataError(f"there is no file or folder {source}. Give a CSV file or a folder of class folders.")
    if source.is_dir() and not (source / CSV_NAME).is_file():
        return scan_folder(source, name)
    return scan_csv(source / CSV_NAME if source.is_dir() else source, name=name)


def _listed(folder: Path) -> tuple[list[Path], list[Path], list[Path]]:
    """Sub-folders, images and other files of ``folder``, sorted, hidden ones left out."""
    entries = sorted(p for p in folder.iterdir() if not p.name.startswith(".") and p.name != "__MACOSX")
    folders = [p for p in entries if p.is_dir()]
    files = [p for p in entries if not p.is_dir()]
    images = [p for p in files if p.suffix.lower() in IMAGE_SUFFIXES]
    return folders, images, [p for p in files if p.suffix.lower() not in IMAGE_SUFFIXES]


def scan_folder(path: str | os.PathLike[str], name: str | None = None) -> Scan:
    """Look at a tree of class folders and collect its faults; raises only when there is no such folder."""
    root = Path(path).expanduser()
    if root.is_file():
        raise DataError(f"{root} is a file, expected a folder. Use from_csv for a CSV file.")
    if not root.is_dir():
        raise DataError(f"there is no folder {root}. Give a folder with one sub-folder for each class.")
    scan = Scan(name or root.resolve().name, root, root, pd.DataFrame())
    tops, stray, ignored = _listed(root)
    named = [SPLIT_ALIASES.get(t.name.lower()) if not t.name.isdigit() else None for t in tops]
    by_split = bool(tops) and (all(named) or any(s in ("train", "val", "test") for s in named))
    classes: list[tuple[str, Path]] = [] if by_split else [("train", t) for t in tops]
    if by_split:
        for top, split in zip(tops, named, strict=True):
            folders, images, others = _listed(top)
            stray, ignored = stray + images, ignored + others
            classes += [(split or top.name, f) for f in folders]
            if split is None:
                message = (
                    f"unknown split folder '{top.name}' beside {some(t.name for t in tops if t != top)}; "
                    f"the splits are {', '.join(SPLITS)}.{suggest(top.name.lower(), list(SPLIT_ALIASES))}"
                )
                scan.report("unknown-split", str(top), message)
    rows: list[tuple[str, str, str, str | None]] = []
    direct: list[Path] = []
    nested: list[Path] = []
    for split, folder in classes:
        attributes, images, others = _listed(folder)
        ignored += others
        before = len(rows)
        for inner in (folder, *attributes):
            if any("\ud800" <= c <= "\udfff" for c in inner.name):  # it could not be saved with a model
                message = (
                    f"the name of the folder {visible(inner)} is no UTF-8 text, and it would be the name of a class or "
                    "an attribute; rename it."
                )
                scan.report("bad-name", visible(inner), message)
        rows += [(str(p), folder.name, split, None) for p in images]
        direct += [folder] * bool(images)
        for attribute in attributes:
            deeper, images, others = _listed(attribute)
            ignored += others
            rows += [(str(p), folder.name, split, attribute.name) for p in images]
            nested += [folder] * bool(images)
            if deeper:
                message = f"{deeper[0]} is a level too deep; expected [split/]class/[attribute/]image."
                scan.report("too-deep", str(deeper[0]), message)
        if len(rows) == before:
            scan.report("empty-folder", str(folder), f"class folder {folder} holds no images.", warning=True)
    if direct and nested:
        message = (
            f"some images lie in the class folder itself ({some(dict.fromkeys(map(str, direct)), 3)}) and "
            f"some in attribute folders below it ({some(dict.fromkeys(map(str, nested)), 3)}); "
            "every image needs an attribute, or none: move them."
        )
        scan.report("mixed-levels", str(direct[0]), message)
    if not rows:
        hint = f"found {len(stray)} images outside class folders" if stray else "found no images"
        message = f"expected [split/]class/[attribute/]image under this folder, {hint}."
        scan.report("empty", str(root), message)
    elif stray:
        message = f"{len(stray)} images lie outside any class folder and are not used: {some(stray, 3)}."
        scan.report("stray-image", str(stray[0]), message, warning=True)
        scan.notes["stray_images"] = len(stray)
    if ignored:
        scan.notes["ignored_files"] = {"count": len(ignored), "first": [str(p) for p in ignored[:10]]}
    if rows and not by_split:
        scan.notes["hint"] = (
            f"There are no split folders: all {len(rows)} images are 'train'. Put train, val and test "
            "folders on top, or hold images out with benchmark.with_val(fraction)."
        )
    scan.frame = pd.DataFrame(rows, columns=["path", "label", "split", "attribute"], dtype=object)
    if not nested or direct:
        scan.frame = scan.frame.drop(columns="attribute")
    return scan
