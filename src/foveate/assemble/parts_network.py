"""The network of PDiscoFormer and iFAM: a ViT whose patches are sorted into parts, and a second one that sees them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveate.decide.part_losses import PartLossWeights, part_losses, weighted_sum
from foveate.errors import ModelError
from foveate.extract import Backbone, BackboneSpec, MaskedViT, create_backbone
from foveate.look import AffineWarp, PartDiscovery, PartOutput, cls_attention
from foveate.look.part_start import split_tokens
from foveate.look.parts import prototype_distances
from foveate.restrict import TokenThresholds, early_mask, remove_parts, remove_tokens
from foveate.restrict.removal import Measure, to_background

Mask = Literal["straight-through", "boolean", "soft"]
MASKS: tuple[Mask, ...] = ("straight-through", "boolean", "soft")
TUNE = ("tokens", "last-blocks", "all", "none")
LAST_BLOCKS = 2
"""How many blocks of stage 1 ``tune="last-blocks"`` trains beside its tokens."""
TOKENS = ("cls_token", "reg_token", "pos_embed")
ATTENDED = 0.3
"""Share of the attention that surely lies on the object, when prototypes start from it."""
NO_DECAY = (*TOKENS, "prototypes", "modulation")


@dataclass(frozen=True)
class Intervention:
    """What is taken out of the part maps at test time: whole parts, and tokens too unlike their part.

    ``released`` makes token removal do as the released code does (see :func:`foveate.restrict.remove_tokens`).
    """

    parts: tuple[int, ...] = ()
    thresholds: TokenThresholds | None = None
    released: bool = False

    def apply(self, maps: Tensor, scores: Tensor | None) -> Tensor:
        """Part maps ``[B, K + 1, h, w]`` with it taken out; ``scores`` (the same shape) are what thresholds read."""
        if self.thresholds is not None:
            assert scores is not None
            by_dot = self.thresholds.measure == "dot"
            maps = remove_tokens(maps, scores, self.thresholds, released=self.released and by_dot)
        return remove_parts(maps, self.parts)


NOTHING = Intervention()


class PartsNetwork(nn.Module):
    """Stage 1: a ViT and part discovery on its patches. Stage 2, when there is a ``predictor``: a masked ViT.

    In stage 2 the predictor's blocks read only the patches that stage 1 gave to a part, and its CLS token is
    classified by a layer norm and a linear layer without bias. Without a predictor the class comes from the part
    vectors of stage 1, which is PDiscoFormer: a late mask, since every patch has read the whole image before.

    Args:
        selector: the ViT of stage 1.
        classes: number of classes.
        parts: number of foreground parts K.
        predictor: the ViT of stage 2, or None. It may have another size and patch.
        mask: how the mask enters stage 2 in training: ``"straight-through"`` (hard, with a gradient into stage 1),
            ``"boolean"`` (hard, without; the released code), ``"soft"`` (an ablation that hides nothing).
        tune: what of the selector is trained: ``"tokens"`` (CLS, registers and position embedding, as in the
            papers), ``"last-blocks"`` (those, the last two blocks and the norm behind them), ``"all"`` or ``"none"``.
        freeze_predictor: train only the new head of stage 2.
        part_dropout: chance that a part is hidden from stage 2, and a part vector from stage 1, in training.
        temperature, gumbel, noise_at_eval: see :class:`~foveate.look.PartDiscovery`.
        prototype_rate, head_rate: learning rates of the prototypes, and of modulation and classifiers, as
            multiples of the backbones' rate.
        renormalise: ``(scale, shift)`` for each channel that turn the selector's inputs into the predictor's.

    >>> vit = {"image_size": (16, 16), "patch_size": 4, "embed_dim": 12, "depth": 1, "num_heads": 2}
    >>> selector, predictor = (create_backbone("micro_vit", **vit) for _ in range(2))
    >>> net = PartsNetwork(selector, classes=3, parts=2, predictor=predictor)
    >>> net.eval()(torch.rand(5, 3, 16, 16)).shape
    torch.Size([5, 3])
    """

    forward_methods = ("loss",)
    _scale: Tensor
    _shift: Tensor

    def __init__(
        self,
        selector: Backbone,
        classes: int,
        *,
        parts: int = 4,
        predictor: Backbone | None = None,
        mask: Mask = "straight-through",
        tune: str = "tokens",
        freeze_predictor: bool = False,
        part_dropout: float = 0.3,
        temperature: float = 1.0,
        gumbel: bool = True,
        noise_at_eval: bool = False,
        prototype_rate: float = 1.0,
        head_rate: float = 1.0,
        renormalise: tuple[list[float], list[float]] | None = None,
    ):
        super().__init__()
        if mask not in MASKS or tune not in TUNE:
            raise ModelError(
                f"mask is one of {', '.join(MASKS)} and tune one of {', '.join(TUNE)}; got {mask}, {tune}."
            )
        check_vit(selector)
        grid = patch_grid(selector)
        if parts > grid[0] * grid[1]:
            raise ModelError(
                f"{parts} parts cannot be told apart on a map of {grid[0]}x{grid[1]} patches. Use fewer parts or "
                "larger images."
            )
        self.recipe: dict[str, Any] = {
            "classes": classes, "parts": parts, "mask": mask, "tune": tune, "freeze_predictor": freeze_predictor,
            "part_dropout": part_dropout, "temperature": temperature, "gumbel": gumbel,
            "noise_at_eval": noise_at_eval, "prototype_rate": prototype_rate, "head_rate": head_rate,
            "renormalise": renormalise,
        }  # fmt: skip
        self.selector = selector
        self.discovery = PartDiscovery(
            selector.map_dim, parts, classes, temperature=temperature, gumbel=gumbel, noise_at_eval=noise_at_eval,
            dropout=part_dropout,
        )  # fmt: skip
        self.mask: Mask = mask
        self.part_dropout = part_dropout
        self.predictor_spec = None if predictor is None else predictor.spec
        self.stage2: MaskedViT | None = None
        if predictor is not None:
            check_vit(predictor)
            patch_grid(predictor)
            head = nn.Sequential(nn.LayerNorm(predictor.dim), nn.Linear(predictor.dim, classes, bias=False))
            self.stage2 = MaskedViT(predictor, head)
            if freeze_predictor:
                self.stage2.vit.requires_grad_(False)
        tuned = tuned_names(selector.net, tune)
        for name, parameter in selector.net.named_parameters():
            parameter.requires_grad_(name in tuned)
        scale, shift = renormalise or ([1.0] * 3, [0.0] * 3)
        self.register_buffer("_scale", torch.tensor(scale).view(1, -1, 1, 1), persistent=False)
        self.register_buffer("_shift", torch.tensor(shift).view(1, -1, 1, 1), persistent=False)

    # -- building again -------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """How to build an untrained network of the same architecture."""
        second = None if self.predictor_spec is None else self.predictor_spec.to_dict()
        return {"selector": self.selector.spec.to_dict(), "predictor": second, **self.recipe}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> PartsNetwork:
        """An untrained network from :meth:`to_dict`."""
        rest = {k: v for k, v in values.items() if k not in ("selector", "predictor", "classes")}
        second = values["predictor"]
        return cls(
            create_backbone(BackboneSpec.from_dict(values["selector"])),
            values["classes"],
            predictor=None if second is None else create_backbone(BackboneSpec.from_dict(second)),
            **rest,
        )

    @property
    def backbone(self) -> Backbone:
        """Not there: a method that adapts the head of one frozen backbone cannot start from this network."""
        raise ModelError(
            "a part network has no single backbone whose pooled features a new head could read; start DFR, DAR or an "
            "entanglement measurement from an ERM model."
        )

    # -- the two stages -------------------------------------------------------------------

    def discover(self, x: Tensor) -> PartOutput:
        """Stage 1 for normalised images ``x [B, 3, H, W]``."""
        return self.discovery(self.selector.maps(x))

    def stage_two(self, x: Tensor, maps: Tensor, prune: bool = False) -> Tensor:
        """Stage 2 logits from part maps ``[B, K + 1, h, w]``; part dropout in training."""
        mask = self.token_mask(maps, self.part_dropout if self.training else 0.0)
        # no gradient asks for the hidden patches under a boolean mask, so training need not compute them either
        return self.masked_logits(x, mask, prune or (self.training and self.mask == "boolean"))

    def token_mask(self, maps: Tensor, dropout: float = 0.0) -> Tensor:
        """Which patches of stage 2 are visible, ``[B, N]``: hard (with the maps' gradient, or boolean) or soft."""
        grid = None if self.stage2 is None else patch_grid_of(self.stage2)
        mask = early_mask(maps, grid, dropout=dropout, soft=self.mask == "soft")
        return mask.detach() > 0.5 if self.mask == "boolean" else mask

    def masked_logits(self, x: Tensor, mask: Tensor, prune: bool = False) -> Tensor:
        """Stage 2 logits under a given token mask ``[B, N]``."""
        if self.stage2 is None:
            raise ModelError("this network has no second stage, so there is nothing behind a token mask.")
        return self.stage2(x * self._scale + self._shift, mask, prune=prune and self.mask != "soft",
                           soft=self.mask == "soft")  # fmt: skip

    def parts(self, x: Tensor, change: Intervention = NOTHING) -> tuple[Tensor, PartOutput]:
        """Features ``[B, D, h, w]`` and what part discovery says of them, after an intervention."""
        features = self.selector.maps(x)
        output = self.discovery(features)
        limits = change.thresholds
        scores = None if limits is None else self.token_scores(features, output, limits.measure)
        maps = change.apply(output.maps, scores)
        return features, output if maps is output.maps else self.discovery.classify(features, maps, output.distances)

    def token_scores(self, features: Tensor, output: PartOutput, measure: Measure) -> Tensor:
        """What token removal thresholds, ``[B, K + 1, h, w]``; see :class:`~foveate.restrict.TokenThresholds`."""
        if measure == "distance":
            return output.distances
        if measure == "dot":
            return self.discovery.dot_products(features)
        return prototype_distances(features, self.discovery.centres)

    def forward(self, x: Tensor, change: Intervention = NOTHING, prune: bool = False) -> Tensor:
        """Logits ``[B, classes]``: of stage 2 where there is one, otherwise of the part vectors."""
        _, output = self.parts(x, change)
        return output.logits if self.stage2 is None else self.stage_two(x, self.seen_maps(output, change), prune)

    def seen_maps(self, output: PartOutput, change: Intervention) -> Tensor:
        """The part maps ``[B, K + 1, h, w]`` that stage 2 is masked with.

        With noise at evaluation stage 2 gets a draw of its own, as in the released code; where an intervention changed
        the maps, it gets those (there, too).
        """
        changed = change.parts or change.thresholds is not None
        if self.discovery.noise_at_eval and not self.training and not changed:
            return self.discovery.sample(output.distances)
        return output.maps

    def late_logits(self, x: Tensor, mask: Tensor) -> Tensor:
        """Stage 1 logits with every patch outside ``mask [B, N]`` given to the background: a late mask."""
        features, output = self.parts(x)
        where = ~mask.view(len(x), *features.shape[-2:]).bool()
        return self.discovery.classify(features, to_background(output.maps, where), output.distances).logits

    # -- training -------------------------------------------------------------------------

    def loss(
        self, x: Tensor, labels: Tensor, weights: PartLossWeights, transposed_orthogonality: bool = False
    ) -> Tensor:
        """What is minimised: the weighted part losses of stage 1 and the cross-entropy of stage 2.

        Stage 2 draws its own Gumbel sample. Equivariance runs stage 1 once more, on the warped batch.
        """
        output = self.discover(x)
        unwarped = None
        if weights.equivariance:
            warp = AffineWarp.random()
            unwarped = warp.inverse(self.discover(warp(x)).maps)
        losses = part_losses(output, labels, unwarped, transposed_orthogonality=transposed_orthogonality)
        total = weighted_sum(losses, weights).to(x.device)
        if self.stage2 is not None:
            total = total + F.cross_entropy(self.stage_two(x, self.discovery.sample(output.distances)), labels)
        return total

    def parameter_groups(self, weight_decay: float) -> list[dict[str, Any]]:
        """The papers' groups: backbones at the rate itself, prototypes and heads at multiples of it. Vectors,
        tokens, position embeddings, prototypes and the modulation are not decayed."""
        found: dict[tuple[float, bool], list[nn.Parameter]] = {}
        for name, parameter in self.named_parameters():
            if not parameter.requires_grad:
                continue
            scale = 1.0
            if name.startswith("discovery.prototypes"):
                scale = self.recipe["prototype_rate"]
            elif name.startswith(("discovery.", "stage2.head.")):
                scale = self.recipe["head_rate"]
            decayed = parameter.ndim > 1 and not any(part in name for part in NO_DECAY)
            found.setdefault((scale, decayed), []).append(parameter)
        return [
            {"params": parameters, "lr_scale": scale, "weight_decay": weight_decay if decayed else 0.0}
            for (scale, decayed), parameters in found.items()
        ]

    @torch.no_grad()
    def start_prototypes(self, batches: Iterable[Tensor], seed: int = 0, attention: bool = False) -> None:
        """Put the prototypes on clusters of patch tokens of ``batches`` of normalised images; the same seed gives
        the same prototypes.

        Random prototypes are all far from every token, so one of them takes all tokens and the others never get a
        gradient; see :func:`~foveate.look.part_start.split_tokens` for where they start instead. With ``attention``
        the foreground is where the selector's CLS token looks, which only means something in a pretrained ViT.
        """
        was = self.training
        self.eval()
        maps, scores = [], []
        for inputs in batches:
            if attention:  # one pass gives both where the CLS token looks and the patch tokens
                gaze = cls_attention(self.selector.net, inputs, return_features=True)
                scores.append(gaze.map.cpu())
                maps.append(self.selector.as_grid(gaze.scores["features"], inputs.shape[-2:]).cpu().float())
            else:
                maps.append(self.selector.maps(inputs).cpu().float())
        self.train(was)
        how: dict[str, Any] = {"scores": torch.cat(scores), "share": ATTENDED} if attention else {}
        parts, background = split_tokens(torch.cat(maps), self.discovery.parts, seed, **how)
        self.discovery.prototypes.copy_(torch.cat([parts, background[None]]))


def tuned_names(net: nn.Module, tune: str) -> set[str]:
    """The parameters of stage 1's ViT that ``tune`` trains."""
    names = {name for name, _ in net.named_parameters()}
    if tune in ("all", "none"):
        return names if tune == "all" else set()
    found = names & {*TOKENS}
    if tune == "last-blocks":
        blocks: Any = net.blocks
        last = tuple(f"blocks.{i}." for i in range(max(len(blocks) - LAST_BLOCKS, 0), len(blocks)))
        found |= {name for name in names if name.startswith((*last, "norm."))}
    return found


def check_vit(backbone: Backbone) -> None:
    """Raise unless part discovery can read the patch tokens of ``backbone``."""
    if not backbone.is_vit:
        raise ModelError(
            f"part discovery reads the patch tokens of a ViT, and '{backbone.spec.name}' is a CNN. Use a ViT, for "
            "instance 'micro_vit' or 'vit_small_patch16_224'."
        )


def patch_grid(backbone: Backbone) -> tuple[int, int]:
    """Rows and columns of patches of a ViT at the image size it was built for."""
    stem: Any = backbone.net.patch_embed
    height, width = backbone.spec.image_size or stem.img_size
    patch_h, patch_w = stem.patch_size
    if height % patch_h or width % patch_w:
        raise ModelError(
            f"the images are {height}x{width} px, which the patch size {patch_h}x{patch_w} of '{backbone.spec.name}' "
            f"does not divide. Choose image_size={max(round(height / patch_h), 1) * patch_h}, for instance."
        )
    return height // patch_h, width // patch_w


def patch_grid_of(masked: MaskedViT) -> tuple[int, int] | None:
    """The grid a masked ViT was built for; None when it takes any size."""
    grid: Any = getattr(masked.vit.patch_embed, "grid_size", None)
    return None if grid is None else (int(grid[0]), int(grid[1]))
