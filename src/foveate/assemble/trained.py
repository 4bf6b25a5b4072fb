"""The training template: a network, an objective and a sampler; what is trained on images is a system on it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from foveate.assemble.graphs import Graph, GraphPlan
from foveate.assemble.network import Network
from foveate.assemble.system import Callbacks, Images, System, aligned, training_set
from foveate.assemble.worth import warn_unless_better
from foveate.data.dataset import GroupedDataset
from foveate.data.loading import Loader, OnBad
from foveate.data.preprocess import Preprocess, channel_statistics, image_size
from foveate.engine import (
    Feed,
    History,
    ImageFeed,
    Objective,
    Plan,
    Selection,
    Shuffled,
    TrainSettings,
    check_metric,
    cross_entropy,
    default_device,
    parameter_groups,
    seed_everything,
)
from foveate.engine import train as run_training
from foveate.errors import FoveateError, ModelError
from foveate.extract import Backbone
from foveate.extract.safe_args import check_args
from foveate.extract.starting import RANDOM, started
from foveate.extract.unfreezing import UNFREEZE, Unfreeze, unfreeze
from foveate.look import Gaze
from foveate.parameters import configured, usual_training

if TYPE_CHECKING:
    from typing_extensions import Self


@configured
class Trained(System):
    """A network trained on images. A subclass says what is trained (:meth:`_network`), for what (:meth:`_objective`)
    and on which batches (:meth:`_plan`); each has the plain answer here.

    Args:
        backbone: a timm model name, CNN or ViT (or ``micro_resnet`` / ``micro_vit`` for small images), or a name that
            stands for trained weights: ``"micro-vit"``, ``"vit-s-focus"``, ``"ARCH@file.safetensors"`` (see
            :func:`foveate.extract.open_backbone`).
        image_size: ``(height, width)`` or one number; by default the model's own size when pretrained, the
            size of the images when they are small and all alike, otherwise 224.
        small_stem: for small images: keep the resolution in the first layers (CNNs).
        pretrained: by default (None) a network starts from trained weights when they can be had: from the hub's cache
            on this machine, the hub, or foveate's assets; ``started_from_`` says which. False is from scratch, True
            insists. The micro networks, and networks changed by ``small_stem`` or ``model_args``, start from scratch
            unless told otherwise (``micro_vit``: True takes the weights that come with foveate).
        weights: start from a local state dict (``.safetensors`` or ``.pth``) instead.
        augment: mirror and shift training images.
        backbone_scale: the backbone learns with ``lr`` times this; below 1 to fine-tune one under a new head.
        unfreeze: what of the backbone is trained: ``"all"``, ``"last-stage"`` (its last stage, of a ViT the last block,
            and what follows) or ``"none"``, which leaves the head; the rest stays as it started.
        select: metric on ``val`` that chooses the epoch: ``average`` (no group labels), ``worst_group``,
            ``minority``, ``loss`` …; used when ``fit`` gets a ``val``.
        on_bad: ``"raise"`` or ``"skip"`` unreadable images.
        workers: processes that decode images.
        model_args: further arguments for timm.
        training: a :class:`~foveate.engine.TrainSettings`; or any of its settings by name: ``epochs``, ``lr``,
            ``batch_size``, ``seed`` …
    """

    backbone: str = field(default="resnet18", kw_only=False)
    image_size: int | tuple[int, int] | None = None
    small_stem: bool = False
    pretrained: bool | None = None
    weights: str | None = None
    augment: bool = True
    backbone_scale: float = 1.0
    unfreeze: Unfreeze = "all"
    select: str = "average"
    on_bad: OnBad = "raise"
    workers: int = 0
    model_args: dict[str, Any] | None = None
    training: Any = usual_training()
    started_from_ = ""

    # -- what a subclass may replace ------------------------------------------------------

    def _network(self, train: GroupedDataset) -> Any:
        """What is trained, a module; sets ``preprocess_``."""
        return Network.build(self._new_backbone(train), train.num_classes)

    def _plan(self, train: GroupedDataset) -> Plan:
        """Which images make up each batch."""
        return Shuffled(len(train), self.training.seed)

    def _objective(self, train: GroupedDataset) -> Objective:
        """The loss of a batch."""
        return cross_entropy

    def _first(self, train: GroupedDataset, callbacks: Callbacks) -> None:
        """What must be known before training, for instance a first model's predictions."""

    def _after_epoch(
        self, network: nn.Module, objective: Objective, train: GroupedDataset, val: GroupedDataset | None
    ) -> Callable[[int, nn.Module], None] | None:
        """Called after every epoch, when given."""
        return None

    def _feed(self, dataset: GroupedDataset, augment: bool) -> Feed:
        """What the network reads of a dataset."""
        loader = Loader(dataset, self.preprocess_, workers=self.workers, on_bad=self.on_bad)
        return ImageFeed(loader, augment, self.training.seed)

    def _groups(self, network: nn.Module) -> list[dict[str, Any]] | None:
        """Parameter groups with their learning rates; None when all learn alike."""
        if self.backbone_scale == 1:
            return None
        parts = dict(network.named_children())
        new = nn.ModuleList([part for name, part in parts.items() if name != "backbone"])
        decay = self.training.weight_decay
        return parameter_groups(parts["backbone"], decay, self.backbone_scale) + parameter_groups(new, decay)

    # -- fitting --------------------------------------------------------------------------

    def check(self) -> None:
        if not isinstance(self.training, TrainSettings):
            raise FoveateError(f"training is a TrainSettings(…); found {type(self.training).__name__}.")
        check_metric(self.select)
        check_args(self.model_args or {})  # what could not be loaded again is refused before anything is trained
        if self.unfreeze not in UNFREEZE:
            raise FoveateError(f"unfreeze is one of {', '.join(UNFREEZE)}; found '{self.unfreeze}'.")
        if self.on_bad not in ("raise", "skip"):
            raise FoveateError(f"on_bad is 'raise' or 'skip'; found '{self.on_bad}'.")

    def fit(
        self,
        train: GroupedDataset,
        target: GroupedDataset | None = None,
        val: GroupedDataset | None = None,
        *,
        callbacks: Callbacks = (),
    ) -> Self:
        """Train on ``train`` (joined with ``target`` when given); ``val`` chooses the epoch."""
        self.check()
        train = training_set(train, target)
        self._first(train, callbacks)
        seed_everything(self.training.seed)
        network = self.network_ = self._network(train)
        self._remember(train)
        select, objective = None, self._objective(train)
        if val is not None:
            val = aligned(self, val)
            same = train.attributes is not None and val.attribute_names == train.attribute_names
            select = Selection(self.select, self._feed(val, augment=False), train.group_counts if same else None)
        self.history_ = run_training(
            network,
            self._feed(train, self.augment),
            self.training,
            objective=objective,
            plan=self._plan(train),
            select=select,
            groups=self._groups(network),
            on_epoch=self._after_epoch(network, objective, train, val),
            callbacks=callbacks,
            title=type(self).__name__,
            record={"system": type(self).__name__, **self.identity()},
        )
        self.selection_ = self.history_.selection
        if val is not None:
            warn_unless_better(type(self).__name__, val, self.history_.chosen())
        return self

    def identity(self) -> dict[str, Any]:
        """The settings that change what is learned, for checkpoints."""
        leave = {"checkpoint", "checkpoint_every", "progress", "workers", "devices", "strategy"}
        return {k: v for k, v in self.settings().items() if k not in leave}

    # -- the backbone at its start --------------------------------------------------------

    def _new_backbone(self, train: GroupedDataset) -> Backbone:
        """The backbone at its start, and how images must reach it (``preprocess_``)."""
        backbone, view = self._started(train)
        shift = min(view.size) // 16 if self.augment else 0
        self.preprocess_ = Preprocess(**{**view.to_dict(), "flip": self.augment, "shift": shift})
        return unfreeze(backbone, self.unfreeze)

    def _started(self, train: GroupedDataset) -> tuple[Backbone, Preprocess]:
        from foveate.extract.named import open_backbone

        size = self.image_size
        asked = (size, size) if isinstance(size, int) else None if size is None else (size[0], size[1])
        name = stands_for_weights(self.backbone, bool(self.pretrained))
        if name is not None:
            if self.weights or self.small_stem or self.model_args:
                raise ModelError(
                    f"'{name}' stands for an architecture with its weights; leave weights, small_stem and model_args "
                    "out."
                )
            self.started_from_ = f"the weights of '{name}'"
            return open_backbone(name, asked)
        spare = asked or common_size(train)
        start = started(
            self.backbone, asked, spare, pretrained=self.pretrained, small_stem=self.small_stem,
            checkpoint=self.weights, **(self.model_args or {}),
        )  # fmt: skip
        self.started_from_ = start.origin
        if start.view is not None:
            return start.backbone, start.view
        mean, std = channel_statistics(train, seed=self.training.seed)
        return start.backbone, Preprocess(spare, mean=mean, std=std)

    @property
    def starts_trained(self) -> bool:
        """Whether the backbone started from trained weights, or before a fit, whether it was told to."""
        told = bool(self.pretrained or self.weights or stands_for_weights(self.backbone, bool(self.pretrained)))
        return told if not self.started_from_ else self.started_from_ != RANDOM

    # -- prediction -----------------------------------------------------------------------

    @torch.no_grad()
    def _logits(self, inputs: Tensor) -> Tensor:
        device = default_device(self.training.accelerator)
        return self.network_.to(device).eval()(inputs.to(device))

    def look(self, images: Images, method: str = "grad-cam") -> Gaze:
        """Grad-CAM for the predicted class, from the grad-cam library."""
        self._require_fit()
        return self.network_.cpu().eval().gradcam(self.inputs(images), method=method)

    def graphs(self) -> GraphPlan:
        """Backbone, pool and head: one graph."""
        self._require_fit()
        shape = {"images": (3, *self.preprocess_.size)}
        return GraphPlan([Graph("model", self.network_.cpu().eval(), shape, ("logits",))])

    # -- saving ---------------------------------------------------------------------------

    def _config(self) -> dict[str, Any]:
        told = {"network": self.network_.to_dict(), "history": self.history_.to_dict()}
        return {**told, "started_from": self.started_from_} if self.started_from_ else told

    def _tensors(self) -> dict[str, Tensor]:
        return {k: v.detach().cpu() for k, v in self.network_.state_dict().items()}

    def _rebuilt(self, network: dict[str, Any]) -> Any:
        """An untrained network from what its ``to_dict`` gave."""
        return Network.from_dict(network)

    def _restore(self, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.network_ = self._rebuilt(config["network"])
        self.network_.load_state_dict(tensors)
        self.network_.eval()
        self.history_ = History(**config["history"])
        self.started_from_ = str(config.get("started_from", ""))[:300]


def common_size(train: GroupedDataset) -> tuple[int, int]:
    """The size of the images when they are small and all alike, otherwise 224 px."""
    spread = np.linspace(0, len(train) - 1, min(len(train), 8)).astype(int)
    sizes = {image_size(train.subset(range(i, len(train)))) for i in spread}
    first = sizes.pop()
    return first if not sizes and max(first) <= 256 else (224, 224)


def stands_for_weights(name: str, pretrained: bool) -> str | None:
    """The name for :func:`~foveate.extract.named.open_backbone` when ``name`` stands for weights too, else None.

    No timm name has a hyphen, an @ or a colon in it.
    """
    if pretrained and name == "micro_vit":  # timm has no weights for it and would say nothing
        return "micro-vit"
    return name if any(mark in name for mark in "-@:") else None


def first_model(system: Trained, epochs: int, weight_decay: float | None) -> Trained:
    """A plain network with the settings of ``system``, but trained for ``epochs`` with ``weight_decay``."""
    shared = {name: getattr(system, name) for name in Trained.setting_names()}
    words: dict[str, Any] = {} if weight_decay is None else {"weight_decay": weight_decay}
    # a checkpoint file belongs to the second stage; the first is short and runs again
    shared["training"] = system.training.changed(epochs=epochs, checkpoint=None, **words)
    return Trained(**shared)
