"""Attentive probes: a frozen ViT, a small learned attention over its patches, a linear layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import nn

from foveate.data.dataset import GroupedDataset
from foveate.engine import Callback, seed_everything
from foveate.engine import train as run_training
from foveate.extract import Backbone, freeze
from foveate.look import Gaze
from foveate.systems.network import Network
from foveate.systems.posthoc import PostHoc
from foveate.systems.system import Images, Needs, System, aligned, training_set

if TYPE_CHECKING:
    from typing_extensions import Self


class AttentiveProbe(PostHoc):
    """What the probes share: patch features computed once, pool and head trained on them with cross-entropy.

    Args:
        backbone: name of a model with its weights, see :func:`foveate.extract.open_backbone`.
        base: a fitted system whose backbone is probed instead.
        image_size: side, or ``(height, width)``, the backbone is to see; by default what its weights were made with.
        options: ``select`` (here ``"average"`` unless told otherwise: no group labels), ``copies``, ``store``,
            ``on_bad``, ``workers`` and any of :class:`~foveate.engine.TrainSettings`.
    """

    DEFAULTS: ClassVar[dict[str, Any]] = {"epochs": 40, "lr": 1e-3, "weight_decay": 1e-4, "optimizer": "adamw"}

    def __init__(
        self,
        backbone: str = "vit-s-focus",
        *,
        base: System | None = None,
        image_size: int | tuple[int, int] | None = None,
        **options: Any,
    ):
        super().__init__(base, **{"select": "average", **options})
        self.backbone = backbone
        self.image_size = image_size

    def _probe(self, backbone: Backbone, classes: int) -> Network:
        """The pool and the head."""
        raise NotImplementedError

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
        backbone = self._frozen()
        if self.base is not None:
            train = self._aligned(train)
        self._remember(train)
        seed_everything(self.training.seed)
        self.network_ = self._probe(backbone, train.num_classes)
        feed = self._feed(backbone, train, "maps", self.copies)
        held = None if val is None else self._feed(backbone, aligned(self, val), "maps")
        assert self.network_.pool is not None
        self.history_ = run_training(
            nn.Sequential(self.network_.pool, self.network_.head),
            feed,
            self.training,
            select=None if held is None else self._selection(self.select, held),
            title=type(self).__name__,
            record=self._run_record(backbone),
            callbacks=callbacks,
        )
        self.selection_ = self.history_.selection
        return self

    def _frozen(self) -> Backbone:
        if self.base is not None:
            return super()._frozen()
        from foveate.extract.named import open_backbone

        backbone, self.preprocess_ = open_backbone(self.backbone, self.image_size)
        freeze(backbone)
        return backbone

    @torch.no_grad()
    def look(self, images: Images, method: str = "attention") -> Gaze:
        """Where the pool's queries look, mean over queries and heads; another ``method`` is one of Grad-CAM's."""
        if method != "attention":
            with torch.enable_grad():
                return super().look(images, method)
        self._require_fit()
        maps = self.network_.cpu().eval().maps(self.inputs(images))
        weights = self.network_.pool.attention(maps)  # type: ignore[union-attr,operator]
        return Gaze(weights.flatten(1, -3).mean(1), kind="attention", scores={"queries": weights.flatten(1, -3)})


class AIMProbe(AttentiveProbe):
    """The attentive probe of AIM on a frozen ViT: one learned query a head over normalised patches.

    Args:
        backbone, base, image_size, options: those of :class:`AttentiveProbe`.
        heads: must divide the backbone's width; 12 in the paper.
        queries: 1 in the paper.

    Reference: El-Nouby et al. 2024, "Scalable pre-training of large autoregressive image models", section 4.

    >>> import tempfile
    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=32)
    >>> base = fv.ERM("micro_vit", epochs=1, model_args={"depth": 1}, progress=False).fit(data.train)
    >>> probe = AIMProbe(base=base, epochs=1, store=tempfile.mkdtemp(), progress=False).fit(data.train)
    >>> probe.predict(data.test).shape, tuple(probe.look([data.test[0].image]).map.shape)
    ((16,), (1, 4, 4))
    """

    needs: ClassVar[Needs] = Needs(train="labels")

    def __init__(self, backbone: str = "vit-s-focus", *, heads: int = 12, queries: int = 1, **options: Any):
        super().__init__(backbone, **options)
        self.heads = heads
        self.queries = queries

    def _probe(self, backbone: Backbone, classes: int) -> Network:
        return Network.build(backbone, classes, head="bias-free", pool="aim", heads=self.heads, queries=self.queries)


class EPProbe(AttentiveProbe):
    """Efficient probing on a frozen ViT: many queries on the patches as they are, each pooling its own channels.

    Args:
        backbone, base, image_size, options: those of :class:`AttentiveProbe`.
        queries: must divide the backbone's width; 32 in the paper.

    Reference: Psomas et al. 2025, "Attention, please! Revisiting attentive probing for masked image modeling".

    >>> import tempfile
    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=32)
    >>> base = fv.ERM("micro_vit", epochs=1, model_args={"depth": 1}, progress=False).fit(data.train)
    >>> probe = EPProbe(base=base, epochs=1, store=tempfile.mkdtemp(), progress=False).fit(data.train)
    >>> tuple(probe.look([data.test[0].image]).scores["queries"].shape)  # one map a query
    (1, 32, 4, 4)
    """

    needs: ClassVar[Needs] = Needs(train="labels")

    def __init__(self, backbone: str = "vit-s-focus", *, queries: int = 32, **options: Any):
        super().__init__(backbone, **options)
        self.queries = queries

    def _probe(self, backbone: Backbone, classes: int) -> Network:
        return Network.build(backbone, classes, pool="ep", queries=self.queries)
