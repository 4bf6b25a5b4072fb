"""Waterbird200: learn the species from CUB, name the same test birds before other backgrounds."""

from __future__ import annotations

import numpy as np

from foveate.data.benchmark import Benchmark
from foveate.data.sources.cub import CUB_GET, CUB_LICENCE, bird_split, read_classes, read_cub, read_parts
from foveate.data.sources.layout import Root, Source
from foveate.data.sources.waterbirds import WATERBIRDS, read_metadata
from foveate.errors import DataError


def waterbird200(root: Root = None, waterbirds: Root = None) -> Benchmark:
    """Train on plain CUB, test on the same official test birds as Waterbirds composites, with 200 labels.

    The attribute of the test images is the composite's background (land or water). Boxes, parts and masks are
    those of CUB: the composites have the size of the original photographs.

    Args:
        root: folder that holds ``CUB_200_2011`` and the public Waterbirds folder.
        waterbirds: folder of the Waterbirds composites, when it is elsewhere.
    """
    folder = WATERBIRD200.find(root)
    composites = WATERBIRDS.find(waterbirds if waterbirds is not None else root)
    table = read_cub(folder)
    names, points = read_parts(folder, table)
    classes = read_classes(folder)
    metadata = read_metadata(composites).set_index("img_filename")
    testing = (table["split"] == "test").to_numpy()
    tests = table[testing]
    missing = ~tests["file"].isin(metadata.index[metadata["split"] == 2])
    if missing.any():
        raise DataError(
            f"waterbird200: {int(missing.sum())} of the {len(tests)} CUB test images are not test images in "
            f"{composites / 'metadata.csv'}, for instance {tests['file'][missing].iloc[0]}. Use the public Waterbirds "
            "folder (waterbird_complete95_forest2water2), which keeps the CUB test split."
        )
    places = metadata.loc[tests["file"], "place"].to_numpy(np.int64)
    tests = tests.assign(path=[composites / f for f in tests["file"]])
    return Benchmark(
        "waterbird200",
        {
            "train": bird_split("waterbird200/train", table[~testing], classes, names, points, ~testing),
            "test": bird_split("waterbird200/test", tests, classes, names, points, testing, places),
        },
        {"folder": str(folder), "composites": str(composites)},
    )


WATERBIRD200 = Source(
    "waterbird200", 11_788, CUB_LICENCE,
    "https://github.com/ananthu-aniraj/ifam", CUB_GET + " And the public Waterbirds folder, see waterbirds.",
    ("CUB_200_2011", "CUB", "cub"), ("images.txt", "bounding_boxes.txt", "train_test_split.txt"), waterbird200,
    {"train": 5_994, "test": 5_794}, others=(WATERBIRDS,),
)  # fmt: skip
