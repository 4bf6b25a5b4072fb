"""Spawrious: four dog breeds in six places. O2O-Hard, M2M-Hard, and the DAR paper's resampled cousin."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from foveate.data.benchmark import Benchmark
from foveate.data.sources.layout import Root, Source, benchmark_of, draw_splits, image_files, rows_of
from foveate.errors import DataError

BREEDS = ("bulldog", "corgi", "dachshund", "labrador")
PLACES = ("beach", "desert", "dirt", "jungle", "mountain", "snow")
DAR_PLACES = ("jungle", "desert", "mountain", "snow")
CELL = 3168
"""Images of a breed in a place, in each of the two environments (folders 0 and 1)."""
O2O_TRAIN = {"bulldog": "jungle", "corgi": "desert", "dachshund": "mountain", "labrador": "snow"}
O2O_TEST = {"bulldog": "mountain", "corgi": "jungle", "dachshund": "snow", "labrador": "desert"}
O2O_OTHER = "beach"
M2M_TRAIN = {"bulldog": ("dirt", "jungle"), "dachshund": ("dirt", "jungle"),
             "corgi": ("beach", "snow"), "labrador": ("beach", "snow")}  # fmt: skip
M2M_TEST = {"bulldog": ("beach", "snow"), "dachshund": ("beach", "snow"),
            "corgi": ("dirt", "jungle"), "labrador": ("dirt", "jungle")}  # fmt: skip


def spawrious_o2o_hard(root: Root = None, cell: int = CELL) -> Benchmark:
    """Spawrious one-to-one, hard: in train every breed has one place (97 % and 87 %), in test another's.

    The rest of train is on the beach for all breeds. Train takes the first images (in natural order of their
    names) of each environment: ``int(0.97 * 3168)`` and ``int(0.87 * 3168)``. Test has 4 groups, so the worst
    group is also the worst class. There is no ``val``: ``benchmark.with_val()``.

    Args:
        root: folder ``spawrious224`` or the one that holds it.
        cell: images of a breed and place in one environment.
    """
    folder = O2O_HARD.find(root)
    cells: dict[tuple[str, int, int], list[Path]] = {}
    for y, breed in enumerate(BREEDS):
        own, other, away = (PLACES.index(p) for p in (O2O_TRAIN[breed], O2O_OTHER, O2O_TEST[breed]))
        aligned: list[Path] = []
        rest: list[Path] = []
        test: list[Path] = []
        for environment, share in (("0", 0.97), ("1", 0.87)):
            majority = int(share * cell)
            aligned += _some("spawrious-o2o-hard", folder / environment / PLACES[own] / breed, majority)
            rest += _some("spawrious-o2o-hard", folder / environment / PLACES[other] / breed, cell - majority)
            test += _some("spawrious-o2o-hard", folder / environment / PLACES[away] / breed, cell)
        cells |= {("train", y, own): aligned, ("train", y, other): rest, ("test", y, away): test}
    return benchmark_of("spawrious-o2o-hard", rows_of(cells), BREEDS, PLACES, notes={"folder": str(folder)})


def spawrious_m2m_hard(root: Root = None, cell: int = CELL) -> Benchmark:
    """Spawrious many-to-many, hard: two breeds share two places in train and swap them with the others in test.

    Only environment 0 is used, as the official loader does. Test has 8 groups.

    Args:
        root: folder ``spawrious224`` (the entire dataset) or the one that holds it.
        cell: images of a breed and place.
    """
    folder = M2M_HARD.find(root)
    cells = {}
    for y, breed in enumerate(BREEDS):
        for split, places in (("train", M2M_TRAIN[breed]), ("test", M2M_TEST[breed])):
            for place in places:
                files = _some("spawrious-m2m-hard", folder / "0" / place / breed, cell)
                cells[split, y, PLACES.index(place)] = files
    return benchmark_of("spawrious-m2m-hard", rows_of(cells), BREEDS, PLACES, notes={"folder": str(folder)})


def spawrious_dar(
    root: Root = None,
    seed: int = 0,
    *,
    majority: int = 5830,
    minority: int = 306,
    per_group: int = 125,
    test_per_group: int = 256,
) -> Benchmark:
    """Spawrious with the counts of the DAR paper's Table 4: 5,830 on a breed's place, 306 on one other, in train.

    The table lost its labels; its pattern is that of O2O-Hard (majority its train place, minority its test
    place), which is what is used here. The paper does not say what its test images are: here the images left
    over, equally many of each of the eight groups. Not the O2O-Hard benchmark, and not comparable with it.

    Args:
        root: as for :func:`spawrious_o2o_hard`.
        seed: which images are drawn.
        majority, minority: training images of a group.
        per_group: images of each of the 8 groups in ``target`` and in ``val``.
        test_per_group: the same for ``test``.
    """
    folder = SPAWRIOUS_DAR.find(root)
    pool: dict[tuple[str, int, int], list[Path]] = {}
    train: dict[tuple[int, int], int] = {}
    each: dict[tuple[int, int], int] = {}
    for y, breed in enumerate(BREEDS):
        for place, n in ((O2O_TRAIN[breed], majority), (O2O_TEST[breed], minority)):
            a = DAR_PLACES.index(place)
            pool["train", y, a] = [f for e in ("0", "1") for f in image_files(folder / e / place / breed)]
            train[y, a], each[y, a] = n, per_group
    plan = {"train": train, "target": each, "val": each, "test": dict.fromkeys(each, test_per_group)}
    table: pd.DataFrame = draw_splits(
        "spawrious-dar", rows_of(pool), plan, seed, lambda y, a: f"{BREEDS[y]}/{DAR_PLACES[a]}"
    )
    return benchmark_of("spawrious-dar", table, BREEDS, DAR_PLACES, notes={"folder": str(folder), "seed": seed})


def _some(name: str, folder: Path, count: int) -> list[Path]:
    files = image_files(folder)
    if len(files) < count:
        raise DataError(
            f"{name} needs {count:,} images in {folder}, found {len(files):,}: the download is not complete "
            "(or pass a smaller 'cell')."
        )
    return files[:count]


_GET = (
    "Download {archive} (links in the README of https://github.com/aengusl/spawrious; its own loader saves the same "
    "file as {saved}) and unpack it; the images lie in spawrious224/ENVIRONMENT/PLACE/BREED."
)
_LICENCE = (
    "Creative Commons, but which is said in three ways: CC BY 4.0 (README), CC0 1.0 (LICENSE; MIT in early versions), "
    "CC BY-SA 4.0 (setup.py). Credit the authors and share alike to satisfy all; images made by a generative model"
)
_ONE = {"archive": "spawrious__o2o_hard.tar.gz", "saved": "spawrious224__o2o_hard.tar.gz"}
_ALL = {"archive": "spawrious224.tar.gz", "saved": "spawrious224__entire_dataset.tar.gz"}
_ENTIRE = dict.fromkeys(_ALL.values())
_O2O_ARCHIVES = {**dict.fromkeys(_ONE.values()), **_ENTIRE}
_HOME = "https://github.com/aengusl/spawrious"
O2O_HARD = Source(
    "spawrious-o2o-hard", 50_688, _LICENCE, _HOME,
    _GET.format(**_ONE), ("spawrious224", "spawrious"),
    ("0/jungle/bulldog", "1/jungle/bulldog", "0/beach/bulldog", "0/mountain/bulldog"), spawrious_o2o_hard,
    {
        "train": {**{f"{b}/{p}": 5828 for b, p in O2O_TRAIN.items()}, **{f"{b}/{O2O_OTHER}": 508 for b in BREEDS}},
        "test": {f"{b}/{p}": 6336 for b, p in O2O_TEST.items()},
    },
    _O2O_ARCHIVES,
)  # fmt: skip
M2M_HARD = Source(
    "spawrious-m2m-hard", 50_688, _LICENCE, _HOME,
    _GET.format(**_ALL), ("spawrious224", "spawrious"),
    ("0/dirt/bulldog", "0/snow/bulldog"), spawrious_m2m_hard,
    {
        "train": {f"{b}/{p}": CELL for b, places in M2M_TRAIN.items() for p in places},
        "test": {f"{b}/{p}": CELL for b, places in M2M_TEST.items() for p in places},
    },
    {**_ENTIRE, "spawrious__m2m.tar.gz": None},
)  # fmt: skip
SPAWRIOUS_DAR = Source(
    "spawrious-dar", 28_592, _LICENCE, _HOME,
    _GET.format(**_ONE), ("spawrious224", "spawrious"),
    ("0/jungle/bulldog", "1/jungle/bulldog", "0/mountain/bulldog"), spawrious_dar,
    {
        "train": {**{f"{b}/{p}": 5830 for b, p in O2O_TRAIN.items()}, **{f"{b}/{p}": 306 for b, p in O2O_TEST.items()}},
        "target": 1000, "val": 1000,
    },
    _O2O_ARCHIVES,
)  # fmt: skip
