"""Shapes with signed distances, and a canvas that fills them with analytic antialiasing.

A shape knows its bounds and, for any pixel centre, its distance to the outline (negative inside). Coverage
is ``0.5 - distance`` clipped to [0, 1]: one evaluation per pixel inside the shape's own box, no supersampling.
Distances are exact at the outline, where alone they decide the picture, and approximate far from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from foveate.data.drawing.exact import cos_sin

Array = NDArray[np.float64]
Bounds = tuple[float, float, float, float]
"""x0, y0, x1, y1."""
Colour = NDArray[np.float64]
"""``[3, 1, 1]``, or ``[3, h, 1]`` for a vertical gradient over the shape's rows."""


@dataclass(frozen=True)
class Frame:
    """From drawing units to pixels: tilt, mirror if ``flip`` is -1, scale, then move."""

    x: float
    y: float
    scale: float
    flip: float = 1.0
    cos: float = 1.0
    sin: float = 0.0

    def point(self, x: float, y: float) -> tuple[float, float]:
        u, v = self.cos * x - self.sin * y, self.sin * x + self.cos * y
        return self.x + self.flip * self.scale * u, self.y + self.scale * v

    def direction(self, c: float, s: float) -> tuple[float, float]:
        return self.flip * (self.cos * c - self.sin * s), self.sin * c + self.cos * s


class Shape(Protocol):
    def bounds(self) -> Bounds: ...

    def distance(self, x: Array, y: Array) -> Array:
        """Signed distance at pixel centres ``x [1, w]``, ``y [h, 1]`` -> ``[h, w]``."""
        ...

    def moved(self, frame: Frame) -> Shape:
        """The shape in pixels, given in drawing units."""
        ...


@dataclass(slots=True)
class Ellipse:
    """Centre, radii, and the direction (cos, sin) of the first radius."""

    cx: float
    cy: float
    rx: float
    ry: float
    cos: float = 1.0
    sin: float = 0.0

    def bounds(self) -> Bounds:
        wide, high = self.rx * self.cos, self.ry * self.sin
        w = math.sqrt(wide * wide + high * high)
        wide, high = self.rx * self.sin, self.ry * self.cos
        h = math.sqrt(wide * wide + high * high)
        return self.cx - w, self.cy - h, self.cx + w, self.cy + h

    def distance(self, x: Array, y: Array) -> Array:
        # first-order distance: the implicit function over the length of its gradient, both quadratic forms in
        # (dx, dy); the squares are one-dimensional, so only the mixed terms cost a full array
        dx, dy = x - self.cx, y - self.cy
        xx, yy = dx * dx, dy * dy
        p, q = 1.0 / (self.rx * self.rx), 1.0 / (self.ry * self.ry)
        cc, ss = self.cos * self.cos, self.sin * self.sin
        a, c = cc * p + ss * q, ss * p + cc * q
        if self.sin == 0.0:
            slope = xx * (4.0 * a * a) + (yy * (4.0 * c * c) + 1e-12)
            value: Array = xx * a + (yy * c - 1.0)
        else:
            b = 2.0 * self.cos * self.sin * (p - q)
            mixed = dx * dy
            slope = mixed * (4.0 * b * (a + c))
            slope += xx * (4.0 * a * a + b * b)
            slope += yy * (4.0 * c * c + b * b) + 1e-12
            value = mixed * b
            value += xx * a
            value += yy * c - 1.0
        value /= np.sqrt(slope, out=slope)
        return value

    def moved(self, frame: Frame) -> Ellipse:
        cx, cy = frame.point(self.cx, self.cy)
        c, s = frame.direction(self.cos, self.sin)
        return Ellipse(cx, cy, self.rx * frame.scale, self.ry * frame.scale, c, s)


def _taper(x: Array, y: Array, ax: Any, ay: Any, ar: Any, bx: Any, by: Any, br: Any) -> Array:
    """Distance to a line from ``a`` to ``b`` whose thickness goes from ``ar`` to ``br`` (numbers or arrays)."""
    ex, ey = bx - ax + 1e-6, by - ay  # never of length zero, so that a dot has a direction
    square = ex * ex + ey * ey
    scale = 1.0 / np.sqrt(square)
    px, py = x - ax, y - ay
    across = px * (ey * scale) - py * (ex * scale)
    along = px * (ex / square) + py * (ey / square)
    t = np.maximum(along, 0.0)
    np.minimum(t, 1.0, out=t)
    along -= t
    along *= along
    along *= square
    across *= across
    across += along
    distance: Array = np.sqrt(across, out=across)
    t *= br - ar
    distance -= t
    distance -= ar
    return distance


