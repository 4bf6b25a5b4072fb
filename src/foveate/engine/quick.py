"""What makes the same training quicker: the memory layout of convolutions, the precision, compiled networks."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import torch
from torch import nn

from foveate.engine.bf16 import bf16_problem
from foveate.errors import first_line

log = logging.getLogger("foveate")
AUTO = "auto"
T = TypeVar("T")


def is_convolutional(model: nn.Module) -> bool:
    """Whether ``model`` has convolutions over overlapping windows (those of a ViT cut patches, and do not).

    >>> is_convolutional(nn.Conv2d(3, 4, 3)), is_convolutional(nn.Conv2d(3, 4, 8, stride=8))
    (True, False)
    """
    layers = (module for module in model.modules() if isinstance(module, nn.Conv2d))
    return any(kernel > step for layer in layers for kernel, step in zip(layer.kernel_size, layer.stride, strict=True))


@contextlib.contextmanager
def channels_last(model: nn.Module) -> Iterator[None]:
    """The weights of a convolutional ``model`` with their channels last in memory, as its inputs are; put back after.

    Without it every convolution turns its weights around in every step. The values stay the same.

    >>> net = nn.Conv2d(3, 4, 3)
    >>> with channels_last(net):
    ...     net.weight.is_contiguous(memory_format=torch.channels_last)
    True
    >>> net.weight.is_contiguous()
    True
    """
    if not is_convolutional(model):
        yield
        return
    layered: Any = model  # what PyTorch says of `to` leaves the memory format out
    layered.to(memory_format=torch.channels_last)
    try:
        yield
    finally:
        layered.to(memory_format=torch.contiguous_format)


def chosen_precision(asked: str, device: torch.device) -> str:
    """``asked``, or for ``"auto"`` the quickest that ``device`` can do with little loss.

    On a GPU bf16 where it has it and 16 bit otherwise; on a CPU bf16 when the processor multiplies it in hardware and a
    trial in a process of its own went well (:mod:`foveate.engine.bf16`); else 32 bit.

    >>> chosen_precision("32-true", torch.device("cpu"))
    '32-true'
    """
    if asked != AUTO:
        return asked
    if device.type == "cuda":
        return "bf16-mixed" if torch.cuda.is_bf16_supported() else "16-mixed"
    return "bf16-mixed" if device.type == "cpu" and multiplies_bf16() and bf16_problem() is None else "32-true"


def multiplies_bf16() -> bool:
    """Whether this processor has instructions for bf16 products; without them bf16 is slower than 32 bit."""
    able = torch.cpu.get_capabilities() if hasattr(torch.cpu, "get_capabilities") else {}
    return any(able.get(name, False) for name in ("avx512_bf16", "amx_bf16", "bf16"))


class Compiled:
    """Runs calls of a compiled ``model``, and goes on without compiling when the first one fails.

    Args:
        model: is compiled in place (``torch.compile``) while :meth:`__enter__` and :meth:`__exit__` last.
        wanted: False leaves it alone.
    """

    def __init__(self, model: nn.Module, wanted: bool):
        self.model: Any = model
        self.unsure = wanted

    def __enter__(self) -> Compiled:
        if self.unsure:
            self.model.compile()
        return self

    def __exit__(self, *_: object) -> None:
        self.model._compiled_call_impl = None

    def __call__(self, call: Callable[[], T]) -> T:
        """What ``call`` gives. The compiler works at the first call, so that one is where it fails, if it does."""
        if not self.unsure:
            return call()
        self.unsure = False
        try:
            return call()
        except Exception as error:
            self.model._compiled_call_impl = None
            found = call()  # a mistake of the model's own is raised here, without the compiler's words around it
            log.warning("the network is trained without torch.compile, which failed: %s", first_line(error))
            return found
