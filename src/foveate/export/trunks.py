"""Networks that several models share: a frozen backbone under different heads sees every picture once for all."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.assemble.capabilities import network_of
from foveate.assemble.network import Network
from foveate.assemble.system import System
from foveate.data.preprocess import Preprocess
from foveate.engine.batches import as_memory_allows, batch_that_fits
from foveate.export.memory import Memory
from foveate.export.swift import QUICKER, quickened

KEPT_ALONE = 8_000
"""A single model that is to be asked about more pictures does not remember those of the dataset: the few of them that
are looked at again cost less than the memory."""


class Embeds(nn.Module):
    """A network up to its embedding."""

    def __init__(self, network: Network):
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        return self.network.embed(x)


class Trunk:
    """A network from pictures to their embedding, which remembers what it saw.

    Args:
        network: on the CPU; its head is not used.
        view: how pictures reach it.
        pictures: a few, ``uint8 [B, 3, h, w]``, to see whether a graph of it agrees and is quicker.
        quick: whether to try that.
    """

    def __init__(self, network: Network, view: Preprocess, pictures: Tensor, quick: bool):
        self.view, self.memory = view, Memory()
        module = Embeds(network.cpu()).eval()  # the whole of it: recording puts back the mode that it found
        self.ask: Callable[[Tensor], Tensor] = module
        if quick:
            inputs = view.normalise(pictures)
            graph = quickened(module, inputs)
            if graph is not module and _seconds(graph, inputs) < QUICKER * _seconds(module, inputs):
                self.ask = graph
        self.by_graph = self.ask is not module

    def __call__(self, pictures: Tensor, keep: bool = True) -> Tensor:
        """Embeddings ``[B, D]`` of pictures ``uint8 [B, 3, h, w]``, remembered if they are to be kept."""
        return torch.from_numpy(self.memory(pictures, self._see) if keep else self._see(pictures))

    @torch.no_grad()
    def _see(self, pictures: Tensor) -> NDArray[np.float32]:
        together = batch_that_fits(*self.view.size)
        parts = [
            as_memory_allows(self.ask, self.view.normalise(pictures[start : start + together]))
            for start in range(0, len(pictures), together)
        ]
        return torch.cat(parts).float().cpu().numpy()


class Trunks:
    """The trunks of the models that are asked about the same pictures, one for all models that have the same.

    The same means: equal weights below the head, the same layers, the same preprocessing.

    Args:
        models: how many there are. One alone remembers nothing of a pass over many images, which nobody asks again.

    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=32)
    >>> base = fv.ERM("micro_resnet", epochs=1, progress=False).fit(data.train)
    >>> again = fv.DFR(base).fit(data.target)
    >>> trunks, pictures = Trunks(), data.test[0].image[None]
    >>> trunks.of(base, pictures) is trunks.of(again, pictures)
    True
    """

    def __init__(self, models: int = 2) -> None:
        self.models = models
        self._known: dict[bytes, Trunk] = {}

    def keeps(self, expected: int) -> bool:
        """Whether a pass over the dataset is remembered, where so many pictures will be asked about in all."""
        return self.models > 1 or expected <= KEPT_ALONE

    def of(self, system: System, pictures: Tensor, quick: bool = False) -> Trunk | None:
        """The trunk of a system; None where it has no network of its own, or one that is not on the CPU."""
        network = network_of(system)
        if network is None or any(weight.device.type != "cpu" for weight in network.parameters()):
            return None
        key = _fingerprint(network, system.preprocess_)
        if key not in self._known:
            self._known[key] = Trunk(network, system.preprocess_, pictures, quick)
        return self._known[key]


def _fingerprint(network: Network, view: Preprocess) -> bytes:
    """Of everything below the head."""
    layers = [repr(part) for part in (type(network), network.backbone, network.pool, view)]
    held = hashlib.sha256("\n".join(layers).encode())
    for name, values in network.state_dict().items():
        if not name.startswith("head."):
            held.update(f"{name} {values.dtype} {tuple(values.shape)}".encode())
            held.update(values.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return held.digest()


def _seconds(ask: Callable[[Tensor], Tensor], inputs: Tensor) -> float:
    """The quicker of two tries: whatever else runs can only make them longer."""
    tries = []
    with torch.no_grad():
        for _ in range(2):
            start = time.perf_counter()
            ask(inputs)
            tries.append(time.perf_counter() - start)
    return min(tries)
