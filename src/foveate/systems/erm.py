"""Empirical risk minimisation: the plain classifier everything else is measured against."""

from __future__ import annotations

from typing import ClassVar

from foveate.assemble.needs import Needs
from foveate.assemble.trained import Trained
from foveate.parameters import configured


@configured
class ERM(Trained):
    """A network trained on the mean cross-entropy.

    Args: those of :class:`~foveate.assemble.trained.Trained`: ``backbone``, ``pretrained``, ``image_size``,
    ``select``, ``epochs``, ``lr`` …

    >>> from foveate.data import critters
    >>> data = critters(train=40, val=16, test=16, target=16, size=32)
    >>> erm = ERM("micro_resnet", epochs=1, progress=False).fit(data.train, val=data.val)
    >>> erm.predict(data.test).shape
    (16,)
    """

    needs: ClassVar[Needs] = Needs(train="labels")
