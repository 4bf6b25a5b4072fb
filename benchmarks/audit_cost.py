"""CPU seconds of an audit, on one thread: one model, the same images a second time with another model, and several.

``python -m benchmarks.audit_cost --pets FOLDER`` composes cats and dogs on forests and seas (strength 0.95), fits
linear classifiers to a frozen MobileNetV2 on different draws, and audits them on photographs without attributes and
masks. The feature store is empty at the start. Run it on two versions of the code (``PYTHONPATH``) to compare them:
the images, the models and the seeds are the same. These models share a network, which sees every picture once for all
of them; ``--apart`` makes each ask its own.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

import foveate as fv
from benchmarks.discovery_study import frozen_mobilenets
from benchmarks.pets import composed
from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages


def photographs(root: Path, images: int, size: int, seed: int = 0) -> Any:
    """Pets on scenes: ``train`` tied to the scene, ``test`` balanced."""
    return composed(
        root, strength={"train": 0.95}, size=size, seed=seed, counts={"train": 600, "test": images},
        fractions={"val": 0, "target": 0},
    )  # fmt: skip


def bare(dataset: GroupedDataset) -> GroupedDataset:
    """The images and labels alone."""
    pixels = np.stack([dataset.images.read(i) for i in range(len(dataset))])
    return GroupedDataset(ArrayImages(pixels, dataset.name), dataset.labels, dataset.class_names, name=dataset.name)


def classifiers(train: GroupedDataset, number: int, size: int) -> dict[str, Any]:
    """Linear classifiers on one frozen MobileNetV2, each fitted to another half of the training images."""
    halves = [np.random.default_rng(k).permutation(len(train))[: len(train) // 2] for k in range(number)]
    return {f"model {k}": model for k, model in enumerate(frozen_mobilenets(train, size, halves))}


def nothing_shared() -> None:
    """From now on models share no network below their heads, as if each had been trained by itself."""
    from foveate.export.trunks import Trunks  # older versions, that this is run on too, have none

    own = Trunks.of
    Trunks.of = lambda self, *given: own(Trunks(), *given)  # type: ignore[method-assign]


def main() -> None:
    """Print one JSON line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pets", type=Path, required=True, help="folder with cut-out pets and scenes")
    parser.add_argument("--images", type=int, default=500)
    parser.add_argument("--size", type=int, default=160)
    parser.add_argument("--models", type=int, default=8, help="how many to audit together; 0 leaves that out")
    parser.add_argument("--apart", action="store_true", help="let the models share no network, as most do not")
    given = parser.parse_args()
    if given.apart:
        nothing_shared()
    torch.set_num_threads(1)
    os.environ["FOVEATE_CACHE"] = tempfile.mkdtemp()
    bench = photographs(given.pets, given.images, given.size)
    test = bare(bench.test)
    models = classifiers(bare(bench.train), max(given.models, 2), given.size)
    result: dict[str, Any] = {"images": given.images, "size": given.size}

    def timed(name: str, chosen: dict[str, Any]) -> None:
        start = time.process_time()
        found = fv.audit(chosen, test, examples=0, seed=0)
        result[name] = round(time.process_time() - start, 1)
        result[f"{name} verdicts"] = [
            [str(d.judgement.level), d.judgement.shortcuts[0].key if d.judgement.shortcuts else None]
            for d in found.discoveries.values()
        ]
        print(name, result[name], flush=True)

    names = list(models)
    timed("one", {names[0]: models[names[0]]})
    timed("a second model", {names[1]: models[names[1]]})
    if given.models:
        timed(f"{given.models} together", models)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
