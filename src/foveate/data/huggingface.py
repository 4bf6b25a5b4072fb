"""Datasets of the Hugging Face ``datasets`` library, already loaded, as a benchmark.

The library is an extra (``pip install 'foveate[hf]'``) and is never imported here: whoever holds one of its
objects has it. Images stay encoded until they are asked for.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from foveate.data.benchmark import SPLITS, Benchmark
from foveate.data.dataset import GroupedDataset
from foveate.data.images import decode, decode_bytes, to_rgb
from foveate.data.scan import SPLIT_ALIASES, ordered_names
from foveate.data.tables import unseen_labels
from foveate.errors import DataError, MissingExtra, UnreadableImage, suggest


class HuggingFaceImages:
    """The image column of a ``datasets.Dataset``, decoded one at a time when asked for."""

    def __init__(self, dataset: Any, column: str, name: str):
        feature = dataset.features[column]
        dataset = dataset.with_format(None).select_columns([column])
        if hasattr(feature, "decode"):  # an Image feature: take the encoded bytes and decode them our way
            dataset = dataset.cast_column(column, type(feature)(decode=False))
        self.dataset, self.column, self.name = dataset, column, name

    def __len__(self) -> int:
        return len(self.dataset)

    def where(self, i: int) -> str:
        return f"{self.name}[{i}]"

    def read(self, i: int) -> NDArray[np.uint8]:
        value = self.dataset[int(i)][self.column]
        try:
            if isinstance(value, Mapping) and value.get("bytes") is not None:
                return decode_bytes(value["bytes"], self.where(i))
            if isinstance(value, Mapping) and value.get("path"):
                return decode(value["path"])
            if value is None or isinstance(value, Mapping):
                raise UnreadableImage(self.where(i), "the cell is empty")
            return np.asarray(to_rgb(Image.fromarray(np.asarray(value, dtype=np.uint8))))
        except UnreadableImage as error:
            raise UnreadableImage(self.where(i), error.reason) from error
        except Exception as error:
            raise UnreadableImage(self.where(i), str(error) or type(error).__name__) from error

    def digest(self, i: int) -> bytes:
        value = self.dataset[int(i)][self.column]
        if isinstance(value, Mapping):
            content = value.get("bytes")
            if content is None:
                path = Path(value.get("path") or "")
                content = path.read_bytes() if path.is_file() else b"missing"
        else:
            array = np.asarray(value)
            content = array.tobytes() + str(array.shape).encode()
        return hashlib.blake2b(content, digest_size=16).digest()


def from_huggingface(
    dataset: Any,
    image: str = "image",
    label: str = "label",
    attribute: str | None = None,
    *,
    extras: Sequence[str] = (),
    splits: Mapping[str, str] | None = None,
    split: str = "train",
    name: str | None = None,
) -> Benchmark:
    """Read a benchmark from a loaded ``datasets.Dataset`` or ``datasets.DatasetDict``.

    Args:
        dataset: what ``datasets.load_dataset(...)`` returned (not a streaming one).
        image: the column with the images.
        label: the column with the class: a ``ClassLabel`` (its names are used), text, whole numbers or
        booleans.
        attribute: the column with the attribute, of the same kinds, or None.
        extras: further columns to keep.
        splits: what the splits are called there and here, such as ``{"train_small": "train"}``; splits that
            are not named are left out. By default the usual names are understood.
        split: where a single ``Dataset`` goes.
        name: what to call the benchmark.

    Example::

        import datasets
        birds = fv.data.from_huggingface(datasets.load_dataset("someone/birds"), label="species",
        attribute="place")
    """
    parts = _splits(dataset, splits, split)
    name = name or str(getattr(next(iter(parts.values()), None), "builder_name", None) or "huggingface")
    for column in filter(None, (image, label, attribute, *extras)):
        for part_name, part in parts.items():
            if column not in part.column_names:
                have = list(part.column_names)
                raise DataError(
                    f"{name} has no column '{column}' in '{part_name}'; the columns are: {', '.join(have)}."
                    f"{suggest(column, have)} Say which is which: from_huggingface(ds, image=..., label=...)."
                )
    labels, class_names = _names(parts, label, "label")
    attributes, attribute_names = _names(parts, attribute, "attribute") if attribute else ({}, None)
    found = {
        part_name: GroupedDataset(
            HuggingFaceImages(part, image, f"{name}/{part_name}"),
            labels[part_name],
            class_names,
            attributes=attributes.get(part_name),
            attribute_names=attribute_names,
            extras={c: _column(part, c) for c in extras},
            name=f"{name}/{part_name}",
        )
        for part_name, part in parts.items()
    }
    benchmark = Benchmark(name, {s: found[s] for s in SPLITS if s in found})
    if unseen := unseen_labels(benchmark):
        raise DataError(f"{name}: {unseen[0].message}")
    return benchmark


def _splits(dataset: Any, splits: Mapping[str, str] | None, split: str) -> dict[str, Any]:
    """The parts of ``dataset`` under our split names."""
    if isinstance(dataset, str | Path):
        if importlib.util.find_spec("datasets") is None:
            raise MissingExtra("datasets", "hf", "Reading Hugging Face datasets")
        raise DataError(
            f"expected a loaded dataset, found the name '{dataset}'. Load it first: "
            f"from_huggingface(datasets.load_dataset('{dataset}'))."
        )
    parts: Mapping[str, Any] = dataset if isinstance(dataset, Mapping) else {split: dataset}
    known = dict(splits) if splits is not None else SPLIT_ALIASES
    if missing := [s for s in splits or () if s not in parts]:
        raise DataError(f"there is no split '{missing[0]}'; the dataset has: {', '.join(parts)}.")
    found: dict[str, Any] = {}
    for theirs, part in parts.items():
        if not all(hasattr(part, a) for a in ("features", "column_names", "select_columns")):
            raise DataError(
                f"expected a datasets.Dataset or DatasetDict (from datasets.load_dataset), found "
                f"{type(part).__module__}.{type(part).__name__}."
            )
        if not hasattr(part, "__len__"):
            raise DataError("streaming datasets have no length; load it with streaming=False.")
        ours = known.get(theirs if splits is not None else theirs.lower())
        if ours is None and splits is not None:
            continue
        if ours not in SPLITS or ours in found:
            trouble = f"unknown split '{theirs}'" if ours not in SPLITS else f"two splits are '{ours}'"
            raise DataError(
                f"{trouble} (the dataset has: {', '.join(parts)}); the splits are {', '.join(SPLITS)}. "
                f"Say which is which: from_huggingface(ds, splits={{'{theirs}': 'train'}})."
            )
        found[ours] = part
    if not found:
        raise DataError("the dataset has no splits.")
    return found


def _column(part: Any, column: str) -> NDArray[Any]:
    return np.asarray(list(part.with_format(None)[column]))


def _names(parts: Mapping[str, Any], column: str, what: str) -> tuple[dict[str, NDArray[np.int64]], list[str]]:
    """Indices of every part and the names they stand for, the same over all parts."""
    values = {name: list(part.with_format(None)[column]) for name, part in parts.items()}
    given = [getattr(part.features[column], "names", None) for part in parts.values()]
    if given[0] is not None and any(names != given[0] for names in given):
        raise DataError(f"the splits have other names for '{column}': {given}. Make them agree first.")
    for name, cells in values.items():
        unknown = sum(v is None or (given[0] is not None and v < 0) for v in cells)
        if unknown:
            raise DataError(
                f"{unknown} of {len(cells)} rows of '{name}' have no {what} ('{column}' is empty or -1). "
                "Leave them out with dataset.filter(...), or leave that split out with splits={...}."
            )
    if given[0] is not None:
        return {n: np.asarray(v, dtype=np.int64) for n, v in values.items()}, list(given[0])
    names = ordered_names(str(v) for cells in values.values() for v in cells)
    index = {name: k for k, name in enumerate(names)}
    return {n: np.asarray([index[str(v)] for v in cells], np.int64) for n, cells in values.items()}, names
