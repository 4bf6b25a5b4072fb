"""The eight habitats, painted from back to front: sky, things far away, ground, things near.

Each painter takes the canvas, its own row of random numbers and the horizon (a share of the height), and varies
everything: the light, the hills, how many trees and where.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from foveate.data.drawing.exact import Dice
from foveate.data.drawing.raster import Array, Canvas, Colour, Ellipse, Limb, Polygon, bend, mix, rgb
from foveate.data.drawing.scenery import backdrop, clouds, dots, mottle, near_place, palette, ridge, sun, tufts


def meadow(canvas: Canvas, dice: Dice, horizon: float) -> None:
    """Green hills, grass and flowers under a blue sky."""
    s = canvas.size
    tops, lows = palette("6EC1F0", "8CCBF5", "7FB8EC"), palette("E2F4FB", "FDF3D6")
    backdrop(canvas, dice.pick(tops), dice.pick(lows), horizon)
    sun(canvas, dice, horizon, rgb("FFF1A8"), 0.06)
    clouds(canvas, dice, horizon, rgb("FFFFFF"), 1 + dice.integer(3))
    far, near = dice.pick(palette("8CC78A", "7DBFA0", "A4CF7C")), dice.pick(palette("7CC258", "6DB95A", "8CC653"))
    canvas.below(ridge(canvas, dice, 4, horizon - 0.05, 0.07), far, mix(far, near, 0.5))
    for _ in range(dice.integer(4)):
        x, r = dice.unit() * s, dice.between(0.04, 0.07) * s
        y = (horizon - 0.02) * s
        canvas.fill(Limb(((x, y, 0.12 * r), (x, y - r, 0.12 * r))), rgb("8A6242"))
        canvas.fill(Ellipse(x, y - 1.7 * r, r, 1.15 * r), rgb("5FA85A"), low=rgb("3F8650"))
    canvas.below(ridge(canvas, dice, 3, horizon + 0.03, 0.035), mix(near, rgb("E8F28C"), 0.25), near * 0.74)
    mottle(canvas, dice, horizon + 0.03, 0.22)
    tufts(canvas, dice, horizon, 8, 0.06, 0.013, (-0.6, 0.05, 0.65), near * 0.68)
    for _ in range(2):
        petal = dice.pick(palette("FFFFFF", "FFD84D", "FF8FB1", "C79BFF"))
        places = [near_place(dice, horizon) for _ in range(1 + dice.integer(4))]
        ring = ((0.022, 0.0), (-0.022, 0.0), (0.0, 0.02), (0.0, -0.02))
        dots(canvas, [((x + u * k) * s, (y + v * k) * s, 0.015 * k * s) for x, y, k in places for u, v in ring], petal)
        dots(canvas, [(x * s, y * s, 0.012 * k * s) for x, y, k in places], rgb("F29B30"))


def sea(canvas: Canvas, dice: Dice, horizon: float) -> None:
    """Open water with waves, a sail or an island far away."""
    s = canvas.size
    backdrop(
        canvas,
        dice.pick(palette("8FD3F4", "9CC9F2", "B5DDF5")),
        dice.pick(palette("F5FBFF", "FFEBD2", "E8F6FA")),
        horizon,
    )
    sun(canvas, dice, horizon, rgb("FFF6C9"), 0.055)
    clouds(canvas, dice, horizon, rgb("FFFFFF"), 1 + dice.integer(3))
    top, deep = dice.pick(palette("4FB3D9", "46A6CF", "55BFC9")), dice.pick(palette("1D5F9E", "1B6C9C", "215AA0"))
    base = horizon * s
    if dice.chance(0.5):
        x, r = dice.between(0.1, 0.9) * s, dice.between(0.05, 0.08) * s
        canvas.fill(Polygon(((x, base - 2.6 * r), (x, base - 0.5 * r), (x + 1.3 * r, base - 0.5 * r))), rgb("FFFFFF"))
        canvas.fill(
            Polygon(((x - 0.15 * r, base - 2.1 * r), (x - 0.15 * r, base - 0.5 * r), (x - r, base - 0.5 * r))),
            rgb("F4E3D0"),
        )
        canvas.fill(
            Polygon(
                (
                    (x - 1.1 * r, base - 0.35 * r),
                    (x - 0.7 * r, base + 0.2 * r),
                    (x + 0.9 * r, base + 0.2 * r),
                    (x + 1.4 * r, base - 0.35 * r),
                )
            ),
            rgb("B5503C"),
        )
    else:
        x, r = dice.unit() * s, dice.between(0.10, 0.2) * s
        canvas.fill(Ellipse(x, base, r, 0.4 * r), rgb("6E9C86"), low=rgb("55807A"))
        canvas.fill(Ellipse(x + 0.7 * r, base, 0.7 * r, 0.24 * r), rgb("83AD8C"))
    canvas.below(np.full((1, s), base), top, deep)
    mottle(canvas, dice, horizon, 0.16, 6, 3)
    # crests: rows of waves, closer together towards the horizon
    for k in range(6):
        t = (k + 0.5 + 0.5 * dice.unit()) / 6
        y = base + (s - base) * t * (0.45 + 0.55 * t)
        period, shift = (0.10 + 0.16 * t) * s, dice.unit()
        phase = canvas.x * (1.0 / period) + shift
        wave = phase - np.floor(phase)
        bump = wave * (1.0 - wave) * 4.0
        height = (0.008 + 0.028 * t) * s
        line = y - bump * height
        a, b = max(0, int(y - height) - 2), min(s, int(y) + 3)
        if a >= b:
            continue
        thick = (0.004 + 0.010 * t) * s
        cover = np.maximum(0.0, np.minimum(1.0, 0.5 + thick - np.abs(canvas.y[a:b] - line)))
        canvas.blend(a, b, 0, s, rgb("E6F7FF"), cover * (0.35 + 0.3 * t))
    gulls = [(dice.unit() * s, dice.between(0.1, 0.8) * base) for _ in range(dice.integer(4))]
    r, lines = 0.03 * s, []
    for x, y in gulls:
        for side in (-r, r):
            elbow = (x + 0.55 * side, y - 0.5 * r, 0.005 * s)
            lines += [(x, y, 0.006 * s, *elbow), (*elbow, x + 1.1 * side, y - 0.25 * r, 0.003 * s)]
    canvas.strokes(lines, rgb("5B6B7D"))


def desert(canvas: Canvas, dice: Dice, horizon: float) -> None:
    """Dunes, table mountains and cacti in yellow light."""
    s = canvas.size
    backdrop(canvas, dice.pick(palette("F7C978", "F2B880", "8FCBE0")), dice.pick(palette("FFF0C9", "FFE3B8")), horizon)
    sun(canvas, dice, horizon, rgb("FFF8D8"), 0.075)
    x, w, h = dice.unit() * s, dice.between(0.12, 0.22) * s, dice.between(0.08, 0.15) * s
    base, rock = horizon * s, dice.pick(palette("D98E5F", "C97F62", "DB9A6B"))
    canvas.fill(
        Polygon(((x - w, base + 3), (x - 0.72 * w, base - h), (x + 0.6 * w, base - h), (x + w, base + 3))),
        rock,
        low=mix(rock, rgb("F3C58B"), 0.5),
    )
    sand = dice.pick(palette("F2C879", "EDBB6E", "F5D28D"))
    canvas.below(ridge(canvas, dice, 3, horizon, 0.045), mix(sand, rgb("E7A35E"), 0.45), sand)
    canvas.below(
        ridge(canvas, dice, 2, horizon + 0.10, 0.05), mix(sand, rgb("FFF1C4"), 0.4), mix(sand, rgb("C98545"), 0.55)
    )
    canvas.below(
        ridge(canvas, dice, 2, horizon + 0.30, 0.07),
        mix(sand, rgb("FFF1C4"), 0.25),
        mix(sand, rgb("BC7A40"), 0.6),
        0.6,
    )
    mottle(canvas, dice, horizon + 0.06, 0.10, 8, 3)
    for _ in range(1 + dice.integer(3)):
        x, y = dice.unit() * s, (horizon + dice.between(0.03, 0.16)) * s
        h = dice.between(0.12, 0.22) * s
        r, green = 0.13 * h, dice.pick(palette("4F9A5B", "5DA55A", "3F8C62"))
        canvas.fill(Ellipse(x + 0.3 * h, y, 0.5 * h, 0.07 * h), rgb("A0653A"), alpha=0.35, soft=2.0)
        arms, thin = [], 0.7 * r
        for side, at, up in ((-0.36 * h, 0.4 * h, 0.75 * h), (0.36 * h, 0.55 * h, 0.95 * h)):
            arms.append((x, y - at, thin, x + side, y - at, thin))
            arms.append((x + side, y - at, thin, x + side, y - up, thin))
        canvas.strokes(arms, green * 0.86)
        canvas.fill(Limb(((x, y, r), (x, y - 1.1 * h, r))), green, low=green * 0.8)
        canvas.fill(
            Limb(((x - 0.3 * r, y - 0.1 * h, 0.14 * r), (x - 0.3 * r, y - 1.05 * h, 0.14 * r))),
            mix(green, rgb("D8F0A8"), 0.6),
        )
    stones = [near_place(dice, horizon) for _ in range(4)]
    canvas.strokes(
        [
            ((x - 0.012 * k) * s, y * s, 0.014 * k * s, (x + 0.016 * k) * s, (y + 0.002) * s, 0.011 * k * s)
            for x, y, k in stones
        ],
        rgb("B07A48"),
    )


def night(canvas: Canvas, dice: Dice, horizon: float) -> None:
    """Stars and a moon over dark hills and lit windows."""
    s = canvas.size
    backdrop(
        canvas,
        dice.pick(palette("101436", "141A44", "1B1440")),
        dice.pick(palette("3E4A8A", "4B3F86", "35558F")),
        horizon,
    )
    stars = [(dice.unit() * s, dice.unit() * horizon * s, dice.between(0.004, 0.010) * s) for _ in range(18)]
    dots(canvas, stars, rgb("FFF6D0"), 0.85)
    x, y, r = dice.between(0.12, 0.88) * s, dice.between(0.15, 0.55) * horizon * s, 0.07 * s
    canvas.fill(Ellipse(x, y, 2 * r, 2 * r), rgb("8C98E0"), alpha=0.35, soft=1.8 * r)
    canvas.fill(Ellipse(x, y, r, r), rgb("FFF3C4"))
    canvas.fill(Ellipse(x + 0.3 * r, y + 0.2 * r, 0.25 * r, 0.22 * r), rgb("E8D8A0"))
    canvas.fill(Ellipse(x - 0.35 * r, y - 0.2 * r, 0.16 * r, 0.15 * r), rgb("E8D8A0"))
    canvas.below(ridge(canvas, dice, 4, horizon - 0.04, 0.07), rgb("2B3168"), rgb("232a5c"))
    wall = dice.pick(palette("3A3566", "2F3A6B", "40356A"))
    for _ in range(1 + dice.integer(3)):
        x, w = dice.unit() * s, dice.between(0.05, 0.08) * s
        y, h = (horizon + 0.06) * s, dice.between(0.10, 0.16) * s
        canvas.fill(Polygon(((x - w, y), (x - w, y - h), (x + w, y - h), (x + w, y))), wall)
        canvas.fill(Polygon(((x - 1.25 * w, y - h), (x, y - h - 0.9 * w), (x + 1.25 * w, y - h))), wall * 0.7)
        for side in (-0.45, 0.45):
            u, v, q = x + side * w, y - 0.62 * h, 0.22 * w
            canvas.fill(Polygon(((u - q, v - q), (u + q, v - q), (u + q, v + q), (u - q, v + q))), rgb("FFD36B"))
    grass = dice.pick(palette("27415E", "2A3A62", "24465A"))
    canvas.below(ridge(canvas, dice, 3, horizon + 0.04, 0.03), mix(grass, rgb("5566A0"), 0.35), grass * 0.72)
    mottle(canvas, dice, horizon + 0.04, 0.25)
    tufts(canvas, dice, horizon, 6, 0.055, 0.012, (-0.5, 0.1, 0.6), grass * 0.6)
    flies = [(dice.unit() * s, dice.between(horizon, 0.95) * s) for _ in range(dice.integer(5))]
    for x, y in flies:
        canvas.fill(Ellipse(x, y, 0.03 * s, 0.03 * s), rgb("FFF07A"), alpha=0.45, soft=0.04 * s)
    dots(canvas, [(x, y, 0.009 * s) for x, y in flies], rgb("FFFBC0"))


def _fir(canvas: Canvas, x: float, foot: float, height: float, green: Colour) -> None:
    """A fir of three tiers with snow on each."""
    top, tier = foot - 1.05 * height, 0.31 * height

    def stem(y: Array) -> Array:
        return np.full_like(y, 0.06 * height)

    def tiers(y: Array, share: float = 1.0) -> Array:
        level = (y - top) * (1.0 / tier)
        number = np.floor(level)
        down = level - number
        return ((0.45 + 0.3 * number) * down + 0.18 * number) * tier * (down <= share)

    def caps(y: Array) -> Array:
        return 0.92 * tiers(y, 0.42)

    canvas.spindle(x, foot - 0.2 * height, foot, stem, rgb("6B4B3A"))
    canvas.spindle(x, top, top + 3.0 * tier, tiers, green)
    canvas.spindle(x, top, top + 3.0 * tier, caps, rgb("F4F9FD"))


def snow(canvas: Canvas, dice: Dice, horizon: float) -> None:
    """White slopes, pale mountains, firs with snow on them, flakes in the air."""
    s = canvas.size
    backdrop(canvas, dice.pick(palette("A9C6DE", "B8CCE4", "9FBAD6")), dice.pick(palette("EAF2F8", "F3EEF4")), horizon)
    base = (horizon + 0.02) * s
    for _ in range(2 + dice.integer(2)):
        x, h = dice.unit() * s, dice.between(0.16, 0.30) * s
        w = h * dice.between(0.8, 1.2)
        canvas.fill(Polygon(((x - w, base), (x, base - h), (x + w, base))), rgb("8FA6C2"), low=rgb("B9CADC"))
        canvas.fill(
            Polygon(((x - 0.36 * w, base - 0.64 * h), (x, base - h), (x + 0.36 * w, base - 0.64 * h))), rgb("FAFDFF")
        )
    canvas.below(ridge(canvas, dice, 3, horizon, 0.04), rgb("E4EEF7"), rgb("D4E2F0"))
    for _ in range(2 + dice.integer(4)):
        x, y = dice.unit() * s, (horizon + dice.between(0.0, 0.08)) * s
        h = dice.between(0.12, 0.20) * s
        green = dice.pick(palette("3E6B63", "4A7768", "35605F"))
        _fir(canvas, x, y, h, green)
    canvas.below(
        ridge(canvas, dice, 2, horizon + 0.09, 0.035), rgb("FBFDFF"), dice.pick(palette("C3D6EA", "CBD8EC", "BFD3E4"))
    )
    mottle(canvas, dice, horizon + 0.08, 0.08)
    dots(
        canvas,
        [(dice.unit() * s, dice.unit() * s, dice.between(0.006, 0.014) * s) for _ in range(18)],
        rgb("FFFFFF"),
        0.9,
    )


def savanna(canvas: Canvas, dice: Dice, horizon: float) -> None:
    """Red evening sky, flat-topped trees, dry grass."""
    s = canvas.size
    backdrop(
        canvas,
        dice.pick(palette("B4456E", "C2524E", "8E4A86")),
        dice.pick(palette("FFB25C", "FFC46B", "FF9E5E")),
        horizon,
    )
    r = dice.between(0.09, 0.13) * s
    x, y = dice.between(0.15, 0.85) * s, (horizon - dice.between(0.0, 0.12)) * s
    canvas.fill(Ellipse(x, y, 1.8 * r, 1.8 * r), rgb("FFE08A"), alpha=0.4, soft=1.4 * r)
    canvas.fill(Ellipse(x, y, r, r), rgb("FFE9A6"), low=rgb("FF9A54"))
    for _ in range(2):
        x, y = dice.unit() * s, dice.between(0.1, 0.7) * horizon * s
        canvas.fill(Ellipse(x, y, dice.between(0.15, 0.3) * s, 0.014 * s), rgb("F7A072"), alpha=0.55, soft=2.0)
    canvas.below(ridge(canvas, dice, 3, horizon - 0.02, 0.04), rgb("8A4A4E"), rgb("7A4440"))
    bark = rgb("4A2B2E")
    for _ in range(1 + dice.integer(3)):
        x, y = dice.unit() * s, (horizon + dice.between(0.01, 0.07)) * s
        h = dice.between(0.16, 0.26) * s
        canvas.fill(
            bend((x, y, 0.06 * h), (x + 0.06 * h, y - 0.4 * h, 0.05 * h), (x - 0.12 * h, y - 0.8 * h, 0.035 * h), 2),
            bark,
        )
        canvas.fill(Limb(((x + 0.02 * h, y - 0.4 * h, 0.04 * h), (x + 0.34 * h, y - 0.75 * h, 0.03 * h))), bark)
        leaf = dice.pick(palette("5E5A2E", "6B5A30", "4F5A34"))
        canvas.fill(Ellipse(x - 0.1 * h, y - 0.86 * h, 0.5 * h, 0.14 * h), leaf, low=leaf * 0.75)
        canvas.fill(Ellipse(x + 0.32 * h, y - 0.78 * h, 0.38 * h, 0.10 * h), leaf * 1.1, low=leaf * 0.8)
    straw = dice.pick(palette("D79A48", "CC8A45", "DDA552"))
    canvas.below(ridge(canvas, dice, 3, horizon + 0.03, 0.02), mix(straw, rgb("F4C56E"), 0.4), straw * 0.62)
    mottle(canvas, dice, horizon + 0.03, 0.24)
    for _ in range(2):
        blade = mix(straw, rgb("7A4A2A"), dice.unit())
        tufts(canvas, dice, horizon, 6, 0.085, 0.011, (-0.5, -0.2, 0.15, 0.5), blade)


def forest(canvas: Canvas, dice: Dice, horizon: float) -> None:
    """Tall trunks in green light, ferns on a mossy floor."""
    s = canvas.size
    backdrop(
        canvas,
        dice.pick(palette("2F5A48", "38664A", "2B5250")),
        dice.pick(palette("A9CF8F", "C5DCA0", "9CC7A0")),
        horizon,
    )
    for depth in range(3):
        t = depth / 2
        bark = mix(rgb("7FA182"), dice.pick(palette("5B4032", "4E3A30", "64483A")), t)
        foot, trunks = (horizon + 0.02 + 0.07 * t) * s, []
        for _ in range(4 - depth):
            x, w = dice.unit() * s, dice.between(0.012, 0.022) * (1 + 1.1 * t) * s
            trunks.append((x, -w, w, x + 0.5 * w, foot - w, 1.35 * w))
        canvas.strokes(trunks, bark)
    crown = dice.pick(palette("2E6B3F", "357445", "2A6248"))
    for _ in range(6):
        x, r = dice.unit() * s, dice.between(0.10, 0.17) * s
        canvas.fill(Ellipse(x, dice.between(-0.04, 0.07) * s, 1.2 * r, 0.75 * r), crown * dice.between(0.85, 1.25))
    for _ in range(2):
        x, w = dice.between(-0.1, 0.9) * s, dice.between(0.04, 0.08) * s
        canvas.fill(
            Polygon(((x, -2.0), (x + w, -2.0), (x + 2.6 * w, horizon * s), (x + 1.4 * w, horizon * s))),
            rgb("F6F7C0"),
            alpha=0.16,
            soft=3.0,
        )
    floor = dice.pick(palette("5C7D3C", "66763A", "4F7442"))
    canvas.below(ridge(canvas, dice, 4, horizon + 0.03, 0.025), mix(floor, rgb("A8C26A"), 0.4), floor * 0.52)
    mottle(canvas, dice, horizon + 0.03, 0.38)
    for _ in range(2):
        fern = mix(rgb("3E8A48"), rgb("8FBE55"), dice.unit())
        tufts(canvas, dice, horizon, 4, 0.09, 0.012, (-1.05, -0.6, -0.2, 0.2, 0.6, 1.05), fern)
    leaves = [near_place(dice, horizon) for _ in range(6)]
    dots(
        canvas, [(x * s, y * s, 0.013 * k * s) for x, y, k in leaves], dice.pick(palette("C9743F", "D99A45", "A85A3A"))
    )


def reef(canvas: Canvas, dice: Dice, horizon: float) -> None:
    """Under water: rays of light, corals, weeds, bubbles, pale sand."""
    s = canvas.size
    backdrop(
        canvas,
        dice.pick(palette("0E6E8C", "0F7C8F", "135F8E")),
        dice.pick(palette("3FC1B8", "49B8C9", "5CCBB0")),
        horizon + 0.2,
    )
    for _ in range(3):
        x, w = dice.between(-0.1, 1.0) * s, dice.between(0.03, 0.07) * s
        lean = dice.between(-0.2, 0.2) * s
        canvas.fill(
            Polygon(((x, -2.0), (x + w, -2.0), (x + 2.4 * w + lean, 0.8 * s), (x + lean - w, 0.8 * s))),
            rgb("D8FFF4"),
            alpha=0.16,
            soft=3.0,
        )
    canvas.below(ridge(canvas, dice, 4, horizon, 0.07), rgb("1F7F92"), rgb("2A8F95"), 0.8)
    sand = dice.pick(palette("E6D3A0", "DCCB9C", "EAD5B0"))
    canvas.below(
        ridge(canvas, dice, 3, horizon + 0.08, 0.03), mix(sand, rgb("9FD8C8"), 0.45), mix(sand, rgb("5C9EA0"), 0.45)
    )
    mottle(canvas, dice, horizon + 0.08, 0.16, 8, 3)
    for _ in range(3):
        x, y = dice.unit() * s, (horizon + dice.between(0.06, 0.16)) * s
        h, coral = dice.between(0.09, 0.16) * s, dice.pick(palette("F2788F", "F59A5B", "C77BD6", "F7C85A"))
        lines = []
        for lean in (-0.6, -0.2, 0.25, 0.7):
            fork = (x + 0.6 * lean * h, y - 0.5 * h, 0.085 * h)
            lines += [(x, y, 0.10 * h, *fork), (*fork, x + 0.9 * lean * h, y - h, 0.075 * h)]
        canvas.strokes(lines, coral)
    blades: list[tuple[float, ...]] = []
    for _ in range(4):
        x, y, k = near_place(dice, horizon)
        x, y, h = x * s, y * s, dice.between(0.12, 0.24) * k * s
        low = bend((x, y, 0.016 * s), (x + 0.28 * h, y - 0.25 * h, 0.016 * s), (x, y - 0.5 * h, 0.013 * s), 3).points
        tip = (x + dice.between(-0.3, 0.3) * h, y - h, 0.003 * s)
        top = bend((x, y - 0.5 * h, 0.013 * s), (x - 0.28 * h, y - 0.75 * h, 0.010 * s), tip, 3).points
        blades += [(*p, *q) for p, q in zip(low + top[:-1], low[1:] + top, strict=True)]
    canvas.strokes(blades, dice.pick(palette("2E8B57", "3FA05A", "1F7A68")))
    bubbles = [(dice.unit() * s, dice.unit() * 0.9 * s, dice.between(0.010, 0.024) * s) for _ in range(9)]
    dots(canvas, bubbles, rgb("E9FFFC"), 0.5)
    dots(canvas, [(x + 0.15 * r, y + 0.15 * r, 0.7 * r) for x, y, r in bubbles], rgb("6CC8CC"), 0.6)


HABITATS: dict[str, Callable[[Canvas, Dice, float], None]] = {
    "meadow": meadow,
    "sea": sea,
    "night": night,
    "snow": snow,
    "desert": desert,
    "forest": forest,
    "savanna": savanna,
    "reef": reef,
}
"""Painters by attribute name; number ``k`` is the home of species number ``k``."""
