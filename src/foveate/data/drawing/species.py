"""The eight species. Each is told apart by its shape and parts; coats are the same for all.

Drawing units: x forward (the animal looks to the right), y down, feet on y = 0. Every builder takes a row of
random numbers and varies its proportions and pose a little.
"""

from __future__ import annotations

from collections.abc import Callable

from foveate.data.drawing.animals import Animal
from foveate.data.drawing.exact import Dice
from foveate.data.drawing.raster import Limb, Polygon, bend, circle, ellipse


def _crouch(a: Animal, dice: Dice) -> tuple[float, float]:
    """Body and legs of an animal lying on its haunches; returns where the head goes."""
    hx, hy = dice.around(0.32, 0.12), dice.around(-0.68, 0.07)
    a.add(Limb(((0.24, -0.25, 0.08), (0.28, -0.06, 0.065))), "far")
    a.add(ellipse(-0.10, -0.36, dice.around(0.40, 0.08), 0.31, -0.05), pattern=True)
    a.add(ellipse(0.16, -0.46, 0.20, 0.24, 0.08))
    a.add(ellipse(-0.26, -0.25, 0.23, 0.22), edge=True)
    a.add(Limb(((-0.34, -0.065, 0.07), (-0.02, -0.06, 0.06))), edge=True)
    a.add(Limb(((0.14, -0.28, 0.09), (0.18, -0.06, 0.07))), edge=True)
    a.keypoints |= {"body": (-0.08, -0.36), "front_leg": (0.16, -0.14), "back_leg": (-0.2, -0.07)}
    return hx, hy


def _sit(a: Animal, dice: Dice) -> tuple[float, float]:
    """Body and legs of an animal sitting upright; returns where the head goes."""
    hx, hy = dice.between(0.06, 0.18), dice.around(-0.92, 0.05)
    a.add(Limb(((0.22, -0.4, 0.09), (0.27, -0.07, 0.075))), "far")
    a.add(ellipse(-0.05, -0.42, dice.around(0.29, 0.08), 0.40, 0.02), pattern=True)
    a.add(ellipse(0.13, -0.5, 0.12, 0.2), "pale")
    a.add(ellipse(-0.16, -0.20, 0.23, 0.20), edge=True)
    a.add(Limb(((0.11, -0.42, 0.085), (0.14, -0.07, 0.075))), edge=True)
    a.add(Limb(((-0.16, -0.065, 0.065), (-0.02, -0.06, 0.06))), edge=True)
    a.keypoints |= {"body": (-0.03, -0.42), "front_leg": (0.13, -0.18), "back_leg": (-0.14, -0.1)}
    return hx, hy


def _muzzle(a: Animal, hx: float, hy: float) -> None:
    a.add(ellipse(hx, hy, 0.25, 0.215, 0.02), edge=True)
    a.add(ellipse(hx + 0.13, hy + 0.08, 0.105, 0.085), "pale")
    a.eye(hx + 0.04, hy - 0.04, 0.047)
    a.cheek(hx - 0.02, hy + 0.09, 0.055)
    a.detail(ellipse(hx + 0.205, hy + 0.02, 0.035, 0.027), "ink")
    a.keypoints["head"] = (hx, hy)


def rabbit(dice: Dice) -> Animal:
    """Long ears and a round pale tail; crouches or sits, just as the cat does."""
    a = Animal()
    crouching = dice.chance(0.5)
    ear, lean = dice.around(0.25, 0.2), dice.between(-0.07, 0.03)
    tail = (-0.50, -0.30) if crouching else (-0.36, -0.15)
    a.add(circle(*tail, dice.around(0.13, 0.12)), "pale", edge=True)
    hx, hy = _crouch(a, dice) if crouching else _sit(a, dice)
    a.add(ellipse(hx - 0.0, hy - 0.15 - ear, 0.085, ear, lean + 0.03), "far", edge=True)
    a.add(ellipse(hx - 0.13, hy - 0.13 - ear, 0.095, ear, lean - 0.04), edge=True)
    a.add(ellipse(hx - 0.13, hy - 0.14 - ear, 0.042, ear * 0.72, lean - 0.04), "accent")
    _muzzle(a, hx, hy)
    a.keypoints |= {"ear": (hx - 0.13, hy - 0.13 - ear), "tail": tail}
    return a


