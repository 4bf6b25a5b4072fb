"""The attentive probe of AIM: a frozen ViT, one learned query per head over its patches, a linear layer."""

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
class AIMProbe(Adapting):
    """The attentive probe of AIM on a frozen ViT: one learned query per head over normalised patches.

    Trained on ``train`` (joined with ``target`` when given), on features computed once.

    Args:
        backbone: name of a model with its weights, see :func:`foveate.extract.open_backbone`.
        base: a fitted system whose backbone is probed instead.
        image_size: side, or ``(height, width)``, the backbone is to see; by default what its weights were made with.
        heads: must divide the backbone's width; 12 in the paper.
        queries: 1 in the paper.
        select: here ``"average"`` unless told otherwise: no group labels.
        copies, store, on_bad, workers, training: see :class:`~foveate.assemble.adapting.Adapting`.

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
    backbone: str = field(default="vit-s-focus", kw_only=False)
    base: System | None = None
    image_size: int | tuple[int, int] | None = None
    heads: int = 12
    queries: int = 1
    select: str = "average"

    def usual_training(self) -> TrainSettings:
        return TrainSettings.of(epochs=40, lr=1e-3, weight_decay=1e-4, optimizer="adamw")

    def parts(self) -> Parts:
        return Parts(
            look=Everywhere(),
            restrict=Nothing(),
            extract=FrozenBase(self.base or self.backbone, size=self.image_size, who="AIMProbe"),
            pool=LearnedPool("aim", args={"heads": self.heads, "queries": self.queries}),
            decide=CrossEntropy(
                head="bias-free", copies=self.copies, select=self.select, on="both", training=self.training
            ),
        )

    def look(self, images: Images, method: str = "attention") -> Gaze:
        """Where the pool's queries look, mean over queries and heads; another ``method`` is one of Grad-CAM's."""
        return self.pooled_look(images, method)
