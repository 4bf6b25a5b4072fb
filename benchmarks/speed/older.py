"""The comparisons that have a module of their own in this folder's parent, at sizes that take seconds."""

from __future__ import annotations

import importlib
from typing import Any

from benchmarks.speed.rows import Row

# module, its arguments, and of what it gives: key, what it is, the anchor, the target
OLDER: dict[str, tuple[dict[str, Any], list[tuple[str, str, str, float | None]]]] = {
    "store_speed": (
        {"images": 96, "epochs": 30},
        [("ratio", "30 epochs of DAR's pool on stored features", "the frozen ResNet-18 in every epoch", None)],
    ),
    "dfr_speed": (
        {"repeats": 3},
        [("ratio", "DFR's search and refits, the slowest of its cases", "the plain scikit-learn loop", None)],
    ),
    "glimpse_speed": (
        {"images": 32, "repeats": 5},
        [("ratio", "Glimpse, images embedded a second", "A² with one crop, the same ViT-S", 4.0)],
    ),
    "pruned_vit": (
        {"repeats": 5},
        [
            ("dense_over_pruned", "MaskedViT with a quarter of the tokens", "the same masks on all tokens", None),
            ("longest_over_buckets", "MaskedViT in buckets, 5 to 60 % of the tokens", "padded to the longest", None),
        ],
    ),
    "greedy_crops": (
        {},
        [
            ("ratio 64", "greedy crops of 64 px", "an integral image in NumPy", 8.0),
            ("ratio 64+32", "greedy crops of 64 and 32 px", "an integral image in NumPy", 8.0),
        ],
    ),
    "attention_tap": (
        {"rounds": 5},
        [("eager / tap at 518 px", "CLS attention of a ViT-S, 518 px", "the whole attention, eagerly", 1.3)],
    ),
    "ifam_speed": (
        {"repeats": 3, "batch": 8},
        [("two_dense_over_ifam", "iFAM's two stages, pruned", "both stages on all tokens", None)],
    ),
    "rehearsal_speed": (
        {"images": 96, "train": 32},
        [("leave-one-out: anew_over_rehearsed", "leave-one-out over 8 parts, rehearsed", "asked anew", None)],
    ),
}


def measured(module: str) -> list[Row]:
    """The rows of one of them; it takes its own alternating turns and gives medians."""
    given, wanted = OLDER[module]
    found = importlib.import_module(f"benchmarks.{module}").run(**given)
    turns = int(given.get("repeats", given.get("rounds", 1)))
    return [
        Row(
            what, anchor, float(found[key]), None, None, None, None, turns,
            target=target, note=f"`python -m benchmarks {module}` at its full size",
        )
        for key, what, anchor, target in wanted
    ]  # fmt: skip
