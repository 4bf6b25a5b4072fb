"""UrbanCars: cars with two shortcuts at once, the background and a thing beside the car."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from foveate.data.benchmark import Benchmark
from foveate.data.sources.layout import Root, Source, benchmark_of, draw_splits, image_files, rows_of
from foveate.errors import DataError
from foveate.measure import UNREADABLE

KINDS = ("urban", "country")
SHORTCUTS = ("bg urban + object urban", "bg urban + object country", "bg country + object urban",
             "bg country + object country")  # fmt: skip
TRAIN_SHARES = ((0.9025, 0.0475, 0.0475, 0.0025), (0.0025, 0.0475, 0.0475, 0.9025))
"""Share of every (background, object) pair in a class of the training set: each is aligned at 0.95 by itself."""
_FOLDERS = {"train": "bg-0.95_co_occur_obj-0.95", "val": "bg-0.5_co_occur_obj-0.5", "test": "bg-0.5_co_occur_obj-0.5"}


def urbancars(root: Root = None) -> Benchmark:
    """UrbanCars: urban or country car, with background and co-occurring object as two shortcuts of 0.95 each.

    The attribute is the pair (background, object), four values; ``extras`` hold ``background`` and ``object``
    (0 urban, 1 country) alone. :func:`urbancars_gaps` gives the three gaps of the Whac-A-Mole paper.
    """
    folder = URBANCARS.find(root)
    return benchmark_of(
        "urbancars", _read(folder), KINDS, SHORTCUTS, extras=("background", "object"), notes={"folder": str(folder)}
    )


def urbancars_dar(root: Root = None, seed: int = 0, *, share: float = 1.0) -> Benchmark:
    """UrbanCars with the training cells of the DAR paper's Table 4 (6,988); what is left of train is ``target``.

    The printed cells add to 6,988 while the text says 6,992, and 1,012 images are left where the text says
    1,000; ``target`` is what is left, so it is not balanced. ``val`` and ``test`` are the public ones.

    Args:
        root: as for :func:`urbancars`.
        seed: which images are drawn.
        share: take this share of every cell (rounded up), for small copies.
    """
    folder = URBANCARS_DAR.find(root)
    table = _read(folder)
    learn = table[table["split"] == "train"].reset_index(drop=True)
    counts = {cell: int(np.ceil(n * share)) for cell, n in _DAR_CELLS.items()}
    drawn = draw_splits(
        "urbancars-dar", learn, {"train": counts}, seed, lambda y, a: f"{KINDS[y]}/{SHORTCUTS[a]}"
    )  # fmt: skip
    left = learn[~learn["path"].isin(set(drawn["path"]))].assign(split="target")
    rows = pd.concat([drawn, left, table[table["split"] != "train"]], ignore_index=True)
    notes = {"folder": str(folder), "seed": seed}
    return benchmark_of("urbancars-dar", rows, KINDS, SHORTCUTS, extras=("background", "object"), notes=notes)


def _read(folder: Path) -> pd.DataFrame:
    cells = {}
    for split, ratio in _FOLDERS.items():
        for y, kind in enumerate(KINDS):
            for b, background in enumerate(KINDS):
                for o, thing in enumerate(KINDS):
                    name = f"obj-{kind}_bg-{background}_co_occur_obj-{thing}"
                    # masks lie beside the pictures as .png, so only .jpg are images
                    files = image_files(folder / ratio / split / name, frozenset({".jpg"}))
                    cells[split, y, 2 * b + o] = files
    table = rows_of(cells)
    return table.assign(background=table["attribute"] // 2, object=table["attribute"] % 2)


@dataclass(frozen=True)
class Gaps:
    """Accuracy on images as in training, and how far it drops without each shortcut (negative: it drops).

    Attributes:
        in_distribution: accuracies of the groups, weighted as in training.
        background: accuracy with only the background unusual, minus ``in_distribution``.
        object: the same with only the co-occurring object unusual.
        both: the same with both unusual.
    """

    in_distribution: float
    background: float
    object: float
    both: float


def urbancars_gaps(predictions: ArrayLike, labels: ArrayLike, attributes: ArrayLike) -> Gaps:
    """I.D. accuracy, BG gap, CoObj gap and BG+CoObj gap of the Whac-A-Mole paper (section 3.2).

    Args: ``predictions``, ``labels``, ``attributes`` of the test images, ``[N]`` each; attributes as in
    :data:`SHORTCUTS`. Accuracies are means over the two classes; unreadable images (-1) are left out.

    >>> y = np.repeat([0, 1], 4); a = np.tile([0, 1, 2, 3], 2)
    >>> urbancars_gaps(a // 2, y, a)  # a model that looks at the background only
    Gaps(in_distribution=0.95, background=-0.95, object=0.05, both=-0.95)
    """
    right = np.asarray(predictions) == np.asarray(labels)
    y, a = np.asarray(labels), np.asarray(attributes)
    accuracy = np.zeros((2, 4))
    for label in (0, 1):
        for pair in range(4):
            chosen = (y == label) & (a == pair) & (np.asarray(predictions) != UNREADABLE)
            if not chosen.any():
                raise DataError(f"no test image of {KINDS[label]}/{SHORTCUTS[pair]}; the gaps need all eight groups.")
            accuracy[label, pair] = right[chosen].mean()
    usual = float((accuracy * np.array(TRAIN_SHARES)).sum(axis=1).mean())
    # pairs are numbered 2 * background + object; the other class's scenes are the unusual ones
    unusual = {"background": (2, 1), "object": (1, 2), "both": (3, 0)}
    gaps = {k: round(float((accuracy[0, p] + accuracy[1, q]) / 2) - usual, 12) for k, (p, q) in unusual.items()}
    return Gaps(round(usual, 12), **gaps)


_DAR_CELLS = {(0, 0): 3156, (0, 1): 166, (0, 2): 166, (0, 3): 8, (1, 0): 8, (1, 1): 166, (1, 2): 165, (1, 3): 3153}
_TRAIN = (3610, 190, 190, 10)
_GET = (
    "It is made by scripts/prepare_dataset_models/create_urbancars.sh of "
    "https://github.com/facebookresearch/Whac-A-Mole from Stanford Cars, Places365 and LVIS; nobody hosts the images."
)
_LICENCE = "that of Stanford Cars, Places365 and LVIS/COCO together: research only"
_MARKERS = tuple(f"{f}/{s}" for s, f in _FOLDERS.items())
_HOME = "https://github.com/facebookresearch/Whac-A-Mole"
URBANCARS = Source(
    "urbancars", 10_000, _LICENCE, _HOME, _GET,
    ("urbancars",), _MARKERS, urbancars,
    {
        "train": {
            f"{kind}/{pair}": n
            for kind, numbers in zip(KINDS, (_TRAIN, _TRAIN[::-1]), strict=True)
            for pair, n in zip(SHORTCUTS, numbers, strict=True)
        },
        "val": 1000,
        "test": 1000,
    },
)  # fmt: skip
URBANCARS_DAR = Source(
    "urbancars-dar", 10_000, _LICENCE, _HOME, _GET, ("urbancars",), _MARKERS,
    urbancars_dar, {"train": {f"{KINDS[y]}/{SHORTCUTS[a]}": n for (y, a), n in _DAR_CELLS.items()}, "target": 1012},
)  # fmt: skip
