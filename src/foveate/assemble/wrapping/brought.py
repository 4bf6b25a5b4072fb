"""What a model brings along: something that answers, and what it says of its classes and its images."""

from __future__ import annotations

from dataclasses import dataclass

from foveate.assemble.wrapping.holding import Holding
from foveate.data.preprocess import Preprocess


@dataclass
class Brought:
    """A model as it was found, before anything the caller says is added.

    Attributes:
        held: what answers.
        class_names: of its outputs, when it knows them.
        preprocess: how images reach it, when it knows that.
        size: height and width of its images, when it knows those alone.
    """

    held: Holding
    class_names: list[str] | None = None
    preprocess: Preprocess | None = None
    size: tuple[int, int] | None = None
