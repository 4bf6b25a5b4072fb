"""One model as the page sees it: predictions under interventions, quick because stages are remembered."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveate.assemble.capabilities import TakesMask
from foveate.assemble.parted import Parted
from foveate.assemble.parts_network import Intervention, patch_grid_of
from foveate.assemble.system import System
from foveate.data.dataset import GroupedDataset
from foveate.errors import ModelError
from foveate.intervene.rehearsal import Rehearsal, first_stage, second_stage
from foveate.look import Gaze
from foveate.restrict import TokenThresholds, calibrate_tokens, early_mask

REFERENCE = 256
"""Training images that a token threshold is calibrated on."""
TRIED = 200
"""Changes whose results are kept."""


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
        return PartView(system, reference) if isinstance(system, Parted) else View(system)

    def logits(self, dataset: GroupedDataset, change: Change) -> NDArray[np.float32]:
        """Logits ``[n, C]`` of a dataset under ``change``, as ``predict_logits`` gives them; computed once."""
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
            grid = self._grid()
            if grid is None or not isinstance(self.system, TakesMask):
                return self._forward(inputs * prepared), prepared
            tokens = early_mask(prepared.float()[None], grid)
            return self.system.logits_with_mask(inputs, tokens)[0].float().numpy(), tokens.view(grid)

    def _forward(self, inputs: Tensor) -> NDArray[np.float32]:
        return self.system._logits(inputs)[0].float().cpu().numpy()

    @property
    def hides(self) -> bool:
        """Whether a hidden patch is truly unseen."""
        return isinstance(self.system, TakesMask) and self._grid() is not None

    def _grid(self) -> tuple[int, int] | None:
        return None

    def apply(self, change: Change) -> System:
        """The system with ``change`` made its own."""
        if change != Change():
            raise ModelError(
                f"{type(self.system).__name__} has no parts, so there is nothing to switch off or to save. "
                "Parts are found by IFAM and PDiscoFormer."
            )
        return self.system


class PartView(View):
    """iFAM or PDiscoFormer: stage 1 runs once for each image; stage 2 again only where the mask has changed."""

    system: Parted

    def __init__(self, system: Parted, reference: GroupedDataset | None = None):
        super().__init__(system)
        system.network_.cpu().eval()
        self.parts = system.network_.discovery.parts
        self.reference = reference
        limits = system.token_thresholds_
        self.saved = Change(system.dropped_parts_ or (), None if limits is None else limits.q)
        self.measure = system.measure if limits is None else limits.measure
        self._rehearsals: dict[int, Rehearsal] = {}
        self._limits: dict[float, TokenThresholds] = {} if limits is None else {limits.q: limits}

    def thresholds(self, q: float | None) -> TokenThresholds | None:
        """Limits that keep the share ``q`` of each part's usual tokens; None keeps every token."""
        if q is None:
            return None
        if q not in self._limits:
            if self.reference is None:
                raise ModelError("a token threshold is calibrated on training images, and there are none.")
            usual = self._rehearsal(self.reference)
            self._limits[q] = calibrate_tokens(usual.scores, usual.maps.argmax(1), q, self.measure)
        return self._limits[q]

    def _intervention(self, change: Change) -> Intervention:
        return Intervention(change.parts, self.thresholds(change.q), self.system.released)

    # -- datasets -------------------------------------------------------------------------

    def _rehearsal(self, dataset: GroupedDataset) -> Rehearsal:
        if id(dataset) not in self._rehearsals:
            self._rehearsals[id(dataset)] = Rehearsal(self.system, dataset, measure=self.measure, on_bad="skip")
        return self._rehearsals[id(dataset)]

    def _compute(self, dataset: GroupedDataset, change: Change) -> NDArray[np.float32]:
        return self._rehearsal(dataset).logits(self._intervention(change))

    # -- one image ------------------------------------------------------------------------

    def one(self, image: Tensor, change: Change) -> tuple[NDArray[np.float32], Gaze]:
        with self.lock:
            inputs = self.system.inputs([image])
            maps = self._intervention(change).apply(*first_stage(self.system, inputs, self.measure))
            logits = second_stage(self.system, inputs, maps)[0].numpy()
            mask = maps[:, :-1].amax(1) > maps[:, -1]
            return logits, Gaze(1 - maps[:, -1], kind="parts", parts=maps, mask=mask)

    def _grid(self) -> tuple[int, int] | None:
        stage2 = self.system.network_.stage2
        return None if stage2 is None else patch_grid_of(stage2)

    def apply(self, change: Change) -> System:
        return self.system.with_parts_removed(change.parts).with_thresholds(self.thresholds(change.q))