def cat(dice: Dice) -> Animal:
    """Pointed ears, a long raised tail, whiskers; crouches or sits, just as the rabbit does."""
    a = Animal()
    crouching = dice.chance(0.5)
    ear = dice.around(0.22, 0.2)
    root = (-0.36, -0.30) if crouching else (-0.25, -0.08)
    tip = (root[0] - dice.between(0.26, 0.46), root[1] - dice.between(0.30, 0.62))
    knee = (tip[0] - 0.12, root[1] + 0.02)
    a.add(bend((*root, 0.08), (*knee, 0.075), (*tip, 0.06), 5))
    hx, hy = _crouch(a, dice) if crouching else _sit(a, dice)
    for side, role in ((0.15, "far"), (-0.14, "coat")):
        x = hx + side
        points = ((x - 0.09, hy - 0.11), (x + 0.3 * side, hy - 0.15 - ear), (x + 0.09, hy - 0.11))
        a.add(Polygon(points, 0.02), role, edge=True)
    a.add(Polygon(((hx - 0.19, hy - 0.13), (hx - 0.178, hy - 0.10 - ear), (hx - 0.1, hy - 0.13)), 0.004), "accent")
    _muzzle(a, hx, hy)
    for dy in (-0.02, 0.05):
        a.detail(Limb(((hx - 0.02, hy + 0.08 + 0.4 * dy, 0.008), (hx - 0.24, hy + 0.07 + dy, 0.006))), "ink", 0.45)
    a.keypoints |= {
        "ear": (hx - 0.15, hy - 0.13 - 0.4 * ear),
        "tail": (0.16 * root[0] + 0.48 * knee[0] + 0.36 * tip[0], 0.16 * root[1] + 0.48 * knee[1] + 0.36 * tip[1]),
    }
    return a


def duck(dice: Dice) -> Animal:
    """A flat beak, a boat-shaped body with a turned-up tail, two thin legs."""
    a = Animal()
    hx, hy = dice.between(0.34, 0.44), dice.between(-1.04, -0.92)
    tail = dice.between(-0.78, -0.62)
    wing, beak = dice.around(0.28, 0.12), dice.around(0.27, 0.12)
    a.add(Limb(((0.06, -0.25, 0.045), (0.08, -0.06, 0.04), (0.20, -0.04, 0.04))), "accent")
    a.add(bend((-0.30, -0.42, 0.20), (-0.52, -0.46, 0.12), (-0.70, tail, 0.03)))
    a.add(Limb(((-0.12, -0.25, 0.045), (-0.10, -0.05, 0.04), (0.03, -0.03, 0.04))), "accent", edge=True)
    a.add(ellipse(-0.06, -0.42, 0.46, 0.27, -0.02), pattern=True)
    a.add(bend((0.22, -0.45, 0.20), (0.40, -0.60, 0.14), (hx, hy, 0.14)))
    a.add(ellipse(0.20, -0.35, 0.17, 0.15, 0.1), "pale")
    a.add(Polygon(((hx + 0.1, hy - 0.08), (hx + 0.12 + beak, hy + 0.04), (hx + 0.1, hy + 0.11)), 0.035), "accent")
    a.add(circle(hx, hy, 0.205), edge=False)
    a.add(ellipse(-0.14, -0.46, wing, 0.15, -0.04 + dice.between(-0.03, 0.03)), "deep", edge=True)
    a.detail(Limb(((hx + 0.15, hy + 0.045, 0.008), (hx + 0.05 + beak, hy + 0.055, 0.008))), "ink", 0.5)
    a.eye(hx + 0.06, hy - 0.05, 0.046)
    a.cheek(hx + 0.02, hy + 0.08, 0.05)
    a.keypoints |= {
        "head": (hx, hy), "beak": (hx + 0.15 + 0.4 * beak, hy + 0.03), "neck": (0.36, -0.66), "body": (-0.06, -0.42),
        "wing": (-0.14, -0.46), "tail": (-0.62, 0.25 * -0.46 + 0.75 * tail), "front_leg": (0.08, -0.08),
        "back_leg": (-0.1, -0.08),
    }  # fmt: skip
    return a


