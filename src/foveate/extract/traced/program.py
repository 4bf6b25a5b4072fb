"""A network as data: steps that name operators, and weights by name; run step by step, from any point to any other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from foveate.errors import FoveateError, ModelError, first_line
from foveate.extract.traced.operators import operator

IMAGES = -1
"""The place of the images: before step 0."""
MOST_STEPS = 20_000
MOST_WEIGHTS = 2 * 10**9
MOST_VALUES = 2**29
"""Numbers that one step may give for one image: nobody's memory is filled by an edited file."""
DTYPES = {
    str(d).removeprefix("torch."): d
    for d in (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.int32, torch.uint8,
              torch.int16, torch.int8, torch.bool)
}  # fmt: skip
FORMATS = {
    str(f).removeprefix("torch."): f for f in (torch.contiguous_format, torch.channels_last, torch.preserve_format)
}


@dataclass(frozen=True)
class TracedStep:
    """One call of an operator. Arguments are plain values, lists of them, and single-word mappings:

    ``{"step": 3}`` what step 3 gave (-1: the images), ``{"weight": name}``, ``{"batch": 49}`` 49 times the number of
    images, ``{"dtype": "float32"}``, ``{"format": "contiguous_format"}``, ``{"device": ""}`` that of the images, and
    ``{"number": "-inf"}`` for what JSON has no word for.
    """

    op: str
    args: Sequence[Any] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)

    def inputs(self) -> set[int]:
        """The steps whose results it reads."""
        return {value for word, value in _words([*self.args, *self.kwargs.values()]) if word == "step"}

    def weights(self) -> set[str]:
        return {value for word, value in _words([*self.args, *self.kwargs.values()]) if word == "weight"}

    def to_dict(self) -> dict[str, Any]:
        told: dict[str, Any] = {"op": self.op, "args": list(self.args)}
        return {**told, "kwargs": dict(self.kwargs)} if self.kwargs else told


def _words(value: Any) -> Iterator[tuple[str, Any]]:
    """The single-word mappings inside an argument."""
    if isinstance(value, Mapping):
        yield from value.items()
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _words(one)


