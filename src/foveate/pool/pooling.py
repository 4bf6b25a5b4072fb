"""POOL as an object: many places to one vector, by the network itself, by a mean, or by a module that learns."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from torch import Tensor, nn

from foveate.errors import ModelError
from foveate.parameters import Part, configured
from foveate.registries import POOLS


@configured
class OwnPool(Part):
    """The network's own pooling: the mean of a CNN's map, the class token of a ViT."""

    wanted = "vectors"
    learns = False


@configured
class MeanPool(Part):
    """The mean over the places that are visible.

    >>> import torch
    >>> maps, visible = torch.tensor([[[[1.0, 3.0]]]]), torch.tensor([[[True, True]]])
    >>> MeanPool()(maps, visible)
    tensor([[2.]])
    """

    wanted = "maps"
    learns = False

    def __call__(self, maps: Tensor, visible: Tensor | None = None) -> Tensor:
        """Maps ``[B, C, h, w]``, zero where not ``visible`` ``[B, h, w]``, to ``[B, C]``."""
        if visible is None:
            return maps.mean((2, 3))
        return maps.sum((2, 3)) / visible.sum((1, 2)).clamp(min=1)[:, None].to(maps)


@configured
class LearnedPool(Part):
    """A pool with weights of its own, trained together with a head.

    Args:
        kind: one of ``foveate list pools`` that learns: ``"attention"`` (DAR), ``"aim"``, ``"ep"``, ``"jetley"``; or
            a ready ``nn.Module`` from maps ``[B, C, h, w]`` to ``[B, D]``.
        args: its arguments beside the number of channels.
        by: the :class:`~foveate.decide.CrossEntropy` that trains it where the decision itself trains nothing by
            gradient (or ``{"kind": "cross-entropy", ...}`` with its settings); by default one with its usual settings.

    >>> import torch
    >>> pool = LearnedPool("attention", args={"queries": 4})
    >>> pool.build(16)
    16
    >>> pool(torch.rand(2, 16, 3, 3)).shape
    torch.Size([2, 16])
    """

    kind: Any = field(default="attention", kw_only=False)
    args: dict[str, Any] | None = None
    by: Any = None
    wanted = "maps"
    learns = True

    def build(self, channels: int) -> int:
        """Make the module for maps of so many channels; returns the length of its vectors."""
        self.channels_ = channels
        if isinstance(self.kind, nn.Module):
            self.module_: nn.Module = self.kind
        else:
            self.module_ = POOLS.get(str(self.kind))(channels, **(self.args or {}))
        return int(getattr(self.module_, "out_dim", None) or channels)

    def __call__(self, maps: Tensor, visible: Tensor | None = None) -> Tensor:
        """Maps ``[B, C, h, w]``, or of several views ``[B, V, C, h, w]``, to ``[B, D]`` or ``[B, V * D]``."""
        if maps.ndim == 5:
            return self.module_(maps.flatten(0, 1)).unflatten(0, maps.shape[:2]).flatten(1)
        return self.module_(maps)

    def plain(self) -> dict[str, Any]:
        by = {"kind": "cross-entropy", **self.by.plain()} if isinstance(self.by, Part) else self.by
        return {**super().plain(), "by": by}

    def learned(self) -> dict[str, Any]:
        if isinstance(self.kind, nn.Module):
            raise ModelError(
                f"{type(self.kind).__name__} was given ready made, so a saved pipeline could not build it again. "
                "Add it to the registry of pools and name it: LearnedPool('mine', args={...})."
            )
        return {"channels": self.channels_}

    def tensors(self) -> dict[str, Tensor]:
        return {k: v.detach().cpu() for k, v in self.module_.state_dict().items()}

    def restore(self, learned: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.build(int(learned["channels"]))
        self.module_.load_state_dict(tensors)
        self.module_.requires_grad_(False).eval()