def tortoise(dice: Dice) -> Animal:
    """A domed shell with plates, four stubby legs, a small head held low."""
    a = Animal()
    dome, reach, lift = dice.around(0.40, 0.1), dice.between(0.60, 0.72), dice.between(-0.52, -0.36)
    a.add(Limb(((-0.45, -0.22, 0.08), (-0.70, -0.12, 0.025))), "pale")
    a.add(Limb(((-0.18, -0.18, 0.10), (-0.16, -0.07, 0.085))), "far")
    a.add(Limb(((0.36, -0.18, 0.10), (0.42, -0.07, 0.085))), "far")
    a.add(bend((0.32, -0.22, 0.12), (0.52, -0.24, 0.10), (reach, lift, 0.10)), "pale")
    a.add(ellipse(reach + 0.05, lift - 0.03, 0.18, 0.145, 0.02), "pale")
    a.add(Limb(((-0.36, -0.2, 0.115), (-0.38, -0.085, 0.095))), "pale", edge=True)
    a.add(Limb(((0.20, -0.2, 0.115), (0.24, -0.085, 0.095))), "pale", edge=True)
    a.add(ellipse(-0.05, -0.20, 0.50, 0.12), "pale", edge=True)
    a.add(Polygon(((-0.50, -0.26), (-0.40, -0.30), (0.30, -0.30), (0.40, -0.26)), 0.03), edge=True)
    a.add(ellipse(-0.05, -0.36, 0.45, dome), edge=True, pattern=False)
    a.add(Limb(((-0.48, -0.215, 0.05), (0.38, -0.215, 0.05))), "deep", edge=True)
    top = -0.36 - dome
    a.add(ellipse(-0.05, top + 0.22, 0.15, 0.13), "deep")
    a.add(ellipse(-0.30, top + 0.36, 0.10, 0.12, 0.06), "deep")
    a.add(ellipse(0.20, top + 0.36, 0.10, 0.12, -0.06), "deep")
    a.eye(reach + 0.09, lift - 0.06, 0.042)
    a.cheek(reach + 0.03, lift + 0.04, 0.045)
    a.detail(Limb(((reach + 0.12, lift + 0.045, 0.01), (reach + 0.2, lift + 0.02, 0.01))), "ink", 0.7)
    a.keypoints |= {
        "head": (reach + 0.05, lift - 0.03), "neck": (0.5, -0.26), "body": (-0.05, -0.28), "shell": (-0.05, -0.42),
        "tail": (-0.6, -0.15), "front_leg": (0.24, -0.1), "back_leg": (-0.38, -0.1),
    }  # fmt: skip
    return a


def penguin(dice: Dice) -> Animal:
    """Upright and round, flippers held out, a short beak, a pale belly."""
    a = Animal()
    girth, spread = dice.around(0.34, 0.08), dice.between(0.02, 0.09)
    hx, hy = dice.between(0.02, 0.10), dice.around(-1.0, 0.04)
    a.add(Polygon(((-0.22, -0.22), (-0.50, -0.03), (-0.12, -0.06)), 0.02), "far")
    a.add(ellipse(0.30 + spread, -0.58, 0.085, 0.27, -0.07 - spread), "far", edge=True)
    a.add(ellipse(-0.12, -0.05, 0.13, 0.055), "accent", edge=True)
    a.add(ellipse(0.16, -0.05, 0.14, 0.055), "accent", edge=True)
    a.add(ellipse(0.0, -0.50, girth, 0.46), pattern=True)
    a.add(circle(hx, hy, 0.25))
    a.add(ellipse(0.09, -0.45, girth * 0.68, 0.36), "pale")
    a.add(ellipse(hx + 0.11, hy + 0.05, 0.125, 0.13), "pale")
    a.add(Polygon(((hx + 0.17, hy - 0.04), (hx + 0.38, hy + 0.05), (hx + 0.16, hy + 0.09)), 0.02), "accent", edge=True)
    a.add(ellipse(-0.26 - spread, -0.55, 0.10, 0.28, 0.06 + spread), "deep", edge=True)
    a.eye(hx + 0.07, hy - 0.02, 0.046)
    a.cheek(hx + 0.06, hy + 0.12, 0.05)
    a.keypoints |= {
        "head": (hx, hy), "beak": (hx + 0.24, hy + 0.04), "body": (0.0, -0.5), "wing": (-0.26 - spread, -0.55),
        "tail": (-0.34, -0.10), "front_leg": (0.16, -0.05), "back_leg": (-0.12, -0.05),
    }  # fmt: skip
    return a


