"""What a published figure needs to be made here: a dataset, weights, a system, and hours."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from foveate.bench.ledger import Published
from foveate.errors import FoveateError, first_line
from foveate.registries import DATASETS

NOT_DATA = ("any", "mean_of_5")
# timm's names of the printed models; those printed without patch size are the ones the weights exist for
TIMM = {
    "dinov2_s": "vit_small_patch14_dinov2.lvd142m", "dinov2_b": "vit_base_patch14_dinov2.lvd142m",
    "dinov2_l": "vit_large_patch14_dinov2.lvd142m", "dinov2_g": "vit_giant_patch14_dinov2.lvd142m",
    "dinov1_s16": "vit_small_patch16_224.dino", "dinov1_b16": "vit_base_patch16_224.dino",
    "dinov3_s16": "vit_small_patch16_dinov3.lvd1689m", "dinov3_s16plus": "vit_small_plus_patch16_dinov3.lvd1689m",
    "dinov3_b16": "vit_base_patch16_dinov3.lvd1689m", "dinov3_l16": "vit_large_patch16_dinov3.lvd1689m",
    "dinov3_h16plus": "vit_huge_plus_patch16_dinov3.lvd1689m", "dinov3_7b16": "vit_7b_patch16_dinov3.lvd1689m",
    "mae_b16": "vit_base_patch16_224.mae", "mae_l16": "vit_large_patch16_224.mae",
    "mae_h14": "vit_huge_patch14_224.mae", "resnet50": "resnet50.tv_in1k",
}  # fmt: skip
OPEN_CLIP = {"openclip_b16": "ViT-B-16", "openclip_l14": "ViT-L-14", "openclip_h14": "ViT-H-14"}
GFLOPS = {"s": 6.0, "b": 23.0, "l": 81.0, "h": 190.0, "g": 295.0, "7": 1700.0}
"""Billions of operations of one forward pass at 224 px, by the size's letter in the printed name."""
DATASET_IMAGES = {
    "waterbirds": 11788, "waterbird200": 11788, "cub": 11788, "celeba": 202599, "spawrious_o2o_hard": 25344,
    "spawrious_m2m_hard": 25344, "metashift_catdog_unmixed": 4000, "metashift_catdog_disc": 4000,
    "metashift_animals": 10000, "imagenet9": 50000, "imagenet_val": 50000, "siim_acr": 12000, "imagenet1k": 1281167,
    "dominoes": 45960, "spuco_animals": 30000, "spawrious": 25344, "urbancars": 8992,
}  # fmt: skip
PRINTED_METRICS = {
    "accuracy": "average", "worst_group_accuracy": "worst_group", "worst_class_accuracy": "worst_class",
    "average_accuracy": "average",
}  # fmt: skip
"""What the papers' tables call a metric of ours."""
COUNTS = ("train_count", "target_count", "val_count", "test_count")


@dataclass(frozen=True)
class FigureRecipe:
    """The system and the settings that make a figure here."""

    system: str
    settings: dict[str, Any]
    on_target: bool = False


def recipe(row: Published) -> FigureRecipe | None:
    """How a row is run with our systems, or None when none of them is meant (or ours lacks a setting).

    >>> from foveate.bench.ledger import Ledger
    >>> recipe(Ledger.published().rows("a2/T13")[1]).settings
    {'attention': 'vit_small_patch14_dinov2.lvd142m', 'embedder': 'vit_base_patch14_dinov2.lvd142m', 'crops': [64]}
    """
    given, attn, embed = row.settings, _model(row.backbone_attn), _model(row.backbone_embed)
    crops = [int(c) for c in given.get("crops", "64").split("+") if c.isdigit()]
    heads = {"lowest_entropy_6": "lowest-entropy-k"}.get(given.get("head_agg", ""), given.get("head_agg"))
    extra: dict[str, Any] = {"heads": heads} if heads else {}
    known = {"crops", "head_agg", "dfr", "image", "params", "K"}
    if set(given) - known:  # interventions, ablations, subsets: not a plain run of a system
        return None
    if row.method in ("a2_lr", "dfr_a2") and attn and embed:
        head = {"head": "dfr"} if row.method == "dfr_a2" else {}
        return FigureRecipe("A2", {"attention": attn, "embedder": embed, "crops": crops, **extra, **head}, bool(head))
    if row.method in ("lr_full", "lr_full_518", "dfr") and embed and embed != TIMM["resnet50"]:
        more: dict[str, Any] = {"head": "dfr"} if row.method == "dfr" else {}
        if row.method == "lr_full_518":
            more["embed_size"] = 518
        return FigureRecipe("FullImage", {"embedder": embed, **more}, row.method == "dfr")
    if row.method == "center_crop" and embed:
        return FigureRecipe("CentreCrop", {"embedder": embed, "crops": crops})
    if row.method == "random_crops" and embed:
        return FigureRecipe("RandomCrops", {"embedder": embed, "crops": crops})
    if row.method == "s2" and embed:
        return FigureRecipe("S2", {"embedder": embed})
    if row.method == "a2_zs" and attn and embed:
        return FigureRecipe("A2ZeroShot", {"model": embed, "attention": attn, "crop": crops[0]})
    if row.method in ("openclip_zs", "ttr") and embed:
        return FigureRecipe({"openclip_zs": "ZeroShot", "ttr": "TTR"}[row.method], {"model": embed})
    if row.method in ("ifam", "pdiscoformer") and embed:
        system = {"ifam": "IFAM", "pdiscoformer": "PDiscoFormer"}[row.method]
        return FigureRecipe(system, {"backbone": embed, "parts": int(given.get("K", "8"))})
    return None


