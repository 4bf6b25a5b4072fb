"""What several habitats share: skies, hills, ground texture, clouds, tufts of grass.

Places and sizes are shares of the image's side unless said otherwise; randomness comes from the caller's row.
"""

from __future__ import annotations

import numpy as np

from foveate.data.drawing.exact import Dice, smooth
from foveate.data.drawing.raster import Array, Canvas, Colour, Ellipse, rgb


def palette(*codes: str) -> tuple[Colour, ...]:
    return tuple(rgb(code) for code in codes)


def backdrop(canvas: Canvas, top: Colour, low: Colour, horizon: float) -> None:
    t = np.minimum(canvas.y * (1.0 / (horizon * canvas.size)), 1.0)
    canvas.planes[:] = top + (low - top) * t


def ridge(canvas: Canvas, dice: Dice, waves: int, base: float, amplitude: float) -> Array:
    """A rolling line around ``base`` (shares of the size), as pixel heights ``[1, size]``."""
    knots = dice.array(waves + 2)
    at = canvas.x * (waves / canvas.size) + 0.0
    left = np.floor(at).astype(np.int64)
    a, b = knots[left], knots[left + 1]
    line = a + (b - a) * smooth(at - left)
    return (base + (line - 0.5) * 2.0 * amplitude) * canvas.size


def mottle(canvas: Canvas, dice: Dice, horizon: float, strength: float, rows: int = 5, columns: int = 4) -> None:
    """Soft light and dark patches on the ground, flatter than wide."""
    first = int(horizon * canvas.size)
    if first >= canvas.size - 1:
        return
    knots = dice.array((rows + 1) * (columns + 1)).reshape(rows + 1, columns + 1)
    v = (canvas.y[first:, 0] - first) * (rows / (canvas.size - first))
    u = canvas.x[0] * (columns / canvas.size)
    i, j = np.floor(v).astype(np.int64), np.floor(u).astype(np.int64)
    tv, tu = smooth(v - i).reshape(-1, 1), smooth(u - j)
    upper, lower = knots[i], knots[i + 1]
    band = upper + (lower - upper) * tv
    left, right = band[:, j], band[:, j + 1]
    field = left + (right - left) * tu
    patch = canvas.planes[:, first:]
    patch *= (field - 0.5) * strength + 1.0
    np.minimum(patch, 255.0, out=patch)


def _cloud(canvas: Canvas, dice: Dice, x: float, y: float, r: float, colour: Colour, alpha: float = 0.9) -> None:
    s = canvas.size
    wide = dice.between(1.5, 2.3)
    low = colour * 0.9
    canvas.fill(Ellipse(x * s, y * s, wide * r * s, 0.5 * r * s), colour, low=low, alpha=alpha, soft=1.6)
    lean = dice.between(-0.5, 0.5)
    canvas.fill(Ellipse((x + lean * r) * s, (y - 0.4 * r) * s, 0.9 * r * s, 0.7 * r * s), colour, low=low, alpha=alpha)


def clouds(canvas: Canvas, dice: Dice, horizon: float, colour: Colour, count: int) -> None:
    for _ in range(count):
        _cloud(canvas, dice, dice.unit(), dice.between(0.06, 0.7 * horizon), dice.between(0.05, 0.09), colour)


def sun(canvas: Canvas, dice: Dice, horizon: float, colour: Colour, r: float) -> None:
    s = canvas.size
    x, y = dice.between(0.1, 0.9) * s, dice.between(0.12, 0.62) * horizon * s
    canvas.fill(Ellipse(x, y, 1.9 * r * s, 1.9 * r * s), colour, alpha=0.35, soft=1.4 * r * s)
    canvas.fill(Ellipse(x, y, r * s, r * s), colour)


def near_place(dice: Dice, horizon: float) -> tuple[float, float, float]:
    """A place on the ground: x, y, and a size that grows towards the viewer."""
    t = dice.unit()
    return dice.unit(), horizon + 0.05 + (0.97 - horizon - 0.05) * t, 0.5 + 0.5 * t


def tufts(
    canvas: Canvas,
    dice: Dice,
    horizon: float,
    count: int,
    height: float,
    width: float,
    leans: tuple[float, ...],
    colour: Colour,
) -> None:
    """Fans of blades on the ground."""
    s, lines = canvas.size, []
    for _ in range(count):
        x, y, k = near_place(dice, horizon)
        x, y, h = x * s, y * s, height * k * s
        lines += [
            (x + 0.12 * lean * h, y, width * k * s, x + lean * h, y - h * (1.05 - 0.35 * lean * lean), 0.003 * s)
            for lean in leans
        ]
    canvas.strokes(lines, colour)


def dots(canvas: Canvas, spots: list[tuple[float, float, float]], colour: Colour, alpha: float = 1.0) -> None:
    """Small discs ``(x, y, radius)`` in pixels."""
    canvas.strokes([(x, y, r, x, y, r) for x, y, r in spots], colour, alpha)
