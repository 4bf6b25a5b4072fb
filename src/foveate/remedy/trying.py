"""The remedies: which fit a model and the sets there are, what each costs, and how each is tried."""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from foveate.assemble.capabilities import network_of, sees_images_alone
from foveate.assemble.network import Network
from foveate.assemble.system import System
from foveate.assemble.worth import measured_elsewhere
from foveate.assemble.wrapping import Restricted
from foveate.data.dataset import GroupedDataset
from foveate.engine import EpochEnd
from foveate.engine.callbacks import StopTraining
from foveate.pool import AttentionPool
from foveate.remedy.kinds import Attempt, Counted, Means, Remedy, Showing, State, Supply
from foveate.remedy.sources import BalancedSet, drawn
from foveate.systems import DAR, DFR

TUNED = 10
"""Epochs of fine-tuning."""
ATTENDED, ATTENDED_LARGE = 40, 20
"""Epochs of DAR's attention, on the maps of a small network and of a large pretrained one, whose maps say more."""
SMALL_NETWORK = 10**6
"""Weights of a network that counts as small."""
SHARE = 0.25
"""DAR learns from as many images as this share of the time that is left allows."""
FEWEST_ATTENDED = 60
"""Images that DAR needs at least."""
LOOK = 0.04
"""Seconds that a small ViT takes to look at one image, about."""
LOOKED_AT = {"vit-s-focus": 112}
"""Side of the image as a ViT looks at it, where its own would take long: it localises nearly as well."""
SLOWEST = 3.0
"""A backward pass costs about twice a forward pass."""


@dataclass(frozen=True)
class Speed:
    """What was measured before anything is tried: seconds for one image.

    Attributes:
        predict: an answer of the model.
        pool: a step of DAR's attention, forth and back.
    """

    predict: float
    pool: float = 5e-4
    epochs: int = ATTENDED

    @staticmethod
    def of(system: System, data: GroupedDataset) -> Speed:
        """Measured: the answers to ``data``, and a few steps of DAR's attention on maps as the model's are."""
        began = time.perf_counter()
        system.predict(data)
        predict, network = (time.perf_counter() - began) / len(data), network_of(system)
        if network is None or not network.reads_maps:
            return Speed(predict)
        return Speed(predict, _pool_step(network, system), ATTENDED if _small(network) else ATTENDED_LARGE)

    def attended(self, left: float, held: int) -> int:
        """Images that DAR can learn from within its share of ``left`` seconds; at least a few, whatever that takes."""
        return max(FEWEST_ATTENDED, int(SHARE * left / (self.epochs * self.pool) - held / 3))

    def estimate(self, remedy: Remedy, images: int, held: int) -> float:
        """Seconds that trying ``remedy`` will take, its own validation included."""
        measured = 2 * held * self.predict
        if remedy.means is Means.DFR:
            return images * self.predict + held * self.predict + 3.0 + measured
        if remedy.means is Means.DAR:
            return (images + held) * self.predict + self.epochs * (images + held / 3) * self.pool + measured
        if remedy.means is Means.TUNE:
            return TUNED * (SLOWEST * images + held) * self.predict + measured
        return 4 * held * (self.predict + LOOK) + measured


def _pool_step(network: Network, system: System, images: int = 32) -> float:
    """Seconds for one image of a step of DAR's attention; one head costs what eight do, and fits maps of any depth."""
    with torch.no_grad():
        shape = network.cpu().eval().backbone.maps(torch.zeros(1, 3, *system.preprocess_.size)).shape[1:]
    with torch.random.fork_rng(devices=[]):  # what is drawn here must not change what is drawn later
        pool, maps = AttentionPool(shape[0], heads=1), torch.randn(images, *shape)
    optimizer = torch.optim.AdamW(pool.parameters())
    for _ in range(2):  # the first one warms up
        began = time.perf_counter()
        pool(maps).square().mean().backward()
        optimizer.step()
    return (time.perf_counter() - began) / images


@dataclass(frozen=True)
class Validation:
    """What is chosen on: real images, and those with the cue of another class.

    Attributes:
        real: the images as they come.
        other: exchanged between classes, or None without an exchange.
        select: what a remedy chooses its own settings on: real groups, or real and exchanged images with theirs.
    """

    real: GroupedDataset
    other: GroupedDataset | None
    select: GroupedDataset

    def standing(self, system: System) -> Showing:
        """How ``system`` does."""
        said = system.predict(self.real)
        right = said == self.real.labels
        cells = _cells(right, self.real, "" if self.real.attributes is not None else "real, ")
        follows = None
        if self.other is not None:
            turned = system.predict(self.other)
            follows = float((turned == self.other.attributes).mean())
            if self.real.attributes is None:
                plain = GroupedDataset(self.other.images, self.other.labels, self.other.class_names)
                cells += _cells(turned == self.other.labels, plain, "exchanged, ")
        return Showing(float(right.mean()), tuple(cells), follows)


