"""The reference of A²_ZS: CLIP sees the whole image, prompts decide."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

import torch

from foveate.assemble.needs import NO_LABELS, Needs
from foveate.assemble.parts import Parts
from foveate.assemble.probe import DEFAULT_CLIP, Prompted
from foveate.assemble.system import Images
from foveate.extract import ClipTower
from foveate.look import Everywhere, Gaze, attended
from foveate.parameters import configured
from foveate.pool import OwnPool
from foveate.restrict import Nothing


@configured
class ZeroShot(Prompted):
    """CLIP reads the whole image, and the class whose prompts lie closest wins; nothing is learned.

    Args:
        model: a CLIP model by open_clip name.
        prompts, templates, embed_size, store …: see :class:`~foveate.assemble.probe.Prompted`.

    >>> print(ZeroShot.needs)
    train: none (class names only)
    """

    needs: ClassVar[Needs] = NO_LABELS
    model: str = field(default=DEFAULT_CLIP, kw_only=False)

    def parts(self) -> Parts:
        return Parts(
            look=Everywhere(),
            restrict=Nothing(),
            extract=ClipTower(self.model, size=self.embed_size),
            pool=OwnPool(),
            decide=self.decision(self.model),
        )

    @torch.no_grad()
    def look(self, images: Images) -> Gaze:
        """CLS attention of the image tower itself, last layer, mean over heads."""
        inputs = self.preprocess_.denormalise(self.inputs(images))
        return attended(self.embedder_, inputs)
