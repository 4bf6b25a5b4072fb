"""EXTRACT, POOL and DECIDE in one module: what every fitted CNN or ViT classifier ends as."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from foveate.decide.heads import build_head
from foveate.extract import Backbone
from foveate.extract.backbone import rebuilt
from foveate.look import Gaze, gradcam
from foveate.registries import POOLS


class Network(nn.Module):
    """A backbone, a pooling and a head.

    Args:
        backbone: gives maps and pooled features.
        head: pooled features to logits.
        pool: replaces the backbone's own pooling (GAP or CLS) when given; maps ``[B, C, h, w] -> [B, D]``.
        recipe: how to build ``pool`` and ``head`` again, for saving.
    """

    forward_methods: tuple[str, ...] = ("embed",)

    def __init__(
        self,
        backbone: Backbone,
        head: nn.Module,
        pool: nn.Module | None = None,
        recipe: dict[str, Any] | None = None,
    ):
        super().__init__()
        self.backbone = backbone
        self.maps_tap = nn.Identity()  # Grad-CAM and other readers hook here
        self.pool = pool
        self.head = head
        self.recipe = recipe or {"head": "linear"}

    @classmethod
    def build(
        cls,
        backbone: Backbone,
        classes: int,
        *,
        head: str = "linear",
        pool: str | None = None,
        **pool_args: Any,
    ) -> Network:
        """Make the pooling and the head for ``backbone`` and remember how."""
        module = None if pool is None else POOLS.get(pool)(backbone.map_dim, **pool_args)
        features = backbone.dim if module is None else int(getattr(module, "out_dim", backbone.map_dim))
        recipe = {"head": head, "pool": pool, "pool_args": pool_args, "classes": classes}
        return cls(backbone, build_head(head, features, classes), module, recipe)

    def to_dict(self) -> dict[str, Any]:
        return {"backbone": self.backbone.spec.to_dict(), **self.recipe}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Network:
        """An untrained network of the same architecture."""
        backbone = rebuilt(values["backbone"])
        return cls.build(
            backbone,
            values["classes"],
            head=values["head"],
            pool=values.get("pool"),
            **values.get("pool_args", {}),
        )

    def maps(self, x: Tensor) -> Tensor:
        """Feature maps before pooling, ``[B, C, h, w]``."""
        return self.maps_tap(self.backbone.maps(x))

    @property
    def reads_maps(self) -> bool:
        """Whether the pooled features are made from the maps (not so for a ViT that reads its CLS token)."""
        return self.pool is not None or self.backbone.pools_maps

    def embed(self, x: Tensor) -> Tensor:
        """Pooled features, ``[B, D]``."""
        if not self.reads_maps:
            return self.backbone(x)
        return self.pool_maps(self.maps(x))

    def pool_maps(self, maps: Tensor) -> Tensor:
        """Pooled features from maps already computed, ``[B, D]``."""
        return self.backbone.pooled(maps) if self.pool is None else self.pool(maps)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.embed(x))

    def gradcam(self, inputs: Tensor, classes: Tensor | None = None, method: str = "grad-cam") -> Gaze:
        """Grad-CAM on the last feature map (CNN, or any net with a learned pool) or the last ViT block."""
        if not self.reads_maps:
            layer, to_grid = self.backbone.attention_tap(inputs.shape[-2:])
            return gradcam(self, inputs, layer, classes, to_grid=to_grid, method=method)
        return gradcam(self, inputs, self.maps_tap, classes, method=method)