def _cells(right: Any, data: GroupedDataset, before: str) -> list[Counted]:
    names, of = (data.class_names, data.labels) if data.groups is None else (data.group_names, data.groups)
    return [
        Counted(f"{before}{name}", int((of == k).sum()), int(right[of == k].sum()))
        for k, name in enumerate(names)
        if (of == k).any()
    ]


def remedies_for(
    system: System, sets: Mapping[Supply, BalancedSet], missing: Mapping[Supply, str]
) -> tuple[list[Remedy], list[Attempt]]:
    """The remedies that fit, cheapest first, and those that do not with the reason."""
    network = network_of(system)
    fit: list[Remedy] = []
    unfit: list[Attempt] = []
    for means in (Means.DFR, Means.DAR, Means.TUNE):
        lacking = _lacking(means, network)
        for origin in Supply:
            remedy = Remedy(means, origin)
            reason = missing.get(origin) or lacking
            if reason is None and means is Means.TUNE and origin in (Supply.TARGET, Supply.PSEUDO):
                reason = "too few balanced images for a whole network"
            if reason is None:
                fit.append(remedy)
            else:
                unfit.append(Attempt(remedy, State.UNFIT, reason))
    square = system.preprocess_.size[0] == system.preprocess_.size[1]
    if sees_images_alone(system) and square and not isinstance(system, Restricted):
        fit.append(Remedy(Means.CROP))
    else:
        unfit.append(
            Attempt(Remedy(Means.CROP), State.UNFIT, "the model already sees less than the image, or no square")
        )
    return fit, unfit


def _lacking(means: Means, network: Network | None) -> str | None:
    """What a model lacks for ``means``; None when it has all."""
    if network is None:
        return "the model is a black box: its features cannot be reached"
    if means is Means.DAR and not network.reads_maps:
        return "the model has no feature maps that its features are made from"
    if means is Means.TUNE and not any(True for _ in network.parameters()):
        return "the model has no weights that can be trained"
    return None


def attempt(
    remedy: Remedy,
    base: System,
    given: BalancedSet | None,
    held: Validation,
    *,
    attention: str,
    store: Path,
    until: float,
    seed: int,
    shown: bool,
    epochs: int = ATTENDED,
    most: int | None = None,
) -> tuple[Attempt, System]:
    """Fit one remedy and see how it does.

    Args:
        given: the set to learn from; None for input restriction, which learns nothing.
        attention: the ViT that says where to look, for input restriction.
        until: when training ends, with its best epoch (``time.perf_counter``).
        epochs, most: of DAR's attention, and images that it learns from at most.
    """
    began = time.perf_counter()
    stopped = False

    def in_time(end: EpochEnd) -> None:
        nonlocal stopped
        if time.perf_counter() > until and end.epoch < end.epochs:
            stopped = True
            raise StopTraining

    options: dict[str, Any] = {"store": store, "progress": shown, "seed": seed, "select": "worst_group"}
    with warnings.catch_warnings(), measured_elsewhere():
        warnings.simplefilter("ignore")  # absent and small groups: the report says what the sets are made of
        if given is None:
            made: System = Restricted(
                base, attention, select="worst_group", attention_size=LOOKED_AT.get(attention)
            ).fit(held.select, val=held.select)
        elif remedy.means is Means.DFR:
            made = DFR(base, refits=5, **options).fit(given.grouped, val=held.select)
        elif remedy.means is Means.DAR:
            chosen = given.balanced if most is None else drawn(given.balanced, most, seed)
            made = DAR(base, epochs=epochs, **options).fit(chosen, val=held.select, callbacks=[in_time])
        else:
            how = {"variant": "network", "epochs": TUNED, "schedule": "onecycle", "lr": tuning_rate(base)}
            made = DFR(base, **how, **options).fit(given.grouped, val=held.select, callbacks=[in_time])
        standing = held.standing(made)
    said = Attempt(
        remedy, State.TRIED, standing=standing, supervision=supervision(base, remedy.origin, held),
        seconds=time.perf_counter() - began,
    )  # fmt: skip
    if remedy.means is Means.DAR and given is not None and most is not None and most < len(given.balanced):
        said.notes.append(f"it learned from {most} of {len(given.balanced)} images, as many as the time allowed")
    if stopped:
        said.notes.append("training ended early, when the time was up; its best epoch is kept")
    if not np.isfinite([cell.accuracy for cell in standing.cells]).all():
        said.state, said.why = State.FAILED, "it gives no answers"
    return said, made


def tuning_rate(base: System) -> float:
    """Peak learning rate of fine-tuning: small networks have little to forget, large pretrained ones a lot."""
    network = network_of(base)
    return 3e-3 if network is None or _small(network) else 2e-4


def _small(network: Network) -> bool:
    return sum(p.numel() for p in network.parameters()) < SMALL_NETWORK


def supervision(base: System, origin: Supply | None, held: Validation) -> str:
    """The supervision line: what the model used before, what the remedy and its choice used."""
    choice = "groups of given attributes" if held.real.attributes is not None else "labels, real and exchanged images"
    used = "none" if origin is None else origin.labels
    return f"train: base ({base.supervision().replace('train: ', '')}); cure: {used}; selection: {choice}"
