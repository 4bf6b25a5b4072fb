"""Early and late masks: what a ViT can do when it is told, from outside, where the object is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.data.dataset import GroupedDataset
from foveate.data.loading import Loader
from foveate.data.preprocess import as_images
from foveate.engine import History
from foveate.errors import FoveateError, ModelError
from foveate.extract import Backbone, BackboneSpec, MaskedViT, create_backbone, freeze
from foveate.extract.masked_vit import check_maskable
from foveate.look import Gaze
from foveate.measure import answered
from foveate.restrict import early_mask, late_mask
from foveate.systems.erm import ERM, stands_for_weights
from foveate.systems.mask_source import (
    MaskedFeed,
    MasksMissing,
    MaskSource,
    SaliencyMasks,
    as_bytes,
    masks_from,
    with_masks,
)
from foveate.systems.network import Network
from foveate.systems.system import Images, Needs

SOURCES = ("truth", "found", "u2netp")


class MaskedNetwork(Network):
    """A ViT under a mask from outside. Reads images with the mask as a fourth channel, ``[B, 4, h, w]``.

    Args:
        backbone: a ViT.
        classes: how many.
        place: ``"early"`` (hidden patches are not read, :class:`~foveate.extract.MaskedViT`) or ``"late"`` (the
            features of a full ViT are masked and averaged, :func:`~foveate.restrict.late_mask`).
    """

    forward_methods = ("embed", "logits")  # type: ignore[assignment]

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


class _Masked(ERM):
    """What early and late masks share: everything but the place of the mask."""

    place: ClassVar[str]
    network_: MaskedNetwork
    saliency_: SaliencyMasks | None = None

    def __init__(
        self,
        backbone: str = "micro-vit",
        *,
        masks: str | MaskSource = "truth",
        frozen: bool = False,
        saliency: str | None = None,
        **options: Any,
    ):
        super().__init__(backbone, **options)
        if not callable(masks) and masks not in (*SOURCES, "given"):
            raise FoveateError(f"unknown masks '{masks}'; use {', '.join(SOURCES)}, or a function of the images.")
        self.masks = masks
        self.frozen = frozen
        self.saliency = saliency

    def get_params(self) -> dict[str, Any]:
        # a function cannot be written to a file: a loaded model asks for it again
        return {**super().get_params(), "masks": "given" if callable(self.masks) else self.masks}

    def _train_labels(self) -> str:
        return self.needs.train if self.masks == "truth" else "labels"

    # -- fitting --------------------------------------------------------------------------

    def _new_network(self, train: GroupedDataset) -> Network:
        backbone = self._new_backbone(train)
        if self.masks in ("found", "u2netp"):
            kind, view = str(self.masks), self.preprocess_
            self.saliency_ = SaliencyMasks.open(kind, self.saliency, backbone, view, self._trained)
        if self.frozen:
            freeze(backbone)
        return MaskedNetwork(backbone, train.num_classes, self.place)

    @property
    def _trained(self) -> bool:
        """Whether the backbone starts from trained weights."""
        return bool(self.pretrained or self.weights or stands_for_weights(self.backbone, self.pretrained))

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
        batch_size: int = 128,
        workers: int = 0,
        on_bad: str = "raise",
        masks: Sequence[Tensor | NDArray[np.float32]] | Tensor | None = None,
    ) -> NDArray[np.float32]:
        """Logits ``[n, C]``; with ``masks="truth"`` a batch of images needs ``masks`` (one ``[H, W]`` an image)."""
        self._require_fit()
        if not isinstance(data, GroupedDataset):
            inputs = self._joined(data, masks)
            parts = [self._logits(inputs[i : i + batch_size]) for i in range(0, len(inputs), batch_size)]
            return answered(torch.cat(parts).float().cpu().numpy())
        logits = np.full((len(data), len(self.class_names_)), np.nan, dtype=np.float32)
        loader = Loader(data, self.preprocess_, workers=workers, on_bad=on_bad, cache_bytes=0)  # type: ignore[arg-type]
        for batch in MaskedFeed(loader, self._source(), cache_bytes=0).evaluate(batch_size):
            logits[batch.indices.numpy()] = answered(self._logits(batch.inputs).float().cpu().numpy())
        return logits

    def _joined(self, images: Images, masks: Sequence[Any] | Tensor | None = None) -> Tensor:
        """Images and their masks (given, or made) as the network reads them, ``[B, 4, h, w]``."""
        self._require_fit()
        view = self.preprocess_
        prepared = torch.stack([view.prepare(i) for i in as_images(images)])
        source = self._source() if masks is None else None
        if masks is not None:
            if len(masks) != len(prepared):
                raise MasksMissing(f"expected one mask an image, {len(prepared)}; got {len(masks)}.")
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

    def _restore(self, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        own = {k: v for k, v in tensors.items() if not k.startswith("saliency.")}
        self.network_ = MaskedNetwork.from_dict(config["network"])
        self.network_.load_state_dict(own)
        self.network_.eval()
        self.history_ = History(**config["history"])
        if config["saliency"] is not None:
            theirs = {k.removeprefix("saliency."): v for k, v in tensors.items() if k not in own}
            self.saliency_ = SaliencyMasks.from_dict(config["saliency"], theirs)


class EarlyMask(_Masked):
    """A ViT that reads only the patches a given mask keeps: what a mask from outside can give at best.

    In every block only the kept patches can be read, so nothing else reaches the prediction
    (``foveate verify``). A patch is kept when the pixel at its centre is in the mask (nearest-exact).

    Args:
        backbone: a ViT, by name; see :class:`~foveate.systems.ERM`.
        masks: ``"truth"`` (the dataset's, in training and in prediction), ``"found"`` (saliency from the features of
            a ViT), ``"u2netp"`` (a small saliency network), or a function
            ``uint8 [B, 3, h, w] -> [B, h, w]`` in ``[0, 1]``, which is not saved with the model.
        frozen: train only the head.
        saliency: for ``"found"``: the ViT whose features are read, by name; by default the backbone as it starts.
        options: those of :class:`~foveate.systems.ERM`. To fine-tune as the paper does, ``lr=1e-2`` for the head and
            ``backbone_scale=1e-4``, ``optimizer="adamw"``, ``clip=2``.

    Reference: the mask baselines of arXiv 2506.08915.

    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=32)
    >>> small = {"depth": 2, "embed_dim": 24}
    >>> early = EarlyMask("micro_vit", model_args=small, epochs=1, progress=False).fit(data.train)
    >>> early.predict(data.test).shape, print(early.supervision())
    train: labels, masks (to predict, too)
    ((16,), None)
    """

    needs: ClassVar[Needs] = Needs(train="labels, masks (to predict, too)")
    place: ClassVar[str] = "early"


class LateMask(_Masked):
    """A full ViT whose last features are averaged inside a given mask: its patches have read all others by then.

    The mean is over all patches (the hidden ones count as zero), as in the paper. The baseline that shows why a mask
    must come early.

    Args:
        backbone, masks, frozen, saliency, options: those of :class:`EarlyMask`.

    Reference: the mask baselines of arXiv 2506.08915.

    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=32)
    >>> late = LateMask("micro_vit", model_args={"depth": 2, "embed_dim": 24}, epochs=1, progress=False)
    >>> late.fit(data.train).predict(data.test).shape
    (16,)
    """

    needs: ClassVar[Needs] = Needs(train="labels, masks (to predict, too)")
    place: ClassVar[str] = "late"
