"""The reference of A² that looks at the middle of the image."""

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
from foveate.restrict import CentreCrops


@configured
class CentreCrop(Probe):
    """A probe on the middle of the image.

    Args:
        embedder: the model that reads.
        crops: side of the crop in pixels of the resized image (or of several, one inside the other).
        image_size: side of the resized image.
        source: ``"resized"``, or ``"original"`` to cut from the files' own pixels.
        head, C, select, store …: see :class:`~foveate.assemble.probe.Probe`.

    >>> import tempfile
    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=64)
    >>> vit = fv.extract.create_backbone("micro_vit")
    >>> centre = fv.CentreCrop(vit, crops=32, image_size=64, store=tempfile.mkdtemp()).fit(data.train)
    >>> centre.look([data.test[0].image]).boxes.tolist()
    [[[16, 16, 32]]]
    """

    needs: ClassVar[Needs] = Needs(train="labels")
    embedder: Any = field(default="vit-s-focus", kw_only=False)
    crops: int | Sequence[int] = 128
    image_size: int = 224
    source: Literal["resized", "original"] = "resized"

    def parts(self) -> Parts:
        return Parts(
            look=Everywhere(),
            restrict=CentreCrops(self.crops, source=self.source, frame=self.image_size),
            extract=Frozen(self.embedder, size=self.embed_size),
            pool=OwnPool(),
            decide=self.decision(),
        )