def giraffe(dice: Dice) -> Animal:
    """A long neck with small horns on top, four long legs, a thin tail with a tuft."""
    a = Animal()
    hx, hy = dice.between(0.40, 0.58), dice.between(-1.56, -1.38)
    step, swing = dice.between(-0.06, 0.06), dice.between(-0.10, 0.04)
    a.add(Limb(((-0.40, -0.74, 0.035), (-0.56 + swing, -0.46, 0.025))))
    a.add(ellipse(-0.57 + swing, -0.40, 0.05, 0.085, 0.04), "deep")
    a.add(Limb(((0.06, -0.55, 0.08), (0.08 - step, -0.04, 0.06))), "far")
    a.add(Limb(((-0.24, -0.55, 0.08), (-0.20 + step, -0.04, 0.06))), "far")
    a.add(Limb(((0.17, -0.60, 0.095), (0.20 + step, -0.05, 0.065))), edge=True)
    a.add(Limb(((-0.34, -0.60, 0.10), (-0.36 - step, -0.05, 0.065))), edge=True)
    a.add(Limb(((hx - 0.05, hy - 0.06, 0.025), (hx - 0.08, hy - 0.22, 0.025))), "deep")
    a.add(Limb(((hx + 0.04, hy - 0.06, 0.025), (hx + 0.04, hy - 0.22, 0.025))), "deep")
    a.add(circle(hx - 0.08, hy - 0.22, 0.045), "deep")
    a.add(circle(hx + 0.04, hy - 0.22, 0.045), "deep")
    a.add(ellipse(hx - 0.19, hy - 0.06, 0.10, 0.05, 0.04), edge=True)
    a.add(Limb(((0.14, -0.72, 0.17), (hx - 0.04, hy + 0.04, 0.10))), pattern=True)
    a.add(ellipse(-0.10, -0.68, 0.36, 0.20, -0.02), pattern=True)
    a.add(ellipse(hx + 0.06, hy + 0.0, 0.20, 0.125, 0.05), edge=True)
    a.add(ellipse(hx + 0.18, hy + 0.05, 0.095, 0.085, 0.05), "pale")
    a.eye(hx + 0.03, hy - 0.03, 0.042)
    a.cheek(hx + 0.06, hy + 0.07, 0.045)
    a.detail(circle(hx + 0.21, hy + 0.03, 0.015), "ink")
    a.keypoints |= {
        "head": (hx + 0.06, hy), "ear": (hx - 0.2, hy - 0.06), "horn": (hx - 0.02, hy - 0.15), "body": (-0.1, -0.68),
        "neck": (0.07 + 0.5 * hx - 0.02, -0.36 + 0.5 * hy + 0.02), "tail": (-0.5 + 0.7 * swing, -0.53),
        "front_leg": (0.18 + 0.6 * step, -0.3), "back_leg": (-0.35 - 0.6 * step, -0.3),
    }  # fmt: skip
    return a


