"""What PDiscoFormer and iFAM share as systems: fitting, part maps, interventions, saving."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import asdict, field, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from foveate.assemble.graphs import Graph, GraphPlan, MaskedPath
from foveate.assemble.parts_network import Intervention, PartsNetwork
from foveate.assemble.system import Callbacks, Images
from foveate.assemble.trained import Trained
from foveate.data.dataset import GroupedDataset
from foveate.data.loading import Batch, Loader
from foveate.decide.part_losses import PartLossWeights
from foveate.engine import Objective, TrainSettings, default_device
from foveate.errors import FoveateError, ModelError, suggest
from foveate.extract import Backbone
from foveate.look import Gaze
from foveate.parameters import configured
from foveate.restrict import TokenThresholds, calibrate_tokens
from foveate.restrict.removal import MEASURES, Measure, check_parts

if TYPE_CHECKING:
    from typing_extensions import Self

START_IMAGES = 256


@configured
class Parted(Trained):
    """A system built on part discovery: :class:`~foveate.systems.PDiscoFormer`, :class:`~foveate.systems.IFAM`.

    Args:
        backbone: the ViT of stage 1: a timm name (from scratch, or ``pretrained=True``), or the name of a model
            with weights of its own (``"micro-vit"``, ``"vit-s-focus"``).
        parts: number of foreground parts K.
        loss_weights: how much losses count, by the names of :class:`~foveate.decide.PartLossWeights`; those not
            named keep the papers' weight.
        shaping: use the losses that shape part maps; without them only the classes are learned.
        stage1_classify: train the classifier on the part vectors.
        tune: what of stage 1's ViT is trained: ``"tokens"`` (CLS, registers and position embedding, as in the
            papers), ``"last-blocks"`` (those and its last two blocks), ``"all"`` or ``"none"``; by default tokens for
            a model with weights, all from scratch.
        part_dropout: chance that a part is dropped in training.
        temperature: of the softmax over parts.
        gumbel: Gumbel noise on the part assignments in training.
        start: where the prototypes start (:func:`~foveate.look.part_start.split_tokens`): ``"attention"`` on
            the patch tokens that the CLS token looks at, ``"tokens"`` on those least like the image's border,
            ``"random"`` anywhere; by default attention for a model with weights, tokens from scratch.
        prototype_rate, head_rate: learning rates of the prototypes, and of modulation and classifiers, as
            multiples of ``lr``. The papers' settings for a pretrained ViT-B are in ``PAPER``.
        transposed_orthogonality: decorrelate channels instead of parts, as the released iFAM trainer does.
        noise_at_eval: keep the Gumbel noise at evaluation, as the released code does; predictions then vary.
        token_measure: what token removal thresholds: ``"centre"``, the distance of a token to the mean training token
            of its part; ``"distance"``, to the prototype (paper); ``"dot"``, the product with the prototype
            (released code). A prototype that marks a boundary is far from all tokens, and far from it says little.
        released: transposed orthogonality, noise, the dot product and a boolean mask, all at once.
        pretrained …: and all other arguments of :class:`~foveate.assemble.trained.Trained`.
    """

    PAPER: ClassVar[dict[str, Any]] = {
        "lr": 1e-6, "prototype_rate": 1e3, "head_rate": 1e4, "epochs": 90, "batch_size": 128, "reference_batch": 16,
    }  # fmt: skip
    backbone: str = field(default="micro_vit", kw_only=False)
    parts: int = 4
    loss_weights: dict[str, float] | None = None
    shaping: bool = True
    stage1_classify: bool = True
    tune: str | None = None
    part_dropout: float = 0.3
    temperature: float = 1.0
    gumbel: bool = True
    start: str | None = None
    prototype_rate: float = 10.0
    head_rate: float = 10.0
    transposed_orthogonality: bool = False
    noise_at_eval: bool = False
    token_measure: Measure = "centre"
    released: bool = False
    dropped_parts_: tuple[int, ...] | None = field(default=None, init=False)
    token_thresholds_: TokenThresholds | None = field(default=None, init=False)

    def usual_training(self) -> TrainSettings:
        return TrainSettings(
            epochs=20, lr=3e-4, optimizer="adamw", weight_decay=0.05, normalise_decay=True, clip=2.0
        )  # fmt: skip

    def check(self) -> None:
        super().check()
        if self.start not in (None, "attention", "tokens", "random") or self.token_measure not in MEASURES:
            raise ModelError(
                f"start is 'attention', 'tokens' or 'random', token_measure one of {', '.join(MEASURES)}; got "
                f"'{self.start}', '{self.token_measure}'."
            )
        if self.backbone_scale != 1:
            raise FoveateError("backbone_scale has no place here: set lr, and prototype_rate and head_rate beside it.")
        if self.unfreeze != "all":
            raise FoveateError("unfreeze has no place here: tune says what of stage 1's ViT is trained.")
        self._loss_weights()

    # -- fitting --------------------------------------------------------------------------

    def fit(
        self,
        train: GroupedDataset,
        target: GroupedDataset | None = None,
        val: GroupedDataset | None = None,
        *,
        callbacks: Callbacks = (),
    ) -> Self:
        """Train on ``train`` (joined with ``target`` when given); ``val`` chooses the epoch."""
        self.dropped_parts_ = self.token_thresholds_ = None
        super().fit(train, target, val, callbacks=callbacks)
        network = self.network_.cpu().eval()
        network.discovery.centre_on(network.selector.maps(x) for x in self._in_order(train))
        return self

    def _in_order(self, images: GroupedDataset) -> Iterator[Tensor]:
        """The normalised inputs of a dataset, in batches and as they are."""
        loader = Loader(images, self.preprocess_, workers=self.workers, on_bad=self.on_bad, cache_bytes=0)
        for batch in loader.in_order(128):
            yield self.preprocess_.normalise(batch.inputs)

    def _network(self, train: GroupedDataset) -> PartsNetwork:
        network = self._parts_network(self._new_backbone(train), train)
        start = self.start or ("attention" if self.starts_trained else "tokens")
        if start != "random":
            loader = Loader(train, self.preprocess_, on_bad=self.on_bad, cache_bytes=0)
            order = np.random.default_rng(self.training.seed).permutation(len(train))[:START_IMAGES]
            batches = loader([order[i : i + 64] for i in range(0, len(order), 64)])
            inputs = (self.preprocess_.normalise(b.inputs) for b in batches)
            network.start_prototypes(inputs, self.training.seed, attention=start == "attention")
        return network

    def _parts_network(self, selector: Backbone, train: GroupedDataset) -> PartsNetwork:
        return PartsNetwork(selector, train.num_classes, **self._network_options())

    def _network_options(self) -> dict[str, Any]:
        return {
            "parts": self.parts, "tune": self.tune or ("tokens" if self.starts_trained else "all"),
            "part_dropout": self.part_dropout, "temperature": self.temperature, "gumbel": self.gumbel,
            "noise_at_eval": self.noise_at_eval or self.released, "prototype_rate": self.prototype_rate,
            "head_rate": self.head_rate,
        }  # fmt: skip

    def _loss_weights(self) -> PartLossWeights:
        known, given = asdict(PartLossWeights()), self.loss_weights or {}
        for name in given:
            if name not in known:
                raise ModelError(f"there is no loss '{name}'.{suggest(name, list(known))} Known: {', '.join(known)}.")
        if not self.shaping:
            known = {name: value if name == "classification" else 0.0 for name, value in known.items()}
        weights = PartLossWeights(**{**known, **given})
        return weights if self.stage1_classify else replace(weights, classification=0.0)

    def _objective(self, train: GroupedDataset) -> Objective:
        weights, transposed = self._loss_weights(), self.transposed_orthogonality or self.released

        def loss(model: Any, batch: Batch) -> Tensor:
            return model.loss(batch.inputs, batch.labels, weights, transposed)

        return loss

    def _groups(self, network: nn.Module) -> list[dict[str, Any]]:
        assert isinstance(network, PartsNetwork)
        return network.parameter_groups(self.training.weight_decay)

    # -- looking and predicting -----------------------------------------------------------

    @property
    def intervention(self) -> Intervention:
        """What is taken out of the part maps before a prediction."""
        return Intervention(self.dropped_parts_ or (), self.token_thresholds_, self.released)

    @torch.no_grad()
    def _logits(self, inputs: Tensor) -> Tensor:
        device = default_device(self.training.accelerator)
        return self.network_.to(device).eval()(inputs.to(device), self.intervention, prune=self._prunes)

    @property
    def _prunes(self) -> bool:
        return False

    @torch.no_grad()
    def look(self, images: Images, method: str = "parts") -> Gaze:
        """The part maps (background last), the foreground as map, and the selected patches as mask."""
        if method != "parts":
            raise ModelError(f"{type(self).__name__} shows its parts; there is no '{method}' of it.")
        inputs = self.inputs(images)
        self.network_.cpu().eval()
        return self.network_.parts(inputs, self.intervention)[1].gaze()

    def part_maps(self, images: Images) -> Tensor:
        """Soft part maps ``[B, K + 1, h, w]`` after interventions, background last."""
        maps = self.look(images).parts
        assert maps is not None
        return maps

    @torch.no_grad()
    def stage_inputs(self, images: Images) -> tuple[Tensor, Tensor]:
        """The normalised inputs ``[B, 3, H, W]`` and the token mask ``[B, N]`` that stage 1 makes of them, after
        interventions: boolean, or soft where the model uses a soft mask."""
        inputs = self.inputs(images)
        self.network_.cpu().eval()
        mask = self.network_.token_mask(self.network_.parts(inputs, self.intervention)[1].maps)
        return inputs, mask if self.network_.mask == "soft" else mask > 0.5

    def logits_with_mask(self, inputs: Tensor, token_mask: Tensor, prune: bool = False) -> Tensor:
        """Logits of normalised ``inputs`` with the token mask held fixed; gradients reach the inputs."""
        self._require_fit()
        network = self.network_.to(inputs.device).eval()
        if network.stage2 is not None:
            return network.masked_logits(inputs, token_mask, prune)
        return network.late_logits(inputs, token_mask)

    # -- interventions --------------------------------------------------------------------

    @property
    def measure(self) -> Measure:
        """What token removal thresholds in this model."""
        return "dot" if self.released else self.token_measure

    def with_parts_removed(self, parts: Iterable[int]) -> Self:
        """The same model (weights shared) that treats ``parts`` as background; an empty list removes none."""
        self._require_fit()
        changed = copy.copy(self)
        changed.dropped_parts_ = check_parts(parts, self.parts) or None
        return changed

    def with_thresholds(self, thresholds: TokenThresholds | None) -> Self:
        """The same model (weights shared) with these thresholds for its tokens, or none."""
        self._require_fit()
        if thresholds is not None and len(thresholds.values) != self.parts:
            raise ModelError(
                f"these thresholds were calibrated for {len(thresholds.values)} parts and the model has {self.parts}. "
                "Calibrate them on this model's training images."
            )
        changed = copy.copy(self)
        changed.token_thresholds_ = thresholds
        return changed

    @torch.no_grad()
    def calibrate(self, train: GroupedDataset, q: float = 0.99) -> Self:
        """Set ``token_thresholds_`` from the training images: the share ``q`` of each part's tokens lies within."""
        self._require_fit()
        network = self.network_.cpu().eval()
        scores, assigned = [], []
        for inputs in self._in_order(train):
            features, output = network.parts(inputs)
            values = network.token_scores(features, output, self.measure)
            foreground = output.assignments < self.parts
            scores.append(values.movedim(1, -1)[foreground])
            assigned.append(output.assignments[foreground])
        found = calibrate_tokens(torch.cat(scores), torch.cat(assigned), q, self.measure)
        self.token_thresholds_ = found
        return self

    # -- saving ---------------------------------------------------------------------------

    def _config(self) -> dict[str, Any]:
        return {
            **super()._config(),
            "dropped_parts": self.dropped_parts_,
            "token_thresholds": None if self.token_thresholds_ is None else self.token_thresholds_.to_dict(),
        }

    def _rebuilt(self, network: dict[str, Any]) -> PartsNetwork:
        return PartsNetwork.from_dict(network)

    def _restore(self, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        # models saved before parts had centres measured tokens from their prototypes
        super()._restore(config, {"discovery.centres": tensors["discovery.prototypes"], **tensors})
        dropped, thresholds = config["dropped_parts"], config["token_thresholds"]
        self.dropped_parts_ = None if dropped is None else check_parts(dropped, self.parts)
        self.token_thresholds_ = None if thresholds is None else TokenThresholds.from_dict(thresholds)

    def graphs(self) -> GraphPlan:
        """One graph, interventions included: ``images -> (logits, token_mask)``."""
        self._require_fit()
        network: PartsNetwork = self.network_.cpu().eval()
        if network.mask == "soft" and network.stage2 is not None:
            raise ModelError("a soft mask hides nothing and is an ablation; only hard masks are exported.")
        path = PartsPath(network, self.intervention).eval()
        return GraphPlan([Graph("model", path, {"images": (3, *self.preprocess_.size)}, ("logits", "token_mask"))])


class PartsPath(nn.Module):
    """iFAM or PDiscoFormer as one graph, interventions included: ``images -> (logits, token_mask)``.

    Stage 2 is the dense masked path: the same logits as the pruned one up to rounding, and a fixed amount of work.
    """

    def __init__(self, network: PartsNetwork, change: Intervention):
        super().__init__()
        self.network, self.change = network, change
        self.second = None if network.stage2 is None else MaskedPath(network.stage2)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        _, output = self.network.parts(images, self.change)
        mask = self.network.token_mask(output.maps) > 0.5
        if self.second is None:
            return output.logits, mask
        moved = images * self.network._scale + self.network._shift
        return self.second(moved, mask), mask
