"""Things that can stand beside an animal: eight that serve as a second shortcut, five kept back as clutter.

Drawing units: x to the right, y down, standing on y = 0, about one unit high.
"""

from __future__ import annotations

from collections.abc import Callable

from foveate.data.drawing.raster import (
    Canvas,
    Colour,
    Ellipse,
    Frame,
    Limb,
    Polygon,
    Shape,
    circle,
    ellipse,
    mix,
    rgb,
)

Layer = tuple[Shape, Colour]


def _box(x0: float, y0: float, x1: float, y1: float) -> Polygon:
    return Polygon(((x0, y0), (x1, y0), (x1, y1), (x0, y1)))


def _mushroom() -> list[Layer]:
    red, white = rgb("E0433F"), rgb("FFF4E6")
    cap: list[Layer] = [(ellipse(0, -0.58, 0.48, 0.32), red), (ellipse(0, -0.40, 0.46, 0.10), mix(red, white, 0.7))]
    dots: list[Layer] = [
        (circle(x, y, r), white) for x, y, r in ((-0.2, -0.62, 0.09), (0.12, -0.74, 0.08), (0.27, -0.54, 0.07))
    ]
    return [(Limb(((0, -0.05, 0.17), (0, -0.45, 0.13))), white), *cap, *dots]


def _ball() -> list[Layer]:
    return [
        (circle(0, -0.4, 0.4), rgb("F5F5F0")),
        (ellipse(0, -0.4, 0.4, 0.15), rgb("E8483F")),
        (ellipse(0, -0.4, 0.13, 0.4), rgb("3F7FD9")),
        (circle(-0.13, -0.56, 0.07), rgb("FFFFFF")),
    ]


def _lamp() -> list[Layer]:
    post = rgb("3C3F4A")
    return [
        (Limb(((-0.14, -0.04, 0.05), (0.14, -0.04, 0.05))), post),
        (Limb(((0, 0, 0.05), (0, -0.8, 0.04))), post),
        (circle(0, -0.94, 0.26), rgb("FFF0A0")),
        (circle(0, -0.94, 0.17), rgb("FFD84A")),
        (Polygon(((-0.2, -1.14), (0, -1.3), (0.2, -1.14))), post),
    ]


def _flag() -> list[Layer]:
    return [
        (Limb(((-0.25, 0, 0.035), (-0.25, -1.15, 0.035))), rgb("7A5A40")),
        (Polygon(((-0.22, -1.12), (0.5, -0.90), (-0.22, -0.62))), rgb("7B3FD0")),
        (circle(-0.02, -0.88, 0.09), rgb("FFE36B")),
    ]


def _pot() -> list[Layer]:
    green = rgb("3E9A4A")
    leaves: list[Layer] = [
        (ellipse(x, y, 0.11, 0.27, t), green) for x, y, t in ((-0.2, -0.7, -0.09), (0.2, -0.7, 0.09), (0, -0.8, 0.0))
    ]
    clay = rgb("C9683F")
    return [
        *leaves,
        (Polygon(((-0.32, -0.45), (0.32, -0.45), (0.22, 0), (-0.22, 0))), clay),
        (_box(-0.37, -0.52, 0.37, -0.38), clay * 1.12),
    ]


def _umbrella() -> list[Layer]:
    return [
        (Limb(((0, 0, 0.03), (0, -0.9, 0.03))), rgb("5A4636")),
        (Polygon(((-0.58, -0.62), (-0.38, -0.95), (0, -1.12), (0.38, -0.95), (0.58, -0.62))), rgb("28B8A8")),
        (Polygon(((-0.2, -0.62), (-0.12, -0.98), (0, -1.1), (0.12, -0.98), (0.2, -0.62))), rgb("FFF8EC")),
    ]


def _crate() -> list[Layer]:
    wood = rgb("B98045")
    bars: list[Layer] = [(_box(-0.38, y, 0.38, y + 0.05), wood * 0.66) for y in (-0.76, -0.52, -0.28, -0.05)]
    return [(_box(-0.4, -0.78, 0.4, 0), wood), *bars, (Limb(((-0.32, -0.08, 0.05), (0.32, -0.70, 0.05))), wood * 0.78)]


