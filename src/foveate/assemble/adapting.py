"""Systems that keep a trained network and learn what comes after its maps: DFR, DAR and the attentive probes."""

from __future__ import annotations

import copy
from dataclasses import field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from foveate.assemble.capabilities import HasParts, TakesMask, network_of
from foveate.assemble.choosing import figures_of_logits
from foveate.assemble.needs import Needs
from foveate.assemble.piped import Piped
from foveate.assemble.reading import Reading
from foveate.assemble.system import Images
from foveate.assemble.worth import Figures
from foveate.data.dataset import GroupedDataset
from foveate.data.loading import OnBad
from foveate.engine import check_metric, default_device
from foveate.errors import FoveateError, ModelError
from foveate.extract.extractor import Frozen
from foveate.extract.frozen_model import FrozenModel, Models
from foveate.extract.named import open_backbone
from foveate.look import Gaze
from foveate.parameters import configured, usual_training


@configured
class Adapting(Piped):
    """Learns on features of a frozen network; the network it starts from is left as it was.

    Args:
        select: metric on ``val`` that chooses the epoch (or the strength of the regulariser); by default
            ``worst_group`` or, with a warning, ``worst_class`` where ``val`` has no attributes.
        copies: augmented copies of every image to train on beside the plain one.
        store: folder of the feature store; by default the user's cache.
        on_bad: ``"raise"`` or ``"skip"`` unreadable images.
        workers: processes that decode images.
        training: a :class:`~foveate.engine.TrainSettings`, or any of its settings by name.
    """

    select: str | None = None
    copies: int = 0
    store: str | Path | None = None
    on_bad: OnBad = "raise"
    workers: int = 0
    training: Any = usual_training()
    keeps = "nothing"

    base_supervision_ = ""

    def reading(self) -> Reading:
        training = self.training
        return Reading(
            self.store, self.on_bad, self.workers, batch_size=64, seed=training.seed,
            accelerator=training.accelerator, progress=training.progress,
        )  # fmt: skip

    def check(self) -> None:
        check_metric(self.select)
        super().check()

    @property
    def _base(self) -> Any:
        return getattr(self, "base", None)

    def _remember(self, train: GroupedDataset) -> None:
        """Names are the base's; majority and minority are those of the data the base learned its bias from."""
        base = self._base
        if base is None:
            return super()._remember(train)
        self.class_names_ = list(base.class_names_)
        self.attribute_names_ = base.attribute_names_
        self.train_counts_ = base.train_counts_
        self.base_supervision_ = base.supervision()
        return None

    @property
    def tunes_backbone(self) -> bool:
        """Whether the network that was kept learns on: what was read of it before then is no longer what it gives."""
        return False

    def _before(self, val: GroupedDataset) -> Figures | None:
        base = self._base
        if base is None or list(base.class_names_) != self.class_names_:  # or it learned something else: the attribute
            return None
        network, pool = network_of(base), self.parts_.pool
        plain = network is not None and network.pool is None and not self.tunes_backbone
        if network is None or not plain or not (pool.wanted == "vectors" or (pool.learns and network.reads_maps)):
            return figures_of_logits(base.predict_logits(val, workers=self.workers, on_bad=self.on_bad), val)
        found, network = self.read(val), network.cpu().eval()  # in the store by now: no image is read again
        logits = np.full((len(val), len(self.class_names_)), np.nan, dtype=np.float32)
        with torch.no_grad():
            for rows in np.array_split(np.flatnonzero(found.valid), max(1, len(val) // 256)):
                features = found.batch(rows)
                logits[rows] = network.head(network.pool_maps(features) if pool.learns else features).numpy()
        return figures_of_logits(logits, val)

    def consumed(self) -> Needs:
        used = self.needs
        # what the base consumed is consumed here too: a base chosen by groups must not pass as label-free
        own = f"base ({self.base_supervision_.replace('train: ', '')})" if self.base_supervision_ else used.train
        return Needs(own, used.target)

    @torch.no_grad()
    def _logits(self, inputs: Tensor) -> Tensor:
        device = default_device(self.training.accelerator)
        return self.network_.to(device).eval()(inputs.to(device))

    def pooled_look(self, images: Images, method: str) -> Gaze:
        """Where the queries of a learned pool look, mean over queries and heads; or one of Grad-CAM's methods."""
        self._require_fit()
        network, inputs = self.network_.cpu().eval(), self.inputs(images)
        if method != "attention":
            return network.gradcam(inputs, method=method)
        pool: Any = network.pool
        with torch.no_grad():
            weights = pool.attention(network.maps(inputs)).flatten(1, -3)
        return Gaze(weights.mean(1), kind="attention", scores={"queries": weights})

    def look(self, images: Images, method: str = "grad-cam") -> Gaze:
        """Grad-CAM for the predicted class, from the grad-cam library."""
        self._require_fit()
        return self.network_.cpu().eval().gradcam(self.inputs(images), method=method)

    def _config(self) -> dict[str, Any]:
        return {**super()._config(), "base_supervision": self.base_supervision_}

    def _restore(self, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        super()._restore(config, tensors)
        self.base_supervision_ = str(config.get("base_supervision", ""))


@configured
class FrozenBase(Frozen):
    """The backbone of a fitted system, frozen in a copy, with the preprocessing it was fitted with.

    Args:
        model: a fitted system that ends in a network; or, for systems that also start from a name, that name.
        size: side, or ``(height, width)``, of what a network opened by name sees.
        who: the system that asks, for messages.
    """

    model: Any = field(default=None, kw_only=False)
    size: Any = None
    who: str = "this system"

    def open(self, models: Models) -> None:
        if isinstance(self.model, str):
            self.model_ = FrozenModel(*open_backbone(self.model, self.size))
            return
        base = self.model
        if base is None:
            raise FoveateError(
                f"{self.who} starts from a fitted model, for instance an ERM: {self.who}(base), or --base FOLDER."
            )
        base._require_fit()
        if isinstance(base, (HasParts, TakesMask)):  # its backbone alone would read what the mask hides
            raise ModelError(
                f"{type(base).__name__} sees images through a mask, which {self.who} would take away; start {self.who} "
                "from an ERM model."
            )
        network = network_of(base)
        if network is None:
            box = getattr(getattr(base, "abilities", None), "why", "")
            because = f" ({base.name} is a black box: {box})" if box else ""
            raise ModelError(
                f"{self.who} needs a base that ends in a network; {type(base).__name__} does not{because}."
            )
        self.model_ = FrozenModel(copy.deepcopy(network.cpu().backbone), base.preprocess_)
