"""Does the audit name the shortcut, and leave models without one alone? Hits and false alarms over seeds.

``python -m benchmarks.discovery_study --seeds 10 --out discovery.csv`` trains small classifiers with a known shortcut
(the habitat, a mark in a corner, the brightness) and without one, and audits each on images *without attributes and
masks*: once on images biased like the training set, once on balanced ones. A row says what was named. With
``--pets FOLDER`` (cut-out pets, scenes and their tables) the same for photographs, with a linear classifier on a
frozen MobileNetV2.
"""

from __future__ import annotations

import argparse
import csv
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import foveate as fv
from foveate.assemble.system import System
from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages
from foveate.files import atomic_file

EXPECTED = {"habitat": "background", "none": None, "corner": "corner-tr", "brightness": "brightness"}
PETS = 240
"""Photographs in an audit; the ViT that finds the objects takes most of the time."""
COLUMNS = (
    "data", "shortcut", "seed", "audited_on", "objects", "accuracy", "level", "named", "expected", "hit", "false_alarm",
    "pull", "low", "high", "pseudo_group_agreement", "seconds",
)  # fmt: skip


def planted(dataset: GroupedDataset, what: str, strength: float, seed: int) -> GroupedDataset:
    """The images without attributes and masks, and with a mark or a change of brightness that goes with the class."""
    pixels = np.stack([dataset.images.read(i) for i in range(len(dataset))]).copy()
    rng = np.random.default_rng(seed)
    sign = np.where(rng.random(len(dataset)) < strength, dataset.labels, 1 - dataset.labels)
    side = pixels.shape[1]
    for i, value in enumerate(sign):
        if what == "corner" and value:
            pixels[i, side // 32 : side // 7, -side // 7 : -side // 32] = (250, 250, 250)
        elif what == "brightness":
            pixels[i] = np.clip(pixels[i] * (1.3 if value else 0.75), 0, 255).astype(np.uint8)
    return GroupedDataset(ArrayImages(pixels, dataset.name), dataset.labels, dataset.class_names, name=dataset.name)


def critters_case(shortcut: str, seed: int) -> tuple[System, dict[str, GroupedDataset], dict[str, Any]]:
    """A small ERM on critters, and the two audit sets with the true habitats (kept from the audit)."""
    strength = 0.95 if shortcut == "habitat" else 0.5
    common: dict[str, Any] = {"size": 48, "target": 0, "val": 0}
    bench = fv.data.critters(seed=seed, strength=strength, train=1000, test=600, **common)
    biased = fv.data.critters(seed=1000 + seed, strength=strength, train=600, test=0, **common).train
    ties = 0.95 if shortcut in ("corner", "brightness") else 0.5
    train = planted(bench.train, shortcut, ties, seed)
    audits = {
        "balanced": planted(bench.test, shortcut, 0.5, seed + 1),
        "biased": planted(biased, shortcut, ties, seed + 2),
    }
    model = fv.ERM(
        "micro_resnet", model_args={"layers": [1, 1, 1], "stem_stride": 2}, epochs=6, lr=2e-3, batch_size=32, seed=seed,
        augment=shortcut != "corner", progress=False,
    )  # fmt: skip
    truth = {"balanced": bench.test.attributes, "biased": biased.attributes}
    return model.fit(train), audits, truth


def pets_case(root: Path, shortcut: str, seed: int) -> tuple[System, dict[str, GroupedDataset], dict[str, Any]]:
    """Logistic regression on a frozen MobileNetV2 for cats and dogs pasted on forests and seas."""
    from sklearn.linear_model import LogisticRegression

    from foveate.extract import open_backbone

    strength = 0.95 if shortcut == "habitat" else 0.5
    ties = 0.95 if shortcut in ("corner", "brightness") else 0.5

    def made(strengths: dict[str, float], counts: dict[str, int]) -> Any:
        return fv.data.compose(
            root / "foregrounds.csv", root / "backgrounds.csv", strength=strengths, counts=counts, size=112, seed=seed,
            fg_path="foregrounds/{name}.jpg", fg_mask="masks/{name}.png", fg_label="species",
            bg_path="backgrounds/{name}.jpg", bg_label="scene", fractions={"val": 0, "target": 0},
        )  # fmt: skip

    bench = made({"train": strength}, {"train": 1000, "test": PETS})
    biased = made({"train": 0.5, "test": strength}, {"train": 4, "test": PETS}).test
    train = planted(bench.train, shortcut, ties, seed)
    audits = {
        "balanced": planted(bench.test, shortcut, 0.5, seed + 1),
        "biased": planted(biased, shortcut, ties, seed + 2),
    }
    backbone, view = open_backbone("mobilenet-v2", 112)

    @torch.no_grad()
    def features(inputs: torch.Tensor) -> torch.Tensor:
        return backbone(inputs)

    embedded = []
    for start in range(0, len(train), 32):
        images = [view.prepare(train[i].image) for i in range(start, min(start + 32, len(train)))]
        embedded.append(features(view.normalise(torch.stack(images))))
    x = torch.cat(embedded).numpy()
    mean, spread = x.mean(0), x.std(0) + 1e-6
    head = LogisticRegression(C=0.01, max_iter=500).fit((x - mean) / spread, train.labels)

    def logits(inputs: torch.Tensor) -> torch.Tensor:
        score = head.decision_function((features(inputs).numpy() - mean) / spread)
        return torch.from_numpy(np.stack([-score / 2, score / 2], 1))

    model = fv.wrap(logits, train.class_names, preprocess=view, name="MobileNetV2 + logistic regression")
    return model, audits, {"balanced": bench.test.attributes, "biased": biased.attributes}


def rows(
    data: str, shortcuts: list[str], seeds: range, root: Path | None, objects: str | None, audited: list[str]
) -> Iterator[dict[str, Any]]:
    """One row for every shortcut, seed and audit set."""
    for seed in seeds:
        for shortcut in shortcuts:
            case = critters_case(shortcut, seed) if root is None else pets_case(root, shortcut, seed)
            model, audits, truth = case
            for name in audited:
                images = audits[name]
                start = time.perf_counter()
                report = fv.audit(model, images, examples=0, seed=seed, objects=objects)
                found = report.findings.models[0]
                judgement = next(iter(report.discoveries.values())).judgement
                named = judgement.shortcuts[0].key if judgement.shortcuts else None
                pull = next((s.pull for s in judgement.tested), None)
                agreement = None
                if named == "background":
                    groups = report.pseudo_groups()
                    same = float((groups.attributes == truth[name][: len(groups)]).mean())
                    agreement = round(max(same, 1 - same), 3)
                expected = EXPECTED[shortcut]
                yield {
                    "data": data, "shortcut": shortcut, "seed": seed, "audited_on": name,
                    "objects": found.discovery.objects, "accuracy": round(found.average, 3),
                    "level": judgement.level, "named": named or "", "expected": expected or "",
                    "hit": "" if expected is None else int(named == expected),
                    "false_alarm": int(named is not None) if expected is None else "",
                    **({"pull": round(pull.value, 3), "low": round(pull.low, 3), "high": round(pull.high, 3)}
                       if pull else {}),
                    "pseudo_group_agreement": agreement, "seconds": round(time.perf_counter() - start, 1),
                }  # fmt: skip


def main() -> None:
    """Run the study and write one CSV."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--shortcuts", default="habitat,none,corner,brightness")
    parser.add_argument("--pets", type=Path, default=None, help="folder with cut-out pets and scenes")
    parser.add_argument("--objects", default=None, help="where the masks come from; by default a ViT on the machine")
    parser.add_argument("--audited", default="balanced,biased", help="which images: balanced, biased or both")
    parser.add_argument("--out", type=Path, default=Path("discovery.csv"))
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    done: list[dict[str, Any]] = []
    seeds = range(given.first, given.first + given.seeds)
    data = "critters" if given.pets is None else "pets-scenes"
    for row in rows(data, given.shortcuts.split(","), seeds, given.pets, given.objects, given.audited.split(",")):
        done.append(row)
        print(", ".join(f"{k} {v}" for k, v in row.items()), flush=True)
        with atomic_file(given.out) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(done)
    hits = [r for r in done if r["expected"]]
    clean = [r for r in done if not r["expected"]]
    print(f"named: {sum(r['hit'] for r in hits)} of {len(hits)}; false alarms: "
          f"{sum(r['false_alarm'] for r in clean)} of {len(clean)}")  # fmt: skip


if __name__ == "__main__":
    main()
