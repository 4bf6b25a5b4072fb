"""One scene: which animal, where, in which habitat, beside what; and its image, mask, box and keypoints.

A scene is a small recipe. Everything random in it comes from its own bit stream, named by
``(seed, split, index)``, cut into separate rows for the animal, its place, the habitat and the things. So
``dataclasses.replace(scene, habitat=3)`` is the same animal in the same pose and place in another habitat.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from foveate.data.drawing.animals import COATS, KEYPOINTS, Animal, Coat, Traced, line_width, mask_of, paint, trace
from foveate.data.drawing.exact import Dice, cos_sin, raw_bits, uniforms
from foveate.data.drawing.habitats import HABITATS
from foveate.data.drawing.raster import Canvas, Ellipse, Frame, rgb
from foveate.data.drawing.species import SPECIES
from foveate.data.drawing.things import CLUTTER, THINGS, paint_thing

_ROWS = {"animal": 16, "coat": 32, "place": 8, "habitat": 160, "second": 28}
"""How many random numbers each part of a scene may use."""
_GRAIN = 3.0

_species = tuple(SPECIES.values())
_habitats = tuple(HABITATS.values())
_things = tuple(THINGS.values())
_clutter = tuple(CLUTTER.values())


@dataclass(frozen=True)
class Scene:
    """The recipe of one image.

    Attributes:
        seed, split, index: name the scene's own random stream.
        size: side of the image in pixels.
        species, habitat: indices into ``SPECIES`` and ``HABITATS``.
        colour: index into ``COATS``, or None for a random coat.
        second: index into ``THINGS`` of the thing beside the animal, or None.
        clutter: how many things from ``CLUTTER`` lie about.
        centre_bias: 0 = anywhere on the ground, 1 = in the middle of the image.
        object_scale: range of the animal's side (square root of width times height) as a share of ``size``.
    """

    seed: int
    split: int
    index: int
    size: int
    species: int
    habitat: int
    colour: int | None = None
    second: int | None = None
    clutter: int = 0
    centre_bias: float = 0.0
    object_scale: tuple[float, float] = (0.36, 0.54)


@dataclass(frozen=True)
class _Cast:
    """A scene's random choices, made."""

    animal: Animal
    coat: Coat
    colour: int
    frame: Frame
    box: tuple[float, float, float, float]
    ground: float
    horizon: float
    rows: dict[str, Dice]
    bits: np.random.PCG64


def _cast(scene: Scene) -> _Cast:
    bits = raw_bits(scene.seed, scene.split, scene.index)
    row = uniforms(bits, sum(_ROWS.values())).tolist()
    rows, at = {}, 0
    for name, length in _ROWS.items():
        rows[name] = Dice(row[at : at + length])
        at += length
    animal = _species[scene.species](rows["animal"])
    drawn = rows["coat"].integer(len(COATS))  # always drawn, so that a forced colour changes nothing else
    colour = drawn if scene.colour is None else scene.colour
    coat = Coat.roll(rows["coat"], colour)

    place = rows["place"]
    size = scene.size
    low, high = scene.object_scale
    side = place.between(low, high) * size
    flip = 1.0 if place.chance(0.5) else -1.0
    cos, sin = cos_sin(place.between(-0.025, 0.025))
    horizon = place.between(0.26, 0.46)
    x0, y0, x1, y1 = animal.bounds(Frame(0.0, 0.0, 1.0, flip, cos, sin))
    wide, tall = x1 - x0, y1 - y0
    # an animal much longer than high must still fit
    scale = min(side / math.sqrt(wide * tall), (size - 5.0) / (max(wide, tall + animal.hover) + 0.05))
    half_w, half_h = 0.5 * wide * scale, 0.5 * tall * scale
    margin, hover = 1.5 + line_width(scale), animal.hover * scale
    cx = place.between(half_w + margin, size - half_w - margin)
    lowest = size - margin - half_h - hover
    highest = max(half_h + margin, min((horizon + 0.12) * size - half_h - hover, lowest))
    cy = place.between(highest, lowest)
    bias = scene.centre_bias
    cx, cy = cx + (0.5 * size - cx) * bias, cy + (0.5 * size - cy) * bias
    frame = Frame(cx - 0.5 * (x0 + x1) * scale, cy - 0.5 * (y0 + y1) * scale, scale, flip, cos, sin)
    box = (cx - half_w, cy - half_h, cx + half_w, cy + half_h)
    return _Cast(animal, coat, colour, frame, box, cy + half_h + hover, horizon, rows, bits)


def _keypoints(cast: _Cast) -> NDArray[np.float32]:
    out = np.zeros((len(KEYPOINTS), 3), dtype=np.float32)
    for k, name in enumerate(KEYPOINTS):
        if name in cast.animal.keypoints:
            x, y = cast.frame.point(*cast.animal.keypoints[name])
            out[k] = x, y, 1.0
    return out


