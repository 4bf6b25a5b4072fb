"""What DFR and DAR share: a fitted base model, frozen bit for bit, and features read through the store."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from foveate.data.dataset import GroupedDataset
from foveate.data.loading import OnBad
from foveate.engine import TensorFeed, TrainSettings, check_metric
from foveate.errors import FoveateError, ModelError
from foveate.extract import Backbone, FeatureStore, freeze
from foveate.extract.features import Features
from foveate.systems.network import NetworkSystem
from foveate.systems.system import System


class PostHoc(NetworkSystem):
    """Adapts a fitted network on a small balanced target set; the base model is left as it was.

    Args:
        base: a fitted system that ends in a network (ERM and its relatives).
        select: metric on ``val`` that chooses the epoch (or the strength of the regulariser).
        copies: augmented copies of every target image to train on beside the plain one.
        store: folder of the feature store; by default the user's cache.
        on_bad: ``"raise"`` or ``"skip"`` unreadable images.
        workers: processes that decode images.
        training: any of :class:`~foveate.engine.TrainSettings`.
    """

    post_hoc: ClassVar[bool] = True
    DEFAULTS: ClassVar[dict[str, Any]] = {}

    def __init__(
        self,
        base: System | None = None,
        *,
        select: str = "worst_group",
        copies: int = 0,
        store: str | None = None,
        on_bad: OnBad = "raise",
        workers: int = 0,
        **training: Any,
    ):
        self.base = base
        self.select = select
        self.copies = copies
        self.store = store
        self.on_bad = on_bad
        self.workers = workers
        self.training = TrainSettings.of(**{**self.DEFAULTS, **training})
        check_metric(select)

    def _frozen(self) -> Backbone:
        """A frozen copy of the base model's backbone; takes over its preprocessing and names."""
        name = type(self).__name__
        if self.base is None:
            raise FoveateError(f"{name} starts from a fitted model: {name}(base). Give one, for instance an ERM.")
        self.base._require_fit()
        if not isinstance(self.base, NetworkSystem):
            raise ModelError(f"{name} needs a base that ends in a network; {type(self.base).__name__} does not.")
        self.preprocess_ = self.base.preprocess_
        self.class_names_ = list(self.base.class_names_)
        self.attribute_names_ = self.base.attribute_names_
        # majority and minority are those of the data the base learned its bias from
        self.train_counts_ = self.base.train_counts_
        backbone = copy.deepcopy(self.base.network_.cpu().backbone)
        freeze(backbone)
        return backbone

    def _read(self, backbone: Backbone, dataset: GroupedDataset, layer: str, copies: int = 0) -> Features:
        """Features or maps of ``dataset``, computed once."""
        return FeatureStore(self.store).read(
            backbone, dataset, self.preprocess_, layer=layer, copies=copies, seed=self.training.seed,
            on_bad=self.on_bad, workers=self.workers,
        )  # fmt: skip

    def _feed(self, backbone: Backbone, dataset: GroupedDataset, layer: str, copies: int = 0) -> TensorFeed:
        found = self._read(backbone, dataset, layer, copies)
        rows: NDArray[np.int64] = np.flatnonzero(found.valid)
        kept = dataset if len(rows) == len(dataset) else dataset.subset(rows)
        array = np.asarray(found.array) if len(rows) == len(dataset) else np.asarray(found.array)[rows]
        return TensorFeed(array, kept, copies=copies > 0, seed=self.training.seed)
