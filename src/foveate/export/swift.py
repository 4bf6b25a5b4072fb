"""The same answers sooner: a model that is asked often is written as a graph, checked, and asked through that."""

from __future__ import annotations

import contextlib
import logging
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.assemble.capabilities import network_of
from foveate.assemble.system import System
from foveate.assemble.wrapping import wrap
from foveate.assemble.wrapping.onnx_files import HeldOnnx
from foveate.data.dataset import GroupedDataset
from foveate.data.loading import Loader, OnBad
from foveate.engine.batches import batch_that_fits
from foveate.errors import FoveateError, ModelError, first_line
from foveate.export.graphs import Graph, plan_of
from foveate.export.memory import Memory
from foveate.export.write import record, write_soon
from foveate.measure import shares_of

if TYPE_CHECKING:
    from foveate.export.trunks import Trunk, Trunks

log = logging.getLogger("foveate")
TRIED = 16
"""Images on which model and graph are compared."""
PAYS = 6.0
"""Seconds of work from which on it pays: to write a graph takes less than one of them, where it can be recorded."""
QUICKER = 0.8
"""The graph must need less than this share of the model's time."""
TOLERANCE = 1e-3
"""The largest difference of a logit that is let pass, in units of the largest logit or 1, as for an export."""


class Swift:
    """Asks ``system``, or where that is worth it, ONNX Runtime with the same graph.

    That is decided before the first answer. The graph is used only when there is much to ask, when it can be written,
    when it agrees with the model on the first images, and when it is quicker there (CNNs mostly are, with their
    normalisation folded into convolutions). Otherwise, and without the packages of the extra ``onnx``, the model itself
    is asked. No picture is asked twice as long as the answers fit into memory.

    Args:
        system: fitted or wrapped.
        expected: about how many images it will be asked about.
        trunks: for models that are asked about the same pictures: those that share a network below their heads then
            share what it saw. Used where trunk and head together agree with the model on the first images.

    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=32)
    >>> base = fv.ERM("micro_resnet", epochs=1, progress=False).fit(data.train)
    >>> ask = Swift(base, expected=100)
    >>> ask.predict_logits(data.test[0].image[None]).shape, ask.by_graph
    ((1, 2), False)
    """

    def __init__(self, system: System, expected: int, trunks: Trunks | None = None):
        self.system, self.expected, self.trunks = system, expected, trunks
        self.graph: System | None = None
        self.trunk: Trunk | None = None
        self.decided = False
        self._memory = Memory()
        self._head: nn.Module | None = None

    @property
    def by_graph(self) -> bool:
        """Whether answers come from the graph."""
        return self.graph is not None or (self.trunk is not None and self.trunk.by_graph)

    def predict_logits(self, images: Tensor) -> NDArray[np.float32]:
        """Logits ``[B, C]`` of images ``uint8 [B, 3, H, W]``."""
        self._decide(images[:TRIED])
        if self.trunk is not None:
            return self._by_trunk(self.trunk, self._viewed(images))
        return self._memory(images, (self.graph or self.system).predict_logits)

    def predict_proba(self, data: GroupedDataset, **options: Any) -> NDArray[np.float32]:
        """Class probabilities ``[n, C]`` for a dataset, as :meth:`System.predict_proba` gives them."""
        if not self.decided:
            with contextlib.suppress(FoveateError):  # an unreadable image is told, or left out, when its turn comes
                self._decide(self._viewed([data[i].image for i in range(min(TRIED, len(data)))]))
        if self.trunk is None:
            return (self.graph or self.system).predict_proba(data, **options)
        return shares_of(self._read(self.trunk, data, **options))

    def _read(
        self,
        trunk: Trunk,
        data: GroupedDataset,
        *,
        batch_size: int | None = None,
        workers: int = 0,
        on_bad: OnBad = "raise",
    ) -> NDArray[np.float32]:
        view = self.system.preprocess_
        logits = np.full((len(data), len(self.system.class_names_)), np.nan, dtype=np.float32)
        loader = Loader(data, view, workers=workers, on_bad=on_bad, cache_bytes=0)
        keep = self.trunks is None or self.trunks.keeps(self.expected)
        for batch in loader.in_order(batch_size or batch_that_fits(*view.size)):
            logits[batch.indices.numpy()] = self._by_trunk(trunk, batch.inputs, keep)
        return logits

    def embed(self, images: Sequence[Tensor]) -> Tensor | None:
        """What the network below the head makes of images ``uint8 [3, H, W]``, ``[B, D]``; None without a trunk."""
        return None if self.trunk is None else self.trunk(self._viewed(images))

    def _viewed(self, images: Sequence[Tensor] | Tensor) -> Tensor:
        """Images as the model's view makes them, ``uint8 [B, 3, h, w]``."""
        return torch.stack([self.system.preprocess_.prepare(image) for image in images])

    @torch.no_grad()
    def _by_trunk(self, trunk: Trunk, pictures: Tensor, keep: bool = True) -> NDArray[np.float32]:
        if self._head is None:
            network = network_of(self.system)
            self._head = None if network is None else network.head
        if self._head is None:
            raise ModelError(f"{type(self.system).__name__} has no head that a trunk could serve.")
        return self.system._answers(self._head(trunk(pictures, keep)))

    def _decide(self, images: Tensor) -> None:
        """Which way to ask, from how the model answers to these images and how long it takes."""
        if self.decided:
            return
        self.decided = True
        self.system.predict_logits(images[:1])  # the first pass of any network takes longer
        answers, seconds = _timed(self.system, images)
        pays = seconds / len(images) * self.expected > PAYS
        if self.trunks is not None:
            pictures = self._viewed(images)
            trunk = self.trunks.of(self.system, pictures, pays)
            if trunk is not None and _agree(self._by_trunk(trunk, pictures), answers):
                self.trunk = trunk
        if self.trunk is None and pays:
            self.graph = _agreeing(self.system, images, answers, seconds)


