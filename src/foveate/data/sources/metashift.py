"""MetaShift: two datasets that are both called Cat vs Dog, and Animals. Three names, never one for two.

* ``metashift-catdog-disc``: sofa and bed against bench and bike, tested on shelves (DISC, used by iFAM);
* ``metashift-catdog-unmixed``: cats indoors and dogs outdoors in train, the other way round in test (A2);
* ``metashift-animals``: eight animals, other contexts in test than in train (A2).
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from foveate.data.benchmark import Benchmark
from foveate.data.sources.archives import read_containers
from foveate.data.sources.layout import Root, Source, benchmark_of, image_files, rows_of
from foveate.errors import DataError

SplitPlan = Mapping[str, Mapping[str, Sequence[str]]]
"""Contexts by split and animal."""
PETS = ("cat", "dog")
DISC_CONTEXTS = ("sofa", "bed", "bench", "bike", "shelf")
_DISC: SplitPlan = {
    "train": {"cat": ("sofa", "bed"), "dog": ("bench", "bike")},
    "test": {"cat": ("shelf",), "dog": ("shelf",)},
}
ROOMS = ("indoor", "outdoor")
_UNMIXED: SplitPlan = {
    "train": {"cat": ("indoor",), "dog": ("outdoor",)},
    "test": {"cat": ("outdoor",), "dog": ("indoor",)},
}
ANIMALS = ("bear", "bird", "cow", "elephant", "giraffe", "horse", "sheep", "zebra")
SUBSETS = "full-candidate-subsets.pkl"


def metashift_catdog_disc(root: Root = None, hold_out: float = 0.15, seed: int = 0) -> Benchmark:
    """MetaShift Cat vs Dog, the DISC split (iFAM's): cat on sofa and bed, dog with bench and bike, test on shelves.

    Not the indoor / outdoor dataset of the same common name. The attribute is the context. DISC holds 15 % of the
    541 shelf images out for ``val`` (34 cats and 47 dogs), by scikit-learn's ``train_test_split`` with
    ``test_size=0.85, random_state=0`` over the cats' files and then the dogs'; so does this. DISC takes the files in
    the order in which the disk lists them, which differs between machines; here they are in the order of their
    numbers, so the counts are DISC's and the same images are drawn everywhere, though not certainly those of its
    authors. iFAM's code tests on every shelf image: ``hold_out=0``.

    Args:
        root: folder ``MetaDatasetCatDog`` (or ``MetaShift-subpopulation-shift``), or the one that holds it.
        hold_out: share of the shelf images that become ``val``; 0 for none.
        seed: which ones; 0 is DISC's.

    Reference: Wu et al. 2023, "Discover and Cure"; github.com/Wuyxin/DISC, disc/dataset/meta_dataset_cat_dog.py.
    """
    folder = DISC.find(root)
    if not 0 <= hold_out < 1:
        raise DataError(f"hold_out is a share from 0 to below 1, found {hold_out}.")
    table = _contexts(folder, _DISC, DISC_CONTEXTS)
    shelf = table.index[table["split"] == "test"].to_numpy()
    if math.ceil((1 - hold_out) * len(shelf)) < len(shelf):
        from sklearn.model_selection import train_test_split

        held, _ = train_test_split(shelf, test_size=1 - hold_out, random_state=seed)
        table.loc[held, "split"] = "val"
    notes = {"folder": str(folder), "hold_out": hold_out}
    return benchmark_of("metashift-catdog-disc", table, PETS, DISC_CONTEXTS, notes=notes)


def metashift_catdog_unmixed(root: Root = None) -> Benchmark:
    """MetaShift Cat vs Dog, unmixed indoor / outdoor (A2's): in train every cat is indoors, every dog outdoors.

    Not the DISC split of the same common name, and not SubpopBench's, which pools the same folders and divides
    them at random. Images that show both animals are dropped, and train images that are also in test
    (``notes["dropped"]``); an image is known by its Visual Genome number, the file's name.

    Args:
        root: folder ``MetaShift-Cat-Dog-indoor-outdoor``, or the one that holds it.
    """
    folder = UNMIXED.find(root)
    table = _contexts(folder, _UNMIXED, ROOMS)
    number = table["path"].map(lambda p: p.stem)
    kinds = table["label"].groupby(number).nunique()
    both = number.isin(kinds.index[kinds > 1])
    seen = (table["split"] == "train") & number.isin(set(number[table["split"] == "test"])) & ~both
    dropped = {"both animals": int(both.sum()), "train images in test": int(seen.sum())}
    notes = {"folder": str(folder), "dropped": dropped}
    return benchmark_of("metashift-catdog-unmixed", table[~both & ~seen], PETS, ROOMS, notes=notes)


def _contexts(folder: Path, plan: SplitPlan, contexts: Sequence[str]) -> pd.DataFrame:
    """Rows of ``split/animal/animal(context)/NUMBER.jpg``."""
    cells = {}
    for split, animals in plan.items():
        for y, animal in enumerate(PETS):
            for context in animals[animal]:
                files = image_files(folder / split / animal / f"{animal}({context})")
                cells[split, y, contexts.index(context)] = files
    return rows_of(cells)


# -- Animals ------------------------------------------------------------------------------


def metashift_animals(
    root: Root = None, seed: int = 0, *, per_class: int = 19, contexts: Mapping[str, Any] | None = None
) -> Benchmark:
    """MetaShift Animals: eight animals, half of each one's contexts in train, the other half in test (A2).

    Of every animal the ``per_class`` largest contexts are dealt to train and test, half of them each; then every
    image that is in test is taken out of train. An image is listed once for each of its contexts, as in the
    paper, so there are fewer pictures than rows. The attribute is the context. The paper's list of contexts is
    not published, so its counts are not met exactly: pass them as ``contexts`` when you have them.

    Args:
        root: folder with ``full-candidate-subsets.pkl`` of MetaShift and the images of Visual Genome (GQA) in
            ``images`` or ``allImages/images``.
        seed: which contexts go to train.
        per_class: contexts of an animal (152 groups in the paper, 19 an animal).
        contexts: ``{"bear": {"train": ["grass", ...], "test": [...]}, ...}``; also read from ``contexts.json``.
    """
    folder = ANIMALS_SOURCE.find(root)
    subsets = read_subsets(folder)
    images = next(folder / i for i in ("images", "allImages/images") if (folder / i).is_dir())
    given = contexts
    if given is None and (folder / "contexts.json").is_file():
        given = json.loads((folder / "contexts.json").read_text(encoding="utf-8"))
    chosen = deal_contexts(subsets, per_class, seed) if given is None else given
    tags = sorted({tag for sides in chosen.values() for side in sides.values() for tag in side})
    rows = []
    for y, animal in enumerate(ANIMALS):
        if animal not in chosen:
            raise DataError(
                f"metashift-animals: no contexts for '{animal}'; give train and test lists for each animal."
            )
        for split in ("train", "test"):
            for tag in chosen[animal][split]:
                if tag not in subsets[animal]:
                    raise DataError(f"metashift-animals: {SUBSETS} has no subset {animal}({tag}).")
                numbers = sorted(subsets[animal][tag])
                rows += [(split, y, tags.index(tag), n) for n in numbers]
    table = pd.DataFrame(rows, columns=["split", "label", "attribute", "number"])
    in_test = set(table["number"][table["split"] == "test"])
    table = table[(table["split"] == "test") | ~table["number"].isin(in_test)]
    table = table.assign(path=np.array([images / f"{n}.jpg" for n in table["number"]], dtype=object))
    unique = {str(s): int(n) for s, n in table.groupby("split")["number"].nunique().items()}
    notes = {"folder": str(folder), "unique_images": unique, "published_contexts": given is not None}
    return benchmark_of("metashift-animals", table, ANIMALS, tags, extras=("number",), notes=notes)


def read_subsets(folder: Path) -> dict[str, dict[str, set[str]]]:
    """Image numbers by animal and context, from MetaShift's file of all candidate subsets."""
    raw = read_containers(folder / SUBSETS)
    found: dict[str, dict[str, set[str]]] = {animal: {} for animal in ANIMALS}
    if not isinstance(raw, dict):
        raise DataError(f"{folder / SUBSETS}: expected a dictionary like 'cat(sofa)': numbers.")
    for name, numbers in raw.items():
        animal, _, tag = str(name).partition("(")
        if animal in found and tag.endswith(")"):
            found[animal][tag[:-1]] = {str(n) for n in numbers}
    if missing := [animal for animal, tags in found.items() if not tags]:
        raise DataError(f"{folder / SUBSETS} has no subsets of {', '.join(missing)}; download it again.")
    return found


def deal_contexts(
    subsets: Mapping[str, Mapping[str, set[str]]], per_class: int, seed: int
) -> dict[str, dict[str, list[str]]]:
    """The largest contexts of each animal, half of them (rounded down) for train, the rest for test.

    >>> deal_contexts({"bear": {"grass": {"1", "2"}, "sky": {"3"}, "sea": {"4", "5", "6"}}}, 2, 0)
    {'bear': {'train': ['sea'], 'test': ['grass']}}
    """
    rng = np.random.default_rng(seed)
    dealt = {}
    for animal, tags in subsets.items():
        largest = sorted(tags, key=lambda t: (-len(tags[t]), t))[:per_class]
        if len(largest) < 2:
            raise DataError(f"metashift-animals: {animal} has {len(largest)} context; two are needed to divide them.")
        order = [largest[i] for i in rng.permutation(len(largest))]
        half = len(order) // 2
        dealt[animal] = {"train": sorted(order[:half]), "test": sorted(order[half:])}
    return dealt


_LICENCE = "CC BY 4.0 (MetaShift; images of Visual Genome)"
_HOME = "https://github.com/Weixin-Liang/MetaShift"
DISC = Source(
    "metashift-catdog-disc", 1_664, _LICENCE,
    "https://github.com/Wuyxin/DISC", "Get metashifts.zip by the instructions of https://github.com/Wuyxin/DISC; "
    "the images lie in metashifts/MetaDatasetCatDog.",
    ("MetaDatasetCatDog", "metashifts/MetaDatasetCatDog", "MetaShift-subpopulation-shift", "metashift", "metashifts"),
    ("train/cat/cat(sofa)", "train/dog/dog(bench)", "test/cat/cat(shelf)"), metashift_catdog_disc,
    {"train": {"cat/sofa": 231, "cat/bed": 380, "dog/bench": 145, "dog/bike": 367},
     "val": {"cat/shelf": 34, "dog/shelf": 47}, "test": {"cat/shelf": 201, "dog/shelf": 259}},
    {"metashifts.zip": None, "MetaDatasetCatDog.zip": None, "MetaDatasetCatDog.tar.gz": None},
)  # fmt: skip
UNMIXED = Source(
    "metashift-catdog-unmixed", None,
    _LICENCE, _HOME,
    "Get the folder MetaShift-Cat-Dog-indoor-outdoor: download links are in https://github.com/YyzHarry/SubpopBench.",
    ("MetaShift-Cat-Dog-indoor-outdoor", "metashift/MetaShift-Cat-Dog-indoor-outdoor", "metashift"),
    ("train/cat/cat(indoor)", "train/dog/dog(outdoor)", "test/cat/cat(outdoor)", "test/dog/dog(indoor)"),
    metashift_catdog_unmixed, {}, {"metashift.tar.gz": None, "MetaShift-Cat-Dog-indoor-outdoor.zip": None},
)  # fmt: skip
_TABLE_4 = {
    "bear": (503, 978), "bird": (1122, 977), "cow": (125, 968), "elephant": (367, 1580), "giraffe": (238, 2368),
    "horse": (1188, 586), "sheep": (90, 1142), "zebra": (57, 2230),
}  # fmt: skip
ANIMALS_SOURCE = Source(
    "metashift-animals", 14_519, _LICENCE, _HOME,
    f"Download dataset/meta_data/{SUBSETS} from {_HOME} and https://nlp.stanford.edu/data/gqa/images.zip (20 GB), "
    "and put both into one folder.",
    ("metashift",), (SUBSETS, "images|allImages/images"), metashift_animals,
    {"train": {a: n for a, (n, _) in _TABLE_4.items()}, "test": {a: n for a, (_, n) in _TABLE_4.items()}},
    exact=False,
)  # fmt: skip
