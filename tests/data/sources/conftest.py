"""Miniatures: the on-disk layout of every published dataset, written small from critters images."""

from __future__ import annotations

import json
import pickle
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from foveate.data import critters

SPECIES = (
    "001.Black_footed_Albatross", "021.Eastern_Towhee", "066.Western_Gull", "103.Sayornis",
)  # fmt: skip
"""Species of the miniature CUB: two waterbirds, a landbird with 'tern' in its name, a landbird."""


class Miniatures:
    """Writes datasets as their publishers do."""

    def __init__(self) -> None:
        self.source = critters(classes=2, size=32, train=24, target=0, val=0, test=0).train
        self._next = 0

    def picture(self, path: Path, label: int | None = None) -> Path:
        """A critter as an image file; ``label`` chooses the species."""
        rows = [i for i in range(len(self.source)) if label is None or self.source.labels[i] == label % 2]
        i = rows[self._next % len(rows)]
        self._next += 1
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(self.source.images.read(i)).save(path)
        return path

    def pictures(self, folder: Path, names: Iterable[str], label: int | None = None) -> None:
        for name in names:
            self.picture(folder / name, label)

    # -- birds ----------------------------------------------------------------------------

    def cub(self, root: Path, per_species: int = 6, masks: bool = True, parts: bool = True) -> Path:
        """``CUB_200_2011``: in every species the even images are training images."""
        folder = root / "CUB_200_2011"
        lines: dict[str, list[str]] = defaultdict(list)
        for c, species in enumerate(SPECIES):
            lines["classes"].append(f"{c + 1} {species}")
            for k in range(per_species):
                number = c * per_species + k + 1
                file = f"{species}/{species[4:]}_{k:04d}_{1000 + number}.jpg"
                i = (2 * c + k) % len(self.source)
                path = folder / "images" / file
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(self.source.images.read(i)).save(path)
                x0, y0, x1, y1 = self.source.boxes[i]
                lines["images"].append(f"{number} {file}")
                lines["image_class_labels"].append(f"{number} {c + 1}")
                lines["train_test_split"].append(f"{number} {int(k % 2 == 0)}")
                lines["bounding_boxes"].append(f"{number} {x0:.1f} {y0:.1f} {x1 - x0:.1f} {y1 - y0:.1f}")
                for p in (1, 2):
                    lines["parts/part_locs"].append(f"{number} {p} {number}.0 {p}.0 {int(p == 1)}")
                if masks:
                    mask = root / "segmentations" / Path(file).with_suffix(".png")
                    mask.parent.mkdir(parents=True, exist_ok=True)
                    Image.fromarray(self.source.masks.read(i)).save(mask)
        if parts:
            lines["parts/parts"] = ["1 back", "2 left eye"]
        else:
            del lines["parts/part_locs"]
        for name, content in lines.items():
            path = folder / f"{name}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("\n".join(content) + "\n")
        return folder

    def waterbirds(self, root: Path, per_species: int = 6) -> Path:
        """The public folder, over the same birds as :meth:`cub`, labels with the release's slip."""
        folder = root / "waterbird_complete95_forest2water2"
        rows = ["img_id,img_filename,y,split,place,place_filename"]
        for c, species in enumerate(SPECIES):
            for k in range(per_species):
                number = c * per_species + k + 1
                file = f"{species}/{species[4:]}_{k:04d}_{1000 + number}.jpg"
                self.picture(folder / file, c)
                water = int(c < 3)  # the towhee too: 'eastern' contains 'tern'
                split = 2 if k % 2 else (1 if k == 0 else 0)
                rows.append(f"{number},{file},{water},{split},{k // 2 % 2},/o/ocean/{number}.jpg")
        (folder / "metadata.csv").write_text("\n".join(rows) + "\n")
        return folder

    def places(self, root: Path, each: int = 20) -> Path:
        folder = root / "places"
        for scene in ("b/bamboo_forest", "f/forest/broadleaf", "o/ocean", "l/lake/natural"):
            self.pictures(folder / scene, (f"{i:08d}.jpg" for i in range(each)))
        return folder

    # -- the others -----------------------------------------------------------------------

    def celeba(self, root: Path, kaggle: bool = False) -> Path:
        """60 faces: annotations cycle through the four groups, parts 0, 0, 0, 1, 2."""
        folder = root / "celeba"
        names = ["5_o_Clock_Shadow", "Blond_Hair", "Male", "Young"]
        images = folder / "img_align_celeba" / ("img_align_celeba" if kaggle else ".")
        annotations, parts = [], []
        for i in range(60):
            file = f"{i + 1:06d}.jpg"
            self.picture(images / file)
            annotations.append((file, [-1, 1 if i % 4 >= 2 else -1, 1 if i % 2 else -1, 1]))
            parts.append((file, (0, 0, 0, 1, 2)[i // 4 % 5]))
        if kaggle:
            rows = ["image_id," + ",".join(names), *(f"{f}," + ",".join(map(str, v)) for f, v in annotations)]
            (folder / "list_attr_celeba.csv").write_text("\n".join(rows) + "\n")
            rows = ["image_id,partition", *(f"{f},{p}" for f, p in parts)]
            (folder / "list_eval_partition.csv").write_text("\n".join(rows) + "\n")
        else:
            rows = ["60", " ".join(names) + " ", *(f"{f}  " + "  ".join(map(str, v)) for f, v in annotations)]
            (folder / "list_attr_celeba.txt").write_text("\n".join(rows) + "\n")
            (folder / "list_eval_partition.txt").write_text("\n".join(f"{f} {p}" for f, p in parts) + "\n")
        return folder

    def spawrious(self, root: Path, cell: int = 12) -> Path:
        folder = root / "spawrious224"
        for environment in "01":
            for place in ("beach", "desert", "dirt", "jungle", "mountain", "snow"):
                for b, breed in enumerate(("bulldog", "corgi", "dachshund", "labrador")):
                    names = (f"{place}_{breed}_{environment}{i}.png" for i in range(cell))
                    self.pictures(folder / environment / place / breed, names, b)
        return folder

    def metashift(self, root: Path, folder: str, sets: dict[str, list[int]]) -> Path:
        """``split/animal/animal(context)/NUMBER.jpg`` for keys like ``train/cat(sofa)``."""
        for key, numbers in sets.items():
            split, name = key.split("/")
            animal = name.partition("(")[0]
            self.pictures(root / folder / split / animal / name, (f"{n}.jpg" for n in numbers), animal == "dog")
        return root / folder

    def metashift_animals(self, root: Path, subsets: dict[str, list[str]]) -> Path:
        folder = root / "metashift"
        stored = defaultdict(set, {k: set(v) for k, v in subsets.items()})
        for n in sorted(set().union(*stored.values())):
            self.picture(folder / "images" / f"{n}.jpg")
        (folder / "full-candidate-subsets.pkl").write_bytes(pickle.dumps(stored))
        return folder

    def urbancars(self, root: Path, train: tuple[int, int, int, int] = (20, 4, 4, 2), each: int = 2) -> Path:
        folder, kinds = root / "urbancars", ("urban", "country")
        for split, ratio in (("train", 0.95), ("val", 0.5), ("test", 0.5)):
            top = folder / f"bg-{ratio}_co_occur_obj-{ratio}" / split
            for y, kind in enumerate(kinds):
                for b, background in enumerate(kinds):
                    for o, thing in enumerate(kinds):
                        n = train[2 * (b != y) + (o != y)] if split == "train" else each
                        place = top / f"obj-{kind}_bg-{background}_co_occur_obj-{thing}"
                        self.pictures(place, (f"{i:03d}.jpg" for i in range(n)), y)
                        self.picture(place / "000_mask.png")
        return folder

    def spuco(self, root: Path, train: tuple[int, int] = (12, 6), each: int = 2) -> Path:
        folder = root / "spuco"
        for top, animals, contexts in (
            ("spuco_birds", ("landbirds", "waterbirds"), ("land", "water")),
            ("spuco_dogs", ("small_dogs", "big_dogs"), ("indoor", "outdoor")),
        ):
            for split in ("train", "val", "test"):
                for y, animal in enumerate(animals):
                    for a, context in enumerate(contexts):
                        n = train[int(y != a)] if split == "train" else each
                        names = (f"{i}.jpg" for i in range(n))
                        self.pictures(folder / top / split / animal / context, names, y)
        return folder

    def siim(self, root: Path, dicom: bool = False) -> Path:
        """Six X-rays: image k is positive when odd; the last four have a tube annotation (k // 4)."""
        folder = root / "siim-acr"
        rows, tubes = ["ImageId, EncodedPixels"], {}
        for k in range(6):
            name = f"1.2.276.{k}"
            rows.append(f"{name}, {'1024 2 1022 3' if k % 2 else '-1'}")
            if k == 1:
                rows.append(f"{name}, 0 1")  # a second mask of the same image
            if k >= 2:
                tubes[name] = bool(k // 4)
            if dicom:
                write_dicom(folder / "dicom-images-train" / f"s{k}" / "x" / f"{name}.dcm", 10 * k)
            else:
                self.picture(folder / "images" / f"{name}.png")
        (folder / "train-rle.csv").write_text("\n".join(rows) + "\n")
        (folder / "cxr_tube_dict.pkl").write_bytes(pickle.dumps(tubes))
        return folder

    def imagenet9(self, root: Path, each: int = 2) -> Path:
        from foveate.data.sources.imagenet import SUPERCLASSES

        folder = root / "bg_challenge"
        for variant in ("original", "mixed_same", "mixed_rand"):
            for y, name in enumerate(SUPERCLASSES):
                names = (f"fg_{i}.JPEG" for i in range(each))
                self.pictures(folder / variant / "val" / f"{y:02d}_{name}", names)
        (folder / "in_to_in9.json").write_text(json.dumps({"0": 8, "1": 8, "7": 1}))
        return folder

    def imagenet_val(self, root: Path, xml: bool = False) -> Path:
        """Three images; the second has two boxes."""
        folder = root / "imagenet"
        boxes = {
            "ILSVRC2012_val_00000001": ("n02", [(1, 2, 11, 12)]),
            "ILSVRC2012_val_00000002": ("n01", [(0, 0, 4, 4), (20, 20, 30, 32)]),
            "ILSVRC2012_val_00000003": ("n02", [(5, 5, 9, 9)]),
        }
        rows = ["ImageId,PredictionString"]
        for name, (kind, found) in boxes.items():
            self.picture(folder / "val" / (kind if xml else ".") / f"{name}.JPEG")
            rows.append(f"{name}," + "".join(f"{kind} {' '.join(map(str, b))} " for b in found))
            if xml:
                inside = "".join(
                    f"<object><name>{kind}</name><bndbox><xmin>{b[0]}</xmin><ymin>{b[1]}</ymin><xmax>{b[2]}</xmax>"
                    f"<ymax>{b[3]}</ymax></bndbox></object>"
                    for b in found
                )
                path = folder / "ILSVRC2012_bbox_val_v3" / "val" / f"{name}.xml"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"<annotation><filename>{name}</filename>{inside}</annotation>")
        if not xml:
            (folder / "LOC_val_solution.csv").write_text("\n".join(rows) + "\n")
        return folder


def write_dicom(path: Path, value: int) -> None:
    """A DICOM X-ray of one grey value, with a white corner."""
    import pydicom
    from pydicom.dataset import FileDataset, FileMetaDataset

    meta = FileMetaDataset()
    meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = "1.2.840.10008.5.1.4.1.1.7"
    meta.MediaStorageSOPInstanceUID = path.stem
    ds = FileDataset(str(path), {}, file_meta=meta, preamble=b"\0" * 128)
    pixels = np.full((16, 16), value, np.uint8)
    pixels[0, 0] = 255
    ds.Rows, ds.Columns = pixels.shape
    ds.SamplesPerPixel, ds.PhotometricInterpretation = 1, "MONOCHROME2"
    ds.BitsAllocated, ds.BitsStored, ds.HighBit, ds.PixelRepresentation = 8, 8, 7, 0
    ds.PixelData = pixels.tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    ds.save_as(path)


@pytest.fixture(scope="session")
def miniatures() -> Miniatures:
    return Miniatures()
