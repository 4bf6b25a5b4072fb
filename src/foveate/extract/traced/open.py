"""A module in, a backbone and a head out: traced once, and cut open where its embedding is."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from foveate.errors import ModelError, suggest
from foveate.extract.traced.cuts import Cuts, find_cuts, gates
from foveate.extract.traced.program import IMAGES, Program
from foveate.extract.traced.traced_backbone import TracedBackbone, TracedSpec
from foveate.extract.traced.tracing import trace


def traced_network(
    module: nn.Module,
    image_size: tuple[int, int],
    name: str,
    *,
    layer: str | None = None,
    logits: Callable[[Any], Tensor] | None = None,
) -> tuple[TracedBackbone, Program]:
    """``module`` as a backbone and what comes after its embedding (or, without one, after its maps).

    Args:
        module: a classifier on the CPU in evaluation mode; left as it was.
        image_size: height and width of the images it is traced with.
        name: what to call it.
        layer: the module whose output are the feature maps, as ``module`` calls it; by default the last maps or tokens
            that everything passes through.
        logits: takes the logits out of what the module gives, when that is not a tensor.
    """
    program = trace(module, (3, *image_size), logits)
    x = torch.randn(2, 3, *image_size, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        values = program.values(x)
        outputs = _outputs(module, x)
    asked = None if layer is None else _step_of(layer, outputs, program, values)
    cuts = find_cuts(program, values, asked)
    if cuts.maps is None and cuts.embedding is None:
        raise ModelError("it has neither feature maps nor an embedding that everything passes through.")
    if cuts.maps is not None:
        cuts = replace(cuts, layer=layer or _name_of(values[cuts.maps], outputs))
    return _opened(program, cuts, name, image_size)


def _opened(program: Program, cuts: Cuts, name: str, image_size: tuple[int, int]) -> tuple[TracedBackbone, Program]:
    end = cuts.maps if cuts.embedding is None else cuts.embedding
    assert end is not None
    body, place = program.cut(IMAGES, end)
    head, _ = program.cut(end, len(program.steps) - 1)
    moved: dict[str, Any] = {
        key: None if (at := getattr(cuts, key)) is None else place[at] for key in ("maps", "embedding", "tap")
    }
    cuts = replace(cuts, **moved)
    spec = TracedSpec(name, image_size, program=body.to_dict(), cuts=cuts)
    return TracedBackbone(body, spec), head


def _outputs(module: nn.Module, x: Tensor) -> dict[str, Tensor]:
    """What every module inside gives for ``x``, by its name; the last time it was called."""
    found: dict[str, Tensor] = {}
    handles = []
    for name, part in module.named_modules():
        if name:

            def keep(_module: nn.Module, _inputs: Any, output: Any, name: str = name) -> None:
                if isinstance(output, Tensor):
                    found[name] = output.detach().clone()  # what an in-place step after it writes is not its own

            handles.append(part.register_forward_hook(keep))
    try:
        module(x)
    finally:
        for handle in handles:
            handle.remove()
    return found


def _name_of(value: Tensor, outputs: dict[str, Tensor]) -> str:
    """The module that gives ``value``: the outermost of those that do."""
    same = [name for name, out in outputs.items() if out.shape == value.shape and torch.equal(out, value)]
    return min(same, key=lambda name: name.count("."), default="")


def _step_of(layer: str, outputs: dict[str, Tensor], program: Program, values: list[Any]) -> int:
    if layer not in outputs:
        raise ModelError(f"there is no layer '{layer}' that gives a tensor.{suggest(layer, list(outputs))}")
    wanted = outputs[layer]
    for number in reversed(gates(program)):
        value = values[number]
        if isinstance(value, Tensor) and value.shape == wanted.shape and torch.equal(value, wanted):
            if value.ndim in (3, 4):
                return number
            break
    raise ModelError(
        f"the layer '{layer}' gives {tuple(wanted.shape)}, and not feature maps that everything passes through; name "
        "one that does, such as the last block."
    )
