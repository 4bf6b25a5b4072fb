"""Empirical risk minimisation: the plain classifier everything else is measured against."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from torch import nn

from foveate.data.dataset import GroupedDataset
from foveate.data.loading import Loader, OnBad
from foveate.data.preprocess import Preprocess, channel_statistics, image_size
from foveate.engine import (
    Callback,
    History,
    ImageFeed,
    Objective,
    Plan,
    Selection,
    Shuffled,
    TrainSettings,
    check_metric,
    cross_entropy,
    parameter_groups,
    seed_everything,
)
from foveate.engine import (
    train as run_training,
)
from foveate.errors import ModelError
from foveate.extract import create_backbone
from foveate.extract.backbone import Backbone, default_preprocess, native_size
from foveate.systems.network import Network, NetworkSystem
from foveate.systems.system import Needs, aligned, training_set

if TYPE_CHECKING:
    from typing_extensions import Self


class ERM(NetworkSystem):
    """A network trained on the mean cross-entropy.

    Args:
        backbone: a timm model name, CNN or ViT (or ``micro_resnet`` / ``micro_vit`` for small images), or a name that
            stands for trained weights: ``"micro-vit"``, ``"vit-s-focus"``, ``"ARCH@file.safetensors"`` (see
            :func:`foveate.extract.open_backbone`).
        image_size: ``(height, width)`` or one number; by default the model's own size when pretrained, the
            size of the images when they are small and all alike, otherwise 224.
        small_stem: for small images: keep the resolution in the first layers (CNNs).
        pretrained: start from timm's weights (``micro_vit``: from those that come with foveate).
        weights: start from a local state dict (``.safetensors`` or ``.pth``) instead.
        augment: mirror and shift training images.
        backbone_scale: the backbone learns with ``lr`` times this; below 1 to fine-tune one under a new head.
        select: metric on ``val`` that chooses the epoch: ``average`` (no group labels), ``worst_group``,
            ``minority``, ``loss`` …; used when ``fit`` gets a ``val``.
        on_bad: ``"raise"`` or ``"skip"`` unreadable images.
        workers: processes that decode images.
        model_args: further arguments for timm.
        training: any of :class:`~foveate.engine.TrainSettings`: ``epochs``, ``lr``, ``batch_size``, ``seed`` …

    >>> from foveate.data import critters
    >>> data = critters(train=40, val=16, test=16, target=16, size=32)
    >>> erm = ERM("micro_resnet", epochs=1, progress=False).fit(data.train, val=data.val)
    >>> erm.predict(data.test).shape
    (16,)
    """

    needs: ClassVar[Needs] = Needs(train="labels")

    def __init__(
        self,
        backbone: str = "resnet18",
        *,
        image_size: int | tuple[int, int] | None = None,
        small_stem: bool = False,
        pretrained: bool = False,
        weights: str | None = None,
        augment: bool = True,
        backbone_scale: float = 1.0,
        select: str = "average",
        on_bad: OnBad = "raise",
        workers: int = 0,
        model_args: dict[str, Any] | None = None,
        **training: Any,
    ):
        self.backbone = backbone
        self.image_size = image_size
        self.small_stem = small_stem
        self.pretrained = pretrained
        self.weights = weights
        self.augment = augment
        self.backbone_scale = backbone_scale
        self.select = select
        self.on_bad = on_bad
        self.workers = workers
        self.model_args = model_args
        self.training = TrainSettings.of(**training)
        check_metric(select)

    # -- what a variant of ERM may replace ------------------------------------------------

    def _plan(self, train: GroupedDataset) -> Plan:
        """Which images make up each batch."""
        return Shuffled(len(train), self.training.seed)

    def _objective(self, train: GroupedDataset) -> Objective:
        """The loss of a batch."""
        return cross_entropy

    def _first(self, train: GroupedDataset) -> None:
        """What must be known before training, for instance a first model's predictions."""

    def _after_epoch(
        self, network: Network, objective: Objective, train: GroupedDataset, val: GroupedDataset | None
    ) -> Callable[[int, nn.Module], None] | None:
        """Called after every epoch, when given."""
        return None

    # -- fitting --------------------------------------------------------------------------

    def fit(
        self,
        train: GroupedDataset,
        target: GroupedDataset | None = None,
        val: GroupedDataset | None = None,
        *,
        callbacks: Sequence[Callback] = (),
    ) -> Self:
        """Train on ``train`` (joined with ``target`` when given); ``val`` chooses the epoch."""
        train = training_set(train, target)
        self._first(train)
        seed_everything(self.training.seed)
        self.network_ = self._new_network(train)
        self._remember(train)
        self.history_ = self._train(self.network_, train, val, callbacks)
        self.selection_ = self.history_.selection
        return self

    def _new_network(self, train: GroupedDataset) -> Network:
        return Network.build(self._new_backbone(train), train.num_classes)

    def _new_backbone(self, train: GroupedDataset) -> Backbone:
        """The backbone at its start, and how images must reach it (``preprocess_``)."""
        name = stands_for_weights(self.backbone, self.pretrained)
        if name is not None:
            backbone, view = self._open(name)
        else:
            size = self._size(train)
            backbone = create_backbone(
                self.backbone, image_size=size, small_stem=self.small_stem, pretrained=self.pretrained,
                checkpoint=self.weights, **(self.model_args or {}),
            )  # fmt: skip
            view = self._view(backbone, train, size)
        shift = min(view.size) // 16 if self.augment else 0
        self.preprocess_ = Preprocess(**{**view.to_dict(), "flip": self.augment, "shift": shift})
        return backbone

    def _open(self, name: str) -> tuple[Backbone, Preprocess]:
        from foveate.extract.named import open_backbone

        if self.weights or self.small_stem or self.model_args:
            raise ModelError(
                f"'{name}' stands for an architecture with its weights; leave weights, small_stem and model_args out."
            )
        return open_backbone(name, self._asked_size())

    def _asked_size(self) -> tuple[int, int] | None:
        if isinstance(self.image_size, int):
            return self.image_size, self.image_size
        return None if self.image_size is None else tuple(self.image_size)  # type: ignore[return-value]

    def _size(self, train: GroupedDataset) -> tuple[int, int]:
        asked = self._asked_size()
        if asked is not None:
            return asked
        if self.pretrained or self.weights:
            return native_size(self.backbone)
        spread = np.linspace(0, len(train) - 1, min(len(train), 8)).astype(int)
        sizes = {image_size(train.subset(range(i, len(train)))) for i in spread}
        first = sizes.pop()
        return first if not sizes and max(first) <= 256 else (224, 224)

    def _view(self, backbone: Backbone, train: GroupedDataset, size: tuple[int, int]) -> Preprocess:
        if self.pretrained or self.weights:
            return default_preprocess(backbone, size)
        mean, std = channel_statistics(train, seed=self.training.seed)
        return Preprocess(size, mean=mean, std=std)

    def _feed(self, dataset: GroupedDataset, augment: bool) -> ImageFeed:
        loader = Loader(dataset, self.preprocess_, workers=self.workers, on_bad=self.on_bad)
        return ImageFeed(loader, augment, self.training.seed)

    def _groups(self, network: Network) -> list[dict[str, Any]] | None:
        """Parameter groups with their learning rates; None when all learn alike."""
        if self.backbone_scale == 1:
            return None
        new = nn.ModuleList([part for name, part in network.named_children() if name != "backbone"])
        decay = self.training.weight_decay
        return parameter_groups(network.backbone, decay, self.backbone_scale) + parameter_groups(new, decay)

    def _train(
        self, network: Network, train: GroupedDataset, val: GroupedDataset | None, callbacks: Sequence[Callback] = ()
    ) -> History:
        select = None
        objective = self._objective(train)
        if val is not None:
            val = aligned(self, val)
            same = train.attributes is not None and val.attribute_names == train.attribute_names
            select = Selection(self.select, self._feed(val, augment=False), train.group_counts if same else None)
        return run_training(
            network,
            self._feed(train, self.augment),
            self.training,
            objective=objective,
            plan=self._plan(train),
            select=select,
            groups=self._groups(network),
            on_epoch=self._after_epoch(network, objective, train, val),
            title=type(self).__name__,
            record={"system": type(self).__name__, **self.identity()},
            callbacks=callbacks,
        )


def stands_for_weights(name: str, pretrained: bool) -> str | None:
    """The name for :func:`~foveate.extract.named.open_backbone` when ``name`` stands for weights too, else None.

    No timm name has a hyphen, an @ or a colon in it.
    """
    if pretrained and name == "micro_vit":  # timm has no weights for it and would say nothing
        return "micro-vit"
    return name if any(mark in name for mark in "-@:") else None
