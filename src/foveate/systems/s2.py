"""S²: one frozen network at several scales, in place of a larger one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, ClassVar

from foveate.assemble.needs import Needs
from foveate.assemble.parts import Parts
from foveate.assemble.probe import Probe
from foveate.extract import Frozen
from foveate.look import Everywhere
from foveate.parameters import configured
from foveate.pool import OwnPool
from foveate.restrict import Tiles


@configured
class S2(Probe):
    """S²: the image at several scales, each cut into tiles of the embedder's size.

    What bicubic enlargement makes brighter than white or darker than black stays so, as in the authors' code
    (github.com/bfshi/scaling_on_scales, s2wrapper/core.py). The embeddings of a scale's tiles are averaged, those of
    the scales concatenated. It takes in the whole image at
    every scale, so its gaze is everywhere alike.

    Args:
        embedder: the model that reads.
        scales: whole numbers; scale k is the image enlarged k times (bicubic) and cut into k x k tiles.
        head, C, select, store …: see :class:`~foveate.assemble.probe.Probe`.

    Reference: Shi et al. 2024, "When do we not need larger vision models?".

    >>> import tempfile
    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=64)
    >>> vit = fv.extract.create_backbone("micro_vit")
    >>> fv.S2(vit, store=tempfile.mkdtemp()).fit(data.train).head_.weight_.shape
    (2, 192)
    """

    needs: ClassVar[Needs] = Needs(train="labels")
    embedder: Any = field(default="vit-s-focus", kw_only=False)
    scales: Sequence[int] = (1, 2)

    def parts(self) -> Parts:
        return Parts(
            look=Everywhere(),
            restrict=Tiles(self.scales),
            extract=Frozen(self.embedder, size=self.embed_size),
            pool=OwnPool(),
            decide=self.decision(),
        )
