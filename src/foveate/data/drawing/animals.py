"""How parts become one animal: coat, pattern, outline, soft shading, mask and keypoints.

A species (see :mod:`~foveate.data.drawing.species`) is a list of parts in drawing units: x forward, y down,
feet on y = 0. Here the parts are placed on a canvas. The outline of the union of all parts is drawn first and
is the animal's mask; the distance to that outline also shades the animal, darker towards the edge.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from foveate.data.drawing.exact import Dice
from foveate.data.drawing.raster import (
    Array,
    Bounds,
    Canvas,
    Colour,
    Ellipse,
    Frame,
    Shape,
    coverage,
    mix,
    rgb,
)

KEYPOINTS = (
    "head", "eye", "ear", "beak", "horn", "neck", "body", "shell", "wing", "fin", "front_leg", "back_leg", "tail",
)  # fmt: skip
"""Named parts; a species that lacks one has it with ``visible`` = 0."""

COATS = {
    "ginger": rgb("EE9A4D"),
    "blue": rgb("6FAEE8"),
    "rose": rgb("EE93AE"),
    "moss": rgb("93B85C"),
    "plum": rgb("A284C9"),
    "cream": rgb("F3DFB4"),
    "slate": rgb("98A2B3"),
    "cocoa": rgb("A87650"),
}
"""Coat colours, the same for every species."""

PATTERNS = ("plain", "spots", "stripes", "freckles")
_ACCENTS = (rgb("F7B032"), rgb("F07C4A"), rgb("F58CA0"), rgb("FFE08A"))
_WHITE, _INK = rgb("FFFDF6"), rgb("2B2230")


@dataclass(slots=True)
class BodyPart:
    """One shape of an animal.

    Attributes:
        shape: where it is, in drawing units.
        role: how it is coloured: ``coat``, ``far`` (legs on the far side), ``pale``, ``deep``, ``accent``,
            ``white`` or ``ink``.
        edge: whether it is set off from what lies behind by a thin line.
        pattern: whether the coat's pattern shows on it.
        detail: whether it is painted on top after shading and is no part of the silhouette (eyes, lines).
    """

    shape: Shape
    role: str = "coat"
    edge: bool = False
    pattern: bool = False
    detail: bool = False
    alpha: float = 1.0


@dataclass
class Animal:
    """The parts of one individual, back to front, and where its named parts are (drawing units)."""

    parts: list[BodyPart] = field(default_factory=list)
    keypoints: dict[str, tuple[float, float]] = field(default_factory=dict)
    hover: float = 0.0
    """How far the lowest part is above the ground."""

    def add(self, shape: Shape, role: str = "coat", *, edge: bool = False, pattern: bool = False) -> None:
        self.parts.append(BodyPart(shape, role, edge, pattern))

    def detail(self, shape: Shape, role: str, alpha: float = 1.0) -> None:
        self.parts.append(BodyPart(shape, role, detail=True, alpha=alpha))

    def eye(self, x: float, y: float, r: float) -> None:
        """A dark eye with a light in it, at the keypoint ``eye``."""
        self.detail(Ellipse(x, y, r * 1.25, r * 1.35), "white")
        self.detail(Ellipse(x + 0.15 * r, y, r, r * 1.1), "ink")
        self.detail(Ellipse(x + 0.45 * r, y - 0.4 * r, 0.38 * r, 0.38 * r), "white")
        self.keypoints["eye"] = (x, y)

    def cheek(self, x: float, y: float, r: float) -> None:
        self.detail(Ellipse(x, y, r, r * 0.7), "blush", 0.55)

    def bounds(self, frame: Frame) -> Bounds:
        """Of the silhouette without its outline, seen through ``frame``."""
        boxes = [part.shape.moved(frame).bounds() for part in self.parts if not part.detail]
        return (
            min(b[0] for b in boxes),
            min(b[1] for b in boxes),
            max(b[2] for b in boxes),
            max(b[3] for b in boxes),
        )


@dataclass(frozen=True)
class Coat:
    """The colours and the pattern of one individual."""

    roles: dict[str, Colour]
    pattern: str
    row: tuple[float, ...]
    """Random numbers that place the pattern."""

    @staticmethod
    def roll(dice: Dice, colour: int) -> Coat:
        """A coat of palette entry ``colour``, with a little variation."""
        base = list(COATS.values())[colour]
        base = mix(base, _WHITE, dice.between(0.0, 0.22)) * dice.between(0.76, 1.06)
        base = np.minimum(base + (dice.array(3).reshape(3, 1, 1) - 0.5) * 26.0, 255.0)
        # how pale the pale parts are varies a lot, lest the mean colour tell species with large ones apart
        roles = {
            "coat": base,
            "far": base * 0.72,
            "pale": mix(base, _WHITE, dice.between(0.15, 0.7)),
            "deep": base * dice.between(0.58, 0.85),
            "line": base * 0.5,
            "accent": dice.pick(_ACCENTS),
            "blush": rgb("FF6F7D"),
            "white": _WHITE,
            "ink": _INK,
        }
        roles["mark"] = roles["deep"] if dice.chance(0.6) else roles["pale"]
        pattern = PATTERNS[(0, 0, 1, 1, 2, 2, 3)[dice.integer(7)]]
        return Coat(roles, pattern, tuple(dice.array(16).tolist()))


@dataclass
class Traced:
    """An animal placed on a grid: the distance to its outline inside ``window`` (y0, y1, x0, x1)."""

    window: tuple[int, int, int, int]
    distance: Array
    parts: list[tuple[BodyPart, Shape, tuple[int, int, int, int], Array | None]]
    width: float


def line_width(scale: float) -> float:
    """Width in pixels of the outline of an animal drawn at ``scale`` pixels a unit."""
    return max(0.75, scale * 0.022)


def trace(canvas: Canvas, animal: Animal, frame: Frame) -> Traced:
    """Distances of all parts on the canvas grid and of their union; paints nothing."""
    width = line_width(frame.scale)
    pixel_parts = [(part, part.shape.moved(frame)) for part in animal.parts]
    boxes = [shape.bounds() for part, shape in pixel_parts if not part.detail]
    whole = canvas.window(
        (min(b[0] for b in boxes), min(b[1] for b in boxes), max(b[2] for b in boxes), max(b[3] for b in boxes)),
        width + 1.5,
    )
    assert whole is not None
    y0, y1, x0, x1 = whole
    union = np.full((y1 - y0, x1 - x0), 1e6)
    traced = []
    for part, shape in pixel_parts:
        window = canvas.window(shape.bounds(), 1.0 if part.detail else width + 1.5)
        if window is None:
            continue
        distance = None
        if not part.detail:
            a, b, c, d = window
            distance = shape.distance(canvas.x[:, c:d], canvas.y[a:b])
            inner = union[a - y0 : b - y0, c - x0 : d - x0]
            np.minimum(inner, distance, out=inner)
        traced.append((part, shape, window, distance))
    return Traced(whole, union, traced, width)


def mask_of(traced: Traced) -> Array:
    """Coverage of the animal with its outline, inside ``traced.window``."""
    return coverage(traced.distance - traced.width)


def paint(canvas: Canvas, traced: Traced, coat: Coat, scale: float) -> Array:
    """Paint a traced animal; returns its coverage inside ``traced.window``."""
    y0, y1, x0, x1 = traced.window
    roles = coat.roles
    mask = mask_of(traced)
    canvas.blend(y0, y1, x0, x1, mix(roles["line"], _INK, 0.45), mask)
    for part, shape, window, distance in traced.parts:
        if distance is None:
            continue
        cover = coverage(distance)
        if part.edge:
            canvas.blend(*window, roles["line"], coverage(distance - 0.8 * traced.width))
        canvas.blend(*window, roles[part.role], cover)
        if part.pattern and coat.pattern != "plain":
            _pattern(canvas, coat, shape, window, cover, scale)
    _shade(canvas, traced, mask, scale)
    for part, shape, _, distance in traced.parts:
        if distance is None:
            canvas.fill(shape, roles[part.role], alpha=part.alpha)
    return mask


def _shade(canvas: Canvas, traced: Traced, mask: Array, scale: float) -> None:
    """Lighter inside and above, darker towards the rim and below."""
    y0, y1, x0, x1 = traced.window
    depth = traced.distance * (-1.0 / (0.2 * scale))
    np.minimum(np.maximum(depth, 0.0, out=depth), 1.0, out=depth)
    light = depth * (2.0 - depth) * 0.2 - 0.1
    light += (0.5 * (y0 + y1) - canvas.y[y0:y1]) * (0.22 / (y1 - y0))
    light *= mask
    patch = canvas.planes[:, y0:y1, x0:x1]
    patch *= light + 1.0
    np.minimum(patch, 255.0, out=patch)


def _pattern(
    canvas: Canvas, coat: Coat, shape: Shape, window: tuple[int, int, int, int], cover: Array, scale: float
) -> None:
    y0, y1, x0, x1 = window
    x, y = canvas.x[:, x0:x1], canvas.y[y0:y1]
    row = coat.row
    if coat.pattern == "stripes":
        period = scale * (0.17 + 0.07 * row[0])
        phase = x * (1.0 / period) + y * ((row[1] - 0.5) * 0.9 / period) + row[2]
        wave = phase - np.floor(phase)
        marks = coverage((np.abs(wave - 0.5) - (0.13 + 0.08 * row[3])) * period)
    else:
        b = shape.bounds()
        count, r = (5, 0.085) if coat.pattern == "spots" else (8, 0.045)
        marks = np.zeros_like(cover)
        for k in range(count):
            # one spot per column of the shape, so that spots spread and seldom touch
            cx = b[0] + (b[2] - b[0]) * (0.1 + 0.8 * (k + row[k]) / count)
            cy = b[1] + (b[3] - b[1]) * (0.12 + 0.72 * ((k * 0.38 + row[k + 8]) % 1.0))
            rad = scale * r * (0.7 + 0.6 * row[15 - k])
            dx, dy = x - cx, y - cy
            np.maximum(marks, coverage(np.sqrt(dx * dx + dy * dy) - rad), out=marks)
    marks *= cover
    canvas.blend(y0, y1, x0, x1, coat.roles["mark"], marks)
