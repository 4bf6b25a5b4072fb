"""SpuCo-Animals: birds before land or water and dogs indoors or outdoors, from ImageNet. And the DAR counts."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from foveate.data.benchmark import Benchmark
from foveate.data.sources.layout import Root, Source, benchmark_of, draw_splits, image_files, rows_of

CLASSES = ("landbirds", "waterbirds", "small_dogs", "big_dogs")
ATTRIBUTES = ("land", "water", "indoors", "outdoors")
_WHERE = {
    "landbirds": ("spuco_birds", "land", "water"), "waterbirds": ("spuco_birds", "land", "water"),
    "small_dogs": ("spuco_dogs", "indoor", "outdoor"), "big_dogs": ("spuco_dogs", "indoor", "outdoor"),
}  # fmt: skip
_MAJORITY = {"landbirds": "land", "waterbirds": "water", "small_dogs": "indoors", "big_dogs": "outdoors"}


def spuco_animals(root: Root = None) -> Benchmark:
    """SpuCo-Animals: four classes, two shortcuts; 8 of the 16 groups hold images (birds have no indoors).

    Args:
        root: folder with ``spuco_birds`` and ``spuco_dogs``.
    """
    folder = SPUCO.find(root)
    return benchmark_of("spuco-animals", _read(folder), CLASSES, ATTRIBUTES, notes={"folder": str(folder)})


def spuco_animals_dar(
    root: Root = None, seed: int = 0, *, majority: int = 4500, minority: int = 236, per_group: int = 125
) -> Benchmark:
    """SpuCo-Animals with the counts of the DAR paper's Table 4: 4,500 / 236 a class in train.

    ``target`` and ``val`` (1,000 each, 125 a group) are drawn from the public training images too, ``test`` is
    the public one.

    Args:
        root: as for :func:`spuco_animals`.
        seed: which images are drawn.
        majority, minority: training images of a group.
        per_group: images of each of the 8 groups in ``target`` and in ``val``.
    """
    folder = SPUCO_DAR.find(root)
    table = _read(folder)
    learn = table[table["split"] == "train"]
    groups = sorted(set(zip(learn["label"].tolist(), learn["attribute"].tolist(), strict=True)))
    each = dict.fromkeys(groups, per_group)
    train = {(y, a): majority if _MAJORITY[CLASSES[y]] == ATTRIBUTES[a] else minority for y, a in groups}
    drawn = draw_splits(
        "spuco-animals-dar", learn, {"train": train, "target": each, "val": each}, seed,
        lambda y, a: f"{CLASSES[y]}/{ATTRIBUTES[a]}",
    )  # fmt: skip
    rows = pd.concat([drawn, table[table["split"] == "test"]], ignore_index=True)
    return benchmark_of("spuco-animals-dar", rows, CLASSES, ATTRIBUTES, notes={"folder": str(folder), "seed": seed})


def _read(folder: Path) -> pd.DataFrame:
    cells = {}
    for split in ("train", "val", "test"):
        for y, animal in enumerate(CLASSES):
            top, *contexts = _WHERE[animal]
            for i, context in enumerate(contexts):
                a = i + (2 if top == "spuco_dogs" else 0)
                cells[split, y, a] = image_files(folder / top / split / animal / context)
    return rows_of(cells)


def _counts(majority: int, minority: int) -> dict[str, int]:
    found = {}
    for animal, (top, *_) in _WHERE.items():
        for attribute in ATTRIBUTES[:2] if top == "spuco_birds" else ATTRIBUTES[2:]:
            found[f"{animal}/{attribute}"] = majority if _MAJORITY[animal] == attribute else minority
    return found


_GET = (
    "Download spuco_birds.tar.gz and spuco_dogs.tar.gz (links in the SpuCo package, https://github.com/BigML-CS-UCLA/"
    "SpuCo) and unpack both into one folder."
)
_LICENCE = "ImageNet terms: non-commercial research and education"
_HOME = "https://spuco.readthedocs.io"
_MARKERS = ("spuco_birds/train/landbirds/land", "spuco_dogs/train/small_dogs/indoor")
SPUCO = Source(
    "spuco-animals", 48_100, _LICENCE, _HOME, _GET,
    ("spuco", "spuco_animals"), _MARKERS, spuco_animals,
    {"train": _counts(10_000, 500), "val": _counts(500, 25), "test": _counts(500, 500)},
)  # fmt: skip
SPUCO_DAR = Source(
    "spuco-animals-dar", 24_944, _LICENCE, _HOME, _GET,
    ("spuco-animals", "spuco", "spuco_animals"), _MARKERS, spuco_animals_dar,
    {"train": _counts(4500, 236), "target": 1000, "val": 1000, "test": _counts(500, 500)},
)  # fmt: skip
