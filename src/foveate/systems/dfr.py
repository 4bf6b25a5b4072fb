"""DFR: keep the features, refit the last layer on balanced data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveate.data.dataset import GroupedDataset
from foveate.data.loading import Batch, Loader
from foveate.decide import DFRHead, l1_penalty
from foveate.decide.dfr import C_GRID
from foveate.engine import Feed, History, ImageFeed, Selection, seed_everything
from foveate.engine import train as run_training
from foveate.errors import FoveateError
from foveate.extract import Backbone
from foveate.measure import USES_GROUPS
from foveate.systems.network import Network
from foveate.systems.posthoc import PostHoc
from foveate.systems.system import Needs, System

if TYPE_CHECKING:
    from typing_extensions import Self

VARIANTS = ("logistic", "gradient", "conv", "two-layer")


class DFR(PostHoc):
    """Deep Feature Reweighting: a frozen network, a new last layer fitted to group-balanced data.

    Args:
        base: a fitted system that ends in a network.
        variant: ``"logistic"`` is the original (standardised features, L1 logistic regression, the strength
            tuned on worst-group accuracy, averaged balanced refits); ``"gradient"`` trains the layer with an
            L1 penalty; ``"conv"`` also trains the last convolution; ``"two-layer"`` puts a hidden layer
            before it.
        refits: balanced subsets averaged by the original.
        l1: weight of the L1 penalty on the new layer (all but the original).
        options: ``select``, ``store``, ``on_bad``, and any of :class:`~foveate.engine.TrainSettings`.

    Groups without target images are left out of the balance, with a warning.

    Reference: Kirichenko et al. 2023, "Last layer re-training is sufficient for robustness to spurious
    correlations".
    """

    needs: ClassVar[Needs] = Needs(train="labels (base)", target="labels, groups")
    DEFAULTS: ClassVar[dict[str, Any]] = {"epochs": 100, "lr": 1e-2, "weight_decay": 0.0, "batch_size": 128}

    def __init__(
        self,
        base: System | None = None,
        *,
        variant: Literal["logistic", "gradient", "conv", "two-layer"] = "logistic",
        refits: int = 20,
        l1: float = 0.0,
        **options: Any,
    ):
        super().__init__(base, **options)
        if variant not in VARIANTS:
            raise FoveateError(f"unknown variant '{variant}'; DFR has {', '.join(VARIANTS)}.")
        self.variant = variant
        self.refits = refits
        self.l1 = l1

    def fit(
        self, train: GroupedDataset, target: GroupedDataset | None = None, val: GroupedDataset | None = None
    ) -> Self:
        """Refit on ``target`` (or on the first argument when it is the only one)."""
        data = train if target is None else target
        backbone = self._frozen()
        seed_everything(self.training.seed)
        if self.variant == "logistic":
            self.network_, self.history_ = self._logistic(backbone, data, val), History()
            metric = "worst_group" if val is None else self.select
            self.selection_ = {"metric": metric, "on": (val or data).name, "uses_groups": metric in USES_GROUPS}
            return self
        head = "two-layer" if self.variant == "two-layer" else "linear"
        self.network_ = Network.build(backbone, data.num_classes, head=head)
        self.history_ = self._gradient(self.network_, data, val)
        self.selection_ = self.history_.selection
        return self

    def _logistic(self, backbone: Backbone, data: GroupedDataset, val: GroupedDataset | None) -> Network:
        """The original: C tuned on ``val`` by ``select`` (without ``val``: on a held-out half of every target group
        by worst-group accuracy), then averaged refits."""
        feed = self._feed(backbone, data, "pooled")
        x, y, groups = feed.inputs, feed.dataset.labels, feed.dataset.require_groups("DFR")
        strength: float | tuple[float, ...] = C_GRID
        if val is not None:
            select = Selection(self.select, self._feed(backbone, val, "pooled"), self.train_counts_)
            scores = {}
            for c in C_GRID:
                head = DFRHead(c, refits=1, seed=self.training.seed).fit(
                    x, y, groups, num_classes=data.num_classes, num_groups=data.num_groups
                )
                scores[c] = select.score(head.to_linear(), torch.device("cpu"), 1024)[self.select]
            best = min if self.select == "loss" else max
            strength = best(scores, key=lambda c: scores[c])
        self.head_ = DFRHead(strength, refits=self.refits, seed=self.training.seed).fit(
            x, y, groups, num_classes=data.num_classes, num_groups=data.num_groups
        )
        network = Network.build(backbone, data.num_classes)
        network.head = self.head_.to_linear()
        return network

    def _gradient(self, network: Network, data: GroupedDataset, val: GroupedDataset | None) -> History:
        model: nn.Module = network.head
        feed: Feed
        held: Feed | None
        if self.variant == "conv":
            unfreeze_last_convolution(network.backbone)
            model = network
            feed, held = self._images(data, augment=True), None if val is None else self._images(val, augment=False)
        else:
            feed = self._feed(network.backbone, data, "pooled", self.copies)
            held = None if val is None else self._feed(network.backbone, val, "pooled")
        select = None if held is None else Selection(self.select, held, self.train_counts_)

        def objective(model: nn.Module, batch: Batch) -> Tensor:
            loss = F.cross_entropy(model(batch.inputs), batch.labels)
            return loss + self.l1 * l1_penalty(network.head) if self.l1 else loss

        history = run_training(model, feed, self.training, objective=objective, select=select, title="DFR")
        network.backbone.requires_grad_(False)
        return history

    def _images(self, dataset: GroupedDataset, augment: bool) -> ImageFeed:
        loader = Loader(dataset, self.preprocess_, workers=self.workers, on_bad=self.on_bad)
        return ImageFeed(loader, augment, self.training.seed)


def unfreeze_last_convolution(backbone: Backbone) -> nn.Conv2d:
    """Let the last convolution of a frozen CNN be trained (its normalisation stays frozen)."""
    convolutions = [m for m in backbone.modules() if isinstance(m, nn.Conv2d)]
    if not convolutions or backbone.is_vit:
        raise FoveateError(f"'{backbone.spec.name}' has no convolution to unfreeze; use another DFR variant.")
    # a shortcut's 1x1 convolution may come after the main path in module order
    main = [c for c in convolutions if c.kernel_size != (1, 1)] or convolutions
    main[-1].requires_grad_(True)
    return main[-1]
