"""A module to a program: it is run twice, on two images and on three, and what differs is the number of images."""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from foveate.errors import ModelError, first_line
from foveate.extract.traced.operators import ALLOWED, PICK, functional
from foveate.extract.traced.program import IMAGES, Program, TracedStep

log = logging.getLogger("foveate")
_LEFT_OUT = {"pin_memory", "layout", "non_blocking"}
_IDLE = {"dropout.default", "alpha_dropout.default", "feature_dropout.default", "alias.default", "detach.default"}
"""They change nothing in evaluation mode."""


def trace(module: nn.Module, shape: tuple[int, int, int], logits: Callable[[Any], Tensor] | None = None) -> Program:
    """What ``module`` computes for images of ``shape``, as a program whose last step gives its output.

    Args:
        module: on the CPU, in evaluation mode; left as it was.
        shape: channels, height, width.
        logits: takes the one tensor that counts out of what the module gives, when that is not a tensor.

    A network that decides anything by looking at the numbers (``if x.mean() > 0``) has no such program: a
    :class:`~foveate.errors.ModelError` says so. The program was run beside the module on images of noise, of zeros and
    of ones, and gave the same.

    >>> net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(inplace=True), nn.AdaptiveAvgPool2d(1), nn.Flatten()).eval()
    >>> program = trace(net, (3, 8, 8))
    >>> [step.op for step in program.steps]
    ['conv2d.default', 'relu.default', 'adaptive_avg_pool2d.default', 'flatten.using_ints']
    >>> x = torch.rand(5, 3, 8, 8)
    >>> torch.equal(program.run(x), net(x))
    True
    """
    run = module if logits is None else (lambda x: logits(module(x)))
    generator = torch.Generator().manual_seed(0)
    try:
        with torch.no_grad():
            graphs = [_graph(run, torch.randn(count, *shape, generator=generator)) for count in (2, 3)]
            program = _program(module, *graphs)
            _same(program, run, shape, generator)
    except ModelError:
        raise
    except Exception as error:  # whatever a network can do that a fixed computation does not
        raise ModelError(f"what it computes is not fixed: {first_line(error)[:200]}") from error
    return program


def _graph(run: Callable[[Tensor], Any], x: Tensor) -> torch.fx.GraphModule:
    from torch.fx.experimental.proxy_tensor import make_fx

    graph = make_fx(run, tracing_mode="real", pre_dispatch=True)(x)
    graph.graph.eliminate_dead_code()
    return graph


def _same(program: Program, run: Callable[[Tensor], Any], shape: tuple[int, ...], generator: torch.Generator) -> None:
    noise = torch.randn(5, *shape, generator=generator)
    for x in (noise, torch.zeros(1, *shape), torch.ones(4, *shape)):
        found, expected = program.run(x.clone()), run(x.clone())
        if found.shape != expected.shape or not torch.allclose(found, expected, rtol=1e-4, atol=1e-5, equal_nan=True):
            raise ModelError(
                "its steps cannot be written down: they depend on what the images show, or write into parts of tensors."
            )


def _program(module: nn.Module, two: torch.fx.GraphModule, three: torch.fx.GraphModule) -> Program:
    named = {id(t): n for n, t in [*module.named_parameters(), *module.named_buffers()]}
    nodes, others = list(two.graph.nodes), list(three.graph.nodes)
    if [str(n.target) for n in nodes] != [str(n.target) for n in others]:
        raise ModelError("its steps depend on the number of images.")
    told: dict[str, Any] = {}
    weights: dict[str, Tensor] = {}
    steps: list[TracedStep] = []
    output: Any = None
    for node, other in zip(nodes, others, strict=True):
        if node.op == "placeholder":
            told[node.name] = {"step": IMAGES}
        elif node.op == "get_attr":
            tensor = getattr(two, node.target)
            name = named.get(id(tensor)) or f"constant.{node.target.strip('_')}"
            weights[name] = tensor
            told[node.name] = {"weight": name}
        elif node.op == "output":
            output = told[node.args[0].name]
        else:
            step = _step(node, other, told)
            if step.op in _IDLE:
                told[node.name] = step.args[0]
                continue
            steps.append(step)
            told[node.name] = {"step": len(steps) - 1}
    if output is None or "step" not in output or output["step"] < 0:
        raise ModelError("its output does not depend on the images.")
    whole = Program(steps, {name: copy.deepcopy(tensor.detach()) for name, tensor in weights.items()})
    return whole.cut(IMAGES, output["step"])[0]


def _step(node: torch.fx.Node, other: torch.fx.Node, told: dict[str, Any]) -> TracedStep:
    name = str(node.target).removeprefix("aten.")
    name = PICK if "getitem" in name else functional(name)
    if name not in ALLOWED and name != PICK:
        raise ModelError(f"it uses the operator '{name}', which is not among those that can be saved.")
    args = [_argument(a, b, told) for a, b in zip(node.args, other.args, strict=True)]
    kwargs = {k: _argument(v, other.kwargs[k], told) for k, v in node.kwargs.items() if k not in _LEFT_OUT}
    return TracedStep(name, args, {k: v for k, v in kwargs.items() if v is not None})


def _argument(value: Any, other: Any, told: dict[str, Any]) -> Any:
    """An argument as data; a number that grew with the images is so many times their number."""
    if isinstance(value, torch.fx.Node):
        return told[value.name]
    if isinstance(value, (list, tuple)):
        return [_argument(a, b, told) for a, b in zip(value, other, strict=True)]
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return value
    if isinstance(value, int):
        if value == other:
            return value
        if value * 3 == other * 2 and value % 2 == 0:
            return {"batch": value // 2}
        raise ModelError("a shape inside it grows with the images in a way that cannot be written down.")
    if isinstance(value, float):
        return value if math.isfinite(value) else {"number": str(value)}
    if isinstance(value, torch.dtype):
        return {"dtype": str(value).removeprefix("torch.")}
    if isinstance(value, torch.memory_format):
        return {"format": str(value).removeprefix("torch.")}
    if isinstance(value, torch.device):
        return {"device": ""}
    if isinstance(value, torch.layout):
        return None
    raise ModelError(f"an argument inside it is a {type(value).__name__}, which cannot be written down.")
