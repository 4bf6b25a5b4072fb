"""Waterbirds: birds of CUB before land or water. The public folder, our own rebuild, and the DAR paper's counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from foveate.data.benchmark import Benchmark
from foveate.data.compose import compose
from foveate.data.scan import read_frame
from foveate.data.sources.cub import CUB, CUB_GET, PLACES, beside, mask_paths, read_cub
from foveate.data.sources.layout import Root, Source, base_folder, benchmark_of, image_files
from foveate.data.tables import from_csv
from foveate.errors import DataError
from foveate.files import write_json

BIRDS = ("landbird", "waterbird")
WATER_WORDS = (
    "albatross", "auklet", "cormorant", "frigatebird", "fulmar", "gull", "jaeger", "kittiwake", "pelican", "puffin",
    "tern", "gadwall", "grebe", "mallard", "merganser", "guillemot", "pacific_loon",
)  # fmt: skip
"""Seabirds and waterfowl in the species names of CUB."""
MISLABELLED = ("eastern_towhee", "western_meadowlark", "western_wood_pewee")
"""Landbirds that the public release calls waterbirds: "eastern" and "western" contain the word "tern"."""
SCENES = {
    "bamboo_forest": "land", "forest/broadleaf": "land", "forest-broadleaf": "land", "broadleaf_forest": "land",
    "ocean": "water", "lake/natural": "water", "lake-natural": "water", "natural_lake": "water",
}  # fmt: skip
"""Folders of Places that are used, and what they count as."""
_COLUMNS = ("img_filename", "y", "split", "place")


def waterbirds(root: Root = None, fix_species: bool = False) -> Benchmark:
    """Waterbirds, the public folder (``metadata.csv``): 2 birds x 2 backgrounds, 95 % aligned in train.

    Splits are those of the file. There is no ``target``: make one with ``benchmark.with_target(n)``. When
    CUB (boxes) or its ``segmentations`` (masks) lie beside the folder they are attached; the composites have the
    size of CUB's photographs. ``extras`` hold ``species`` and CUB's ``image_id``.

    Args:
        root: the folder ``waterbird_complete95_forest2water2``, or the one that holds it.
        fix_species: call the three landbird species that the release calls waterbirds by their right name
            (:data:`MISLABELLED`). Published figures use the release as it is.
    """
    folder = WATERBIRDS.find(root)
    metadata = read_metadata(folder)
    species = [species_of(f) for f in metadata["img_filename"]]
    labels = metadata["y"].to_numpy(np.int64)
    if fix_species:
        labels = np.where(np.isin(species, MISLABELLED), 0, labels)
    table = pd.DataFrame(
        {
            "path": np.array([folder / f for f in metadata["img_filename"]], dtype=object),
            "label": labels,
            "attribute": metadata["place"].to_numpy(np.int64),
            "split": [("train", "val", "test")[int(s)] for s in metadata["split"]],
            "species": species,
            "image_id": metadata["img_id"] if "img_id" in metadata else np.arange(1, len(metadata) + 1),
        }
    )
    birds = beside(root, folder)
    if birds is not None:
        known = read_cub(birds).set_index("file").reindex(metadata["img_filename"])
        for column in ("x0", "y0", "x1", "y1"):
            table[column] = known[column].to_numpy()
    masks = mask_paths(birds if birds is not None else folder, metadata["img_filename"])
    if any(m is not None for m in masks):
        table["mask"] = np.array(masks, dtype=object)
    return benchmark_of(
        "waterbirds", table, BIRDS, PLACES, extras=("species", "image_id"),
        notes={"folder": str(folder), "fix_species": fix_species},
    )  # fmt: skip


def waterbirds_rebuilt(root: Root = None) -> Benchmark:
    """Waterbirds composed anew from CUB, its segmentations and Places (not the public images; see its card).

    Made by ``foveate data prepare waterbirds-rebuilt``. The recipe and the splits are the published ones, the
    pasting is ours: no halo, square pictures, species named rightly. Do not compare it with figures on the
    public folder.
    """
    return _composed(REBUILT, root)


def waterbirds_dar(root: Root = None) -> Benchmark:
    """Waterbirds with the counts of the DAR paper's Table 4: 4,500 / 236 / 236 / 4,500 in train.

    Made by ``foveate data prepare waterbirds-dar`` from the same sources as :func:`waterbirds_rebuilt`. CUB has
    fewer waterbirds than that, so birds appear several times, each time before another background, and never in
    two splits. The paper does not say how its images were made: this is not its copy.
    """
    return _composed(WATERBIRDS_DAR, root)


def _composed(source: Source, root: Root) -> Benchmark:
    folder = source.find(root)
    made = from_csv(folder / "benchmark.csv", name=source.name)
    return Benchmark(source.name, made.splits, {**made.notes, "folder": str(folder)})


def read_metadata(folder: Path) -> pd.DataFrame:
    """``metadata.csv`` of the public folder, with its columns checked."""
    table = read_frame(folder / "metadata.csv")
    if missing := [c for c in _COLUMNS if c not in table]:
        raise DataError(
            f"{folder / 'metadata.csv'} has no column '{missing[0]}' (it has {', '.join(map(str, table.columns))}). "
            "Expected the file of the public Waterbirds folder: img_id,img_filename,y,split,place,place_filename."
        )
    for column, allowed in (("y", (0, 1)), ("place", (0, 1)), ("split", (0, 1, 2))):
        if not table[column].isin(allowed).all():
            odd = table[column][~table[column].isin(allowed)].iloc[0]
            raise DataError(f"{folder / 'metadata.csv'}: '{column}' must be one of {allowed}, found {odd}.")
    return table


def species_of(file: str) -> str:
    """Species in the path of a CUB image, in lower case.

    >>> species_of("001.Black_footed_Albatross/Black_Footed_Albatross_0001_796111.jpg")
    'black_footed_albatross'
    """
    return file.replace("\\", "/").split("/")[0].partition(".")[2].lower()


def is_waterbird(species: str, as_released: bool = False) -> bool:
    """Whether a species is a seabird or waterfowl; ``as_released`` repeats the public release's slip.

    >>> is_waterbird("western_gull"), is_waterbird("eastern_towhee"), is_waterbird("eastern_towhee", True)
    (True, False, True)
    """
    return any(word in species for word in WATER_WORDS) and (as_released or species not in MISLABELLED)


# -- rebuilding ---------------------------------------------------------------------------


def rebuild(
    root: Root,
    out: Path,
    name: str,
    counts: Mapping[str, Mapping[str, int]] | None = None,
    *,
    size: int = 224,
    seed: int = 0,
    tell: Callable[[str], None] = lambda line: None,
) -> Benchmark:
    """Compose Waterbirds from ``CUB_200_2011``, ``segmentations`` and ``places`` under ``root`` into ``out``.

    CUB's official test birds stay test; a fifth of its training birds is held out for ``val`` (and, with a target
    in ``counts``, a tenth for ``target``).

    Args:
        root: folder with the three sources.
        out: folder to write.
        name: what to call it.
        counts: images of every group by split; without, every bird once and 95 % aligned.
        size: side of the pictures.
        seed: everything random follows from it.
        tell: called with one line per step.
    """
    folder = CUB.find(root)
    birds = read_cub(folder)
    if birds["mask"].isna().any():
        raise DataError(f"{name} needs CUB's masks: unpack segmentations.tgz to {folder.parent / 'segmentations'}.")
    birds = pd.DataFrame(
        {
            "path": [str(p) for p in birds["path"]],
            "mask": [str(m) for m in birds["mask"]],
            "label": [BIRDS[is_waterbird(species_of(f))] for f in birds["file"]],
            "split": birds["split"].to_numpy(),
        }
    )
    scenes = read_places(base_folder(root))
    tell(f"composing {len(birds):,} birds with {len(scenes):,} scenes into {out}")
    options: dict[str, Any] = {"fractions": {"target": 0.0, "val": 0.2, "test": 0.0}}
    if counts is not None:
        options = {"counts": counts, "reuse": True, "fractions": {"target": 0.1, "val": 0.1, "test": 0.0}}
    made = compose(
        birds, scenes, out, strength=0.95, pairing={"landbird": "land", "waterbird": "water"}, size=size,
        mask_threshold=128, image_format="jpg", overwrite=True, seed=seed, name=name, **options,
    )  # fmt: skip
    # the two composed datasets look alike on disk: this file says which one a folder holds
    write_json(out / f"{name}.json", {"name": name, "seed": seed, "size": size, "counts": counts})
    return made


def read_places(base: Path) -> pd.DataFrame:
    """Scenes of Places under ``base`` (or ``base/places``): one row per image, ``label`` land or water.

    A tenth of every scene's pictures is kept for each of ``target`` and ``val`` and a third for ``test``, so that
    no background is seen twice.
    """
    rows = []
    for top in (base / "places", base / "places365", base / "data_large", base):
        for inside in (top, *(top / letter for letter in "bflo")):
            for scene, kind in SCENES.items():
                if (inside / scene).is_dir():
                    files = image_files(inside / scene)
                    marks = [("target", "val", *["test"] * 3, *["train"] * 5)[i % 10] for i in range(len(files))]
                    rows += [
                        {"path": str(p), "label": kind, "split": mark} for p, mark in zip(files, marks, strict=True)
                    ]
        if rows:
            break
    table = pd.DataFrame(rows, columns=["path", "label", "split"])
    if set(table["label"]) != set(PLACES):
        raise DataError(
            f"no scenes of Places under {base / 'places'}: expected the folders bamboo_forest and forest/broadleaf "
            "(land), ocean and lake/natural (water). Download Places365 (small images, train) from "
            "http://places2.csail.mit.edu and put these four folders there."
        )
    return table


DAR_TRAIN = {"landbird/land": 4500, "landbird/water": 236, "waterbird/land": 236, "waterbird/water": 4500}
_EACH = {group: 250 for group in DAR_TRAIN}


def _prepare_rebuilt(root: Root, tell: Callable[[str], None]) -> Path:
    out = base_folder(root) / "waterbirds-rebuilt"
    rebuild(root, out, "waterbirds-rebuilt", tell=tell)
    return out


def _prepare_dar(root: Root, tell: Callable[[str], None]) -> Path:
    out = base_folder(root) / "waterbirds-dar"
    test = {"landbird/land": 2255, "landbird/water": 2255, "waterbird/land": 642, "waterbird/water": 642}
    counts = {"train": DAR_TRAIN, "target": _EACH, "val": _EACH, "test": test}
    rebuild(root, out, "waterbirds-dar", counts, tell=tell)
    return out


_LICENCE = "CUB images: non-commercial research and education; Places: research and education"
_PARTS = CUB_GET + (
    " And Places365 (http://places2.csail.mit.edu): bamboo_forest, forest/broadleaf, ocean, lake/natural under places/."
)
WATERBIRDS = Source(
    "waterbirds", 11_788, _LICENCE,
    "https://github.com/kohpangwei/group_DRO",
    "Download https://nlp.stanford.edu/data/dro/waterbird_complete95_forest2water2.tar.gz.",
    ("waterbird_complete95_forest2water2", "waterbirds_v1.0", "waterbirds"), ("metadata.csv",), waterbirds,
    {
        "train": {"landbird/land": 3498, "landbird/water": 184, "waterbird/land": 56, "waterbird/water": 1057},
        "val": {"landbird/land": 467, "landbird/water": 466, "waterbird/land": 133, "waterbird/water": 133},
        "test": {"landbird/land": 2255, "landbird/water": 2255, "waterbird/land": 642, "waterbird/water": 642},
    },
    {"waterbird_complete95_forest2water2.tar.gz": None, "waterbirds_v1.0.tar.gz": None},
)  # fmt: skip
REBUILT = Source(
    "waterbirds-rebuilt", 11_788, _LICENCE,
    "https://github.com/kohpangwei/group_DRO", f"Run: foveate data prepare waterbirds-rebuilt. {_PARTS}",
    ("waterbirds-rebuilt",), ("waterbirds-rebuilt.json", "benchmark.csv"), waterbirds_rebuilt, prepare=_prepare_rebuilt,
    made_from="CUB, its masks, Places",
)  # fmt: skip
WATERBIRDS_DAR = Source(
    "waterbirds-dar", 17_266, _LICENCE,
    "https://github.com/kohpangwei/group_DRO", f"Run: foveate data prepare waterbirds-dar. {_PARTS}",
    ("waterbirds-dar",), ("waterbirds-dar.json", "benchmark.csv"), waterbirds_dar,
    {"train": DAR_TRAIN, "target": _EACH, "val": _EACH}, prepare=_prepare_dar,
    made_from="CUB, its masks, Places",
)  # fmt: skip
