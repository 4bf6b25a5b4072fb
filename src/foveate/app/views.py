"""One model as the page sees it: predictions under interventions, quick because stages are remembered."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveate.data.dataset import GroupedDataset
from foveate.data.loading import Loader
from foveate.errors import ModelError
from foveate.look import Gaze
from foveate.restrict import TokenThresholds, calibrate_tokens, early_mask, remove_parts, remove_tokens
from foveate.systems.part_system import PartSystem
from foveate.systems.system import System

REFERENCE = 256
"""Training images that a token threshold is calibrated on."""
BATCH = 64
TRIED = 200
"""Changes whose results are kept."""
REMEMBERED = 4096
"""Stage-2 results kept for one dataset before the oldest are forgotten."""


@dataclass(frozen=True)
class Change:
    """What is tried on a model: parts switched off, and the share ``q`` of usual tokens to keep (None: all tokens).

    >>> Change((2, 0)).parts
    (0, 2)
    """

    parts: tuple[int, ...] = ()
    q: float | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(sorted({int(p) for p in self.parts})))


class View:
    """A system without parts: it can be looked at and asked under a painted mask, but not changed."""

    parts = 0

    def __init__(self, system: System):
        self.system = system
        self.saved = Change()
        self.lock = threading.RLock()  # one model, several browser tabs
        self._known: dict[tuple[int, Change], NDArray[np.float32]] = {}

    @staticmethod
    def of(system: System, reference: GroupedDataset | None = None) -> View:
        """The view that fits ``system``; ``reference`` holds training images for token thresholds."""
        return PartView(system, reference) if isinstance(system, PartSystem) else View(system)

    def logits(self, dataset: GroupedDataset, change: Change) -> NDArray[np.float32]:
        """Logits ``[n, C]`` of a dataset under ``change``, computed once; NaN rows for unreadable images."""
        with self.lock:
            key = (id(dataset), change)
            if key not in self._known:
                if len(self._known) >= TRIED:
                    self._known.clear()
                self._known[key] = self._compute(dataset, change)
            return self._known[key]

    def _compute(self, dataset: GroupedDataset, change: Change) -> NDArray[np.float32]:
        return self.system.predict_logits(dataset, on_bad="skip")

    def one(self, image: Tensor, change: Change) -> tuple[NDArray[np.float32], Gaze]:
        """Logits ``[C]`` and the gaze for one image ``uint8 [3, H, W]``."""
        with self.lock:
            return self.system.predict_logits([image])[0], self.system.look([image])

    @torch.no_grad()
    def masked(self, image: Tensor, mask: Tensor) -> tuple[NDArray[np.float32], Tensor]:
        """Logits ``[C]`` when the model may only see ``mask`` (``bool [H, W]``), and the mask that was really used.

        A model with a token mask hides the patches. Any other is given the mean colour in their place, which is
        something it sees: the page says so.
        """
        with self.lock:
            view = self.system.preprocess_
            prepared = view.prepare_mask(mask.float()) > 0.5
            inputs = self.system.inputs([image])
            if not self.hides:
                return self._forward(inputs * prepared), prepared
            grid = self._grid()
            tokens = early_mask(prepared.float()[None], grid)
            made: Any = self.system
            return made.logits_with_mask(inputs, tokens)[0].float().numpy(), tokens.view(grid)

    def _forward(self, inputs: Tensor) -> NDArray[np.float32]:
        return self.system._logits(inputs)[0].float().cpu().numpy()

    @property
    def hides(self) -> bool:
        """Whether a hidden patch is truly unseen."""
        return hasattr(self.system, "logits_with_mask") and self._grid() is not None

    def _grid(self) -> Any:
        return None

    def apply(self, change: Change) -> System:
        """The system with ``change`` made its own."""
        if change != Change():
            raise ModelError(
                f"{type(self.system).__name__} has no parts, so there is nothing to switch off or to save. "
                "Parts are found by IFAM and PDiscoFormer."
            )
        return self.system


@dataclass
class _Stage:
    """What stage 1 said about a dataset: everything an intervention is computed from."""

    rows: NDArray[np.int64]
    images: Tensor  # uint8 [m, 3, H, W]
    maps: Tensor  # [m, K + 1, h, w]
    scores: Tensor  # [m, K + 1, h, w]


class PartView(View):
    """iFAM or PDiscoFormer: stage 1 runs once for each image; stage 2 again only where the mask has changed."""

    system: PartSystem

    def __init__(self, system: PartSystem, reference: GroupedDataset | None = None):
        super().__init__(system)
        system.network_.cpu().eval()
        self.parts = system.network_.discovery.parts
        self.reference = reference
        limits = system.token_thresholds_
        self.saved = Change(system.dropped_parts_ or (), None if limits is None else limits.q)
        self.measure = system.measure if limits is None else limits.measure
        self._stages: dict[int, _Stage] = {}
        self._second: dict[int, dict[tuple[int, bytes], NDArray[np.float32]]] = {}
        self._tokens: tuple[Tensor, Tensor] | None = None
        self._limits: dict[float, TokenThresholds] = {} if limits is None else {limits.q: limits}

    # -- the two stages -------------------------------------------------------------------

    @torch.no_grad()
    def _first(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Part maps and the scores that token thresholds read, before any intervention."""
        network = self.system.network_
        features, output = network.parts(inputs)
        return output.maps, network.token_scores(features, output, self.measure)

    def changed(self, maps: Tensor, scores: Tensor, change: Change) -> Tensor:
        """Part maps after ``change``."""
        limits = self.thresholds(change.q)
        if limits is not None:
            maps = remove_tokens(maps, scores, limits, released=self.system.released and self.measure == "dot")
        return remove_parts(maps, change.parts)

    @torch.no_grad()
    def _behind(self, inputs: Tensor, maps: Tensor) -> Tensor:
        """Logits from inputs and changed part maps."""
        network = self.system.network_
        if network.stage2 is not None:
            return network.stage_two(inputs, maps, prune=True)
        features, output = network.parts(inputs)
        return network.discovery.classify(features, maps, output.distances).logits

    def thresholds(self, q: float | None) -> TokenThresholds | None:
        """Limits that keep the share ``q`` of each part's usual tokens; None keeps every token."""
        if q is None:
            return None
        if q not in self._limits:
            if self._tokens is None:
                if self.reference is None:
                    raise ModelError("a token threshold is calibrated on training images, and there are none.")
                stage = self._stage(self.reference)
                self._tokens = stage.scores, stage.maps.argmax(1)
            self._limits[q] = calibrate_tokens(*self._tokens, q, self.measure)
        return self._limits[q]

    # -- datasets -------------------------------------------------------------------------

    def _stage(self, dataset: GroupedDataset) -> _Stage:
        if id(dataset) not in self._stages:
            view, found = self.system.preprocess_, []
            loader = Loader(dataset, view, on_bad="skip", cache_bytes=0)
            for batch in loader.in_order(BATCH):
                found.append((batch.indices, batch.inputs, *self._first(view.normalise(batch.inputs))))
            rows, images, maps, scores = (torch.cat(column) for column in zip(*found, strict=True))
            self._stages[id(dataset)] = _Stage(rows.numpy(), images, maps, scores)
        return self._stages[id(dataset)]

    def _compute(self, dataset: GroupedDataset, change: Change) -> NDArray[np.float32]:
        stage = self._stage(dataset)
        maps = self.changed(stage.maps, stage.scores, change)
        # two changes that hide the same patches of an image give it the same logits
        behind_mask = self.system.network_.stage2 is not None
        decides = (maps[:, :-1].amax(1) > maps[:, -1]) if behind_mask else maps
        keys = [(i, row.numpy().tobytes()) for i, row in enumerate(decides)]
        known = self._second.setdefault(id(dataset), {})
        new = [i for i, key in enumerate(keys) if key not in known]
        fresh: dict[tuple[int, bytes], NDArray[np.float32]] = {}
        for start in range(0, len(new), BATCH):
            some = new[start : start + BATCH]
            inputs = self.system.preprocess_.normalise(stage.images[some])
            for i, row in zip(some, self._behind(inputs, maps[some]).float().numpy(), strict=True):
                fresh[keys[i]] = row
        known.update(fresh)
        out = np.full((len(dataset), len(self.system.class_names_)), np.nan, dtype=np.float32)
        for i, key in enumerate(keys):
            out[stage.rows[i]] = known[key]
        for key in list(known)[: max(len(known) - max(REMEMBERED, 2 * len(dataset)), 0)]:
            del known[key]
        return out

    # -- one image ------------------------------------------------------------------------

    def one(self, image: Tensor, change: Change) -> tuple[NDArray[np.float32], Gaze]:
        with self.lock:
            inputs = self.system.inputs([image])
            maps = self.changed(*self._first(inputs), change)
            logits = self._behind(inputs, maps)[0].float().numpy()
            mask = maps[:, :-1].amax(1) > maps[:, -1]
            return logits, Gaze(1 - maps[:, -1], kind="parts", parts=maps, mask=mask)

    def _grid(self) -> Any:
        from foveate.systems.parts_network import patch_grid_of

        stage2 = self.system.network_.stage2
        return None if stage2 is None else patch_grid_of(stage2)

    def apply(self, change: Change) -> System:
        return self.system.with_parts_removed(change.parts).with_thresholds(self.thresholds(change.q))
