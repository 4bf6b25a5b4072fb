"""CelebA: is the hair blond, with sex as the shortcut. The whole dataset, and the DAR paper's counts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

from foveate.data.benchmark import Benchmark
from foveate.data.scan import read_frame
from foveate.data.sources.layout import Root, Source, benchmark_of, draw_splits
from foveate.errors import DataError, suggest

HAIR = ("not blond", "blond")
SEX = ("female", "male")


def celeba(root: Root = None, label: str = "Blond_Hair", attribute: str = "Male") -> Benchmark:
    """CelebA with two of its 40 annotations as label and attribute, official split.

    Args:
        root: folder with ``img_align_celeba`` and the lists of attributes and partitions (``.txt`` as published,
            or ``.csv`` as on Kaggle).
        label: annotation to name.
        attribute: annotation that is the shortcut.
    """
    folder = CELEBA.find(root)
    names = (HAIR if label == "Blond_Hair" else _yes_no(label), SEX if attribute == "Male" else _yes_no(attribute))
    notes = {"folder": str(folder), "label": label, "attribute": attribute}
    return benchmark_of("celeba", read_celeba(folder, label, attribute), *names, notes=notes)


def celeba_dar(
    root: Root = None, seed: int = 0, *, majority: int = 9000, minority: int = 473, per_group: int = 250
) -> Benchmark:
    """CelebA with the counts of the DAR paper's Table 4: 9,000 of two groups, 473 of the other two in train.

    The paper's table lost its labels; taken as majority: not blond men and blond women. ``target`` and ``val``
    (1,000 each, balanced) both come from the official training images (the official validation images have too few
    blond men and are not used); ``test`` is the official one.

    Args:
        root: as for :func:`celeba`.
        seed: which images are drawn.
        majority, minority: training images of a group.
        per_group: images of a group in ``target`` and in ``val``.
    """
    folder = CELEBA_DAR.find(root)
    table = read_celeba(folder, "Blond_Hair", "Male")

    def group(y: int, a: int) -> str:
        return f"{HAIR[y]}/{SEX[a]}"

    cells = [(y, a) for y in (0, 1) for a in (0, 1)]
    each = dict.fromkeys(cells, per_group)
    counts = {(0, 1): majority, (1, 0): majority, (0, 0): minority, (1, 1): minority}
    learn = table[table["split"] == "train"]
    # blond men are few: 1,387 in train but 182 in val, too few for 250, so both balanced sets come from train
    drawn = draw_splits("celeba-dar", learn, {"train": counts, "target": each, "val": each}, seed, group)
    rows = pd.concat([drawn, table[table["split"] == "test"]], ignore_index=True)
    return benchmark_of("celeba-dar", rows, HAIR, SEX, notes={"folder": str(folder), "seed": seed})


def _yes_no(annotation: str) -> tuple[str, str]:
    word = annotation.replace("_", " ").lower()
    return f"not {word}", word


def read_celeba(folder: Path, label: str, attribute: str) -> pd.DataFrame:
    """``path, label, attribute, split`` of every image; annotations of -1 (and 0) count as no."""
    annotations = _read(folder, "list_attr_celeba", header=True)
    partition = _read(folder, "list_eval_partition", header=False)
    for wanted in (label, attribute):
        if wanted not in annotations:
            raise DataError(
                f"CelebA has no annotation '{wanted}'.{suggest(wanted, list(annotations.columns))} "
                f"It has: {', '.join(annotations.columns)}."
            )
    parts = partition.iloc[:, 0].reindex(annotations.index)
    if parts.isna().any():
        raise DataError(
            f"{folder}: {int(parts.isna().sum())} images of list_attr_celeba are not in list_eval_partition; "
            "both lists must come from the same download."
        )
    images = folder / "img_align_celeba"
    if (images / "img_align_celeba").is_dir():  # Kaggle's archive nests the folder
        images = images / "img_align_celeba"
    return pd.DataFrame(
        {
            "path": np.array([images / str(name) for name in annotations.index], dtype=object),
            "label": (annotations[label].to_numpy() > 0).astype(np.int64),
            "attribute": (annotations[attribute].to_numpy() > 0).astype(np.int64),
            "split": [("train", "val", "test")[int(p)] for p in parts],
        }
    )


def _read(folder: Path, stem: str, header: bool) -> pd.DataFrame:
    """One of the lists, as published (``.txt``) or as on Kaggle (``.csv``), by image name."""
    if (folder / f"{stem}.csv").is_file():
        return read_frame(folder / f"{stem}.csv", index_col=0)
    path = folder / f"{stem}.txt"
    if not header:
        return read_frame(path, sep=r"\s+", header=None, index_col=0)
    with open(path, encoding="utf-8") as file:
        first = file.readline().strip()
        if not first.isdigit():
            raise DataError(f"{path}: the first line must be the number of images, found '{first[:40]}'.")
        names = file.readline().split()
    table = read_frame(path, sep=r"\s+", skiprows=2, header=None, index_col=0, names=["image", *names])
    if len(table) != int(first):
        raise DataError(f"{path} promises {int(first):,} images and lists {len(table):,}; download it again.")
    return table


_GET = (
    "Download img_align_celeba.zip, list_attr_celeba.txt and list_eval_partition.txt (folders Img, Anno and Eval) "
    "from https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html, and unpack the images."
)
_MARKERS = (
    "img_align_celeba", "list_attr_celeba.txt|list_attr_celeba.csv", "list_eval_partition.txt|list_eval_partition.csv",
)  # fmt: skip
_LICENCE = "non-commercial research only; do not redistribute (CelebA agreement)"
_TEST = {"not blond/female": 9767, "not blond/male": 7535, "blond/female": 2480, "blond/male": 180}
CELEBA = Source(
    "celeba", 202_599, _LICENCE,
    "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html", _GET, ("celeba", "CelebA", "celebA"), _MARKERS, celeba,
    {
        "train": {"not blond/female": 71629, "not blond/male": 66874, "blond/female": 22880, "blond/male": 1387},
        "val": 19_867,
        "test": _TEST,
    },
    {"list_attr_celeba.txt": "75e246fa4810816ffd6ee81facbd244c",
     "list_eval_partition.txt": "d32c9cbf5e040fd4025c592c306e6668",
     "img_align_celeba.zip": "00d2c5bc6d35e252742224ab0c1e8fcb"},
)  # fmt: skip
CELEBA_DAR = Source(
    "celeba-dar", 40_908, _LICENCE,
    "https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html", _GET, ("celeba", "CelebA", "celebA"), _MARKERS, celeba_dar,
    {
        "train": {"not blond/female": 473, "not blond/male": 9000, "blond/female": 9000, "blond/male": 473},
        "target": 1000, "val": 1000, "test": _TEST,
    },
)  # fmt: skip
