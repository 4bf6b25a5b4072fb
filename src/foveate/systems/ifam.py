"""iFAM: a classifier that cannot see what it did not select."""

from __future__ import annotations

import copy
from typing import Any, ClassVar

from foveate.assemble.needs import Needs
from foveate.assemble.parted import Parted
from foveate.assemble.parts_network import MASKS, Mask, PartsNetwork
from foveate.assemble.trained import Trained
from foveate.data.dataset import GroupedDataset
from foveate.engine import TrainSettings
from foveate.errors import ModelError
from foveate.extract import Backbone
from foveate.parameters import configured


@configured
class IFAM(Parted):
    """Discover parts with one ViT, predict with a second one that may attend to nothing else.

    Stage 1 sorts the patches of the first ViT into K parts and background, from class labels alone (PDiscoFormer).
    Stage 2 is a second ViT whose attention is masked, in every block, to the patches that went to a part: with the
    mask given, pixels outside it cannot change the prediction (``foveate verify``). Both are trained together; the
    class comes from stage 2's CLS token only. Reference: "Inherently Faithful Attention Maps" and "Two-stage Vision
    Transformers and Hard Masking" (arXiv 2506.08915).

    Args:
        backbone: the ViT of stage 1, see :class:`~foveate.assemble.parted.Parted`.
        predictor: the ViT of stage 2; None takes the same architecture and start as stage 1, in a copy. It may be
            larger: a small selector and a large pruned predictor cost less than two dense large ViTs.
        predictor_args: further timm arguments for ``predictor``.
        mask: ``"straight-through"`` (hard; stage 2's loss reaches stage 1), ``"boolean"`` (hard, no gradient: what
            the released code does) or ``"soft"`` (an ablation that hides nothing).
        second_stage: without it this is PDiscoFormer (an ablation).
        freeze_predictor: train only stage 2's head (an ablation).
        prune: compute only the selected patches when predicting; the result is that of the masked pass.
        parts …: and all other arguments of :class:`~foveate.assemble.parted.Parted`: ``shaping``,
            ``stage1_classify``, ``part_dropout``, ``released`` …

    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, val=16, test=16, target=16, size=32)
    >>> small = {"embed_dim": 24, "depth": 2, "num_heads": 2, "patch_size": 4}
    >>> model = fv.IFAM("micro_vit", parts=3, model_args=small, epochs=1, progress=False).fit(data.train)
    >>> inputs, mask = model.stage_inputs([data.test[0].image])  # which of the 8 x 8 patches stage 2 sees
    >>> mask.shape, model.logits_with_mask(inputs, mask).shape
    (torch.Size([1, 64]), torch.Size([1, 2]))
    """

    needs: ClassVar[Needs] = Needs(train="labels")
    predictor: str | None = None
    predictor_args: dict[str, Any] | None = None
    mask: Mask = "straight-through"
    second_stage: bool = True
    freeze_predictor: bool = False
    prune: bool = True

    def check(self) -> None:
        super().check()
        if self.mask not in MASKS:
            raise ModelError(f"unknown mask '{self.mask}'; use one of {', '.join(MASKS)}.")

    def _parts_network(self, selector: Backbone, train: GroupedDataset) -> PartsNetwork:
        predictor, renormalise = None, None
        if self.second_stage and self.predictor is None:
            predictor = copy.deepcopy(selector)
        elif self.second_stage:
            predictor, renormalise = self._other_predictor(train)
        return PartsNetwork(
            selector, train.num_classes, predictor=predictor, renormalise=renormalise,
            mask="boolean" if self.released else self.mask, freeze_predictor=self.freeze_predictor,
            **self._network_options(),
        )  # fmt: skip

    def _other_predictor(self, train: GroupedDataset) -> tuple[Backbone, tuple[list[float], list[float]]]:
        """A predictor of its own kind at the same image size, and how to turn the selector's inputs into its own."""
        assert self.predictor is not None
        plain = Trained(
            self.predictor, image_size=self.preprocess_.size, pretrained=self.pretrained,
            model_args=self.predictor_args, training=TrainSettings(seed=self.training.seed),
        )  # fmt: skip
        backbone = plain._new_backbone(train)
        mine, its = self.preprocess_, plain.preprocess_
        scale = [a / b for a, b in zip(mine.std, its.std, strict=True)]
        shift = [(m - n) / b for m, n, b in zip(mine.mean, its.mean, its.std, strict=True)]
        return backbone, (scale, shift)

    @property
    def _prunes(self) -> bool:
        return self.prune