def quickened(module: nn.Module, inputs: Tensor) -> Callable[[Tensor], Tensor]:
    """``module`` as ONNX Runtime computes it, where it can be recorded and agrees on ``inputs``; else the module.

    Args:
        module: on the CPU, in evaluation mode; maps ``[B, ...]`` to ``[B, D]``.
        inputs: ``[B, ...]``, such as it will be asked about.

    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(12, 5)).eval()
    >>> quickened(net, torch.zeros(4, 3, 2, 2))(torch.ones(7, 3, 2, 2)).shape
    torch.Size([7, 5])
    """
    try:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.onnx"
            record(Graph("model", module, {"inputs": tuple(inputs.shape[1:])}, ("outputs",)), path)
            graph = HeldOnnx("model", path.read_bytes(), "a recorded module")
        with torch.no_grad():
            found, expected = graph(inputs[:TRIED]), module(inputs[:TRIED])
    except Exception as error:  # whatever exporter or runtime stumble over, the module itself goes on
        log.debug("%s is asked itself: %s", type(module).__name__, first_line(error))
        return module
    allowed = TOLERANCE * max(1.0, float(expected.abs().max()))
    return graph if float((found - expected).abs().max()) <= allowed else module


def _agreeing(system: System, images: Tensor, answers: NDArray[np.float32], seconds: float) -> System | None:
    """The system's one graph, ready to run, if it gives these answers to these images in less time; else None."""
    try:
        graph = _by_onnx(system)
    except Exception as error:  # whatever exporter or runtime stumble over, the model itself goes on
        log.debug("%s is asked itself: %s", type(system).__name__, first_line(error))
        return None
    if graph is None:
        return None
    found, needed = _timed(graph, images)
    return graph if needed <= QUICKER * seconds and _agree(found, answers) else None


def _agree(found: NDArray[np.float32], answers: NDArray[np.float32]) -> bool:
    """Whether two ways to ask gave the same logits, and any."""
    known = np.isfinite(answers)
    if not known.any() or not np.array_equal(known, np.isfinite(found)):
        return False
    allowed = TOLERANCE * max(1.0, float(np.abs(answers[known]).max()))
    return float(np.abs(found[known] - answers[known]).max()) <= allowed


def _by_onnx(system: System) -> System | None:
    """The system as ONNX Runtime computes it; None when it is more than one graph."""
    plan = plan_of(system)
    if plan.steps or len(plan.graphs) != 1:
        return None
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        write_soon(plan.graphs[0], path)
        return wrap(path, system.class_names_, preprocess=system.preprocess_)


def _timed(model: System, images: Tensor) -> tuple[NDArray[np.float32], float]:
    """The answers, and the seconds of the quicker of two tries: whatever else runs can only make them longer."""
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        answers = model.predict_logits(images)
        seconds.append(time.perf_counter() - start)
    return answers, min(seconds)
