"""PDiscoFormer: the parts of the object, found from class labels alone, decide the class."""

from __future__ import annotations

from typing import ClassVar

from foveate.assemble.needs import Needs
from foveate.assemble.parted import Parted
from foveate.parameters import configured


@configured
class PDiscoFormer(Parted):
    """Classify by the vectors of discovered parts (Aniraj et al. 2024, "PDiscoFormer", arXiv 2407.04538).

    The patches of a ViT are sorted into K parts and background; the mean over each part's soft map is its vector,
    and every foreground part votes for a class. The mask is *late*: each patch has read the whole image before it is
    masked, so the background can still decide. :class:`~foveate.systems.IFAM` closes that door.

    Args: see :class:`~foveate.assemble.parted.Parted`.

    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, val=16, test=16, target=16, size=32)
    >>> small = {"embed_dim": 24, "depth": 2, "num_heads": 2, "patch_size": 4}
    >>> model = fv.PDiscoFormer("micro_vit", parts=3, model_args=small, epochs=1, progress=False).fit(data.train)
    >>> model.part_maps([data.test[0].image]).shape  # three parts and the background
    torch.Size([1, 4, 8, 8])
    """

    needs: ClassVar[Needs] = Needs(train="labels")