@dataclass(slots=True)
class Limb:
    """A thick line through points ``(x, y, radius)``, round at both ends; the radius tapers between points."""

    points: tuple[tuple[float, float, float], ...]

    def bounds(self) -> Bounds:
        x, y, r = self.points[0]
        x0, y0, x1, y1 = x - r, y - r, x + r, y + r
        for x, y, r in self.points[1:]:
            x0, y0, x1, y1 = min(x0, x - r), min(y0, y - r), max(x1, x + r), max(y1, y + r)
        return x0, y0, x1, y1

    def distance(self, x: Array, y: Array) -> Array:
        if len(self.points) == 2:
            return _taper(x, y, *self.points[0], *self.points[1])
        knots = np.array(self.points).T.reshape(3, -1, 1, 1)
        a, b = knots[:, :-1], knots[:, 1:]
        nearest: Array = _taper(x, y, a[0], a[1], a[2], b[0], b[1], b[2]).min(axis=0)
        return nearest

    def moved(self, frame: Frame) -> Limb:
        return Limb(tuple((*frame.point(x, y), r * frame.scale) for x, y, r in self.points))


@dataclass(slots=True)
class Polygon:
    """A convex polygon, grown by ``radius``; with a radius its corners are round, without they are sharp."""

    points: tuple[tuple[float, float], ...]
    radius: float = 0.0

    def bounds(self) -> Bounds:
        r = self.radius
        xs, ys = [p[0] for p in self.points], [p[1] for p in self.points]
        return min(xs) - r, min(ys) - r, max(xs) + r, max(ys) + r

    def distance(self, x: Array, y: Array) -> Array:
        points = self.points
        after = points[1:] + points[:1]
        area = sum(a[0] * b[1] - a[1] * b[0] for a, b in zip(points, after, strict=True))
        side = 1.0 if area > 0 else -1.0
        inner: Array | None = None
        for (ax, ay), (bx, by) in zip(points, after, strict=True):
            ex, ey = bx - ax, by - ay
            length = side / (math.sqrt(ex * ex + ey * ey) + 1e-12)
            d = (x - ax) * (ey * length) - (y - ay) * (ex * length)
            inner = d if inner is None else np.maximum(inner, d, out=inner)
        assert inner is not None
        if self.radius == 0.0:
            return inner
        # outside, the distance to the nearest edge rounds the corners when the shape is grown
        outer = Limb(tuple((px, py, 0.0) for px, py in (*points, points[0]))).distance(x, y)
        return np.where(inner < 0.0, inner, outer) - self.radius

    def moved(self, frame: Frame) -> Polygon:
        return Polygon(tuple(frame.point(x, y) for x, y in self.points), self.radius * frame.scale)


def ellipse(cx: float, cy: float, rx: float, ry: float, turns: float = 0.0) -> Ellipse:
    """An ellipse whose first radius is tilted by ``turns`` (1 = full circle, clockwise on screen)."""
    return Ellipse(cx, cy, rx, ry, *cos_sin(turns)) if turns else Ellipse(cx, cy, rx, ry)


def circle(cx: float, cy: float, r: float) -> Ellipse:
    return Ellipse(cx, cy, r, r)


def bend(a: Sequence[float], b: Sequence[float], c: Sequence[float], n: int = 4) -> Limb:
    """A limb along the quadratic curve from ``a`` towards ``b`` to ``c`` (each ``x, y, radius``)."""
    points = []
    for k in range(n + 1):
        t = k / n
        p, q, r = (1 - t) * (1 - t), 2 * t * (1 - t), t * t
        points.append(tuple(p * a[i] + q * b[i] + r * c[i] for i in range(3)))
    return Limb(tuple(points))  # type: ignore[arg-type]


@cache
def rgb(code: str) -> Colour:
    """A colour from six hexadecimal digits, as a read-only ``[3, 1, 1]``."""
    colour = np.array([int(code[i : i + 2], 16) for i in (0, 2, 4)], dtype=np.float64).reshape(3, 1, 1)
    colour.flags.writeable = False
    return colour


def mix(a: Colour, b: Colour, t: float) -> Colour:
    """``a`` at ``t = 0``, ``b`` at ``t = 1``."""
    return a + (b - a) * t


def coverage(distance: Array, soft: float = 1.0) -> Array:
    """Share of a pixel inside a shape, from its signed distance; ``soft`` widens the edge to that many pixels."""
    cover = 0.5 - distance if soft == 1.0 else 0.5 - distance * (1.0 / soft)
    np.maximum(cover, 0.0, out=cover)
    return np.minimum(cover, 1.0, out=cover)


