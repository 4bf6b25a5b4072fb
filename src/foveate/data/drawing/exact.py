"""Arithmetic and randomness that give the same bits on every machine.

Only operations that IEEE 754 rounds exactly are used for drawing: ``+ - * /``, square root, comparison,
rounding. Library functions such as ``sin`` or ``exp`` differ in the last bit between machines, so the few
angles needed come from a polynomial. Randomness uses the raw 64-bit output of PCG64 and
:class:`numpy.random.SeedSequence`, whose streams NumPy promises to keep, and not ``Generator`` methods,
which NumPy may change between releases.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T")
_TO_UNIT = 1.0 / (1 << 53)


def cos_sin(turns: float) -> tuple[float, float]:
    """Cosine and sine of an angle given in turns (1 = full circle), accurate to about 1e-9.

    >>> cos_sin(0.25), cos_sin(-0.5)
    ((0.0, 1.0), (-1.0, 0.0))
    """
    quarter = float(np.floor(turns * 4.0 + 0.5))
    x = (turns - quarter * 0.25) * 6.283185307179586  # within an eighth of a turn of an axis
    q = x * x
    c = 1 - q / 2 * (1 - q / 12 * (1 - q / 30 * (1 - q / 56 * (1 - q / 90))))
    s = x * (1 - q / 6 * (1 - q / 20 * (1 - q / 42 * (1 - q / 72))))
    return ((c, s), (-s + 0.0, c), (-c, -s + 0.0), (s, -c))[int(quarter) % 4]


def smooth(t: NDArray[np.float64]) -> NDArray[np.float64]:
    """The step ``3t^2 - 2t^3`` for ``t`` in [0, 1]."""
    return t * t * (3.0 - 2.0 * t)


def raw_bits(seed: int, *key: int) -> np.random.PCG64:
    """The bit stream that belongs to ``seed`` and ``key`` alone."""
    return np.random.PCG64(np.random.SeedSequence(seed, spawn_key=key))


def uniforms(bits: np.random.PCG64, n: int) -> NDArray[np.float64]:
    """``n`` numbers in [0, 1) from the top 53 bits of each raw draw."""
    return (bits.random_raw(n) >> np.uint64(11)).astype(np.float64) * _TO_UNIT


class Dice:
    """A fixed row of uniform numbers, consumed from left to right.

    A drawing routine gets its own row, so that changing one thing in a scene (say, the habitat) leaves the
    random choices of everything else as they were.

    >>> dice = Dice([0.0, 0.5, 0.99])
    >>> dice.between(2.0, 4.0), dice.integer(3), dice.pick("abcd")
    (2.0, 1, 'd')
    """

    def __init__(self, row: Sequence[float]):
        self._row = row
        self._next = 0

    def unit(self) -> float:
        """The next number, in [0, 1)."""
        value = self._row[self._next]
        self._next += 1
        return value

    def between(self, low: float, high: float) -> float:
        return low + (high - low) * self.unit()

    def around(self, centre: float, spread: float) -> float:
        """A number within ``spread`` (a share of ``centre``) of ``centre``."""
        return centre * (1.0 - spread + 2.0 * spread * self.unit())

    def integer(self, n: int) -> int:
        """An integer in ``0 .. n - 1``."""
        return int(self.unit() * n)

    def pick(self, options: Sequence[T]) -> T:
        return options[self.integer(len(options))]

    def chance(self, probability: float) -> bool:
        return self.unit() < probability

    def array(self, n: int) -> NDArray[np.float64]:
        """The next ``n`` numbers."""
        values = np.array(self._row[self._next : self._next + n], dtype=np.float64)
        if len(values) < n:
            raise IndexError("the row of random numbers is used up")
        self._next += n
        return values
