"""A probe on 100,000 images: memory that does not grow with them, and a second head that starts in seconds.

Images are made when they are asked for and never kept, so that what grows is what foveate keeps. A tiny ViT embeds
them through the feature store in a process of its own, once for few images and once for many; the largest resident
memory of the two extractions is compared. Then a second process fits another head on the embeddings that are there.

    python -m benchmarks store_scale
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from foveate.data.dataset import GroupedDataset
from foveate.extract import create_backbone
from foveate.systems import FullImage

FLAT = 1.15
"""Wanted: the memory of ten times as many images over that of a tenth, at most."""
AGAIN = 30.0
"""Wanted: seconds until another head is fitted, at most."""
SIZE = 16


class MadeImages:
    """An image source of ``n`` random images, each drawn from its number and never kept."""

    def __init__(self, n: int):
        self.n = n

    def __len__(self) -> int:
        return self.n

    def read(self, i: int) -> NDArray[np.uint8]:
        return np.random.default_rng(i).integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)

    def where(self, i: int) -> str:
        return f"made {i}"

    def digest(self, i: int) -> bytes:
        return i.to_bytes(8, "little")


def work(images: int, store: str, C: float, fit: bool) -> dict[str, float]:
    """In a process of its own: extract (and fit a head), and say how long it took and how much memory."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    vit = create_backbone("micro_vit", image_size=(SIZE, SIZE), patch_size=8, embed_dim=16, depth=1, num_heads=1)
    data = GroupedDataset(MadeImages(images), np.arange(images) % 2, ["a", "b"], name=f"{images} made images")
    probe = FullImage(vit, store=store, C=C, batch_size=256, progress=False)
    few = data.subset(np.arange(64))
    probe.fit(few)  # everything is imported and allocated once before memory is compared
    started = _memory()
    began = time.perf_counter()
    if fit:
        probe.fit(data)
    else:
        probe.read(data)
    seconds = time.perf_counter() - began
    return {"seconds": seconds, "started_mb": started, "peak_mb": _memory()}


def _memory() -> float:
    """The largest resident memory of this process so far, in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak / 1e3


def _apart(images: int, store: Path, C: float, fit: bool) -> dict[str, float]:
    asked = json.dumps({"images": images, "store": str(store), "C": C, "fit": fit})
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.store_scale", "--work", asked],
        check=True, capture_output=True, text=True, cwd=Path(__file__).parents[1],
    )  # fmt: skip
    return json.loads(done.stdout.splitlines()[-1])


def run(images: int = 100_000) -> dict[str, Any]:
    """Measure; prints one line and returns its numbers."""
    with tempfile.TemporaryDirectory() as folder:
        few = _apart(images // 10, Path(folder) / "few", 1.0, fit=False)
        many = _apart(images, Path(folder) / "many", 1.0, fit=False)
        again = _apart(images, Path(folder) / "many", 0.1, fit=True)
    result = {
        "name": "store_scale",
        "ratio": many["peak_mb"] / few["peak_mb"],
        "target": FLAT,
        "images": images,
        "extraction_s": many["seconds"],
        "another_head_s": again["seconds"],
        "another_head_target_s": AGAIN,
        "peak_mb": {"a tenth": few["peak_mb"], "all": many["peak_mb"], "another head": again["peak_mb"]},
        "before_mb": {"a tenth": few["started_mb"], "all": many["started_mb"]},
    }
    print(
        f"store_scale: peak memory {many['peak_mb']:.0f} MB for {images} images, {few['peak_mb']:.0f} MB for a tenth "
        f"(ratio {result['ratio']:.2f}, target at most {FLAT}); extraction {many['seconds']:.1f} s, another head "
        f"{again['seconds']:.1f} s (target at most {AGAIN:.0f} s)"
    )
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=100_000)
    parser.add_argument("--work", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.work:
        print(json.dumps(work(**json.loads(given.work))))
    else:
        run(given.images)