def _model(slug: str) -> str | None:
    if slug in OPEN_CLIP:
        return f"open_clip:{OPEN_CLIP[slug]}"
    return TIMM.get(slug)


def loader_name(row: Published) -> str | None:
    """The name :func:`foveate.data.load` has for the dataset of a row, or None.

    The DAR paper has its own splits of common datasets; they go by names of their own.
    """
    name = row.dataset.replace("_", "-")
    for candidate in ([f"{name}-dar"] if row.paper == "dar" else []) + [name]:
        if candidate in DATASETS:
            return candidate
    return None


def first_obstacle(row: Published, weights: bool = True) -> str | None:
    """Why a row cannot be run here, in a few words, without opening any data; None when nothing is known against it.

    With ``weights=False`` only what is the same on every machine counts.
    """
    if row.quoted:
        return "quoted by the paper from earlier work, not its own run"
    name = loader_name(row)
    if name is None:
        kind = "not one dataset" if row.dataset in NOT_DATA else f"no loader for {row.dataset}"
        return kind
    if row.metric in COUNTS:
        if "labels lost" in row.note:
            return "the printed cells lost their labels"
        return None
    if row.metric not in PRINTED_METRICS:
        return f"no command makes '{row.metric}' alone"
    made = recipe(row)
    if made is None:
        return f"'{row.method}' with these settings is not a plain run of one of our systems"
    for slug in (row.backbone_attn, row.backbone_embed):
        if weights and slug and not weights_here(slug):
            return f"no weights of {slug} on this machine"
    return None


def obstacle(row: Published, root: Path | None) -> str | None:
    """As :func:`first_obstacle`, and whether the dataset's files are here or can be fetched."""
    return first_obstacle(row) or _data_obstacle(loader_name(row) or "", None if root is None else str(root))


@lru_cache(maxsize=32)
def _data_obstacle(name: str, root: str | None) -> str | None:
    """Published files are looked for and not opened, and nothing is fetched: a list of all tables stays quick."""
    from foveate.assets.catalogue import kept_facts
    from foveate.data.sources import Source

    thing = DATASETS.get(name)
    if thing.__module__.startswith("foveate.") and name in kept_facts() and kept_facts()[name].assets:
        return None  # fetched when it is run
    try:
        if isinstance(thing, Source):
            for source in (thing, *thing.others):
                source.find(root)
        else:
            opened(name, root)
    except FoveateError as error:
        return f"no data: {first_line(error)}"
    return None


@lru_cache(maxsize=1)
def opened(name: str, root: str | None) -> Any:
    """The benchmark called ``name``; the last one is kept, for a table has many rows on one dataset."""
    from foveate.data.registry import load

    return load(name, root)


@lru_cache(maxsize=64)
def weights_here(slug: str) -> bool:
    """Whether the weights of a printed model are on this machine already; nothing is downloaded."""
    name = _model(slug)
    if name is None:
        return False
    try:
        from huggingface_hub import try_to_load_from_cache
    except ImportError:
        return False
    if name.startswith("open_clip:"):
        return False  # open_clip keeps several sources a model; without a pinned one the figure is not comparable
    found = [try_to_load_from_cache(f"timm/{name}", f) for f in ("model.safetensors", "pytorch_model.bin")]
    return any(isinstance(f, str) for f in found)


def hours(row: Published, per_second: float | None = None) -> float | None:
    """A rough estimate of the hours a row takes on this machine: forward passes of its models over the dataset.

    Args:
        row: a row with a recipe.
        per_second: billions of operations the machine does in a second; measured when not given.
    """
    made, images = recipe(row), DATASET_IMAGES.get(row.dataset)
    if made is None or images is None:
        return None
    speed = per_second or machine_speed()
    crops = len(made.settings.get("crops", [1]))
    work = _cost(row.backbone_attn) + crops * _cost(row.backbone_embed)
    if made.settings.get("embed_size") == 518:
        work *= (518 / 224) ** 2
    epochs = 3 * 90 if made.system in ("IFAM", "PDiscoFormer") else 1  # training: forward and backward, 90 epochs
    return images * work * epochs / speed / 3600


def _cost(slug: str) -> float:
    if not slug:
        return 0.0
    tail = slug.rpartition("_")[2]
    return GFLOPS.get(tail[0], 23.0)


@lru_cache(maxsize=1)
def machine_speed() -> float:
    """Billions of operations a second in a matrix product of a ViT's size; half of it is what a network reaches."""
    import torch

    a, b = torch.rand(512, 768), torch.rand(768, 768)
    began, fastest = (
        time.perf_counter(),
        float("inf"),
    )  # the fastest round: what others do on the machine is not counted
    while time.perf_counter() - began < 0.2:
        start = time.perf_counter()
        a @ b
        fastest = min(fastest, time.perf_counter() - start)
    return 2 * 512 * 768 * 768 / fastest / 1e9 / 2
