"""Caltech-UCSD Birds: 200 species with boxes, parts and masks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from foveate.data.benchmark import Benchmark
from foveate.data.dataset import GroupedDataset
from foveate.data.images import FileImages
from foveate.data.scan import BOX, read_frame
from foveate.data.sources.layout import Root, Source, base_folder
from foveate.errors import DataError

CUB_GET = (
    "Download CUB_200_2011.tgz from https://data.caltech.edu/records/65de6-vp158 (and segmentations.tgz from "
    "https://data.caltech.edu/records/w9d68-gec53 for masks)."
)
PLACES = ("land", "water")


def cub(root: Root = None) -> Benchmark:
    """CUB-200-2011: 200 bird species, official split, with boxes, 15 part locations and, where there, masks.

    ``train`` (5,994) and ``test`` (5,794) are the official ones; there is no ``val``. Masks are attached when
    the folder ``segmentations`` lies inside or beside ``CUB_200_2011``; ``notes["masks"]`` says whether it does.
    """
    folder = CUB.find(root)
    table = read_cub(folder)
    names, points = read_parts(folder, table)
    classes = read_classes(folder)
    splits = {}
    for split in ("train", "test"):
        rows = table["split"] == split
        if not rows.any():
            continue
        splits[split] = bird_split(f"cub/{split}", table[rows], classes, names, points, rows.to_numpy())
    return Benchmark("cub", splits, {"folder": str(folder), "masks": bool(table["mask"].notna().any())})


def bird_split(
    name: str,
    table: pd.DataFrame,
    classes: list[str],
    parts: list[str] | None,
    points: NDArray[np.float32] | None,
    rows: NDArray[np.bool_],
    places: NDArray[np.int64] | None = None,
) -> GroupedDataset:
    masks = list(table["mask"])
    return GroupedDataset(
        FileImages(list(table["path"])),
        table["label"].to_numpy(np.int64),
        classes,
        attributes=places,
        attribute_names=None if places is None else PLACES,
        masks=FileImages(masks, masks=True) if any(m is not None for m in masks) else None,
        boxes=table[list(BOX)].to_numpy(np.float32),
        keypoints=None if points is None else points[rows],
        keypoint_names=parts,
        extras={"image_id": table["image_id"].to_numpy()},
        name=name,
    )


def read_cub(folder: Path) -> pd.DataFrame:
    """One row an image: ``image_id, file, path, label, split, mask`` and the box as ``x0, y0, x1, y1``."""
    images = _listing(folder / "images.txt", ["image_id", "file"])
    labels = _listing(folder / "image_class_labels.txt", ["image_id", "label"])
    training = _listing(folder / "train_test_split.txt", ["image_id", "training"])
    boxes = _listing(folder / "bounding_boxes.txt", ["image_id", "x", "y", "w", "h"])
    table = images
    for other in (labels, training, boxes):
        table = table.merge(other, on="image_id", how="left", validate="one_to_one")
    if table.isna().any().any():
        raise DataError(f"{folder}: images.txt names images that the other lists lack; unpack the download again.")
    table["label"] = table["label"].astype(np.int64) - 1
    table["split"] = np.where(table["training"].astype(int) == 1, "train", "test")
    table["path"] = np.array([folder / "images" / f for f in table["file"]], dtype=object)
    table["x0"], table["y0"] = table["x"], table["y"]
    table["x1"], table["y1"] = table["x"] + table["w"], table["y"] + table["h"]
    table["mask"] = np.array(mask_paths(folder, table["file"]), dtype=object)
    return table


def mask_paths(folder: Path, files: pd.Series) -> list[Path | None]:
    """Where the masks of ``species/image.jpg`` lie, all None without the folder ``segmentations``."""
    # the archive has attributes.txt beside its folder, so unpacking it by hand often gives CUB_200_2011/CUB_200_2011
    nested = folder.parent.name in (CUB.name, *CUB.folders)
    for place in (folder, folder.parent, *([folder.parent.parent] if nested else [])):
        if (place / "segmentations").is_dir():
            return [place / "segmentations" / Path(f).with_suffix(".png") for f in files]
    return [None] * len(files)


def read_classes(folder: Path) -> list[str]:
    """Species names (``Black footed Albatross``) in label order."""
    listing = _listing(folder / "classes.txt", ["class_id", "name"]).sort_values("class_id")
    return [str(n).partition(".")[2].replace("_", " ") or str(n) for n in listing["name"]]


def read_parts(folder: Path, table: pd.DataFrame) -> tuple[list[str] | None, NDArray[np.float32] | None]:
    """Part names and ``[N, P, 3]`` of (x, y, visible) in the order of ``table``; None without the files."""
    if not (folder / "parts" / "part_locs.txt").is_file():
        return None, None
    names = [
        line.partition(" ")[2].strip()
        for line in (folder / "parts" / "parts.txt").read_text(encoding="utf-8").splitlines()
        if line.strip()
    ]
    locations = _listing(folder / "parts" / "part_locs.txt", ["image_id", "part", "x", "y", "visible"])
    position = pd.Series(np.arange(len(table)), index=table["image_id"])
    points = np.zeros((len(table), len(names), 3), np.float32)
    rows = position.reindex(locations["image_id"]).to_numpy()
    known = ~np.isnan(rows.astype(float))
    values = locations[["x", "y", "visible"]].to_numpy(np.float32)
    points[rows[known].astype(int), locations["part"].to_numpy(int)[known] - 1] = values[known]
    return names, points


def _listing(path: Path, columns: list[str]) -> pd.DataFrame:
    """One of CUB's space-separated lists."""
    if not path.is_file():
        raise DataError(f"expected {path}; there is none. {CUB_GET}")
    return read_frame(path, sep=" ", header=None, names=columns)


def beside(root: Root, found: Path) -> Path | None:
    """CUB's folder when it lies where another dataset was found, or under the same root."""
    for base in (base_folder(root), found.parent, found):
        for place in CUB.places(base):
            if (place / "images.txt").is_file() and (place / "bounding_boxes.txt").is_file():
                return place
    return None


CUB_LICENCE = "images for non-commercial research and education only (Caltech-UCSD Birds terms)"
CUB = Source(
    "cub", 11_788, CUB_LICENCE,
    "https://www.vision.caltech.edu/datasets/cub_200_2011/", CUB_GET, ("CUB_200_2011", "CUB"),
    ("images.txt", "bounding_boxes.txt", "train_test_split.txt"), cub,
    {"train": 5_994, "test": 5_794}, {"CUB_200_2011.tgz": "97eceeb196236b17998738112f37df78"},
    {"segmentations.tgz": ("masks", "segmentations", "4d47ba1228eae64f2fa547c47bc65255")},
)  # fmt: skip
