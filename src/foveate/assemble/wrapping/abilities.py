"""What a wrapped model can do beyond answering: found out by looking into it, and said in one line."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Abilities:
    """What there is to work with in a wrapped model.

    Attributes:
        maps: the layer that gives its feature maps ``[B, C, h, w]`` (or patch tokens); None without.
        channels: of the maps.
        grid: height and width of the maps.
        tokens: whether the maps are tokens of a transformer.
        masks: whether tokens can be left out of it (a plain ViT): Glimpse and masks work.
        embedding: width of the vector its last layer reads; None without.
        gradients: whether Grad-CAM and other gradients reach the images.
        why: what is missing and why, when it is a black box.

    >>> print(Abilities(maps="layer4", channels=512, grid=(7, 7), embedding=512, gradients=True))
    feature maps of layer4 (512 channels on 7 x 7), an embedding of 512 numbers, gradients
    >>> print(Abilities(why="it is a Python function"))
    a black box: it is a Python function
    """

    maps: str | None = None
    channels: int = 0
    grid: tuple[int, int] = (0, 0)
    tokens: bool = False
    masks: bool = False
    embedding: int | None = None
    gradients: bool = False
    why: str = ""

    @property
    def black_box(self) -> bool:
        """Whether nothing inside can be reached: it only answers."""
        return self.maps is None and self.embedding is None

    def __str__(self) -> str:
        said = []
        if self.maps is not None:
            kind = "tokens" if self.tokens else "feature maps"
            said.append(f"{kind} of {self.maps} ({self.channels} channels on {self.grid[0]} x {self.grid[1]})")
        if self.embedding is not None:
            said.append(f"an embedding of {self.embedding} numbers")
        if self.masks:
            said.append("tokens that can be left out")
        if self.gradients:
            said.append("gradients")
        if self.black_box:
            known = f" with {', '.join(said)}" if said else ""
            return f"a black box{known}" + (f": {self.why}" if self.why else "")
        return ", ".join(said)
