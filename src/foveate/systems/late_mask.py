"""Late mask: a ViT reads everything and is masked at the end."""

from __future__ import annotations

from typing import ClassVar

from foveate.assemble.masked import Masked
from foveate.assemble.needs import Needs
from foveate.parameters import configured


@configured
class LateMask(Masked):
    """A full ViT whose last features are averaged inside a given mask: its patches have read all others by then.

    The mean is over all patches (the hidden ones count as zero), as in the paper. The baseline that shows why a mask
    must come early.

    Args:
        backbone, masks, frozen, saliency …: those of :class:`~foveate.systems.early_mask.EarlyMask`.

    Reference: the mask baselines of arXiv 2506.08915.

    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=32)
    >>> late = LateMask("micro_vit", model_args={"depth": 2, "embed_dim": 24}, epochs=1, progress=False)
    >>> late.fit(data.train).predict(data.test).shape
    (16,)
    """

    needs: ClassVar[Needs] = Needs(train="labels, masks (to predict, too)")
    place: ClassVar[str] = "late"
