"""A²: a small model looks, a large model reads what it looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, ClassVar, Literal

from foveate.assemble.needs import Needs
from foveate.assemble.parts import Parts
from foveate.assemble.probe import Probe
from foveate.extract import Frozen
from foveate.look import ClsAttention
from foveate.parameters import configured
from foveate.pool import OwnPool
from foveate.restrict import GreedyCrops


@configured
class A2(Probe):
    """Attending on Attention: crops where a small ViT looks, read by a frozen embedder and a linear head.

    1. *Look*: CLS attention of ``attention`` on the image at ``attention_size``.
    2. *Restrict*: the crops that hold most attention, one after the other, without overlap.
    3. *Extract*: each crop, enlarged, through the frozen ``embedder``; the embeddings are concatenated.
    4. *Decide*: logistic regression on ``train``, or with ``head="dfr"`` a group-balanced refit ("DFR + A²").

    No group labels and no training of a network. The pixels outside of the crops can still move the attention.

    Args:
        attention: the model that looks: a ViT with a class token, by name, or a ready backbone.
        embedder: the model that reads: any backbone; independent of ``attention``.
        crops: side of each crop in pixels of the attention image, from large to small. The paper uses
            ``(64,)`` or ``(64, 32)`` of 224.
        crop_counts: numbers of crops (the first so many of ``crops``) to choose from on ``val``.
        heads: how attention heads are put together: ``"mean"``, ``"max"``, ``"entropy"``, ``"lowest-entropy-k"``.
        layer: block whose attention is read, -1 is the last.
        attention_size: side of the image the attention model sees; by default its own, at most 224.
        source: ``"resized"`` cuts crops from the attention image, as in the paper; ``"original"`` from the image read
            larger, as far as the files have the pixels.
        embed_size, head, C, select, store …: see :class:`~foveate.assemble.probe.Probe`.

    Reference: "Attending on Attention", arXiv 2606.03148 (A²_LR). Standardised features and C = 1 are our choice:
    the paper does not give them.

    >>> import tempfile
    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=64)
    >>> vit = fv.extract.create_backbone("micro_vit")
    >>> a2 = fv.A2(vit, vit, crops=(24, 16), store=tempfile.mkdtemp()).fit(data.train)
    >>> a2.predict(data.test).shape, tuple(a2.look([data.test[0].image]).boxes.shape)
    ((16,), (1, 2, 3))
    >>> print(a2.supervision())
    train: labels
    """

    needs: ClassVar[Needs] = Needs(train="labels")
    attention: Any = field(default="vit-s-focus", kw_only=False)
    embedder: Any = field(default="vit-s-focus", kw_only=False)
    crops: int | Sequence[int] = (64,)
    crop_counts: Sequence[int] | None = None
    heads: str = "mean"
    layer: int = -1
    attention_size: int | None = None
    source: Literal["resized", "original"] = "resized"

    def parts(self) -> Parts:
        return Parts(
            look=ClsAttention(self.attention, layer=self.layer, heads=self.heads, size=self.attention_size),
            restrict=GreedyCrops(self.crops, counts=self.crop_counts, source=self.source),
            extract=Frozen(self.embedder, size=self.embed_size),
            pool=OwnPool(),
            decide=self.decision(),
        )