class Canvas:
    """A square picture ``[3, size, size]`` with values 0..255 that shapes are painted onto."""

    def __init__(self, size: int):
        self.size = size
        self.planes = np.zeros((3, size, size))
        centres = np.arange(size, dtype=np.float64) + 0.5
        self.x = centres.reshape(1, size)
        self.y = centres.reshape(size, 1)

    def window(self, bounds: Bounds, margin: float) -> tuple[int, int, int, int] | None:
        """Rows and columns ``(y0, y1, x0, x1)`` that ``bounds`` can touch, or None when off the canvas."""
        x0, y0 = max(0, math.floor(bounds[0] - margin)), max(0, math.floor(bounds[1] - margin))
        x1 = min(self.size, math.ceil(bounds[2] + margin))
        y1 = min(self.size, math.ceil(bounds[3] + margin))
        return (y0, y1, x0, x1) if x0 < x1 and y0 < y1 else None

    def blend(self, y0: int, y1: int, x0: int, x1: int, colour: Colour, cover: Array) -> None:
        """Lay ``colour`` over a window with coverage ``cover [h, w]``."""
        patch = self.planes[:, y0:y1, x0:x1]
        step = colour - patch
        step *= cover
        patch += step

    def fill(
        self, shape: Shape, colour: Colour, *, low: Colour | None = None, alpha: float = 1.0, soft: float = 1.0
    ) -> None:
        """Paint ``shape``; ``low`` makes a vertical gradient from ``colour`` (top) to ``low`` (bottom)."""
        bounds = shape.bounds()
        window = self.window(bounds, 0.5 + soft)
        if window is None:
            return
        y0, y1, x0, x1 = window
        y = self.y[y0:y1]
        cover = coverage(shape.distance(self.x[:, x0:x1], y), soft)
        if alpha != 1.0:
            cover *= alpha
        if low is not None:
            t = (y - bounds[1]) * (1.0 / (bounds[3] - bounds[1]))
            colour = colour + (low - colour) * t
        self.blend(y0, y1, x0, x1, colour, cover)

    def spindle(self, x: float, top: float, foot: float, width: Callable[[Array], Array], colour: Colour) -> None:
        """Paint a shape symmetric about the line at ``x``; ``width`` gives its half width at heights ``y [h, 1]``."""
        y0, y1 = max(0, math.floor(top)), min(self.size, math.ceil(foot))
        if y0 >= y1:
            return
        y = self.y[y0:y1]
        half = width(y)
        reach = float(half.max()) + 1.0
        x0, x1 = max(0, math.floor(x - reach)), min(self.size, math.ceil(x + reach))
        if x0 >= x1:
            return
        cover = coverage(np.abs(self.x[:, x0:x1] - x) - half)
        cover *= coverage(np.maximum(top - y, y - foot))
        self.blend(y0, y1, x0, x1, colour, cover)

    def below(self, top: Array, colour: Colour, low: Colour | None = None, alpha: float = 1.0) -> None:
        """Paint everything under the height line ``top [1, size]``, with an optional gradient to ``low``."""
        first = max(0, min(self.size - 1, math.floor(float(top.min()) - 1)))
        y = self.y[first:]
        cover = coverage(top - y)
        if alpha != 1.0:
            cover *= alpha
        if low is not None:
            t = (y - first) * (1.0 / (self.size - first))
            colour = colour + (low - colour) * t
        self.blend(first, self.size, 0, self.size, colour, cover)

    def strokes(self, lines: Sequence[Sequence[float]], colour: Colour, alpha: float = 1.0) -> None:
        """Paint many small lines ``(ax, ay, a_radius, bx, by, b_radius)`` of one colour at once.

        All are evaluated together, each in a window as wide as the largest, which is several times faster
        than filling them one by one. A dot is a line from a point to itself.
        """
        if not lines:
            return
        ax, ay, ar, bx, by, br = np.array(lines).T.reshape(6, -1, 1, 1)
        left = np.floor(np.minimum(ax - ar, bx - br) - 1.0)
        top = np.floor(np.minimum(ay - ar, by - br) - 1.0)
        wide = int((np.maximum(ax + ar, bx + br) + 1.0 - left).max()) + 1
        high = int((np.maximum(ay + ar, by + br) + 1.0 - top).max()) + 1
        x = left + np.arange(wide, dtype=np.float64).reshape(1, 1, -1)
        y = top + np.arange(high, dtype=np.float64).reshape(1, -1, 1)
        cover = coverage(_taper(x + 0.5, y + 0.5, ax, ay, ar, bx, by, br))
        cover *= (x >= 0) & (x < self.size) & (y >= 0) & (y < self.size)
        k, i, j = np.nonzero(cover)
        if not len(k):
            return
        rows, columns = y[k, i, 0].astype(np.int64), x[k, 0, j].astype(np.int64)
        y0, x0 = int(rows.min()), int(columns.min())
        y1, x1 = int(rows.max()) + 1, int(columns.max()) + 1
        sheet = np.zeros((y1 - y0, x1 - x0))
        np.maximum.at(sheet, (rows - y0, columns - x0), cover[k, i, j])
        if alpha != 1.0:
            sheet *= alpha
        self.blend(y0, y1, x0, x1, colour, sheet)
