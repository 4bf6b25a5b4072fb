"""The plain linear probe: a frozen embedder sees the whole image."""

from __future__ import annotations

from dataclasses import field
from typing import Any, ClassVar

from foveate.assemble.needs import Needs
from foveate.assemble.parts import Parts
from foveate.assemble.probe import Probe
from foveate.extract import Frozen
from foveate.look import Everywhere
from foveate.parameters import configured
from foveate.pool import OwnPool
from foveate.restrict import Nothing


@configured
class FullImage(Probe):
    """A linear head on the embedding of the whole image: the reference that looks nowhere in particular.

    Args:
        embedder: the model that reads: a name (see :func:`~foveate.extract.open_backbone`), or a ready backbone.
        embed_size: 518 is the reference that gives the embedder more pixels instead of a place to look.
        head, C, select, store …: see :class:`~foveate.assemble.probe.Probe`.

    >>> import tempfile
    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=64)
    >>> vit = fv.extract.create_backbone("micro_vit")
    >>> fv.FullImage(vit, store=tempfile.mkdtemp()).fit(data.train).predict(data.test).shape
    (16,)
    """

    needs: ClassVar[Needs] = Needs(train="labels")
    embedder: Any = field(default="vit-s-focus", kw_only=False)

    def parts(self) -> Parts:
        return Parts(
            look=Everywhere(),
            restrict=Nothing(),
            extract=Frozen(self.embedder, size=self.embed_size),
            pool=OwnPool(),
            decide=self.decision(),
        )
