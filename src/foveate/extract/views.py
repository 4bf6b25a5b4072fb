"""What a restriction lets through, in the form an extractor reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import Tensor

Way = Literal["early", "late", "grey"]


@dataclass(frozen=True)
class ReaderShape:
    """What a restriction must know of the network that will read.

    Attributes:
        size: side in pixels of the images it sees.
        grid: rows and columns of its maps.
        no_tokens: why it has no tokens that could be left out; empty for a plain ViT.
    """

    size: int
    grid: tuple[int, int]
    no_tokens: str = ""


@dataclass
class Views:
    """The parts of B images that are let through: V views of each.

    Attributes:
        images: ``[B, 3, H, W]`` in ``[0, 1]``; all there is when nothing else is given.
        crops: ``[B, N, 3, s, s]`` in ``[0, 1]``, what is read instead of the images.
        there: bool ``[B, N]``, False where a crop found no place; by default all are there.
        of: which of the V views each of the N crops belongs to; those of one view are averaged. By default each is one.
        mask: bool ``[B, V, h, w]``, the patches let through.
        way: what the mask does: ``"early"``, hidden patches are never read; ``"late"``, they are read, and their
            features are hidden; ``"grey"``, their pixels take the mean colour.
    """

    images: Tensor
    crops: Tensor | None = None
    there: Tensor | None = None
    of: tuple[int, ...] | None = None
    mask: Tensor | None = None
    way: Way = "early"

    @property
    def visible(self) -> Tensor | None:
        """The patches whose features count, ``[B, V, h, w]``; None when all do."""
        return None if self.mask is None or self.way == "grey" else self.mask
