"""ImageNet-9 with other backgrounds (BG-GAP), and the boxes of the ImageNet validation images."""

from __future__ import annotations

import hashlib
import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import ArrayLike, NDArray

from foveate.data.benchmark import Benchmark
from foveate.data.dataset import GroupedDataset
from foveate.data.images import FileImages, image_size
from foveate.data.sources.layout import Root, Source, benchmark_of, image_files, rows_of
from foveate.errors import DataError, suggest
from foveate.measure import NO_ANSWER, UNREADABLE

SUPERCLASSES = ("dog", "bird", "wheeled vehicle", "reptile", "carnivore", "insect", "musical instrument", "primate",
                "fish")  # fmt: skip
_FOLDERS = tuple(f"{i:02d}_{name}" for i, name in enumerate(SUPERCLASSES))
VARIANTS = ("original", "mixed_same", "mixed_rand", "mixed_next", "no_fg", "only_bg_b", "only_bg_t", "only_fg")


def imagenet9(root: Root = None, variant: str = "original") -> Benchmark:
    """ImageNet-9 of the backgrounds challenge: nine superclasses, 450 images each, in one of its variants.

    Test only. BG-GAP is the accuracy on ``mixed_same`` minus that on ``mixed_rand``: see :func:`background_pair`,
    :func:`to_superclasses` and :func:`foveate.measure.bg_gap`.

    Args:
        root: folder ``bg_challenge``, or the one that holds it.
        variant: one of :data:`VARIANTS`.
    """
    if variant not in VARIANTS:
        raise DataError(
            f"ImageNet-9 has no variant '{variant}'.{suggest(variant, VARIANTS)} It has: {', '.join(VARIANTS)}."
        )
    folder = IMAGENET9.find(root)
    cells = {("test", y, 0): image_files(folder / variant / "val" / name) for y, name in enumerate(_FOLDERS)}
    notes = {"folder": str(folder), "variant": variant}
    return benchmark_of("imagenet9", rows_of(cells), SUPERCLASSES, notes=notes)


def background_pair(root: Root = None) -> tuple[GroupedDataset, GroupedDataset]:
    """Mixed-Same and Mixed-Rand, the two sets of BG-GAP."""
    return imagenet9(root, "mixed_same").test, imagenet9(root, "mixed_rand").test


def to_superclasses(predictions: ArrayLike, mapping: str | Path | dict[str, int]) -> NDArray[np.int64]:
    """Classes of ImageNet-1k (0 to 999, ``[N]``) as superclasses 0 to 8.

    Classes that belong to none become -2, which every metric counts as wrong; -1 (unreadable) and -2 stay.

    Args:
        predictions: class indices.
        mapping: ``in_to_in9.json`` of the backgrounds challenge, or its content.

    >>> to_superclasses([0, 7, 3], {"0": 8, "7": 1})
    array([ 8,  1, -2])
    """
    given = mapping if isinstance(mapping, dict) else json.loads(Path(mapping).read_text(encoding="utf-8"))
    table = np.full(1000, NO_ANSWER, np.int64)
    for index, superclass in given.items():
        table[int(index)] = int(superclass)
    chosen = np.asarray(predictions, np.int64)
    if chosen.size and not (chosen.min() >= min(UNREADABLE, NO_ANSWER) and chosen.max() < 1000):
        raise DataError(f"expected ImageNet classes from 0 to 999, found {chosen.min()} to {chosen.max()}.")
    return np.where(chosen < 0, chosen, table[chosen])


# -- boxes --------------------------------------------------------------------------------


def imagenet_val(root: Root = None) -> Benchmark:
    """The 50,000 validation images of ImageNet-1k with their boxes, as ``test``.

    Classes are the WordNet numbers in sorted order, the usual order of model outputs. An image may have several
    boxes: its ``mask`` marks them all (what attention mass and hit need), its ``box`` goes around all of them.
    Masks are drawn when read. Boxes come from Kaggle's ``LOC_val_solution.csv`` or from the official XML files.

    Args:
        root: folder with ``val`` (or ``ILSVRC2012_img_val``) and the boxes.
    """
    folder = IMAGENET_VAL.find(root)
    found = read_boxes(folder)
    top = next(folder / name for name in _VAL_FOLDERS if (folder / name).is_dir())
    nested = sorted(p for p in top.iterdir() if p.is_dir())
    files = {p.stem: p for place in (nested or [top]) for p in image_files(place)}
    known = sorted(set(files) & set(found))
    if not known:
        raise DataError(f"none of the {len(files):,} images in {top} has a box in {folder}; the names do not agree.")
    classes = sorted({name for name, _ in found.values()})
    code = {name: i for i, name in enumerate(classes)}
    paths = [files[n] for n in known]
    boxes = [np.array(found[n][1], np.float32) for n in known]
    around = [(*b[:, :2].min(axis=0), *b[:, 2:].max(axis=0)) for b in boxes]
    ds = GroupedDataset(
        FileImages(paths),
        [code[found[n][0]] for n in known],
        classes,
        masks=BoxMasks(paths, boxes),
        boxes=np.array(around, np.float32),
        extras={"boxes": np.array([len(b) for b in boxes])},
        name="imagenet-val/test",
    )
    return Benchmark("imagenet-val", {"test": ds}, {"folder": str(folder), "without box": len(files) - len(known)})


