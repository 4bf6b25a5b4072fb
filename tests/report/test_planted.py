"""The planted pictures of the discovery study: what is planted is there, and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.planted import CLOSER, EXPECTED, LARGER, NEARER, STRETCHED, TILT, Scenes, outlines, planted


def scenes(side: int, n: int = 4) -> Scenes:
    """Noise of one fineness with a bright square in it."""
    rng = np.random.default_rng(0)
    own, other = (rng.integers(60, 120, (n, side, side, 3), dtype=np.uint8) for _ in range(2))
    masks = np.zeros((n, side, side), dtype=np.uint8)
    masks[:, side // 4 : side // 2, side // 4 : side // 2] = 1
    for pixels in (own, other):
        pixels[masks > 0] = 220
    return Scenes(own, other, masks, np.arange(n) % 2, ("cat", "dog"))


def test_a_closer_view_is_cut_from_the_larger_picture_with_its_outline() -> None:
    made, near = scenes(110), np.array([1, 0, 1, 0])
    pixels = planted(made, CLOSER, made.labels, near, seed=0)
    masks = outlines(made, CLOSER, near)
    side = round(110 / NEARER)
    assert pixels.shape == (4, side, side, 3)
    assert masks.shape == (4, side, side)
    area = masks.mean((1, 2))
    assert area[::2].min() > 0.8 * NEARER**2 * area[1::2].max(), "what is seen from closer is that much larger"
    for picture, mask in zip(pixels, masks, strict=True):
        inside = picture[mask > 0].mean()
        assert inside > picture[mask == 0].mean() + 80, "outlines lie on their objects"


def test_a_closer_view_is_not_blurred() -> None:
    made = scenes(110)
    near = planted(made, CLOSER, made.labels, np.ones(4, dtype=np.int64), seed=0)
    detail = np.abs(np.diff(near.astype(float), axis=2)).mean()
    assert detail == pytest.approx(np.abs(np.diff(made.own.astype(float), axis=2)).mean(), rel=0.3)


@pytest.mark.parametrize("kind", [TILT, STRETCHED])
def test_tilted_and_stretched_pictures_bring_their_outlines_and_no_corners(kind: str) -> None:
    made = scenes(round(56 * LARGER[kind]))
    here, gone = (planted(made, kind, made.labels, np.full(4, value), seed=1) for value in (1, 0))
    assert here.shape == gone.shape == (4, 56, 56, 3)
    for pixels, value in ((here, 1), (gone, 0)):
        masks = outlines(made, kind, np.full(4, value))
        assert pixels.min() > 0, "nothing from beyond the larger picture"
        for picture, mask in zip(pixels, masks, strict=True):
            assert picture[mask > 0].mean() > picture[mask == 0].mean() + 80, "outlines lie on their objects"
    if kind == STRETCHED:
        sides = [
            [m.any(axis).sum() for axis in (0, 1)] for m in (outlines(made, kind, np.full(4, v))[0] for v in (1, 0))
        ]
        (wide, low), (narrow, high) = sides
        assert wide / low > 2 * narrow / high


@pytest.mark.parametrize("kind", [kind for kind in EXPECTED if kind not in (*LARGER, "habitat", "none")])
def test_every_cue_changes_the_picture_where_it_is_there(kind: str) -> None:
    made = scenes(56)
    here, gone = (planted(made, kind, made.labels, np.full(4, value), seed=1) for value in (1, 0))
    assert (here != gone).any((1, 2, 3)).all()
    assert (outlines(made, kind, np.ones(4, dtype=np.int64)) == made.masks).all()
