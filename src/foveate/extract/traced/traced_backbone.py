"""A backbone made of a program: feature maps, tokens and the embedding of any network that could be traced."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor, nn

from foveate.errors import ModelError
from foveate.extract.backbone import Backbone, BackboneSpec
from foveate.extract.traced.cuts import Cuts, Layout
from foveate.extract.traced.program import Program


@dataclass(frozen=True)
class TracedSpec(BackboneSpec):
    """All that is needed to build a traced backbone again, its weights aside.

    Args:
        program: from images to the embedding (or to the maps), as :meth:`Program.to_dict` gives it.
        cuts: where maps and embedding are.
    """

    program: Mapping[str, Any] = field(default_factory=dict)
    cuts: Cuts = field(default_factory=Cuts)

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name, "image_size": self.image_size, "program": dict(self.program), "cuts": self.cuts.to_dict()
        }  # fmt: skip


class CutsForm(BaseModel):
    """:class:`Cuts` on disk."""

    model_config = ConfigDict(extra="forbid", strict=True)

    maps: int | None
    layout: Layout
    prefix: int = Field(ge=0, le=64)
    grid: list[int] = Field(min_length=2, max_length=2)
    map_dim: int = Field(ge=0)
    embedding: int | None
    dim: int = Field(ge=1)
    tap: int | None
    layer: str = Field(max_length=300)


class TracedBackbone(Backbone):
    """As :class:`~foveate.extract.Backbone`, for a network that came as a module and not by name.

    >>> from foveate.extract.traced.open import traced_network
    >>> net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))
    >>> backbone, head = traced_network(net.eval(), (16, 16), "mine")
    >>> x = torch.rand(2, 3, 16, 16)
    >>> tuple(backbone.maps(x).shape), tuple(backbone(x).shape), torch.equal(head(backbone(x)), net(x))
    ((2, 8, 14, 14), (2, 8), True)
    """

    spec: TracedSpec

    def __init__(self, program: Program, spec: TracedSpec):
        nn.Module.__init__(self)
        self.net, self.spec, self.cuts = program, spec, spec.cuts
        self.is_vit = False  # there are no blocks to reach into
        self.prefix_tokens, self.map_dim, self.dim = self.cuts.prefix, self.cuts.map_dim, self.cuts.dim

    @property
    def pools_maps(self) -> bool:
        return self.cuts.maps is not None and self.cuts.prefix == 0

    def forward(self, x: Tensor) -> Tensor:
        if self.cuts.embedding is None:
            return self.maps(x).mean((2, 3))
        return self.net.run(x, end=self.cuts.embedding)

    def maps(self, x: Tensor) -> Tensor:
        if self.cuts.maps is None:
            raise ModelError(
                f"'{self.spec.name}' has no feature maps that everything passes through; where there is a layer that "
                "gives some, name it with layer=..., else use a remedy that needs an embedding alone."
            )
        return self._grid(self.net.run(x, end=self.cuts.maps))

    def pooled(self, maps: Tensor) -> Tensor:
        if not self.pools_maps:
            return super().pooled(maps)
        if self.cuts.embedding is None:
            return maps.mean((2, 3))
        assert self.cuts.maps is not None
        return self.net.run(self.as_they_lay(maps), self.cuts.maps, self.cuts.embedding)

    def as_grid(self, tokens: Tensor, image_size: tuple[int, ...] | torch.Size) -> Tensor:
        return self._grid(tokens)

    def attention_tap(self, size: torch.Size) -> tuple[nn.Module, Callable[[Tensor], Tensor]]:
        if self.cuts.tap is None:
            raise ModelError(f"'{self.spec.name}' has no maps and no attention to look into; use occlusion.")
        return self.net.tap(self.cuts.tap), self._grid

    @property
    def given(self) -> tuple[int, ...]:
        """Shape of what a head reads for one image: the embedding, or without one the maps as they lie."""
        return (self.dim,) if self.cuts.embedding is not None else self._laid_shape()

    def _laid_shape(self) -> tuple[int, ...]:
        height, width = self.cuts.grid
        if self.cuts.layout == "tokens":
            return self.cuts.prefix + height * width, self.map_dim
        return (self.map_dim, height, width) if self.cuts.layout == "channels-first" else (height, width, self.map_dim)

    def _grid(self, value: Tensor) -> Tensor:
        """What the step gave as ``[B, C, h, w]``."""
        if self.cuts.layout == "channels-last":
            return value.permute(0, 3, 1, 2)
        if self.cuts.layout == "tokens":
            return value[:, self.cuts.prefix :].transpose(1, 2).unflatten(2, self.cuts.grid)
        return value

    def as_they_lay(self, maps: Tensor) -> Tensor:
        """Maps ``[B, C, h, w]`` as the steps after them read them."""
        if self.cuts.layout == "channels-last":
            return maps.permute(0, 2, 3, 1)
        return maps.flatten(2).transpose(1, 2) if self.cuts.layout == "tokens" else maps

    # -- on disk --------------------------------------------------------------------------

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> TracedBackbone:
        """The backbone that the spec described, its weights all zero; checked by a rehearsal without numbers."""
        plain = BackboneSpec.from_dict({"name": values.get("name"), "image_size": values.get("image_size")})
        if plain.image_size is None:
            raise ModelError("a saved network says for images of which size it was traced; this one does not.")
        try:
            form = CutsForm.model_validate(values["cuts"])
        except (ValidationError, KeyError) as error:
            raise ModelError("a saved network says where its maps and its embedding are; this one does not.") from error
        cuts = Cuts(**{**form.model_dump(), "grid": (form.grid[0], form.grid[1])})
        program = Program.from_dict(values["program"])
        steps = len(program.steps)
        if any(at is not None and not 0 <= at < steps for at in (cuts.maps, cuts.embedding, cuts.tap)):
            raise ModelError("the cuts of a saved network name steps it does not have.")
        if cuts.embedding is None and cuts.dim != cuts.map_dim:
            raise ModelError("without an embedding the mean of the maps stands for it; their widths differ here.")
        if cuts.maps is None and cuts.embedding is None:
            raise ModelError("a saved network has maps or an embedding; this one has neither.")
        made = cls(program, TracedSpec(plain.name, plain.image_size, program=program.to_dict(), cuts=cuts))
        made._check(program.rehearse((3, *plain.image_size)))
        return made

    def _check(self, values: list[Any]) -> None:
        """Raise unless what the steps give has the shapes that the cuts tell of."""
        ends = {self.cuts.embedding: (1, self.dim)} if self.cuts.embedding is not None else {}
        shapes = {} if self.cuts.maps is None else {self.cuts.maps: (1, *self._laid_shape())}
        for at, shape in [*ends.items(), *shapes.items()]:
            found = tuple(getattr(values[at], "shape", ()))
            if found != shape:
                raise ModelError(f"a saved network says that a step gives {list(shape)}, and it gives {list(found)}.")
