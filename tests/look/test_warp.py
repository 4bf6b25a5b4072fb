"""The reversible affine pair behind the equivariance loss."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from foveate import compat  # noqa: F401  (before torchvision)
from foveate.decide.part_losses import equivariance_loss
from foveate.look import AffineWarp

from torchvision.transforms.functional import affine  # isort: skip


def blob(height: int, width: int, y: float, x: float, radius: float = 0.12) -> Tensor:
    """A smooth spot at ``(y, x)``, given as shares of the image."""
    rows = (torch.arange(height) + 0.5)[:, None] / height * (height / width)
    columns = (torch.arange(width) + 0.5)[None] / width
    return torch.exp(-((rows - y * height / width) ** 2 + (columns - x) ** 2) / (2 * radius**2))


def test_identity() -> None:
    images = torch.rand(2, 3, 10, 12)
    torch.testing.assert_close(AffineWarp()(images), images)
    torch.testing.assert_close(AffineWarp().inverse(images), images)
    assert float(equivariance_loss(images, AffineWarp().inverse(AffineWarp()(images)))) == pytest.approx(0, abs=1e-6)


def test_quarter_turn_shift_and_scale_by_hand() -> None:
    image = torch.arange(16.0).view(1, 1, 4, 4)
    torch.testing.assert_close(AffineWarp(angle=90)(image), torch.rot90(image, 1, (2, 3)))
    shifted = AffineWarp(shift=(0.25, 0.5))(image)
    torch.testing.assert_close(shifted[0, 0, 2:, 1:], image[0, 0, :2, :3])
    assert float(shifted[0, 0, :2].abs().max()) == 0
    assert float(shifted[0, 0, :, 0].abs().max()) == 0
    twice = AffineWarp(scale=2)(blob(40, 40, 0.5, 0.5, 0.05)[None, None])
    torch.testing.assert_close(twice[0, 0], blob(40, 40, 0.5, 0.5, 0.1), atol=0.05, rtol=0)


@settings(max_examples=40, deadline=None)
@given(
    angle=st.floats(-90, 90),
    x=st.floats(-0.11, 0.11),
    y=st.floats(-0.11, 0.11),
    scale=st.floats(0.8, 1.4),
    wide=st.booleans(),
)
def test_round_trip(angle: float, x: float, y: float, scale: float, wide: bool) -> None:
    warp = AffineWarp(angle, (x, y), scale)
    image = blob(64, 96 if wide else 64, 0.52, 0.46, 0.06)[None, None]
    warped = warp(image)
    torch.testing.assert_close(warp.inverse(warped, smooth=True), image, atol=0.05, rtol=0)
    # by nearest values a place is off by up to a pixel, and the spot is no steeper than this
    torch.testing.assert_close(warp.inverse(warped), image, atol=0.3, rtol=0)
    # the mass grows with the square of the scale: nothing was cut off or stretched
    assert float(warped.sum() / image.sum()) == pytest.approx(scale**2, rel=0.03)


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10_000))
def test_one_warp_fits_images_and_smaller_maps(seed: int) -> None:
    """A model that averages over patches is equivariant: maps of warped images, warped back, are its maps."""
    warp = AffineWarp.random(torch.Generator().manual_seed(seed))
    image = blob(128, 128, 0.5, 0.5)[None, None]
    image = torch.cat([image, 1 - image], 1)
    maps = F.avg_pool2d(image, 4)
    smooth = warp.inverse(F.avg_pool2d(warp(image), 4), smooth=True)
    assert float(equivariance_loss(maps, smooth)) < 0.002
    back = warp.inverse(F.avg_pool2d(warp(image), 4))
    assert float(equivariance_loss(maps, back)) < 0.02
    wrong = AffineWarp(warp.angle, (warp.shift[0] + 0.3, warp.shift[1]), warp.scale)
    assert float(equivariance_loss(maps, wrong.inverse(F.avg_pool2d(warp(image), 4)))) > 0.05


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10_000), wide=st.booleans())
def test_undone_as_the_authors_undo_it(seed: int, wide: bool) -> None:
    """Against torchvision's affine, twice, at its default interpolation; it turns clockwise."""
    warp = AffineWarp.random(torch.Generator().manual_seed(seed))
    height, width = 16, 20 if wide else 16
    maps = torch.rand(2, 4, height, width, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    shift = [-warp.shift[0] * width, -warp.shift[1] * height]
    theirs = affine(maps, angle=0, translate=shift, scale=1, shear=[0.0])
    theirs = affine(theirs, angle=warp.angle, translate=[0, 0], scale=1 / warp.scale, shear=[0.0])
    same = (warp.inverse(maps) == theirs).double().mean()
    assert same > 0.97  # a place exactly between two may be rounded either way
    assert float(equivariance_loss(maps, warp.inverse(maps))) == pytest.approx(
        float(equivariance_loss(maps, theirs)), abs=0.01
    )


def test_nearest_values_are_values_of_the_maps_and_carry_gradients() -> None:
    warp = AffineWarp(angle=30, shift=(0.1, -0.05), scale=1.2)
    maps = torch.rand(1, 2, 12, 12, requires_grad=True)
    back = warp.inverse(maps)
    assert set(back.detach().flatten().tolist()) <= {0.0, *maps.detach().flatten().tolist()}
    back.sum().backward()
    assert maps.grad is not None
    assert set(maps.grad.flatten().tolist()) <= {0.0, 1.0, 2.0, 3.0, 4.0}


def test_random_warps_stay_in_range_and_repeat() -> None:
    warps = [AffineWarp.random(torch.Generator().manual_seed(s)) for s in range(200)]
    assert all(abs(w.angle) <= 90 and max(map(abs, w.shift)) <= 0.11 and 0.8 <= w.scale <= 1.4 for w in warps)
    assert max(w.angle for w in warps) > 80
    assert min(w.angle for w in warps) < -80
    assert warps[3] == AffineWarp.random(torch.Generator().manual_seed(3))
    with pytest.raises(ValueError, match="positive"):
        AffineWarp(scale=0)
