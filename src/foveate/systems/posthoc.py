"""What DFR and DAR share: a fitted base model, frozen bit for bit, and features read through the store."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from foveate.data.dataset import GroupedDataset
from foveate.data.loading import OnBad
from foveate.engine import Feed, Selection, TensorFeed, TrainSettings, check_metric
from foveate.errors import FoveateError, ModelError
from foveate.extract import Backbone, FeatureStore, freeze
from foveate.extract.features import Features
from foveate.systems.network import NetworkSystem, default_device
from foveate.systems.system import System, aligned


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
    base_supervision_: str = ""

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
            raise FoveateError(
                f"{name} starts from a fitted model, for instance an ERM: {name}(base), or --base FOLDER."
            )
        self.base._require_fit()
        if not isinstance(self.base, NetworkSystem):
            raise ModelError(f"{name} needs a base that ends in a network; {type(self.base).__name__} does not.")
        if hasattr(self.base, "logits_with_mask"):  # its backbone alone would read what the mask hides
            raise ModelError(
                f"{type(self.base).__name__} sees images through a mask, which {name} would take away; start {name} "
                "from an ERM model."
            )
        self.preprocess_ = self.base.preprocess_
        self.class_names_ = list(self.base.class_names_)
        self.attribute_names_ = self.base.attribute_names_
        # majority and minority are those of the data the base learned its bias from
        self.train_counts_ = self.base.train_counts_
        self.base_supervision_ = self.base.supervision()
        backbone = copy.deepcopy(self.base.network_.cpu().backbone)
        freeze(backbone)
        return backbone

    def _read(self, backbone: Backbone, dataset: GroupedDataset, layer: str, copies: int = 0) -> Features:
        """Features or maps of ``dataset``, computed once."""
        backbone.to(default_device(self.training.accelerator))
        try:
            return FeatureStore(self.store).read(
                backbone, dataset, self.preprocess_, layer=layer, copies=copies, seed=self.training.seed,
                on_bad=self.on_bad, workers=self.workers,
            )  # fmt: skip
        finally:
            backbone.cpu()

    def _feed(self, backbone: Backbone, dataset: GroupedDataset, layer: str, copies: int = 0) -> TensorFeed:
        found = self._read(backbone, dataset, layer, copies)
        array = np.asarray(found.array)
        if found.valid.all():
            return TensorFeed(array, dataset, copies=copies > 0, seed=self.training.seed)
        rows = np.flatnonzero(found.valid)
        return TensorFeed(array, dataset.subset(rows), copies=copies > 0, seed=self.training.seed, rows=rows)

    def _train_labels(self) -> str:
        # what the base consumed is consumed here too: a base chosen by groups must not pass as label-free
        return f"base ({self.base_supervision_.replace('train: ', '')})" if self.base_supervision_ else self.needs.train

    def _config(self) -> dict[str, Any]:
        return {**super()._config(), "base_supervision": self.base_supervision_}

    def _restore(self, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        super()._restore(config, tensors)
        self.base_supervision_ = config.get("base_supervision", "")

    def _aligned(self, dataset: GroupedDataset) -> GroupedDataset:
        """``dataset`` with the base model's classes in its order."""
        assert self.base is not None
        return aligned(self.base, dataset)

    def _selection(self, metric: str, feed: Feed) -> Selection:
        """Selection on ``feed``, with the training counts when its attributes are those of the training data."""
        same = feed.dataset.attribute_names == self.attribute_names_
        return Selection(metric, feed, self.train_counts_ if same else None)

    def _run_record(self, backbone: Backbone) -> dict[str, Any]:
        """What must agree for a training checkpoint to be resumed."""
        return {"system": type(self).__name__, **self.identity(), "base": backbone.weights_hash()}
