"""Where a program can be opened: its maps, tokens and embedding, found in the flow from image to logits."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from torch import Tensor

from foveate.extract.traced.program import IMAGES, Program

Layout = Literal["channels-first", "channels-last", "tokens"]
MOST_PREFIX = 8
"""Tokens that are no patches (class, registers) a ViT has at most."""
ATTENTION = ("scaled_dot_product_attention.default", "softmax.int", "_softmax.default")
LINEAR = {"linear.default": 0, "addmm.default": 1, "matmul.default": 0, "mm.default": 0}
"""Operators that decide, and which of their arguments they read."""


@dataclass(frozen=True)
class Cuts:
    """Steps of a program through which everything passes that the logits know of the image.

    Attributes:
        maps: gives the last feature maps or tokens; None without.
        layout: how those lie in memory.
        prefix: tokens before those of the patches (``"tokens"``).
        grid: height and width of the maps.
        map_dim: their channels.
        embedding: gives the input ``[B, dim]`` of the last linear layer; None without.
        dim: its width; without an embedding that of the mean of the maps.
        tap: tokens before the last attention, where Grad-CAM looks in a ViT.
        layer: the module that makes the maps, as its network calls it; for people.
    """

    maps: int | None = None
    layout: Layout = "channels-first"
    prefix: int = 0
    grid: tuple[int, int] = (0, 0)
    map_dim: int = 0
    embedding: int | None = None
    dim: int = 0
    tap: int | None = None
    layer: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def gates(program: Program) -> list[int]:
    """The steps that every way from the images to the last step passes, in order.

    >>> from foveate.extract.traced.program import TracedStep
    >>> half, relu = TracedStep("mul.Scalar", [{"step": -1}, 0.5]), TracedStep("relu.default", [{"step": 0}])
    >>> skip = TracedStep("add.Tensor", [{"step": 0}, {"step": 1}])
    >>> gates(Program([half, relu, skip], {}))  # the skip connection goes around step 1
    [0, 2]
    """
    seen = {IMAGES}
    for number, step in enumerate(program.steps):
        if step.inputs() & seen:
            seen.add(number)
    last = len(program.steps) - 1
    active, wanted = set(), {last}
    while wanted:
        number = wanted.pop()
        if number in active or number not in seen:
            continue
        active.add(number)
        wanted |= program.steps[number].inputs() if number != IMAGES else set()
    furthest, found = IMAGES, []
    readers: dict[int, int] = {}
    for number in active - {IMAGES}:
        for read in program.steps[number].inputs() & active:
            readers[read] = max(readers.get(read, read), number)
    furthest = readers.get(IMAGES, IMAGES)
    for number in sorted(active - {IMAGES}):
        if furthest <= number:  # nothing from before is read after it
            found.append(number)
        furthest = max(furthest, readers.get(number, number))
    return found


def find_cuts(program: Program, values: list[Any], asked: int | None = None) -> Cuts:
    """Where ``program`` can be opened; ``values`` are what its steps gave for at least one image.

    Args:
        program: from images ``[B, 3, h, w]`` to logits.
        values: of its steps.
        asked: the step to take the maps from, in place of the last one that has some.
    """
    passed = gates(program)
    embedding = _embedding(program, values, passed)
    end = len(program.steps) - 1 if embedding is None else embedding
    classes = int(values[-1].shape[-1]) if isinstance(values[-1], Tensor) else 0
    grid = _patch_grid(program, values)
    found: dict[str, Any] = {}
    for number in reversed([g for g in passed if g <= end]) if asked is None else [asked]:
        told = _places(values[number], grid)
        # maps with one channel a class are already the answer of a convolution that decides
        if told and (asked is not None or embedding is not None or told["map_dim"] != classes):
            found = {"maps": number, **told}
            break
    dim = int(values[embedding].shape[1]) if embedding is not None else int(found.get("map_dim", 0))
    if found.get("layout") == "tokens":
        found["tap"] = _before_attention(program, values, passed, found["maps"])
    return Cuts(**found, embedding=embedding, dim=dim)


def _places(value: Any, grid: tuple[int, int] | None) -> dict[str, Any]:
    """How a value is spread over places; empty when it is not."""
    if not isinstance(value, Tensor) or not value.is_floating_point():
        return {}
    if value.ndim == 4:
        _, a, b, c = value.shape
        last = a == b != c and a > 1  # square maps with their channels at the end
        height, width, channels = (a, b, c) if last else (b, c, a)
        if height * width > 1:
            layout = "channels-last" if last else "channels-first"
            return {"layout": layout, "grid": (int(height), int(width)), "map_dim": int(channels)}
    if value.ndim == 3 and grid is not None and 0 <= value.shape[1] - grid[0] * grid[1] <= MOST_PREFIX:
        prefix = int(value.shape[1] - grid[0] * grid[1])
        return {"layout": "tokens", "grid": grid, "prefix": prefix, "map_dim": int(value.shape[2])}
    return {}


def _embedding(program: Program, values: list[Any], passed: list[int]) -> int | None:
    """The input of the last linear layer, when that makes the logits and everything passes it."""
    out = values[-1]
    for number in reversed(passed):
        step = program.steps[number]
        if step.op not in LINEAR:
            continue
        read = step.args[LINEAR[step.op]]
        source = read.get("step", IMAGES) if isinstance(read, dict) else IMAGES
        wide = isinstance(values[number], Tensor) and values[number].shape == out.shape
        return source if wide and source in passed and values[source].ndim == 2 else None
    return None


def _patch_grid(program: Program, values: list[Any]) -> tuple[int, int] | None:
    """Height and width of the grid that the first convolution with large steps cuts an image into."""
    for number, step in enumerate(program.steps):
        if step.op.startswith("conv2d") and isinstance(values[number], Tensor) and values[number].ndim == 4:
            return int(values[number].shape[2]), int(values[number].shape[3])
    return None


def _before_attention(program: Program, values: list[Any], passed: list[int], maps: int) -> int | None:
    """The tokens that go into the last block with attention: after it the class token reads no patch any more."""
    attention = [n for n in range(maps) if program.steps[n].op in ATTENTION]
    before = [n for n in passed if attention and n < attention[-1]]
    for number in reversed(before):
        if isinstance(values[number], Tensor) and values[number].shape == values[maps].shape:
            return number
    return None
