"""Every named system on a small fixed world: what `answers.json` was made with.

Run as a program it writes the answers of the named cases anew, which is only right when a change is meant::

    python tests/known_systems/worlds.py CnC S2

The folders in ``saved/`` and their answers in ``saved.json`` were written by the first version, before systems were
pipelines, and stay as they are.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

import foveate as fv
from foveate.extract import Backbone, create_backbone

HERE = Path(__file__).parent
ANSWERS = HERE / "answers.json"
SAVED = HERE / "saved"
NARROW = {"model_args": {"width": 8, "layers": [1, 1], "stem_stride": 2}}
FLAT = {"embed_dim": 24, "depth": 2, "num_heads": 3, "patch_size": 8}
CLIP = {
    "embed_dim": 24,
    "vision_cfg": {"image_size": 32, "layers": 2, "width": 64, "head_width": 16, "patch_size": 8},
    "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
}


@cache
def data() -> Any:
    return fv.data.critters(seed=3, size=64, train=96, target=32, val=32, test=24, strength=0.9)


@cache
def small() -> Any:
    return fv.data.critters(seed=3, size=32, train=96, target=32, val=32, test=24, strength=0.9)


@cache
def cues() -> Any:
    return fv.data.cue_critters(seed=3, train=48, target=0, val=0, test=16)


@cache
def vit(seed: int = 0, depth: int = 2) -> Backbone:
    torch.manual_seed(seed)
    return create_backbone("micro_vit", image_size=(64, 64), **{**FLAT, "depth": depth})


@cache
def clip_name() -> str:
    import open_clip
    from safetensors.torch import save_file

    folder = Path(tempfile.mkdtemp())
    (folder / "tiny.json").write_text(json.dumps(CLIP))
    torch.manual_seed(3)
    save_file(dict(open_clip.CLIP(**CLIP).state_dict()), str(folder / "tiny.safetensors"))
    return f"open_clip:{folder}/tiny.json@{folder}/tiny.safetensors"


@cache
def store() -> str:
    return tempfile.mkdtemp()


@cache
def base(kind: str) -> Any:
    if kind == "vit":
        return fv.ERM("micro_vit", model_args=FLAT, epochs=1, progress=False).fit(small().train)
    return fv.ERM("micro_resnet", epochs=3, lr=3e-3, progress=False, **NARROW).fit(small().train, val=small().val)


@dataclass(frozen=True)
class Case:
    """One system with its settings, and which data it is fitted on."""

    build: Callable[[], Any]
    splits: tuple[str, ...] = ("train", "val")
    world: Callable[[], Any] = small
    saved: bool = False

    def fitted(self) -> Any:
        """Fitted with one thread: the order of sums must not depend on the machine's load."""
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            given = {name: getattr(self.world(), name) for name in self.splits}
            first = given.pop("train", None)
            return self.build().fit(given.pop("target") if first is None else first, **given)
        finally:
            torch.set_num_threads(threads)

    def logits(self, system: Any) -> NDArray[np.float32]:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return system.predict_logits(self.world().test)
        finally:
            torch.set_num_threads(threads)


def trained(name: str, backbone: str = "micro_resnet", **options: Any) -> Callable[[], Any]:
    shape = {"model_args": FLAT} if backbone == "micro_vit" else NARROW
    return lambda: getattr(fv, name)(backbone, progress=False, **{"epochs": 2, "lr": 3e-3, **shape, **options})


def adapted(name: str, kind: str = "cnn", **options: Any) -> Callable[[], Any]:
    def build() -> Any:
        keyword = {"base": base(kind)}
        return getattr(fv, name)(**keyword, store=store(), progress=False, **options)

    return build


def probed(name: str, *models: int, **options: Any) -> Callable[[], Any]:
    return lambda: getattr(fv, name)(*(vit(m) for m in models), store=store(), progress=False, **options)


def prompted(name: str, **options: Any) -> Callable[[], Any]:
    def build() -> Any:
        more = {"attention": vit(0)} if name == "A2ZeroShot" else {}
        return getattr(fv, name)(clip_name(), store=store(), progress=False, **more, **options)

    return build


