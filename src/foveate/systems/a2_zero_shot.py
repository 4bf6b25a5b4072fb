"""A² without training: a small model looks, CLIP reads one crop, prompts decide."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from foveate.data.loading import OnBad
from foveate.decide.prompts import TEMPLATES, Prompts
from foveate.look import Gaze
from foveate.systems.a2 import A2
from foveate.systems.frozen_model import Model
from foveate.systems.probe import Views
from foveate.systems.prompted import DEFAULT_CLIP, NO_LABELS, Prompted
from foveate.systems.system import Images, Needs


class A2ZeroShot(Prompted, A2):
    """A²_ZS: one crop where a small ViT looks, embedded by CLIP, compared with text prompts.

    1. *Look*: CLS attention of ``attention``. 2. *Restrict*: the one crop that holds most of it.
    3. *Extract*: CLIP's image embedding of the crop. 4. *Decide*: the class whose prompts lie closest.

    ``fit`` takes the class names and reads neither labels nor pixels.

    Args:
        model: a CLIP model by open_clip name. The paper uses ``"open_clip:ViT-L-14/laion2b_s32b_b82k"``.
        attention: the model that looks: a ViT with a class token.
        crop: side of the crop in pixels of the attention image; 128 of 224 in the paper.
        prompts: whole texts of every class, by name or in class order, instead of ``templates``.
        templates: texts with ``{}`` for the class name; embeddings are averaged over them.
        heads, layer, attention_size, source: as for :class:`~foveate.systems.A2`.
        embed_size: side of the image CLIP sees; by default its own.
        store, on_bad, workers, batch_size, accelerator, progress: as for every probe.

    Reference: "Attending on Attention", arXiv 2606.03148 (A²_ZS).

    >>> print(A2ZeroShot.needs)
    train: none (class names only)
    >>> A2ZeroShot(crop=64).templates
    ('a photo of a {}.',)
    """

    needs: ClassVar[Needs] = NO_LABELS

    def __init__(
        self,
        model: str = DEFAULT_CLIP,
        attention: Model = "vit-s-focus",
        *,
        crop: int = 128,
        prompts: Prompts | None = None,
        templates: Sequence[str] = TEMPLATES,
        heads: str = "mean",
        layer: int = -1,
        attention_size: int | None = None,
        source: Literal["resized", "original"] = "resized",
        embed_size: int | None = None,
        store: str | Path | None = None,
        on_bad: OnBad = "raise",
        workers: int = 0,
        batch_size: int = 32,
        accelerator: str = "auto",
        progress: bool = True,
    ):
        super().__init__(
            attention, model, crops=(crop,), heads=heads, layer=layer, attention_size=attention_size, source=source,
            embed_size=embed_size, store=store, on_bad=on_bad, workers=workers, batch_size=batch_size,
            accelerator=accelerator, progress=progress,
        )  # fmt: skip
        self.model, self.crop, self.prompts, self.templates = model, crop, prompts, templates


class ZeroShot(Prompted):
    """The reference of A²_ZS: CLIP sees the whole image, prompts decide.

    Args:
        model, prompts, templates, embed_size: as for :class:`A2ZeroShot`.
        store, on_bad, workers, batch_size, accelerator, progress: as for every probe.

    >>> print(ZeroShot.needs)
    train: none (class names only)
    """

    needs: ClassVar[Needs] = NO_LABELS

    def __init__(
        self,
        model: str = DEFAULT_CLIP,
        *,
        prompts: Prompts | None = None,
        templates: Sequence[str] = TEMPLATES,
        embed_size: int | None = None,
        store: str | Path | None = None,
        on_bad: OnBad = "raise",
        workers: int = 0,
        batch_size: int = 32,
        accelerator: str = "auto",
        progress: bool = True,
    ):
        super().__init__(
            model, embed_size=embed_size, store=store, on_bad=on_bad, workers=workers, batch_size=batch_size,
            accelerator=accelerator, progress=progress,
        )  # fmt: skip
        self.model, self.prompts, self.templates = model, prompts, templates

    def _recipe(self) -> dict[str, Any]:
        return {"restrict": "nothing"}

    def _features(self, images: Tensor, views: Views) -> Tensor:
        return self.embedder_.embed(images, self.batch_size)[:, None]

    @torch.no_grad()
    def look(self, images: Images) -> Gaze:
        """CLS attention of the image tower itself, last layer, mean over heads."""
        return self.embedder_.attend(self.inputs(images), batch_size=self.batch_size)
