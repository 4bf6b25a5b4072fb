"""The colour of the object: how light and how tinted it is as a whole.

Foxes are red, and a model that reads that reads the fox: the colour may well be what makes the class. So the colour is
only exchanged within a class, between an object that the model names rightly and one of the same class that it takes
for another (``within_class``), and only where that other class is mistaken for the first as well. Such a colour occurs
in both classes, so it is not what tells them apart; where the answers follow it all the same, the model leans on the
colour. A colour that all of a class share is in none of these exchanges, and nobody is accused of reading it; nor of
missing pale foxes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from foveate.report.discovery.cues.cue import Cue, Glances, luminance
from foveate.report.discovery.cues.surroundings import soft
from foveate.report.discovery.outlines import MARGIN, core

RIM = 0.05
"""Share of a picture's side that is left out along an outline where a colour is measured: outlines are a little off."""


def exchange_object_colour(x: Tensor, mask: Tensor, donor: Tensor, donor_mask: Tensor) -> Tensor:
    """The object of ``x`` in the mean colour of the donor's object, with its own pattern; its surroundings stay.

    >>> import torch
    >>> x, donor, mask = torch.full((1, 3, 20, 20), 90.0), torch.full((1, 3, 20, 20), 30.0), torch.zeros(1, 20, 20)
    >>> mask[:, 5:15, 5:15] = 1.0
    >>> x[:, :, ::2] += 20                                  # a pattern of stripes
    >>> given = exchange_object_colour(x, mask, donor, mask)
    >>> given[0, 0, 9:11, 10].tolist(), given[0, 0, 0:2, 0].tolist()
    ([20.0, 40.0], [110.0, 90.0])
    """
    shift = object_colour(donor, donor_mask) - object_colour(x, mask)
    return (x + soft(mask)[:, None] * shift[:, :, None, None]).clamp(0, 255)


def object_colour(images: Tensor, masks: Tensor, rim: float = RIM) -> Tensor:
    """Mean colour of the objects ``[B, 3]``, away from their outlines where they reach so far."""
    inside = core(masks, rim)[:, None]
    return (images * inside).sum((2, 3)) / inside.sum((2, 3)).clamp(min=1.0)


def _read(seen: Glances) -> NDArray[np.float64]:
    """Light, and red and blue over the light; the masks here have a margin, which is taken off again."""
    colour = object_colour(seen.small, seen.masks, MARGIN + RIM)
    light = luminance(colour)[:, None]
    return np.concatenate([light.double().numpy(), (colour[:, ::2] - light).double().numpy()], 1)


OBJECT_COLOUR = Cue(
    "object-colour", "the colour of the object", _read, exchange_object_colour, needs_objects=True, outlined=True,
    within_class=True, comparatives=("with darker objects", "with lighter objects"),
    trial="Give {object} {theirs}", theirs="the colour of the object of {donor}",
)  # fmt: skip