EVERY = ("train", "target", "val")
TARGET = ("target", "val")
CASES: dict[str, Case] = {
    # trained networks
    "ERM": Case(trained("ERM"), saved=True),
    "ERM of a ViT": Case(trained("ERM", "micro_vit"), saved=True),
    "ERM with a target": Case(trained("ERM", select="worst_group"), EVERY),
    "ERM, slow backbone": Case(trained("ERM", backbone_scale=0.1, optimizer="adamw", ema=0.9, clip=1.0)),
    "ERM of the shipped ViT": Case(trained("ERM", "micro-vit", model_args=None, lr=1e-4, epochs=1), world=data),
    "Reweight": Case(trained("Reweight")),
    "Reweight by drawing": Case(trained("Reweight", by="sampler", over="class")),
    "Subsample": Case(trained("Subsample")),
    "GroupDRO": Case(trained("GroupDRO"), saved=True),
    "GroupDRO, adjusted": Case(trained("GroupDRO", step_size=0.1, adjustment="auto")),
    "CVaRDRO": Case(trained("CVaRDRO")),
    "JTT": Case(trained("JTT", first_epochs=1, upweight=3), saved=True),
    "JTT by drawing": Case(trained("JTT", first_epochs=1, upweight=3, by="sampler", first_weight_decay=0.1)),
    "CnC": Case(trained("CnC", samples=6)),
    "SpectralDecoupling": Case(trained("SpectralDecoupling")),
    # parts and masks
    "PDiscoFormer": Case(trained("PDiscoFormer", "micro_vit", parts=3), saved=True),
    "IFAM": Case(trained("IFAM", "micro_vit", parts=3), saved=True),
    "IFAM as released": Case(trained("IFAM", "micro_vit", parts=2, released=True, noise_at_eval=False, gumbel=False)),
    "IFAM, soft, other predictor": Case(
        trained("IFAM", "micro_vit", parts=2, mask="soft", predictor="micro_vit", predictor_args={**FLAT, "depth": 1})
    ),
    "IFAM of the shipped ViT": Case(
        trained("IFAM", "micro-vit", model_args=None, epochs=1, parts=2, lr=1e-4), world=data
    ),
    "EarlyMask": Case(trained("EarlyMask", "micro_vit"), saved=True),
    "LateMask": Case(trained("LateMask", "micro_vit")),
    "LateMask, found": Case(
        trained("LateMask", "micro-vit", model_args=None, masks="found", frozen=True, epochs=1), world=data
    ),
    "EarlyMask, found": Case(trained("EarlyMask", "micro_vit", masks="found", saliency="micro-vit"), world=data),
    # a fitted base, adapted
    "DFR": Case(adapted("DFR", refits=3), TARGET, saved=True),
    "DFR without val": Case(adapted("DFR", refits=3), ("target",)),
    "DFR of a ViT": Case(adapted("DFR", "vit", refits=3), TARGET),
    "DFR by gradient": Case(adapted("DFR", variant="gradient", epochs=4, copies=1), TARGET),
    "DFR, last convolution": Case(adapted("DFR", variant="conv", epochs=2), TARGET),
    "DFR, two layers": Case(adapted("DFR", variant="two-layer", epochs=4), TARGET),
    "DAR": Case(adapted("DAR", epochs=4), TARGET, saved=True),
    "DAR, copies": Case(adapted("DAR", epochs=3, copies=2, queries=4, heads=4, positional=True, norm=True), TARGET),
    "DAR, Jetley": Case(adapted("DAR", epochs=3, pool="jetley", l1=1e-3), TARGET),
    "DAR on the attribute": Case(adapted("DAR", epochs=3, learn="attribute"), TARGET),
    "AIMProbe": Case(adapted("AIMProbe", "vit", epochs=3, heads=3), saved=True),
    "EPProbe": Case(adapted("EPProbe", "vit", epochs=3, queries=6), EVERY),
    "AIMProbe by name": Case(
        lambda: fv.AIMProbe("micro-vit", epochs=2, heads=3, store=store(), progress=False), world=data
    ),
    # a frozen embedder, a linear head
    "FullImage": Case(probed("FullImage", 1), ("train",), data, saved=True),
    "FullImage, C chosen": Case(probed("FullImage", 1, C=(0.1, 1.0, 10.0)), ("train", "val"), data),
    "FullImage by name": Case(
        lambda: fv.FullImage("micro-vit", store=store(), progress=False), ("train", "val"), data
    ),
    "FullImage with DFR": Case(probed("FullImage", 1, head="dfr", refits=2), EVERY, data),
    "FullImage with DFR, no val": Case(probed("FullImage", 1, head="dfr", refits=2), ("train", "target"), data),
    "CentreCrop": Case(probed("CentreCrop", 1, crops=32, image_size=64), ("train",), data, saved=True),
    "RandomCrops": Case(probed("RandomCrops", 1, crops=(24, 16), image_size=64), ("train",), data),
    "S2": Case(probed("S2", 1), ("train",), data),
    "A2": Case(probed("A2", 0, 1, crops=(24, 16)), ("train",), data, saved=True),
    "A2, one model": Case(lambda: fv.A2(vit(0), vit(0), crops=24, store=store(), progress=False), ("train",), data),
    "A2, count chosen": Case(
        probed("A2", 0, 1, crops=(24, 16), crop_counts=(1, 2), C=(0.1, 1.0), select="worst_group"),
        ("train", "val"), data,
    ),
    "A2 with DFR": Case(probed("A2", 0, 1, crops=(24, 16), head="dfr", refits=2), EVERY, data),
    "A2 from originals": Case(probed("A2", 0, 1, crops=16, source="original", heads="max", layer=0), ("train",), data),
    "A2Adapter": Case(
        lambda: fv.A2Adapter(
            vit(0), vit(1), grids=[(16, 2)], adapter={"steps": 3, "samples": 10}, store=store(), progress=False
        ),
        ("train",), cues, saved=True,
    ),
    "A2Adapter, greedy, groups": Case(
        lambda: fv.A2Adapter(
            vit(0), vit(1), crops=(16,), grids=[(16, 2)], weigh="classes", adapter={"steps": 2, "samples": 10},
            store=store(), progress=False,
        ),
        ("train",), cues,
    ),
    "Glimpse": Case(probed("Glimpse", 0, 1, keep=0.25), ("train",), data, saved=True),
    "Glimpse, share chosen": Case(probed("Glimpse", 0, 1, choose=(0.1, 0.5)), ("train", "val"), data),
    "Glimpse by mass with DFR": Case(probed("Glimpse", 0, 1, mass=0.5, head="dfr", refits=2), EVERY, data),
    # prompts
    "ZeroShot": Case(prompted("ZeroShot"), ("train",), data, saved=True),
    "A2ZeroShot": Case(prompted("A2ZeroShot", crop=32), ("train",), data, saved=True),
    "TTR": Case(prompted("TTR"), ("train",), data, saved=True),
    "TTR, mean": Case(prompted("TTR", how="mean", clusters=2), ("train",), data),
}  # fmt: skip


def digest(logits: NDArray[np.float32]) -> str:
    """A hash of every bit of the logits."""
    return hashlib.blake2b(np.ascontiguousarray(logits).tobytes(), digest_size=12).hexdigest()


def answer(case: Case, system: Any) -> dict[str, Any]:
    logits = case.logits(system)
    return {
        "digest": digest(logits), "logits": [[float(f"{v:.6g}") for v in row] for row in logits],
        "supervision": system.supervision(), "system": type(system).__name__,
    }  # fmt: skip


def main() -> None:
    answers = json.loads(ANSWERS.read_text())
    for name in sys.argv[1:]:
        answers[name] = answer(CASES[name], CASES[name].fitted())
        print(name, answers[name]["digest"], answers[name]["supervision"], flush=True)
    rows = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in answers.items())
    ANSWERS.write_text(f"{{\n{rows}\n}}\n")


if __name__ == "__main__":
    main()
