"""A² without training: a small model looks, CLIP reads one crop, prompts decide."""

from __future__ import annotations

from dataclasses import field
from typing import Any, ClassVar, Literal

from foveate.assemble.needs import NO_LABELS, Needs
from foveate.assemble.parts import Parts
from foveate.assemble.probe import DEFAULT_CLIP, Prompted
from foveate.extract import ClipTower
from foveate.look import ClsAttention
from foveate.parameters import configured
from foveate.pool import OwnPool
from foveate.restrict import GreedyCrops


@configured
class A2ZeroShot(Prompted):
    """A²_ZS: one crop where a small ViT looks, embedded by CLIP, compared with text prompts.

    1. *Look*: CLS attention of ``attention``. 2. *Restrict*: the one crop that holds most of it.
    3. *Extract*: CLIP's image embedding of the crop. 4. *Decide*: the class whose prompts lie closest.

    ``fit`` takes the class names and reads neither labels nor pixels.

    Args:
        model: a CLIP model by open_clip name. The paper uses ``"open_clip:ViT-L-14/laion2b_s32b_b82k"``.
        attention: the model that looks: a ViT with a class token.
        crop: side of the crop in pixels of the attention image; 128 of 224 in the paper.
        heads, layer, attention_size, source: as for :class:`~foveate.systems.A2`.
        prompts, templates, embed_size, store …: see :class:`~foveate.assemble.probe.Prompted`.

    Reference: "Attending on Attention", arXiv 2606.03148 (A²_ZS).

    >>> print(A2ZeroShot.needs)
    train: none (class names only)
    >>> A2ZeroShot(crop=64).templates
    ('a photo of a {}.',)
    """

    needs: ClassVar[Needs] = NO_LABELS
    model: str = field(default=DEFAULT_CLIP, kw_only=False)
    attention: Any = field(default="vit-s-focus", kw_only=False)
    crop: int = 128
    heads: str = "mean"
    layer: int = -1
    attention_size: int | None = None
    source: Literal["resized", "original"] = "resized"

    def parts(self) -> Parts:
        return Parts(
            look=ClsAttention(self.attention, layer=self.layer, heads=self.heads, size=self.attention_size),
            restrict=GreedyCrops((self.crop,), source=self.source),
            extract=ClipTower(self.model, size=self.embed_size),
            pool=OwnPool(),
            decide=self.decision(self.model),
        )
