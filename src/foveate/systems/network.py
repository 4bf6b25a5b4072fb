"""EXTRACT, POOL and DECIDE in one module: what every fitted CNN or ViT classifier ends as."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from foveate.engine import History
from foveate.errors import ModelError
from foveate.extract import Backbone, BackboneSpec, create_backbone
from foveate.look import Gaze, gradcam
from foveate.registries import POOLS
from foveate.systems.system import Images, System


def build_head(kind: str, features: int, classes: int) -> nn.Module:
    """``linear``, ``bias-free``, or ``two-layer`` (one hidden layer of the same width, ReLU)."""
    if kind in ("linear", "bias-free"):
        return nn.Linear(features, classes, bias=kind == "linear")
    if kind == "two-layer":
        return nn.Sequential(nn.Linear(features, features), nn.ReLU(), nn.Linear(features, classes))
    raise ModelError(f"unknown head '{kind}'; use 'linear', 'bias-free' or 'two-layer'.")


class Network(nn.Module):
    """A backbone, a pooling and a head.

    Args:
        backbone: gives maps and pooled features.
        head: pooled features to logits.
        pool: replaces the backbone's own pooling (GAP or CLS) when given; maps ``[B, C, h, w] -> [B, D]``.
        recipe: how to build ``pool`` and ``head`` again, for saving.
    """

    forward_methods = ("embed",)

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
        backbone = create_backbone(BackboneSpec.from_dict(values["backbone"]))
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
        return self.pool is not None or not self.backbone.is_vit

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
            layer = self.backbone.net.blocks[-1].norm1  # type: ignore[index,union-attr]
            size = inputs.shape[-2:]
            return gradcam(
                self, inputs, layer, classes, to_grid=lambda t: self.backbone.as_grid(t, size), method=method
            )
        return gradcam(self, inputs, self.maps_tap, classes, method=method)


def default_device(accelerator: str = "auto") -> torch.device:
    """Where predictions run: a GPU when there is one and it is wanted."""
    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return torch.device("cuda")
    if accelerator in ("auto", "gpu", "mps") and torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


class NetworkSystem(System):
    """A system whose fitted form is one :class:`Network`: how it predicts, looks and is saved."""

    network_: Network
    history_: History

    @torch.no_grad()
    def _logits(self, inputs: Tensor) -> Tensor:
        device = default_device(self.training.accelerator)
        self.network_.to(device).eval()
        return self.network_(inputs.to(device))

    def identity(self) -> dict[str, Any]:
        """The settings that change what is learned, for checkpoints."""
        leave = {"base", "checkpoint", "checkpoint_every", "progress", "workers", "devices", "strategy", "store"}
        return {k: v for k, v in self.get_params().items() if k not in leave}

    def look(self, images: Images, method: str = "grad-cam") -> Gaze:
        """Grad-CAM for the predicted class, from the grad-cam library."""
        self._require_fit()
        return self.network_.cpu().eval().gradcam(self.inputs(images), method=method)

    def _config(self) -> dict[str, Any]:
        return {"network": self.network_.to_dict(), "history": self.history_.to_dict()}

    def _tensors(self) -> dict[str, Tensor]:
        return {k: v.detach().cpu() for k, v in self.network_.state_dict().items()}

    def _restore(self, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.network_ = Network.from_dict(config["network"])
        self.network_.load_state_dict(tensors)
        self.network_.eval()
        self.history_ = History(**config["history"])