def _balloon() -> list[Layer]:
    return [
        (Limb(((0, 0, 0.018), (0.05, -0.3, 0.018), (0, -0.6, 0.018))), rgb("F4F0E8")),
        (ellipse(0, -0.95, 0.32, 0.38), rgb("F0308A")),
        (ellipse(-0.1, -1.08, 0.08, 0.12, 0.06), rgb("FFC0DC")),
    ]


def _cone() -> list[Layer]:
    orange, white = rgb("F2701D"), rgb("FFFFFF")
    return [
        (_box(-0.42, -0.1, 0.42, 0), orange * 0.85),
        (Polygon(((-0.3, -0.1), (-0.04, -0.95), (0.04, -0.95), (0.3, -0.1))), orange),
        (Polygon(((-0.22, -0.36), (-0.145, -0.6), (0.145, -0.6), (0.22, -0.36))), white),
    ]


def _ring() -> list[Layer]:
    return [
        (circle(0, -0.42, 0.42), rgb("F4F7FA")),
        (circle(0, -0.42, 0.30), rgb("E5484D")),
        (circle(0, -0.42, 0.19), rgb("6C7C8C")),
    ]


def _cube() -> list[Layer]:
    side = rgb("3D7DE0")
    return [
        (Polygon(((-0.4, -0.55), (-0.05, -0.72), (0.45, -0.6), (0.1, -0.42))), side * 1.25),
        (Polygon(((-0.4, -0.55), (0.1, -0.42), (0.1, 0.02), (-0.4, -0.12))), side),
        (Polygon(((0.1, -0.42), (0.45, -0.6), (0.45, -0.16), (0.1, 0.02))), side * 0.72),
    ]


def _kite() -> list[Layer]:
    return [
        (Limb(((0, 0, 0.015), (-0.08, -0.25, 0.015), (0, -0.45, 0.015))), rgb("F4F0E8")),
        (Polygon(((0, -0.4), (-0.34, -0.85), (0, -1.2), (0.34, -0.85))), rgb("FFC928")),
        (Polygon(((0, -0.4), (0, -1.2), (0.34, -0.85))), rgb("E8483F")),
    ]


def _sign() -> list[Layer]:
    return [
        (Limb(((0, 0, 0.05), (0, -0.6, 0.05))), rgb("7A5A40")),
        (Polygon(((-0.45, -1.0), (0.3, -1.0), (0.52, -0.8), (0.3, -0.6), (-0.45, -0.6))), rgb("D9A45C")),
        (Limb(((-0.3, -0.86, 0.03), (0.2, -0.86, 0.03))), rgb("7A5A40")),
        (Limb(((-0.3, -0.73, 0.03), (0.05, -0.73, 0.03))), rgb("7A5A40")),
    ]


THINGS: dict[str, Callable[[], list[Layer]]] = {
    "mushroom": _mushroom, "ball": _ball, "lamp": _lamp, "flag": _flag,
    "pot": _pot, "umbrella": _umbrella, "crate": _crate, "balloon": _balloon,
}  # fmt: skip
"""Things of the second shortcut; number ``k`` belongs to class number ``k``."""

CLUTTER: dict[str, Callable[[], list[Layer]]] = {
    "cone": _cone, "ring": _ring, "cube": _cube, "kite": _kite, "sign": _sign,
}  # fmt: skip
"""Things that never occur in training."""


def paint_thing(canvas: Canvas, layers: list[Layer], frame: Frame) -> None:
    """Paint a thing with a soft shadow and a thin dark rim."""
    foot = Ellipse(frame.x, frame.y, 0.42 * frame.scale, 0.09 * frame.scale)
    canvas.fill(foot, rgb("1A1420"), alpha=0.32, soft=max(1.0, 0.1 * frame.scale))
    rim = max(0.6, 0.03 * frame.scale)
    placed = [(shape.moved(frame), colour) for shape, colour in layers]
    for shape, colour in placed:
        canvas.fill(_grown(shape, rim), colour * 0.45)
    for shape, colour in placed:
        canvas.fill(shape, colour)


def _grown(shape: Shape, by: float) -> Shape:
    if isinstance(shape, Ellipse):
        return Ellipse(shape.cx, shape.cy, shape.rx + by, shape.ry + by, shape.cos, shape.sin)
    if isinstance(shape, Limb):
        return Limb(tuple((x, y, r + by) for x, y, r in shape.points))
    assert isinstance(shape, Polygon)
    return Polygon(shape.points, shape.radius + by)