def read_boxes(folder: Path) -> dict[str, tuple[str, list[tuple[float, float, float, float]]]]:
    """Class and boxes (as published) of every image by name."""
    listing = folder / "LOC_val_solution.csv"
    if listing.is_file():
        found = {}
        for line in listing.read_text(encoding="utf-8").splitlines()[1:]:
            name, _, text = line.partition(",")
            words = text.split()
            if not words:
                continue
            if len(words) % 5:
                raise DataError(f"{listing}: '{name}' needs five words a box (class x0 y0 x1 y1), found {len(words)}.")
            boxes = [_box(words[k + 1 : k + 5]) for k in range(0, len(words), 5)]
            found[name] = (words[0], boxes)
        return found
    annotations = next(folder / name for name in _BOX_FOLDERS if (folder / name).is_dir())
    return {path.stem: read_annotation(path) for path in sorted(annotations.rglob("*.xml"))}


def read_annotation(path: Path) -> tuple[str, list[tuple[float, float, float, float]]]:
    """Class and boxes in one XML file of ImageNet."""
    try:
        objects = ElementTree.parse(path).getroot().findall("object")
        names = [str(o.findtext("name")) for o in objects]
        boxes = [_box([str(o.findtext(f"bndbox/{k}")) for k in ("xmin", "ymin", "xmax", "ymax")]) for o in objects]
    except (ElementTree.ParseError, ValueError) as error:
        raise DataError(f"{path} is not an annotation that can be read: {error}.") from error
    if not boxes:
        raise DataError(f"{path} names no object.")
    return names[0], boxes


def _box(words: Sequence[str]) -> tuple[float, float, float, float]:
    x0, y0, x1, y1 = (float(w) for w in words)
    return x0, y0, x1, y1


class BoxMasks:
    """Masks that mark the union of an image's boxes, drawn when read (only the image's header is opened)."""

    def __init__(self, paths: Sequence[Path], boxes: Sequence[NDArray[np.float32]]):
        self.paths, self.boxes = list(paths), list(boxes)

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, i: int) -> NDArray[np.uint8]:
        width, height = image_size(self.paths[i])
        mask = np.zeros((height, width), np.uint8)
        for x0, y0, x1, y1 in self.boxes[i]:
            mask[max(0, int(y0)) : int(np.ceil(y1)), max(0, int(x0)) : int(np.ceil(x1))] = 255
        return mask

    def where(self, i: int) -> str:
        return f"boxes of {self.paths[i]}"

    def digest(self, i: int) -> bytes:
        return hashlib.blake2b(self.boxes[i].tobytes(), digest_size=16).digest()


_VAL_FOLDERS = ("val", "ILSVRC2012_img_val", "ILSVRC/Data/CLS-LOC/val")
_BOX_FOLDERS = ("ILSVRC2012_bbox_val_v3", "bbox_val", "ILSVRC/Annotations/CLS-LOC/val", "Annotations")
_LICENCE = "ImageNet terms: non-commercial research and education"
IMAGENET9 = Source(
    "imagenet9", 4_050, _LICENCE,
    "https://github.com/MadryLab/backgrounds_challenge",
    "Download https://github.com/MadryLab/backgrounds_challenge/releases/download/data/"
    "backgrounds_challenge_data.tar.gz (and in_to_in9.json from the repository).",
    ("bg_challenge", "backgrounds_challenge/bg_challenge"), ("original/val/00_dog", "mixed_same/val/00_dog"), imagenet9,
    {"test": dict.fromkeys(SUPERCLASSES, 450)}, {"backgrounds_challenge_data.tar.gz": None},
)  # fmt: skip
IMAGENET_VAL = Source(
    "imagenet-val", 50_000, _LICENCE, "https://image-net.org",
    "Download ILSVRC2012_img_val.tar and ILSVRC2012_bbox_val_v3.tgz from https://image-net.org (account needed), or "
    "LOC_val_solution.csv from the Kaggle ImageNet challenge.",
    ("imagenet", "ILSVRC2012"), ("|".join(_VAL_FOLDERS), "|".join(("LOC_val_solution.csv", *_BOX_FOLDERS))),
    imagenet_val, {"test": 50_000},
)  # fmt: skip