class Program(nn.Module):
    """Runs steps on a batch, with the weights they name.

    Args:
        steps: in the order they run; each reads only earlier ones.
        weights: tensors by name; those with decimals become parameters that are not trained, others buffers.

    >>> double = Program([TracedStep("mul.Tensor", [{"step": -1}, {"weight": "two"}])], {"two": torch.tensor(2.0)})
    >>> double.run(torch.ones(1, 3)).tolist()
    [[2.0, 2.0, 2.0]]
    >>> Program.from_dict(double.to_dict()).steps == double.steps
    True
    """

    def __init__(self, steps: Sequence[TracedStep], weights: Mapping[str, Tensor]):
        super().__init__()
        self.steps = list(steps)
        self._own: dict[str, str] = {}
        for number, (name, tensor) in enumerate(weights.items()):
            own = f"{number:04d}-{name.replace('.', '-')}"[:200]
            self._own[name] = own
            if tensor.is_floating_point():
                self.register_parameter(own, nn.Parameter(tensor.detach(), requires_grad=False))
            else:
                self.register_buffer(own, tensor.detach())
        self._paths: dict[tuple[int, int], list[tuple[int, list[int]]]] = {}
        self.taps = nn.ModuleDict()

    def weight(self, name: str) -> Tensor:
        """A weight by the name it had in the network it came from."""
        return getattr(self, self._own[name])

    def tap(self, step: int) -> nn.Module:
        """A place to hook: a module that what ``step`` gives passes through unchanged."""
        if str(step) not in self.taps:
            self.taps[str(step)] = nn.Identity()
        return self.taps[str(step)]

    # -- running --------------------------------------------------------------------------

    def forward(self, x: Tensor) -> Tensor:
        return self.run(x)

    def run(self, x: Tensor, start: int = IMAGES, end: int | None = None) -> Any:
        """What step ``end`` (by default the last) gives when step ``start`` gave ``x`` ``[B, ...]``."""
        end = len(self.steps) - 1 if end is None else end
        values: dict[int, Any] = {start: x}
        for number, done in self.path(start, end):
            values[number] = self._step(number, values, x)
            for old in done:
                del values[old]
        return values[end]

    def values(self, x: Tensor) -> list[Any]:
        """What every step gives for images ``x``."""
        found: dict[int, Any] = {IMAGES: x}
        for number in range(len(self.steps)):
            found[number] = self._step(number, found, x)
        return [found[number] for number in range(len(self.steps))]

    def _step(self, number: int, values: Mapping[int, Any], x: Tensor) -> Any:
        step = self.steps[number]
        args = [self._value(a, values, x) for a in step.args]
        found = operator(step.op)(*args, **{k: self._value(v, values, x) for k, v in step.kwargs.items()})
        return self.taps[str(number)](found) if str(number) in self.taps else found

    def _value(self, told: Any, values: Mapping[int, Any], x: Tensor) -> Any:
        if isinstance(told, (list, tuple)):
            return [self._value(one, values, x) for one in told]
        if not isinstance(told, Mapping):
            return told
        word, value = next(iter(told.items()))
        if word == "step":
            return values[value]
        if word == "weight":
            return self.weight(value)
        if word == "batch":
            return x.shape[0] * value
        if word == "device":
            return x.device
        if word == "number":
            return float(value)
        return DTYPES[value] if word == "dtype" else FORMATS[value]

    def path(self, start: int, end: int) -> list[tuple[int, list[int]]]:
        """The steps to run from ``start`` to ``end``, each with the earlier results nobody reads after it."""
        if (start, end) not in self._paths:
            needed, wanted = set(), {end}
            while wanted:
                number = wanted.pop()
                if number == start or number in needed:
                    continue
                if number == IMAGES:
                    raise ModelError("a part of this network reads the images past its feature maps.")
                needed.add(number)
                wanted |= self.steps[number].inputs()
            order, last = sorted(needed), {}
            for number in order:
                last.update(dict.fromkeys(self.steps[number].inputs(), number))
            done: dict[int, list[int]] = {}
            for old, reader in last.items():
                if old != end:
                    done.setdefault(reader, []).append(old)
            self._paths[start, end] = [(number, done.get(number, [])) for number in order]
        return self._paths[start, end]

    def cut(self, start: int, end: int) -> tuple[Program, dict[int, int]]:
        """The program from ``start`` to ``end`` by itself, with the weights it needs, and where each step went."""
        order = [number for number, _ in self.path(start, end)]
        place = {start: IMAGES, **{number: i for i, number in enumerate(order)}}
        steps = [_moved(self.steps[number], place) for number in order]
        names = dict.fromkeys(name for step in steps for name in sorted(step.weights()))
        return Program(steps, {name: self.weight(name) for name in names}), place

    # -- on disk --------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """The steps, and shape and type of every weight, as JSON values."""
        told = {
            name: {"shape": list(self.weight(name).shape), "dtype": str(self.weight(name).dtype).removeprefix("torch.")}
            for name in self._own
        }
        return {"weights": told, "steps": [step.to_dict() for step in self.steps]}

    @classmethod
    def from_dict(cls, values: Any) -> Program:
        """The program that :meth:`to_dict` described, its weights all zero; what is not on the lists is refused."""
        from foveate.extract.traced.form import read_program

        form = read_program(values)
        numbers = sum(math.prod(w.shape) for w in form.weights.values())
        if numbers > MOST_WEIGHTS:
            raise ModelError(f"this file asks for a network of {numbers:,} numbers; that is none of ours.")
        steps = [TracedStep(s.op, s.args, s.kwargs) for s in form.steps]
        for number, step in enumerate(steps):
            operator(step.op)
            if not all(IMAGES <= read < number for read in step.inputs()) or step.weights() - set(form.weights):
                raise ModelError(f"step {number} of a saved network reads what is not there yet.")
        return cls(steps, {n: torch.zeros(w.shape, dtype=DTYPES[w.dtype]) for n, w in form.weights.items()})

    def rehearse(self, shape: tuple[int, ...], batch: int = 1) -> list[Any]:
        """What every step would give for ``batch`` images of ``shape``, as tensors without values; nothing is computed.

        A program from a file that does not fit together, or asks for too much memory, is refused here.
        """
        ghosts = Program(self.steps, {n: self.weight(n).detach().to("meta") for n in self._own})
        x, found = torch.empty(batch, *shape, device="meta"), {}
        values: dict[int, Any] = {IMAGES: x}
        for number, step in enumerate(self.steps):
            try:
                values[number] = found[number] = ghosts._step(number, values, x)
            except FoveateError:
                raise
            except Exception as error:
                raise ModelError(f"step {number} ({step.op}) of a saved network fails: {first_line(error)}") from error
            several = values[number] if isinstance(values[number], (list, tuple)) else [values[number]]
            if any(isinstance(v, Tensor) and v.numel() > MOST_VALUES * batch for v in several):
                raise ModelError(f"step {number} ({step.op}) of a saved network asks for too much memory.")
        return [found[number] for number in range(len(self.steps))]


def _moved(step: TracedStep, place: Mapping[int, int]) -> TracedStep:
    def moved(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {w: place[v] if w == "step" else v for w, v in value.items()}
        return [moved(one) for one in value] if isinstance(value, (list, tuple)) else value

    return TracedStep(step.op, [moved(a) for a in step.args], {k: moved(v) for k, v in step.kwargs.items()})
