"""Finding the same image twice: exactly (equal pixels) or nearly (resized, recompressed, a little noise).

Exact copies share a hash of their decoded pixels, so the same picture saved again as another lossless file is
found too. Near copies share, up to a few bits, a 64-bit perceptual hash made of the lowest frequencies of the
picture. A hash of 64 bits also agrees for some pictures that only look alike, so every candidate is confirmed
on a small colour thumbnail. One image costs 0.4 KB of memory, whatever its size.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from PIL import Image

LUMA, CHROMA = 16, 8
THUMBNAIL = LUMA**2 + 2 * CHROMA**2
"""Values kept of one picture: brightness on a 16 × 16 grid, then two colour differences on 8 × 8."""
SAME_LUMA, SAME_CHROMA = (3.0, 12), (5.0, 20)
"""Mean and largest difference, of 255 levels, up to which two thumbnails are of one picture. JPEG keeps colour
more coarsely than brightness, so colour may differ more."""
_GRID = 32
_angle = np.outer(np.arange(8), np.arange(_GRID) + 0.5) * np.pi / _GRID
_DCT = np.cos(_angle)


@dataclass(frozen=True)
class Fingerprint:
    """What is kept of one image to find it again.

    Attributes:
        content: hash of size and pixels.
        perceptual: 64-bit hash of the picture's coarse structure.
        thumbnail: ``uint8 [384]``, brightness and colour on coarse grids.
        uniform: every pixel has the same colour.
        plain: too little structure for the perceptual hash to mean anything.
    """

    content: bytes
    perceptual: int
    thumbnail: NDArray[np.uint8]
    uniform: bool
    plain: bool


def content_hash(image: NDArray[np.uint8]) -> bytes:
    """16 bytes that are equal exactly when size and pixels are equal (``uint8 [H, W, 3]``)."""
    hasher = hashlib.blake2b(repr(image.shape).encode(), digest_size=16)
    hasher.update(np.ascontiguousarray(image).data)
    return hasher.digest()


def perceptual_hash(image: NDArray[np.uint8]) -> int:
    """64 bits, one for each of the 8 × 8 lowest frequencies: is its cosine coefficient above the median?

    Args:
        image: ``uint8 [H, W, 3]`` of any size.

    >>> ramp = np.broadcast_to(np.arange(64, dtype=np.uint8)[:, None, None] * 4, (64, 64, 3))
    >>> larger = np.repeat(np.repeat(ramp, 2, axis=0), 2, axis=1)
    >>> (perceptual_hash(ramp) ^ perceptual_hash(larger)).bit_count() <= 6
    True
    """
    small = Image.fromarray(np.ascontiguousarray(image)).convert("L").resize((_GRID, _GRID), Image.Resampling.BILINEAR)
    coefficients = _DCT @ np.asarray(small, dtype=np.float64) @ _DCT.T
    flat = coefficients.ravel()
    bits = flat > np.median(flat[1:])  # the first is the mean brightness
    return int.from_bytes(np.packbits(bits).tobytes(), "big")


def fingerprint(image: NDArray[np.uint8]) -> Fingerprint:
    """Everything needed to find ``image`` (``uint8 [H, W, 3]``) again.

    >>> fingerprint(np.zeros((8, 8, 3), np.uint8)).uniform
    True
    """
    small = Image.fromarray(np.ascontiguousarray(image)).resize((LUMA, LUMA), Image.Resampling.BILINEAR)
    luma, *chroma = np.moveaxis(np.asarray(small.convert("YCbCr"), dtype=np.float64), -1, 0)
    coarse = [c.reshape(CHROMA, 2, CHROMA, 2).mean(axis=(1, 3)) for c in chroma]
    thumbnail = np.rint(np.concatenate([luma.ravel(), *(c.ravel() for c in coarse)])).astype(np.uint8)
    uniform = np.ptp(luma) == 0 and bool((image == image[0, 0]).all())
    plain = float(luma.std()) < SAME_LUMA[0]
    return Fingerprint(content_hash(image), perceptual_hash(image), thumbnail, uniform, plain)


def _popcount(words: NDArray[np.uint64]) -> NDArray[np.uint8]:
    """Number of set bits of every word (numpy has this itself only from version 2)."""
    by_byte = _BITS[words[..., None].view(np.uint8)]
    return by_byte.sum(axis=-1, dtype=np.uint8)


_BITS = np.array([bin(byte).count("1") for byte in range(256)], np.uint8)


def close_pairs(hashes: NDArray[np.uint64], distance: int) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    """All pairs of hashes that differ in at most ``distance`` bits, in blocks of positions ``(i, j)``.

    The 64 bits are cut into ``distance + 1`` bands: two hashes that close agree on at least one whole band,
    so only hashes that share a band are compared. A pair may come more than once.

    >>> [(i.tolist(), j.tolist()) for i, j in close_pairs(np.array([0b111, 0b110, 1 << 60], np.uint64), 1)]
    [([0], [1])]
    """
    edges = np.linspace(0, 64, distance + 2).astype(int)
    for low, high in itertools.pairwise(edges):
        band = (hashes >> np.uint64(low)) & np.uint64((1 << int(high - low)) - 1)
        order = np.argsort(band, kind="stable")
        starts = np.flatnonzero(np.r_[True, np.diff(band[order]) != 0])
        sizes = np.diff(np.r_[starts, len(order)])
        for start, size in zip(starts[sizes > 1], sizes[sizes > 1], strict=True):
            members = order[start : start + size]
            rows = max(1, 2_000_000 // int(size))  # bounds the memory of one comparison
            for first in range(0, int(size) - 1, rows):
                block = members[first : first + rows]
                near = _popcount(hashes[block][:, None] ^ hashes[members][None, :]) <= distance
                i, j = np.nonzero(near)
                later = j > i + first
                if later.any():
                    yield block[i[later]], members[j[later]]


def clusters(pairs: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Positions joined by pairs, directly or through others; each cluster sorted, in order of its first.

    >>> clusters([(4, 5), (1, 2), (2, 7)])
    [[1, 2, 7], [4, 5]]
    """
    parent: dict[int, int] = {}

    def top(x: int) -> int:
        while parent.setdefault(x, x) != x:
            parent[x] = parent[parent[x]]
            x = parent[x]
        return x

    for a, b in pairs:
        first, second = sorted((top(a), top(b)))
        parent[second] = first
    found: dict[int, list[int]] = {}
    for x in sorted(parent):
        found.setdefault(top(x), []).append(x)
    return sorted(found.values())


def _within(gap: NDArray[np.int16], mean: float, largest: int) -> NDArray[np.bool_]:
    return (gap.mean(axis=1) <= mean) & (gap.max(axis=1) <= largest)


def near_clusters(hashes: NDArray[np.uint64], thumbnails: NDArray[np.uint8], distance: int = 6) -> list[list[int]]:
    """Groups of positions that show nearly the same picture.

    Args:
        hashes: perceptual hashes ``[N]``, without exact copies and plain images.
        thumbnails: ``uint8 [N, 384]``.
        distance: how many of the 64 bits may differ.
    """
    pairs: set[tuple[int, int]] = set()
    for i, j in close_pairs(hashes, distance):
        for start in range(0, len(i), 20_000):  # bounds the memory: 20,000 pairs take 60 MB
            a, b = i[start : start + 20_000], j[start : start + 20_000]
            gap = np.abs(thumbnails[a].astype(np.int16) - thumbnails[b])
            same = _within(gap[:, : LUMA**2], *SAME_LUMA) & _within(gap[:, LUMA**2 :], *SAME_CHROMA)
            pairs.update((int(x), int(y)) for x, y in zip(a[same], b[same], strict=True))
    return clusters(sorted(pairs))
