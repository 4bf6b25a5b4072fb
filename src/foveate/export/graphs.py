"""The graphs of a system that can leave Python."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from foveate.assemble.capabilities import Exports
from foveate.assemble.graphs import Graph, GraphPlan, MaskedPath
from foveate.assemble.system import System
from foveate.errors import ModelError

__all__ = ["Graph", "GraphPlan", "MaskedPath", "exports", "plan_of"]

Builder = Callable[[Any], GraphPlan]
_BUILDERS: list[tuple[Callable[[System], bool], Builder]] = []


def exports(test: Callable[[System], bool]) -> Callable[[Builder], Builder]:
    """Register how systems that pass ``test`` are taken apart; later registrations are asked first."""

    def register(build: Builder) -> Builder:
        _BUILDERS.insert(0, (test, build))
        return build

    return register


def plan_of(system: System) -> GraphPlan:
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
    if isinstance(system, Exports):
        return system.graphs()
    raise ModelError(
        f"{type(system).__name__} has no fixed graph to export: what it computes depends on the image in a way a graph "
        "cannot hold. Save it with save(folder) and run it with foveate predict."
    )
