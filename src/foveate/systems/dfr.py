"""DFR: keep the features, refit the last layer on balanced data."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar, Literal

import torch
from torch import nn

from foveate.assemble.adapting import Adapting, FrozenBase
from foveate.assemble.capabilities import network_of
from foveate.assemble.needs import Needs
from foveate.assemble.network import Network
from foveate.assemble.parts import Parts
from foveate.assemble.system import Callbacks, System
from foveate.data.dataset import GroupedDataset
from foveate.data.loading import Loader
from foveate.decide import BalancedLogistic, CrossEntropy
from foveate.engine import ImageFeed, TrainSettings
from foveate.errors import FoveateError
from foveate.extract import Backbone
from foveate.look import Everywhere
from foveate.parameters import configured
from foveate.pool import OwnPool
from foveate.restrict import Nothing

VARIANTS = ("logistic", "gradient", "conv", "two-layer", "network")


@configured
class DFR(Adapting):
    """Deep Feature Reweighting: a frozen network, a new last layer fitted to group-balanced data.

    Args:
        base: a fitted system that ends in a network.
        variant: ``"logistic"`` is the original (standardised features, L1 logistic regression, the strength
            tuned on worst-group accuracy, averaged balanced refits); ``"gradient"`` trains the layer with an
            L1 penalty; ``"conv"`` also trains the last convolution; ``"two-layer"`` puts a hidden layer
            before it; ``"network"`` trains everything on, from the base's own last layer where it is linear: plain
            fine-tuning on balanced groups, for features that hold too little of the object.
        refits: balanced subsets averaged by the original.
        l1: weight of the L1 penalty on the new layers (all but the original).
        copies: augmented copies to train on (``gradient`` and ``two-layer``; ``conv`` and ``network`` augment live,
            the original fits plain features).
        select, store, on_bad, workers, training: see :class:`~foveate.assemble.adapting.Adapting`.

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
    post_hoc: ClassVar[bool] = True
    base: System | None = field(default=None, kw_only=False)
    variant: Literal["logistic", "gradient", "conv", "two-layer", "network"] = "logistic"
    refits: int = 20
    l1: float = 1e-4

    def usual_training(self) -> TrainSettings:
        # where more than a linear layer learns, the rate for that is too high
        rate = 1e-3 if self.variant in ("conv", "two-layer", "network") else 1e-2
        if self.variant == "network":
            return TrainSettings.of(epochs=10, lr=rate, weight_decay=1e-4, batch_size=32, optimizer="adamw")
        return TrainSettings.of(epochs=100, lr=rate, weight_decay=0.0, batch_size=128)

    def parts(self) -> Parts:
        return Parts(
            look=Everywhere(),
            restrict=Nothing(),
            extract=FrozenBase(self.base, who="DFR"),
            pool=OwnPool(),
            decide=BalancedLogistic(refits=self.refits, select=self.select, seed=self.training.seed)
            if self.variant == "logistic"
            else CrossEntropy(
                head="two-layer" if self.variant == "two-layer" else "linear", l1=self.l1, balanced=True,
                copies=self.copies, select=self.select, training=self.training,
            ),
        )  # fmt: skip

    @property
    def tunes_backbone(self) -> bool:
        return self.variant in ("conv", "network")

    def check(self) -> None:
        if self.variant not in VARIANTS:
            raise FoveateError(f"unknown variant '{self.variant}'; DFR has {', '.join(VARIANTS)}.")
        super().check()

    def _train(self, how: CrossEntropy, data: GroupedDataset, val: GroupedDataset | None, callbacks: Callbacks) -> None:
        if not self.tunes_backbone:
            return super()._train(how, data, val, callbacks)
        backbone = self.embedder_.backbone  # features change with what learns, so images are read live
        how.build(backbone.dim, data.num_classes)
        if self.variant == "conv":
            unfreeze_last_convolution(backbone)
        else:
            unfreeze_weights(backbone)
            self._start_from(network_of(self.base), how.head_)
        how.fit(
            self._images(data, augment=True), None if val is None else self._images(val, augment=False),
            model=Network(backbone, how.head_), counts=self._counts(val), callbacks=callbacks, title="DFR",
            record=self._record(),
        )  # fmt: skip
        backbone.requires_grad_(False).eval()
        return None

    @staticmethod
    def _start_from(network: Network | None, head: nn.Module) -> None:
        """Give ``head`` the weights of the base's own, where that is a layer of the same shape on pooled features."""
        theirs = None if network is None or network.pool is not None else network.head
        if type(theirs) is nn.Linear and isinstance(head, nn.Linear) and theirs.weight.shape == head.weight.shape:
            with torch.no_grad():
                head.weight.copy_(theirs.weight)
                head.bias.copy_(torch.zeros_like(head.bias) if theirs.bias is None else theirs.bias)

    def _images(self, dataset: GroupedDataset, augment: bool) -> ImageFeed:
        loader = Loader(dataset, self.preprocess_, workers=self.workers, on_bad=self.on_bad)
        return ImageFeed(loader, augment, self.training.seed)


def unfreeze_weights(backbone: Backbone) -> None:
    """Let every weight be trained; a traced network holds the statistics of its normalisation as parameters too."""
    for name, value in backbone.named_parameters():
        value.requires_grad_(not name.endswith(("running_mean", "running_var")))


def unfreeze_last_convolution(backbone: Backbone) -> nn.Conv2d:
    """Let the last convolution of a frozen CNN be trained (its normalisation stays frozen)."""
    if backbone.is_vit:
        raise FoveateError(f"'{backbone.spec.name}' has no convolution to unfreeze; use another DFR variant.")
    named = [(n, m) for n, m in backbone.named_modules() if isinstance(m, nn.Conv2d) and "downsample" not in n]
    if not named:
        raise FoveateError(
            f"'{backbone.spec.name}' was not opened by its name, so its last convolution cannot be told apart; use "
            "another DFR variant."
        )
    # the one that writes the maps: not a shortcut's, not a depthwise or squeeze-and-excite one
    writers = [m for _, m in named if m.out_channels == backbone.map_dim and m.groups == 1 and m.bias is None]
    last = (writers or [m for _, m in named])[-1]
    last.requires_grad_(True)
    return last
