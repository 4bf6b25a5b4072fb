"""The graphs of a system that can leave Python."""

from __future__ import annotations

from foveate.assemble.capabilities import Exports
from foveate.assemble.graphs import NO_GRAPH, Graph, GraphPlan, MaskedPath
from foveate.assemble.system import System
from foveate.errors import ModelError

__all__ = ["Graph", "GraphPlan", "MaskedPath", "plan_of"]


def plan_of(system: System) -> GraphPlan:
    """The graphs a fitted system consists of, and what lies between them.

    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=32)
    >>> base = fv.ERM("micro_resnet", epochs=1, progress=False).fit(data.train)
    >>> [(g.name, g.inputs, g.outputs) for g in plan_of(base).graphs]
    [('model', {'images': (3, 32, 32)}, ('logits',))]
    """
    system._require_fit()
    if isinstance(system, Exports):
        return system.graphs()
    raise ModelError(f"{type(system).__name__}: {NO_GRAPH}")
