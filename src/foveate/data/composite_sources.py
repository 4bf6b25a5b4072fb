"""The tables of objects and backgrounds that :func:`foveate.data.compose` draws from."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from foveate.data.benchmark import SPLITS
from foveate.data.composite import tight_box
from foveate.data.images import decode, decode_mask
from foveate.data.scan import read_frame
from foveate.errors import DataError, UnreadableImage, suggest


class SourceTable:
    """Pictures with a label each, maybe a mask each, and maybe the split they belong to.

    Args:
        what: "foregrounds" or "backgrounds", for messages.
        paths, masks: the files; ``masks`` is empty for backgrounds.
        labels: class or scene names.
        splits: split of each row, or None when the table names none.
    """

    def __init__(
        self,
        what: str,
        paths: Sequence[Path],
        masks: Sequence[Path],
        labels: Sequence[str],
        splits: Sequence[str] | None,
    ):
        self.what, self.paths, self.masks = what, list(paths), list(masks)
        self.labels = list(labels)
        self.splits = None if splits is None else list(splits)

    @classmethod
    def read(
        cls,
        what: str,
        table: str | os.PathLike[str] | pd.DataFrame,
        path: str,
        label: str,
        split: str,
        root: str | os.PathLike[str] | None,
        mask: str | None = None,
    ) -> SourceTable:
        """Read a CSV file or DataFrame; ``path`` and ``mask`` are templates, the others column names."""
        if isinstance(table, pd.DataFrame):
            frame, folder = table, Path()
        else:
            frame, folder = _read_csv(what, Path(table).expanduser()), Path(table).expanduser().parent
        folder = Path(root).expanduser() if root is not None else folder
        if label not in frame.columns:
            raise _no_column(what, label, frame, "label")
        if frame[label].isna().any():
            row = int(np.flatnonzero(frame[label].isna().to_numpy())[0])
            raise DataError(f"{what}: row {row + 1} has no '{label}'; every row needs one.")
        splits = [str(s).strip() for s in frame[split]] if split in frame.columns else None
        if unknown := sorted(set(splits or ()) - set(SPLITS)):
            raise DataError(f"{what}: unknown split '{unknown[0]}'; the splits are {', '.join(SPLITS)}.")
        rows = [{str(k): v for k, v in row.items()} for row in frame.to_dict("records")]
        return cls(
            what,
            [folder / _fill(what, path, row, frame) for row in rows],
            [] if mask is None else [folder / _fill(what, mask, row, frame) for row in rows],
            [str(v).strip() for v in frame[label]],
            splits,
        )

    def __len__(self) -> int:
        return len(self.paths)

    def codes(self, names: Sequence[str]) -> NDArray[np.int64]:
        """Label of every row as a position in ``names``."""
        return np.array([names.index(label) for label in self.labels], dtype=np.int64)

    def drop_bad(self, threshold: int) -> list[UnreadableImage]:
        """Decode everything once; remove the rows that cannot be used and return one error for each."""

        def problem(i: int) -> UnreadableImage | None:
            try:
                photo = decode(self.paths[i])
                if not self.masks:
                    return None
                mask = decode_mask(self.masks[i])
            except UnreadableImage as error:
                return error
            if mask.shape != photo.shape[:2]:
                size, other = "x".join(map(str, mask.shape[::-1])), "x".join(map(str, photo.shape[1::-1]))
                return UnreadableImage(str(self.masks[i]), f"the mask is {size}, its photograph {other}")
            if tight_box(mask >= threshold) is None:
                reason = f"no pixel of the mask reaches {threshold} (try a lower mask_threshold)"
                return UnreadableImage(str(self.masks[i]), reason)
            return None

        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            problems = list(pool.map(problem, range(len(self))))
        good = [i for i, p in enumerate(problems) if p is None]
        self.paths = [self.paths[i] for i in good]
        self.masks = [self.masks[i] for i in good] if self.masks else []
        self.labels = [self.labels[i] for i in good]
        self.splits = None if self.splits is None else [self.splits[i] for i in good]
        if not good:
            first = f" The first: {next(p for p in problems if p)}" if problems else ""
            raise DataError(f"none of the {len(problems)} {self.what} can be used.{first}")
        return [p for p in problems if p is not None]

    def divide(
        self, names: Sequence[str], fractions: Mapping[str, float], rng: np.random.Generator
    ) -> dict[str, NDArray[np.int64]]:
        """Rows of every split. Splits the table names stay; the others are held out of ``train``, per label."""
        given = np.array(self.splits if self.splits is not None else ["train"] * len(self))
        parts: dict[str, list[NDArray[np.int64]]] = {s: [np.flatnonzero(given == s)] for s in SPLITS[1:]}
        carve = [s for s in SPLITS[1:] if not len(parts[s][0]) and fractions.get(s, 0) > 0]
        codes = self.codes(names)
        left: list[NDArray[np.int64]] = []
        for code in range(len(names)):
            rows = rng.permutation(np.flatnonzero((given == "train") & (codes == code)))
            total = len(rows)
            for split in carve:
                take = max(1, round(fractions[split] * total)) if total else 0
                parts[split].append(rows[:take])
                rows = rows[take:]
            if total and not len(rows):
                raise DataError(
                    f"{self.what}: '{names[code]}' has {total} pictures to learn from, too few to hold "
                    f"{', '.join(carve)} out as well. Add pictures, or set those fractions to 0."
                )
            left.append(rows)
        parts["train"] = left
        return {s: np.sort(np.concatenate(p)).astype(np.int64) for s, p in parts.items()}


def _read_csv(what: str, path: Path) -> pd.DataFrame:
    if not path.is_file():
        raise DataError(f"{what}: there is no file {path}; give a CSV file.")
    try:
        return read_frame(path)
    except DataError as error:
        raise DataError(f"{what}: {error}") from error


def _fill(what: str, template: str, row: Mapping[str, object], frame: pd.DataFrame) -> str:
    try:
        return template.format_map(row)
    except KeyError as error:
        raise _no_column(what, str(error.args[0]), frame, "path") from error
    except (ValueError, IndexError, AttributeError) as error:
        raise DataError(
            f"{what}: '{template}' is not a path template; write columns in braces, like 'photos/{{name}}.jpg'."
        ) from error


def _no_column(what: str, column: str, frame: pd.DataFrame, kind: str) -> DataError:
    have = [str(c) for c in frame.columns]
    side = "fg" if what == "foregrounds" else "bg"
    return DataError(
        f"{what}: no column '{column}'.{suggest(column, have)} The columns are: {', '.join(have)}. "
        f"Name the right one with {side}_{kind}."
    )
