"""SIIM-ACR pneumothorax: chest X-rays, with the tube put in as treatment as the shortcut."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from foveate.data.benchmark import Benchmark
from foveate.data.dataset import GroupedDataset
from foveate.data.images import FileImages, ImageSource
from foveate.data.scan import read_frame
from foveate.data.sources.archives import read_containers
from foveate.data.sources.layout import Root, Source, unpack_archives
from foveate.errors import DataError, MissingExtra, UnreadableImage
from foveate.files import atomic_folder, write_text

CLASSES = ("no pneumothorax", "pneumothorax")
TUBES = ("no tube", "tube")
SIDE = 1024
_TUBE_PLACES = tuple(up + name for up in ("", "../", "../../") for name in ("chest_tubes.csv", "cxr_tube_dict.pkl"))


def siim_acr(root: Root = None) -> Benchmark:
    """SIIM-ACR pneumothorax: ``test`` are the images with a tube annotation, ``train`` all others.

    A label is 1 when the image has a mask; of several rows of an image the first decides, its mask is all of them
    together. The attribute (chest tube) is known in ``test`` only, so ``train`` has none. The worst-group figure
    is :func:`foveate.measure.worst_group_auc` on ``test``. There is no ``val``: ``benchmark.with_val()``.

    Images are read as they are downloaded (DICOM, needs pydicom) or, after ``foveate data prepare siim-acr``,
    from PNG files.

    Args:
        root: folder with ``train-rle.csv``, the images, and the tube annotations (which may also lie beside it:
            Kaggle's archive has everything else in a folder ``pneumothorax``).
    """
    folder = SIIM.find(root)
    runs = read_runs(folder / "train-rle.csv")
    tubes = read_tubes(folder)
    files = find_images(folder)
    known = [i for i in runs if i in files]
    if not known:
        raise DataError(
            f"none of the {len(runs):,} images of {folder / 'train-rle.csv'} is there. Expected them in "
            f"{folder / 'dicom-images-train'} (.dcm) or {folder / 'images'} (.png)."
        )
    splits = {}
    for split, chosen in (
        ("train", [i for i in known if i not in tubes]),
        ("test", [i for i in known if i in tubes]),
    ):
        if chosen:
            splits[split] = GroupedDataset(
                _images([files[i] for i in chosen]),
                [int(runs[i][0] != "-1") for i in chosen],
                CLASSES,
                attributes=[tubes[i] for i in chosen] if split == "test" else None,
                attribute_names=TUBES if split == "test" else None,
                masks=RunMasks([runs[i] for i in chosen], chosen),
                extras={"image_id": np.array(chosen)},
                name=f"siim-acr/{split}",
            )
    return Benchmark("siim-acr", splits, {"folder": str(folder), "without image": len(runs) - len(known)})


def read_runs(path: Path) -> dict[str, list[str]]:
    """The runs of every image, ``["-1"]`` for none (both spellings of Kaggle's header are understood)."""
    table = read_frame(path, dtype=str, skipinitialspace=True)
    table.columns = [str(c).strip() for c in table.columns]
    if not {"ImageId", "EncodedPixels"} <= set(table.columns):
        raise DataError(f"{path} needs the columns ImageId and EncodedPixels, found {', '.join(table.columns)}.")
    found: dict[str, list[str]] = {}
    for image, pixels in zip(table["ImageId"], table["EncodedPixels"], strict=True):
        found.setdefault(str(image).strip(), []).append(str(pixels).strip())
    return found


def read_tubes(folder: Path) -> dict[str, int]:
    """Whether an image shows a chest tube, for those that were looked at."""
    found = next(folder / name for name in _TUBE_PLACES if (folder / name).is_file())
    if found.suffix == ".csv":
        table = read_frame(found, dtype={"image_id": str})
        return {i: int(t) for i, t in zip(table["image_id"], table["tube"], strict=True)}
    raw = read_containers(found)
    if not isinstance(raw, dict):
        raise DataError(f"{found}: expected a dictionary of image names.")
    return {str(i): int(bool(t)) for i, t in raw.items()}


def find_images(folder: Path) -> dict[str, Path]:
    """The file of every image by name, PNG before DICOM."""
    found = {p.stem: p for p in (folder / "dicom-images-train").rglob("*.dcm")}
    found.update({p.stem: p for p in (folder / "images").glob("*.png")})
    return found


def decode_runs(pixels: str, side: int = SIDE) -> NDArray[np.uint8]:
    """A mask from Kaggle's relative runs (gap, length, gap, length ...), which go down the columns.

    >>> decode_runs("1 2 1 1", side=3).T.ravel().tolist()
    [0, 255, 255, 0, 255, 0, 0, 0, 0]
    """
    mask = np.zeros(side * side, np.uint8)
    if pixels.strip() in ("", "-1"):
        return mask.reshape(side, side)
    numbers = [int(n) for n in pixels.split()]
    at = 0
    for gap, length in zip(numbers[::2], numbers[1::2], strict=True):
        at += gap
        mask[at : at + length] = 255
        at += length
    return np.ascontiguousarray(mask.reshape(side, side).T)


class RunMasks:
    """Masks decoded from runs when read."""

    def __init__(self, runs: Sequence[Sequence[str]], names: Sequence[str], side: int = SIDE):
        self.runs, self.names, self.side = list(runs), list(names), side

    def __len__(self) -> int:
        return len(self.runs)

    def read(self, i: int) -> NDArray[np.uint8]:
        mask = decode_runs(self.runs[i][0], self.side)
        for pixels in self.runs[i][1:]:
            np.maximum(mask, decode_runs(pixels, self.side), out=mask)
        return mask

    def where(self, i: int) -> str:
        return f"mask of {self.names[i]}"

    def digest(self, i: int) -> bytes:
        return hashlib.blake2b("\n".join(self.runs[i]).encode(), digest_size=16).digest()


class DicomImages(FileImages):
    """X-rays read from DICOM files as 8-bit RGB."""

    def read(self, i: int) -> NDArray[np.uint8]:
        path = self.paths[i]
        assert path is not None
        return read_dicom(path) if path.suffix.lower() == ".dcm" else super().read(i)


def read_dicom(path: Path) -> NDArray[np.uint8]:
    """One X-ray as ``uint8 [H, W, 3]``: pixel values cast to 8 bits, as the published pipelines do."""
    try:
        import pydicom
    except ImportError as error:
        raise MissingExtra("pydicom", "dicom", "reading DICOM files") from error
    try:
        pixels = pydicom.dcmread(path).pixel_array
    except Exception as error:  # decoders raise nearly anything on broken files
        raise UnreadableImage(str(path), str(error) or type(error).__name__) from error
    grey = np.asarray(pixels)
    if grey.ndim != 2:
        raise UnreadableImage(str(path), f"expected one grey picture, found an array of {grey.shape}")
    return np.repeat(grey.astype(np.uint8)[:, :, None], 3, axis=2)


def _images(paths: Sequence[Path]) -> ImageSource:
    return DicomImages(paths)


def _prepare(root: Root, tell: Callable[[str], None]) -> Path:
    """Write the X-rays as PNG files, which need no pydicom, and the tube annotations as CSV."""
    if not any((place / "train-rle.csv").is_file() for place in SIIM.places(root)):
        unpack_archives(SIIM, root, tell)
    folder = SIIM.find(root)
    tubes: Mapping[str, int] = read_tubes(folder)
    xrays = sorted((folder / "dicom-images-train").rglob("*.dcm"))
    if xrays:
        tell(f"writing {len(xrays):,} X-rays to {folder / 'images'}")
        with atomic_folder(folder / "images") as out:
            for path in xrays:
                Image.fromarray(read_dicom(path)[:, :, 0]).save(out / f"{path.stem}.png")
    lines = ["image_id,tube", *(f"{i},{t}" for i, t in sorted(tubes.items()))]
    write_text(folder / "chest_tubes.csv", "\n".join(lines) + "\n")
    return folder


SIIM = Source(
    "siim-acr", None,
    "Kaggle competition rules: non-commercial research and education", "https://siim.org",
    "Download the SIIM-ACR pneumothorax data (train-rle.csv and dicom-images-train, in a folder pneumothorax) from "
    "https://www.kaggle.com/datasets/jesperdramsch/siim-acr-pneumothorax-segmentation-data and cxr_tube_dict.pkl from "
    "https://github.com/khaledsaab/spatial_specificity.",
    ("siim_acr", "siim-acr-pneumothorax", "siim", "siim-acr-pneumothorax-segmentation-data", "pneumothorax"),
    ("train-rle.csv", "|".join(_TUBE_PLACES), "dicom-images-train|images"), siim_acr,
    archives={"siim-acr-pneumothorax-segmentation-data.zip": None}, prepare=_prepare,
)  # fmt: skip
