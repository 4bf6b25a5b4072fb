"""Glimpse: a small model looks, a large ViT computes only the tokens it looked at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, ClassVar

from foveate.assemble.needs import Needs
from foveate.assemble.parts import Parts
from foveate.assemble.probe import Probe
from foveate.extract import Frozen
from foveate.look import ClsAttention
from foveate.parameters import configured
from foveate.pool import OwnPool
from foveate.restrict import TopTokens


@configured
class Glimpse(Probe):
    """Keeps the most attended tokens only and runs a frozen ViT on those alone, then a linear head.

    Like A², with tokens in the place of crops: nothing is enlarged, the rest of the image is never computed, and
    positions stay true. With a tenth of the tokens the embedding costs about a tenth.

    Args:
        attention: the model that looks: a ViT with a class token, by name, or a ready backbone.
        embedder: the model that reads: a plain ViT; its patches may be of another size.
        keep: share of the embedder's tokens to keep.
        mass: instead, keep the fewest tokens that hold this share of the attention.
        choose: values to choose from on ``val`` in place of ``keep`` (or of ``mass`` when that is given).
        heads, layer, attention_size: as for :class:`~foveate.systems.A2`.
        embed_size, head, C, select, store …: see :class:`~foveate.assemble.probe.Probe`.

    >>> import tempfile
    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=64)
    >>> vit = fv.extract.create_backbone("micro_vit")
    >>> glimpse = fv.Glimpse(vit, vit, keep=0.25, store=tempfile.mkdtemp()).fit(data.train)
    >>> gaze = glimpse.look([data.test[0].image])
    >>> tuple(gaze.map.shape), int(gaze.mask.sum())
    ((1, 8, 8), 16)
    """

    needs: ClassVar[Needs] = Needs(train="labels")
    attention: Any = field(default="vit-s-focus", kw_only=False)
    embedder: Any = field(default="vit-s-focus", kw_only=False)
    keep: float = 0.1
    mass: float | None = None
    choose: Sequence[float] | None = None
    heads: str = "mean"
    layer: int = -1
    attention_size: int | None = None

    def parts(self) -> Parts:
        return Parts(
            look=ClsAttention(self.attention, layer=self.layer, heads=self.heads, size=self.attention_size),
            restrict=TopTokens(self.keep, mass=self.mass, choose=self.choose),
            extract=Frozen(self.embedder, size=self.embed_size),
            pool=OwnPool(),
            decide=self.decision(),
        )
