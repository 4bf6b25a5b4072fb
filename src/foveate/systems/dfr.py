"""DFR: keep the features, refit the last layer on balanced data."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveate.data.dataset import GroupedDataset
from foveate.data.loading import Batch, Loader
from foveate.decide import DFRHead, l1_penalty, sampling_weights
from foveate.decide.dfr import C_GRID, warn_of_absent_groups
from foveate.engine import Callback, Drawn, Feed, History, ImageFeed, seed_everything
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
        l1: weight of the L1 penalty on the new layers (all but the original).
        copies: augmented copies to train on (``gradient`` and ``two-layer``; ``conv`` augments live, the original
            fits plain features).
        options: ``select``, ``store``, ``on_bad``, and any of :class:`~foveate.engine.TrainSettings`.

    Groups without target images are left out of the balance, with a warning.

    Reference: Kirichenko et al. 2023, "Last layer re-training is sufficient for robustness to spurious
    correlations".

    >>> import tempfile
    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=32)
    >>> base = fv.ERM("micro_resnet", epochs=1, progress=False).fit(data.train)
    >>> dfr = fv.DFR(base, refits=2, store=tempfile.mkdtemp()).fit(data.target)
    >>> dfr.predict_proba(data.test).shape
    (16, 2)
    >>> print(dfr.supervision())
    train: base (labels); target: labels, groups; selection: group labels (worst_group)
    """

    needs: ClassVar[Needs] = Needs(train="labels (base)", target="labels, groups")
    DEFAULTS: ClassVar[dict[str, Any]] = {"epochs": 100, "lr": 1e-2, "weight_decay": 0.0, "batch_size": 128}

    def __init__(
        self,
        base: System | None = None,
        *,
        variant: Literal["logistic", "gradient", "conv", "two-layer"] = "logistic",
        refits: int = 20,
        l1: float = 1e-4,
        **options: Any,
    ):
        if variant in ("conv", "two-layer"):  # more than a linear layer learns: the rate for that is too high
            options.setdefault("lr", 1e-3)
        super().__init__(base, **options)
        if variant not in VARIANTS:
            raise FoveateError(f"unknown variant '{variant}'; DFR has {', '.join(VARIANTS)}.")
        self.variant = variant
        self.refits = refits
        self.l1 = l1

    def fit(
        self,
        train: GroupedDataset,
        target: GroupedDataset | None = None,
        val: GroupedDataset | None = None,
        *,
        callbacks: Sequence[Callback] = (),
    ) -> Self:
        """Refit on ``target`` (or on the first argument when it is the only one)."""
        data = train if target is None else target
        backbone = self._frozen()
        data, val = self._aligned(data), None if val is None else self._aligned(val)
        seed_everything(self.training.seed)
        if self.variant == "logistic":
            self.network_, self.history_ = self._logistic(backbone, data, val), History()
            metric = "worst_group" if val is None else self.select
            self.selection_ = {"metric": metric, "on": (val or data).name, "uses_groups": metric in USES_GROUPS}
            return self
        head = "two-layer" if self.variant == "two-layer" else "linear"
        self.network_ = Network.build(backbone, data.num_classes, head=head)
        self.history_ = self._gradient(self.network_, data, val, callbacks)
        self.selection_ = self.history_.selection
        return self

    def _logistic(self, backbone: Backbone, data: GroupedDataset, val: GroupedDataset | None) -> Network:
        """The original: C tuned on ``val`` by ``select`` (without ``val``: on a held-out half of every target group
        by worst-group accuracy), then averaged refits."""
        feed = self._feed(backbone, data, "pooled")
        x, y, groups = feed.plain(), feed.dataset.labels, feed.dataset.require_groups("DFR")
        strength: float | tuple[float, ...] = C_GRID
        if val is not None:
            select = self._selection(self.select, self._feed(backbone, val, "pooled"))
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

    def _gradient(
        self, network: Network, data: GroupedDataset, val: GroupedDataset | None, callbacks: Sequence[Callback]
    ) -> History:
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
        select = None if held is None else self._selection(self.select, held)
        groups = feed.dataset.require_groups("DFR")
        warn_of_absent_groups(groups, data.num_groups)
        plan = Drawn(sampling_weights(groups), seed=self.training.seed)  # every group equally likely

        def objective(model: nn.Module, batch: Batch) -> Tensor:
            loss = F.cross_entropy(model(batch.inputs), batch.labels)
            return loss + self.l1 * l1_penalty(network.head) if self.l1 else loss

        history = run_training(
            model,
            feed,
            self.training,
            objective=objective,
            plan=plan,
            select=select,
            title="DFR",
            record=self._run_record(network.backbone),
            callbacks=callbacks,
        )
        network.backbone.requires_grad_(False)
        return history

    def _images(self, dataset: GroupedDataset, augment: bool) -> ImageFeed:
        loader = Loader(dataset, self.preprocess_, workers=self.workers, on_bad=self.on_bad)
        return ImageFeed(loader, augment, self.training.seed)


def unfreeze_last_convolution(backbone: Backbone) -> nn.Conv2d:
    """Let the last convolution of a frozen CNN be trained (its normalisation stays frozen)."""
    if backbone.is_vit:
        raise FoveateError(f"'{backbone.spec.name}' has no convolution to unfreeze; use another DFR variant.")
    named = [(n, m) for n, m in backbone.named_modules() if isinstance(m, nn.Conv2d) and "downsample" not in n]
    # the one that writes the maps: not a shortcut's, not a depthwise or squeeze-and-excite one
    writers = [m for _, m in named if m.out_channels == backbone.map_dim and m.groups == 1 and m.bias is None]
    last = (writers or [m for _, m in named])[-1]
    last.requires_grad_(True)
    return last