def _byte_mask(size: int, traced: Traced) -> NDArray[np.uint8]:
    y0, y1, x0, x1 = traced.window
    mask = np.zeros((size, size), dtype=np.uint8)
    mask[y0:y1, x0:x1] = np.floor(mask_of(traced) * 255.0 + 0.5)
    return mask


@dataclass(frozen=True)
class Outline:
    """What is known about a scene before any pixel is coloured.

    Attributes:
        box: tight box ``(x0, y0, x1, y1)`` of the mask at 128 and above, end exclusive.
        keypoints: ``float32 [len(KEYPOINTS), 3]`` of ``(x, y, visible)``.
        colour: index of the coat colour.
        facing: 0 when the animal looks left, 1 when it looks right.
    """

    box: tuple[int, int, int, int]
    keypoints: NDArray[np.float32]
    colour: int
    facing: int


def outline(scene: Scene, canvas: Canvas | None = None) -> Outline:
    """Box and keypoints of a scene; traces the animal but paints nothing."""
    cast = _cast(scene)
    traced = trace(canvas or Canvas(scene.size), cast.animal, cast.frame)
    y0, _, x0, _ = traced.window
    inside = np.floor(mask_of(traced) * 255.0 + 0.5) >= 128.0
    rows, columns = np.flatnonzero(inside.any(axis=1)), np.flatnonzero(inside.any(axis=0))
    box = (x0 + int(columns[0]), y0 + int(rows[0]), x0 + int(columns[-1]) + 1, y0 + int(rows[-1]) + 1)
    return Outline(box, _keypoints(cast), cast.colour, int(cast.frame.flip > 0))


def render(scene: Scene) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Image ``uint8 [size, size, 3]`` and mask ``uint8 [size, size]`` of a scene.

    >>> image, mask = render(Scene(seed=0, split=0, index=0, size=64, species=1, habitat=1))
    >>> image.shape, image.dtype, mask.shape
    ((64, 64, 3), dtype('uint8'), (64, 64))
    """
    size = scene.size
    cast = _cast(scene)
    canvas = Canvas(size)
    _habitats[scene.habitat](canvas, cast.rows["habitat"], cast.horizon)
    for k in range(scene.clutter):
        own = raw_bits(scene.seed, scene.split, scene.index, k + 1)
        _stand(canvas, cast, Dice(uniforms(own, _ROWS["second"]).tolist()), None)
    if scene.second is not None:
        _stand(canvas, cast, cast.rows["second"], scene.second)
    _shadow(canvas, cast)
    traced = trace(canvas, cast.animal, cast.frame)
    paint(canvas, traced, cast.coat, cast.frame.scale)
    words = -(-size * size // 8)
    # little-endian on purpose: the bytes must fall in the same order everywhere
    grain = cast.bits.random_raw(words).astype("<u8").view(np.uint8)[: size * size].reshape(size, size)
    canvas.planes += grain * (2.0 * _GRAIN / 255.0) + (0.5 - _GRAIN)
    np.minimum(np.maximum(canvas.planes, 0.0, out=canvas.planes), 255.0, out=canvas.planes)
    image = np.ascontiguousarray(canvas.planes.transpose(1, 2, 0).astype(np.uint8))
    return image, _byte_mask(size, traced)


def _shadow(canvas: Canvas, cast: _Cast) -> None:
    x0, _, x1, _ = cast.box
    wide, flat = 0.46 * (x1 - x0), 0.085 * cast.frame.scale
    ground = min(cast.ground, canvas.size - 1.0) - 0.3 * flat
    shadow = Ellipse(0.5 * (x0 + x1), ground, wide, flat)
    canvas.fill(shadow, rgb("140F20"), alpha=0.38, soft=max(1.0, 1.4 * flat))


def _stand(canvas: Canvas, cast: _Cast, dice: Dice, kind: int | None) -> None:
    """Put a thing on the ground behind the animal, at the one of several places where they overlap least."""
    layers = _clutter[dice.integer(len(_clutter))]() if kind is None else _things[kind]()
    size, scale = canvas.size, dice.between(0.17, 0.25) * canvas.size
    ax0, ay0, ax1, ay1 = cast.box
    best, best_overlap = (0.0, 0.0), 1e18
    for _ in range(12):
        x = dice.between(0.4 * scale, size - 0.4 * scale)
        y = dice.between(max(cast.horizon * size + 0.1 * size, 1.25 * scale), 0.97 * size)
        wide = min(ax1, x + 0.5 * scale) - max(ax0, x - 0.5 * scale)
        tall = min(ay1, y) - max(ay0, y - 1.15 * scale)
        overlap = max(wide, 0.0) * max(tall, 0.0)
        if overlap < best_overlap:
            best, best_overlap = (x, y), overlap
    paint_thing(canvas, layers, Frame(best[0], best[1], scale))