def snail(dice: Dice) -> Animal:
    """A coiled shell on a long flat foot, two eye stalks."""
    a = Animal()
    r, reach = dice.around(0.37, 0.1), dice.between(0.50, 0.64)
    rise, tilt = dice.between(-0.52, -0.38), dice.between(-0.06, 0.08)
    cx, cy = -0.12, -0.12 - r
    a.add(Limb(((reach, rise, 0.04), (reach + 0.02 + tilt, rise - 0.30, 0.028))), "far")
    a.add(circle(reach + 0.02 + tilt, rise - 0.32, 0.06), "white")
    a.add(bend((-0.74, -0.04, 0.03), (-0.2, -0.10, 0.09), (0.32, -0.10, 0.10)), "pale")
    a.add(bend((0.28, -0.10, 0.10), (reach - 0.04, -0.08, 0.11), (reach, rise, 0.12), 5), "pale")
    a.add(circle(cx, cy, r), edge=True, pattern=False)
    a.add(Limb(((reach + 0.05, rise, 0.045), (reach + 0.17 + tilt, rise - 0.26, 0.03))), "pale", edge=True)
    a.add(circle(reach + 0.17 + tilt, rise - 0.29, 0.068), "white", edge=True)
    # the coil: half turns of shrinking radius
    ring, x, sign = r * 0.72, cx, 1.0
    points: list[tuple[float, float, float]] = []
    for _ in range(4):
        for c, s in ((1.0, 0.0), (0.866, 0.5), (0.5, 0.866), (0.0, 1.0), (-0.5, 0.866), (-0.866, 0.5)):
            points.append((x + sign * ring * c, cy + sign * ring * s, 0.028))
        x -= sign * ring * 0.28
        ring, sign = ring * 0.72, -sign
    a.detail(Limb(tuple(points)), "line")
    a.eye(reach + 0.175 + tilt, rise - 0.295, 0.034)
    a.detail(circle(reach + 0.035 + tilt, rise - 0.325, 0.03), "ink")
    a.cheek(reach + 0.02, rise + 0.06, 0.05)
    a.detail(Limb(((reach + 0.04, rise + 0.03, 0.011), (reach + 0.10, rise + 0.015, 0.011))), "ink", 0.7)
    a.keypoints |= {
        "head": (reach, rise), "horn": (reach + 0.11 + 0.5 * tilt, rise - 0.13), "body": (0.1, -0.10),
        "neck": (reach - 0.06, -0.18), "shell": (cx, cy), "tail": (-0.6, -0.055),
    }  # fmt: skip
    return a


def fish(dice: Dice) -> Animal:
    """An oval body with a forked tail and fins; hovers above the ground."""
    a = Animal()
    high, fork, sail = dice.around(0.29, 0.12), dice.between(0.22, 0.34), dice.between(0.16, 0.30)
    cy = -0.52
    a.hover = 0.16
    for side in (-1.0, 1.0):
        tip = (-0.80, cy + side * fork)
        a.add(Limb(((-0.36, cy, 0.07), (-0.60, cy + side * fork * 0.5, 0.085), (*tip, 0.055))), "deep")
    a.add(
        Polygon(((-0.26, cy - 0.15), (-0.16, cy - high - sail), (0.14, cy - high - 0.03), (0.24, cy - 0.15)), 0.02),
        "deep",
    )
    a.add(Polygon(((-0.10, cy + high - 0.08), (-0.2, cy + high + 0.13), (0.08, cy + high - 0.04)), 0.02), "deep")
    a.add(ellipse(0.02, cy, 0.48, high), pattern=True)
    a.add(ellipse(0.28, cy + 0.02, 0.23, high * 0.74), "pale")
    a.add(ellipse(0.02, cy + 0.07, 0.14, 0.085, 0.06 + dice.between(-0.05, 0.05)), "accent", edge=True)
    a.eye(0.32, cy - 0.06, 0.055)
    a.cheek(0.28, cy + 0.08, 0.055)
    a.detail(Limb(((0.40, cy + 0.08, 0.013), (0.46, cy + 0.05, 0.013))), "ink", 0.8)
    a.keypoints |= {
        "head": (0.28, cy), "body": (0.0, cy), "fin": (0.02, cy + 0.07), "tail": (-0.62, cy + fork * 0.5),
    }  # fmt: skip
    return a


SPECIES: dict[str, Callable[[Dice], Animal]] = {
    "cat": cat,
    "duck": duck,
    "rabbit": rabbit,
    "penguin": penguin,
    "tortoise": tortoise,
    "snail": snail,
    "giraffe": giraffe,
    "fish": fish,
}
"""Builders by class name, in class order. Cat and rabbit, which share their postures, are the hardest to tell apart;
cat and duck are told apart by a small network after a few epochs, but later than their habitats."""
