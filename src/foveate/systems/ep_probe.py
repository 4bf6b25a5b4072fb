"""Efficient probing: a frozen ViT, many queries on its patches, a linear layer."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

from foveate.assemble.adapting import Adapting, FrozenBase
from foveate.assemble.needs import Needs
from foveate.assemble.parts import Parts
from foveate.assemble.system import Images, System
from foveate.decide import CrossEntropy
from foveate.engine import TrainSettings
from foveate.look import Everywhere, Gaze
from foveate.parameters import configured
from foveate.pool import LearnedPool
from foveate.restrict import Nothing


@configured
class EPProbe(Adapting):
    """Efficient probing on a frozen ViT: many queries on the patches as they are, each pooling its own channels.

    Trained on ``train`` (joined with ``target`` when given), on features computed once.

    Args:
        backbone: name of a model with its weights, see :func:`foveate.extract.open_backbone`.
        base: a fitted system whose backbone is probed instead.
        image_size: side, or ``(height, width)``, the backbone is to see; by default what its weights were made with.
        queries: must divide the backbone's width; 32 in the paper.
        select: here ``"average"`` unless told otherwise: no group labels.
        copies, store, on_bad, workers, training: see :class:`~foveate.assemble.adapting.Adapting`.

    Reference: Psomas et al. 2025, "Attention, please! Revisiting attentive probing for masked image modeling".

    >>> import tempfile
    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=32)
    >>> base = fv.ERM("micro_vit", epochs=1, model_args={"depth": 1}, progress=False).fit(data.train)
    >>> probe = EPProbe(base=base, epochs=1, store=tempfile.mkdtemp(), progress=False).fit(data.train)
    >>> tuple(probe.look([data.test[0].image]).scores["queries"].shape)  # one map per query
    (1, 32, 4, 4)
    """

    needs: ClassVar[Needs] = Needs(train="labels")
    backbone: str = field(default="vit-s-focus", kw_only=False)
    base: System | None = None
    image_size: int | tuple[int, int] | None = None
    queries: int = 32
    select: str = "average"

    def usual_training(self) -> TrainSettings:
        return TrainSettings.of(epochs=40, lr=1e-3, weight_decay=1e-4, optimizer="adamw")

    def parts(self) -> Parts:
        return Parts(
            look=Everywhere(),
            restrict=Nothing(),
            extract=FrozenBase(self.base or self.backbone, size=self.image_size, who="EPProbe"),
            pool=LearnedPool("ep", args={"queries": self.queries}),
            decide=CrossEntropy(copies=self.copies, select=self.select, on="both", training=self.training),
        )

    def look(self, images: Images, method: str = "attention") -> Gaze:
        """Where the pool's queries look, mean over queries and heads; another ``method`` is one of Grad-CAM's."""
        return self.pooled_look(images, method)
