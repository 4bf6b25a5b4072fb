"""What a system can do beyond predicting, as protocols: ask with ``isinstance(system, HasParts)``.

>>> import foveate as fv
>>> isinstance(fv.IFAM(), HasParts), isinstance(fv.ERM(), HasParts)
(True, False)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from torch import Tensor

from foveate.assemble.graphs import GraphPlan
from foveate.assemble.network import Network
from foveate.assemble.system import Images

if TYPE_CHECKING:
    from typing_extensions import Self


@runtime_checkable
class HasParts(Protocol):
    """Sorts an image into parts, which can be switched off (PDiscoFormer, iFAM)."""

    parts: int
    dropped_parts_: tuple[int, ...] | None

    def part_maps(self, images: Images) -> Tensor:
        """Soft part maps ``[B, K + 1, h, w]``, background last."""
        ...

    def with_parts_removed(self, parts: Iterable[int]) -> Self:
        """The same model that treats ``parts`` as background."""
        ...


@runtime_checkable
class TakesMask(Protocol):
    """Predicts under a token mask that is held fixed: what ``verify`` and the app's brush need."""

    def stage_inputs(self, images: Images) -> tuple[Tensor, Tensor]:
        """Normalised inputs ``[B, 3, H, W]`` and the token mask ``[B, N]`` made of them."""
        ...

    def logits_with_mask(self, inputs: Tensor, token_mask: Tensor, prune: bool = False) -> Tensor:
        """Logits ``[B, C]`` under a given mask; differentiable in ``inputs``."""
        ...


@runtime_checkable
class NeedsMasks(Protocol):
    """May read true masks to predict: whoever has images alone must ask first (:func:`sees_images_alone`)."""

    def stage_inputs(self, images: Images, masks: Sequence[Tensor] | None = None) -> tuple[Tensor, Tensor]:
        """As for :class:`TakesMask`, with the true masks ``[H, W]`` of the images."""
        ...

    @property
    def reads_true_masks(self) -> bool:
        """Whether a mask must come with every image."""
        ...


@runtime_checkable
class Exports(Protocol):
    """Has fixed graphs that can leave Python."""

    def graphs(self) -> GraphPlan:
        """Them, in the order they run."""
        ...


def sees_images_alone(system: object) -> bool:
    """Whether it predicts from images and nothing else: edited images and a gaze can be asked of it.

    >>> import foveate as fv
    >>> sees_images_alone(fv.EarlyMask(masks="truth")), sees_images_alone(fv.EarlyMask(masks="found"))
    (False, True)
    """
    return not getattr(system, "reads_true_masks", False)


def network_of(system: object) -> Network | None:
    """The one network a fitted system ends as, from normalised images ``[B, 3, h, w]`` over maps to logits; else None.

    Grad-CAM, entanglement and new heads (DFR, DAR) can start from it. A network behind a mask is none: without the
    mask it would read what the mask hides.
    """
    network = getattr(system, "network_", None)
    return network if isinstance(network, Network) and not isinstance(system, TakesMask) else None
