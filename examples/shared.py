"""What several examples start from: drawn animals, a classifier that cheats, and two that do not.

Each is made once in a process; ``small`` makes everything tiny, for tests.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch

import foveate as fv

NETWORK: dict[str, Any] = {"model_args": {"layers": [1, 1, 1], "stem_stride": 2}, "lr": 2e-3, "batch_size": 32}


@lru_cache
def animals(small: bool = False) -> Any:
    """Cats and ducks on meadows and seas; in training 90 % of the cats are on a meadow."""
    if small:
        return fv.data.critters(train=80, target=32, val=32, test=64)
    return fv.data.critters(strength=0.9, train=1000, target=240, val=160, test=320)


@lru_cache
def cheat(small: bool = False) -> Any:
    """A network that learns the habitat."""
    return fv.ERM("micro_resnet", epochs=1 if small else 10, progress=False, **NETWORK).fit(animals(small).train)


@lru_cache
def cured(small: bool = False) -> Any:
    """The same network with a new pooling and head, from a few balanced images."""
    data = animals(small)
    dar = fv.DAR(cheat(small), epochs=2 if small else 40, copies=0 if small else 2, progress=False)
    return dar.fit(data.target, val=data.val)


@lru_cache
def looker(small: bool = False) -> Any:
    """A small ViT looks, and reads only what it looked at; no group labels."""
    return fv.A2("micro-vit", "micro-vit", crops=(32,), progress=False).fit(animals(small).train)


def unusual(data: Any, each: int = 1) -> list[int]:
    """Positions of ``each`` test images of every group that is rare in training."""
    rare = fv.measure.minority_groups(data.train.group_counts.reshape(data.train.num_classes, -1)).ravel()
    return [int(i) for g in np.flatnonzero(rare) for i in np.flatnonzero(data.test.groups == g)[:each]]


def batch(data: Any, positions: list[int]) -> torch.Tensor:
    """Images as one ``uint8 [B, 3, H, W]``."""
    return torch.stack([data.test[i].image for i in positions])


def plain(axes: Any) -> None:
    """No ticks, no frame."""
    for ax in np.ravel(axes):
        ax.set(xticks=[], yticks=[])
        ax.set_frame_on(False)
