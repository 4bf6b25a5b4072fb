"""The reference of A² that looks anywhere."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, ClassVar, Literal

from foveate.assemble.needs import Needs
from foveate.assemble.parts import Parts
from foveate.assemble.probe import Probe
from foveate.extract import Frozen
from foveate.look import Everywhere
from foveate.parameters import configured
from foveate.pool import OwnPool
from foveate.restrict import ScatteredCrops


@configured
class RandomCrops(Probe):
    """A probe on crops at random places that do not overlap, of the sizes A² would use.

    Where they lie depends on ``seed`` and on the pixels of the image alone: the same image has the same crops
    in every run, order, batch and subset.

    Args:
        embedder: the model that reads.
        crops: side of each crop in pixels of the resized image.
        image_size: side of the resized image.
        source: ``"resized"``, or ``"original"`` to cut from the files' own pixels.
        head, C, select, store, seed …: see :class:`~foveate.assemble.probe.Probe`.

    >>> import tempfile
    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=64)
    >>> vit = fv.extract.create_backbone("micro_vit")
    >>> some = fv.RandomCrops(vit, crops=(24, 16), image_size=64, store=tempfile.mkdtemp()).fit(data.train)
    >>> tuple(some.look([data.test[0].image]).boxes.shape)
    (1, 2, 3)
    """

    needs: ClassVar[Needs] = Needs(train="labels")
    embedder: Any = field(default="vit-s-focus", kw_only=False)
    crops: int | Sequence[int] = (64,)
    image_size: int = 224
    source: Literal["resized", "original"] = "resized"

    def parts(self) -> Parts:
        return Parts(
            look=Everywhere(),
            restrict=ScatteredCrops(self.crops, source=self.source, frame=self.image_size, seed=self.seed),
            extract=Frozen(self.embedder, size=self.embed_size),
            pool=OwnPool(),
            decide=self.decision(),
        )
