"""The fixed graphs inside a fitted system: what can leave Python, and what must stay outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from foveate.errors import ModelError
from foveate.extract import MaskedViT
from foveate.systems.network import NetworkSystem
from foveate.systems.parts_network import Intervention, PartsNetwork
from foveate.systems.system import System


@dataclass
class Graph:
    """One graph of a system: a module whose work does not depend on what it is given.

    Attributes:
        name: of the file.
        module: in evaluation mode, on the CPU.
        inputs: name of every input and the shape of one example, without the batch axis.
        outputs: name of every output.
        bools: the inputs that are boolean (token masks); all others are float32.
    """

    name: str
    module: nn.Module
    inputs: Mapping[str, tuple[int, ...]]
    outputs: tuple[str, ...]
    bools: frozenset[str] = field(default_factory=frozenset)

    def example(self, batch: int = 2, seed: int = 0) -> tuple[Tensor, ...]:
        """Random inputs ``[batch, ...]``, in order."""
        generator = torch.Generator().manual_seed(seed)
        made = []
        for name, shape in self.inputs.items():
            values = torch.randn(batch, *shape, generator=generator)
            made.append(values > 0 if name in self.bools else values)
        return tuple(made)


@dataclass
class Plan:
    """The graphs of a system in the order they run, and what the runner does between them (JSON values)."""

    graphs: list[Graph]
    steps: dict[str, Any] = field(default_factory=dict)


Builder = Callable[[Any], Plan]
_BUILDERS: list[tuple[Callable[[System], bool], Builder]] = []


def exports(test: Callable[[System], bool]) -> Callable[[Builder], Builder]:
    """Register how systems that pass ``test`` are taken apart; later registrations are asked first."""

    def register(build: Builder) -> Builder:
        _BUILDERS.insert(0, (test, build))
        return build

    return register


def plan_of(system: System) -> Plan:
    """The graphs a fitted system consists of, and what lies between them.

    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=32)
    >>> base = fv.ERM("micro_resnet", epochs=1, progress=False).fit(data.train)
    >>> [(g.name, g.inputs, g.outputs) for g in plan_of(base).graphs]
    [('model', {'images': (3, 32, 32)}, ('logits',))]
    """
    system._require_fit()
    for test, build in _BUILDERS:
        if test(system):
            return build(system)
    raise ModelError(
        f"{type(system).__name__} has no fixed graph to export: what it computes depends on the image in a way a graph "
        "cannot hold. Save it with save(folder) and run it with foveate predict."
    )


@exports(lambda system: isinstance(system, NetworkSystem))
def _network(system: NetworkSystem) -> Plan:
    """Backbone, pool and head: one graph."""
    shape = {"images": (3, *system.preprocess_.size)}
    return Plan([Graph("model", system.network_.cpu().eval(), shape, ("logits",))])


class MaskedPath(nn.Module):
    """A :class:`~foveate.extract.MaskedViT` without branches on what the mask holds: ``(images, mask) -> logits``.

    The boolean path, dense: hidden patches are zero before the first block and unreadable in every block.

    >>> from timm.models.vision_transformer import VisionTransformer
    >>> vit = VisionTransformer(img_size=8, patch_size=4, embed_dim=12, depth=2, num_heads=3, num_classes=5)
    >>> masked, images = MaskedViT(vit.eval()), torch.rand(2, 3, 8, 8)
    >>> mask = torch.tensor([[True, False, False, True], [False, False, False, True]])
    >>> torch.allclose(MaskedPath(masked)(images, mask), masked(images, mask), atol=1e-6)
    True
    """

    def __init__(self, masked: MaskedViT):
        super().__init__()
        self.masked = masked

    def forward(self, images: Tensor, token_mask: Tensor) -> Tensor:
        masked = self.masked
        tokens = masked._dense(images, token_mask)
        visible = tokens.keep[:, None, None, :]  # always given: a graph cannot ask whether anything is hidden
        x = tokens.x
        for depth, block in enumerate(masked.vit.blocks):  # type: ignore[arg-type]
            rope = {}
            if tokens.rope is not None:
                rope = {"rope": tokens.rope[depth] if masked._mixed_rope else tokens.rope}
            x = block(x, attn_mask=visible, **rope)
        pooled = masked._pool(masked.vit.norm(x), tokens.keep)  # type: ignore[operator]
        head = masked.vit.head if masked.head is None else masked.head
        return head(pooled)  # type: ignore[operator]


class PartsPath(nn.Module):
    """iFAM or PDiscoFormer as one graph, interventions included: ``images -> (logits, token_mask)``.

    Stage 2 is the dense masked path: the same logits as the pruned one up to rounding, and a fixed amount of work.
    """

    def __init__(self, network: PartsNetwork, change: Intervention):
        super().__init__()
        self.network, self.change = network, change
        self.second = None if network.stage2 is None else MaskedPath(network.stage2)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        _, output = self.network.parts(images, self.change)
        mask = self.network.token_mask(output.maps) > 0.5
        if self.second is None:
            return output.logits, mask
        moved = images * self.network._scale + self.network._shift
        return self.second(moved, mask), mask


@exports(lambda system: isinstance(getattr(system, "network_", None), PartsNetwork))
def _parts(system: Any) -> Plan:
    network: PartsNetwork = system.network_.cpu().eval()
    if network.mask == "soft" and network.stage2 is not None:
        raise ModelError("a soft mask hides nothing and is an ablation; only hard masks are exported.")
    path = PartsPath(network, system.intervention).eval()
    return Plan([Graph("model", path, {"images": (3, *system.preprocess_.size)}, ("logits", "token_mask"))])
