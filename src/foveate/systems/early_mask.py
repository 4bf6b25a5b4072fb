"""Early mask: what a ViT can do when it reads only what a mask from outside keeps."""

from __future__ import annotations

from typing import ClassVar

from foveate.assemble.masked import Masked
from foveate.assemble.needs import Needs
from foveate.parameters import configured


@configured
class EarlyMask(Masked):
    """A ViT that reads only the patches a given mask keeps: what a mask from outside can give at best.

    In every block only the kept patches can be read, so nothing else reaches the prediction
    (``foveate verify``). A patch is kept when the pixel at its centre is in the mask (nearest-exact).

    Args:
        backbone: a ViT, by name; see :class:`~foveate.systems.ERM`.
        masks: ``"truth"`` (the dataset's, in training and in prediction), ``"found"`` (saliency from the features of
            a ViT), ``"u2netp"`` (a small saliency network), or a function
            ``uint8 [B, 3, h, w] -> [B, h, w]`` in ``[0, 1]``, which is not saved with the model.
        frozen: train only the head.
        saliency: for ``"found"``: the ViT whose features are read, by name; by default the backbone as it starts.
        image_size …: and all other arguments of :class:`~foveate.systems.erm.ERM`. To fine-tune as the paper does,
            ``lr=1e-2`` for the head and ``backbone_scale=1e-4``, ``optimizer="adamw"``, ``clip=2``.

    Reference: the mask baselines of arXiv 2506.08915.

    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=32)
    >>> small = {"depth": 2, "embed_dim": 24}
    >>> early = EarlyMask("micro_vit", model_args=small, epochs=1, progress=False).fit(data.train)
    >>> early.predict(data.test).shape, print(early.supervision())
    train: labels, masks (to predict, too)
    ((16,), None)
    """

    needs: ClassVar[Needs] = Needs(train="labels, masks (to predict, too)")
    place: ClassVar[str] = "early"
