"""Early and late masks: what a ViT can do when it is told, from outside, where the object is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.assemble.graphs import Graph, GraphPlan, MaskedPath
from foveate.assemble.masked_feed import MaskedFeed, with_masks
from foveate.assemble.needs import Needs
from foveate.assemble.network import Network
from foveate.assemble.system import Images
from foveate.assemble.trained import Trained
from foveate.data.dataset import GroupedDataset
from foveate.data.loading import Loader, OnBad
from foveate.data.preprocess import as_images
from foveate.engine.batches import as_memory_allows, batch_that_fits
from foveate.errors import FoveateError, ModelError
from foveate.extract import Backbone, BackboneSpec, MaskedViT, create_backbone, freeze
from foveate.extract.masked_vit import check_maskable
from foveate.look import Gaze
from foveate.look.mask_source import MasksMissing, MaskSource, SaliencyMasks, as_bytes, masks_from
from foveate.measure import answered
from foveate.parameters import configured
from foveate.restrict import early_mask, late_mask

SOURCES = ("truth", "found", "u2netp")


class MaskedNetwork(Network):
    """A ViT under a mask from outside. Reads images with the mask as a fourth channel, ``[B, 4, h, w]``.

    Args:
        backbone: a ViT.
        classes: how many.
        place: ``"early"`` (hidden patches are not read, :class:`~foveate.extract.MaskedViT`) or ``"late"`` (the
            features of a full ViT are masked and averaged, :func:`~foveate.restrict.late_mask`).
    """

    forward_methods = ("embed", "logits")

    def __init__(self, backbone: Backbone, classes: int, place: str):
        check_maskable(backbone.net)
        # a norm of its own and no bias, as in iFAM's second stage
        head = nn.Sequential(nn.LayerNorm(backbone.map_dim), nn.Linear(backbone.map_dim, classes, bias=False))
        super().__init__(backbone, head, recipe={"classes": classes, "place": place})
        self.place = place

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> MaskedNetwork:
        backbone = create_backbone(BackboneSpec.from_dict(values["backbone"]))
        return cls(backbone, values["classes"], values["place"])

    def token_mask(self, masks: Tensor, size: tuple[int, int] | torch.Size) -> Tensor:
        """Pixel masks ``[B, h, w]`` of images of ``size`` as the patches to keep, boolean ``[B, N]``."""
        grid = MaskedViT(self.backbone).grid(masks.new_empty(1, 3, *size))
        return early_mask(masks, grid)

    def logits(self, images: Tensor, token_mask: Tensor, prune: bool = False) -> Tensor:
        """Logits ``[B, C]`` of ``images [B, 3, h, w]`` when only the patches of ``token_mask [B, N]`` count."""
        return self.head(self._features(images, token_mask, prune))

    def _features(self, images: Tensor, token_mask: Tensor, prune: bool = False) -> Tensor:
        if self.place == "early":
            return MaskedViT(self.backbone).features(images, token_mask, prune=prune)
        if prune:
            raise ModelError("a late mask comes after every patch has been read, so nothing can be pruned.")
        return late_mask(self.backbone.maps(images).flatten(2).transpose(1, 2), token_mask)

    def embed(self, x: Tensor) -> Tensor:
        return self._features(x[:, :3], self.token_mask(x[:, 3], x.shape[-2:]))


@configured
class Masked(Trained):
    """What early and late masks share: everything but the place of the mask."""

    place: ClassVar[str]
    backbone: str = field(default="micro-vit", kw_only=False)
    masks: str | MaskSource = "truth"
    frozen: bool = False
    saliency: str | None = None
    saliency_: SaliencyMasks | None = field(default=None, init=False)

    def check(self) -> None:
        super().check()
        if not callable(self.masks) and self.masks not in (*SOURCES, "given"):
            raise FoveateError(f"unknown masks '{self.masks}'; use {', '.join(SOURCES)}, or a function of the images.")

    def settings(self) -> dict[str, Any]:
        # a function cannot be written to a file: a loaded model asks for it again
        return {**super().settings(), "masks": "given" if callable(self.masks) else self.masks}

    @property
    def reads_true_masks(self) -> bool:
        """Whether a mask must come with every image."""
        return self.masks == "truth"

    def consumed(self) -> Needs:
        return self.needs if self.reads_true_masks else Needs(train="labels")

    # -- fitting --------------------------------------------------------------------------

    def _network(self, train: GroupedDataset) -> MaskedNetwork:
        backbone = self._new_backbone(train)
        self.saliency_ = None
        if self.masks in ("found", "u2netp"):
            kind, view = str(self.masks), self.preprocess_
            self.saliency_ = SaliencyMasks.open(kind, self.saliency, backbone, view, self.starts_trained)
        if self.frozen:
            freeze(backbone)
        return MaskedNetwork(backbone, train.num_classes, self.place)

    def _feed(self, dataset: GroupedDataset, augment: bool) -> MaskedFeed:
        loader = Loader(dataset, self.preprocess_, workers=self.workers, on_bad=self.on_bad)
        return MaskedFeed(loader, self._source(), augment, self.training.seed)

    def _source(self) -> MaskSource | None:
        """What makes the masks; None for those of the dataset."""
        if self.masks == "given":
            raise ModelError(
                "this model was fitted with masks of a function, which is not saved with it; set it again: "
                "system.masks = function."
            )
        return self.masks if callable(self.masks) else self.saliency_

    # -- prediction -----------------------------------------------------------------------

    @torch.no_grad()
    def predict_logits(
        self,
        data: GroupedDataset | Images,
        *,
        batch_size: int | None = None,
        workers: int = 0,
        on_bad: OnBad = "raise",
        masks: Sequence[Tensor | NDArray[np.float32]] | Tensor | None = None,
    ) -> NDArray[np.float32]:
        """Logits ``[n, C]``; with ``masks="truth"`` a batch of images needs ``masks`` (one ``[H, W]`` an image)."""
        self._require_fit()
        batch_size = batch_size or batch_that_fits(*self.preprocess_.size)
        if not isinstance(data, GroupedDataset):
            inputs = self._joined(data, masks)
            parts = [
                as_memory_allows(self._logits, inputs[i : i + batch_size]) for i in range(0, len(inputs), batch_size)
            ]
            return answered(torch.cat(parts).float().cpu().numpy())
        logits = np.full((len(data), len(self.class_names_)), np.nan, dtype=np.float32)
        loader = Loader(data, self.preprocess_, workers=workers, on_bad=on_bad, cache_bytes=0)
        for batch in MaskedFeed(loader, self._source(), cache_bytes=0).evaluate(batch_size):
            logits[batch.indices.numpy()] = answered(as_memory_allows(self._logits, batch.inputs).float().cpu().numpy())
        return logits

    def _joined(self, images: Images, masks: Sequence[Any] | Tensor | None = None) -> Tensor:
        """Images and their masks (given, or made) as the network reads them, ``[B, 4, h, w]``."""
        self._require_fit()
        view = self.preprocess_
        prepared = torch.stack([view.prepare(i) for i in as_images(images)])
        source = self._source() if masks is None else None
        if masks is not None:
            if len(masks) != len(prepared):
                raise MasksMissing(f"expected one mask per image, {len(prepared)}; got {len(masks)}.")
            made = torch.stack([as_bytes(view.prepare_mask(torch.as_tensor(m).float())) for m in masks])
        elif source is not None:
            made = masks_from(source, prepared)
        else:
            raise MasksMissing(
                f"this {type(self).__name__} reads true masks and was given images alone. Give masks=[...] too, or "
                "a dataset that has masks; or fit it with masks='found' or 'u2netp'."
            )
        return with_masks(view, prepared, made)

    def _logits(self, inputs: Tensor) -> Tensor:
        if inputs.shape[1] == 3:  # normalised images from someone who knows nothing of masks
            inputs = self._joined(self.preprocess_.denormalise(inputs))
        return super()._logits(inputs)

    def look(self, images: Images, method: str = "mask", masks: Sequence[Any] | Tensor | None = None) -> Gaze:
        """The mask on the patch grid: where the model was told to look."""
        joined = self._joined(images, masks)
        grid = MaskedViT(self.network_.backbone).grid(joined[:, :3])
        mask = early_mask(joined[:, 3], grid).unflatten(1, grid)
        return Gaze(mask.float(), kind=f"{self.place} mask", mask=mask)

    def stage_inputs(self, images: Images, masks: Sequence[Any] | Tensor | None = None) -> tuple[Tensor, Tensor]:
        """The normalised images ``[B, 3, h, w]`` and the patches to keep, ``[B, N]``: what :meth:`logits_with_mask`
        takes, so that the one can be changed and the other held."""
        joined = self._joined(images, masks)
        return joined[:, :3], self.network_.token_mask(joined[:, 3], joined.shape[-2:])

    def logits_with_mask(self, inputs: Tensor, token_mask: Tensor, prune: bool = False) -> Tensor:
        """Logits ``[B, C]`` under a mask that is given; differentiable in ``inputs``."""
        self._require_fit()
        return self.network_.to(inputs.device).eval().logits(inputs, token_mask, prune)

    # -- saving ---------------------------------------------------------------------------

    def _config(self) -> dict[str, Any]:
        return {**super()._config(), "saliency": None if self.saliency_ is None else self.saliency_.to_dict()}

    def _tensors(self) -> dict[str, Tensor]:
        saliency = {} if self.saliency_ is None else self.saliency_.tensors()
        return {**super()._tensors(), **{f"saliency.{k}": v for k, v in saliency.items()}}

    def _rebuilt(self, network: dict[str, Any]) -> MaskedNetwork:
        return MaskedNetwork.from_dict(network)

    def _restore(self, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        own = {k: v for k, v in tensors.items() if not k.startswith("saliency.")}
        super()._restore(config, own)
        if config["saliency"] is not None:
            theirs = {k.removeprefix("saliency."): v for k, v in tensors.items() if k not in own}
            self.saliency_ = SaliencyMasks.from_dict(config["saliency"], theirs)

    def graphs(self) -> GraphPlan:
        """The masks come from outside, so the graph takes them; saliency is not part of it."""
        self._require_fit()
        network: MaskedNetwork = self.network_.cpu().eval()
        masked = MaskedViT(network.backbone, network.head)
        height, width = self.preprocess_.size
        grid = masked.grid(torch.empty(1, 3, height, width))
        module = MaskedPath(masked) if network.place == "early" else LatePath(network)
        shapes: dict[str, tuple[int, ...]] = {"images": (3, height, width), "token_mask": (grid[0] * grid[1],)}
        graph = Graph("model", module.eval(), shapes, ("logits",), frozenset({"token_mask"}))
        return GraphPlan([graph], {"kind": "masks", "grid": list(grid)})


class LatePath(nn.Module):
    """A ViT whose features are masked at the end: ``(images, token_mask) -> logits``."""

    def __init__(self, network: MaskedNetwork):
        super().__init__()
        self.network = network

    def forward(self, images: Tensor, token_mask: Tensor) -> Tensor:
        return self.network.logits(images, token_mask)
