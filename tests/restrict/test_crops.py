from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from foveate.errors import DataError, UnreadableImage
from foveate.restrict import extract_crops, greedy_crops


def brute_force(maps: Tensor, sizes: list[int], height: int, width: int) -> list[list[list[int]]]:
    """Every position tried on the map upsampled in float64; the first within rounding of the largest sum."""
    large = F.interpolate(maps.double()[:, None], (height, width), mode="bilinear", align_corners=False)[:, 0]
    result = []
    for image in large.numpy():
        integral = np.zeros((height + 1, width + 1))
        integral[1:, 1:] = image.cumsum(0).cumsum(1)
        rounding = 1e-12 * height * width * np.abs(image).max()
        boxes: list[list[int]] = []
        for s in sizes:
            free = [
                (integral[y + s, x + s] - integral[y, x + s] - integral[y + s, x] + integral[y, x], y, x)
                for y in range(height - s + 1)
                for x in range(width - s + 1)
                if all(x + s <= bx or bx + bs <= x or y + s <= by or by + bs <= y for bx, by, bs in boxes if bs > 0)
            ]
            if not free:
                boxes.append([-1, -1, -1])
                continue
            best = max(value for value, _, _ in free)
            _, y, x = next(position for position in free if position[0] >= best - rounding)
            boxes.append([x, y, s])
        result.append(boxes)
    return result


KINDS = ("random", "ties", "near ties", "flat", "negative", "peak")


def make_maps(kind: str, seed: int, batch: int, h: int, w: int) -> Tensor:
    rng = np.random.default_rng(seed)
    values: NDArray[np.float64]
    if kind == "ties":
        values = rng.integers(0, 3, (batch, h, w)).astype(float)
    elif kind == "near ties":  # apart by less than float32 can tell, by more than float64 rounding
        values = rng.integers(0, 2, (batch, h, w)) + 1e-9 * rng.integers(0, 5, (batch, h, w))
    elif kind == "flat":
        values = np.full((batch, h, w), rng.random())
    elif kind == "negative":
        values = rng.normal(size=(batch, h, w))
    elif kind == "peak":
        values = np.zeros((batch, h, w))
        values.reshape(batch, -1)[np.arange(batch), rng.integers(0, h * w, batch)] = 10.0 ** rng.integers(-30, 30)
    else:
        values = rng.random((batch, h, w))
    return torch.from_numpy(values)


@settings(max_examples=120, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 10_000),
    grid=st.tuples(st.integers(1, 6), st.integers(1, 6)),
    image=st.tuples(st.integers(6, 26), st.integers(6, 26)),
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=4),
)
def test_equals_brute_force(
    kind: str, seed: int, grid: tuple[int, int], image: tuple[int, int], sizes: list[int]
) -> None:
    sizes = [min(s, *image) for s in sizes]
    maps = make_maps(kind, seed, 2, *grid)
    boxes = greedy_crops(maps, sizes, image)
    assert boxes.dtype == torch.int64
    assert boxes.tolist() == brute_force(maps, sizes, *image)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10_000), sizes=st.lists(st.sampled_from([16, 32, 64, 96, 128]), min_size=1, max_size=5))
def test_boxes_lie_inside_and_apart(seed: int, sizes: list[int]) -> None:
    boxes = greedy_crops(make_maps("random", seed, 3, 16, 16).float(), sizes)
    cover = torch.zeros(3, 224, 224)
    for i, row in enumerate(boxes.tolist()):
        for (x, y, s), wanted in zip(row, sizes, strict=True):
            if s > 0:
                assert s == wanted
                assert 0 <= x <= 224 - s
                assert 0 <= y <= 224 - s
                cover[i, y : y + s, x : x + s] += 1
    assert cover.max() <= 1


def test_at_full_size_against_the_integral_image() -> None:
    maps = torch.rand(4, 16, 16, generator=torch.Generator().manual_seed(0)) ** 4
    large = F.interpolate(maps.double()[:, None], (224, 224), mode="bilinear", align_corners=False)[:, 0]
    for (x, y, s), image in zip(greedy_crops(maps, [64])[:, 0].tolist(), large, strict=True):
        sums = F.avg_pool2d(image[None, None], 64, 1, divisor_override=1)[0, 0]
        assert divmod(int(sums.argmax()), 161) == (y, x)
        assert s == 64


def test_a_single_peak_is_inside_the_first_box() -> None:
    maps = torch.zeros(256, 16, 16)
    maps.view(256, -1)[torch.arange(256), torch.arange(256)] = 1.0
    for cell, (x, y, s) in enumerate(greedy_crops(maps, [64])[:, 0].tolist()):
        row, column = divmod(cell, 16)
        assert x <= 14 * column + 7 <= x + s
        assert y <= 14 * row + 7 <= y + s


def test_flat_maps_go_in_raster_order() -> None:
    for value in (1.0, 1 / 256, 0.0, 1e-20):
        boxes = greedy_crops(torch.full((1, 16, 16), value), [64, 64, 64, 64])
        assert boxes[0].tolist() == [[0, 0, 64], [64, 0, 64], [128, 0, 64], [0, 64, 64]]


def test_touching_boxes_fill_the_image_and_then_nothing_fits() -> None:
    boxes = greedy_crops(torch.ones(2, 4, 4), [4, 4, 4, 4, 4, 1], image_size=8)
    assert boxes[1].tolist() == [[0, 0, 4], [4, 0, 4], [0, 4, 4], [4, 4, 4], [-1, -1, -1], [-1, -1, -1]]
    # a box in the middle leaves no room for another of its size, but for a small one
    middle = torch.zeros(1, 3, 3)
    middle[0, 1, 1] = 1.0
    assert greedy_crops(middle, [6, 6, 2], image_size=10)[0].tolist() == [[2, 2, 6], [-1, -1, -1], [0, 0, 2]]


def test_a_constant_changes_no_choice() -> None:
    maps = torch.rand(16, 16, 16, generator=torch.Generator().manual_seed(1)).double()
    assert torch.equal(greedy_crops(maps, [64, 32]), greedy_crops(maps + 0.5, [64, 32]))
    assert torch.equal(greedy_crops(maps, [64, 32]), greedy_crops(7 * maps, [64, 32]))


def test_a_batch_is_its_images_one_by_one() -> None:
    maps = torch.rand(70, 16, 16, generator=torch.Generator().manual_seed(2))  # more than one chunk
    alone = torch.cat([greedy_crops(one[None], [64, 32]) for one in maps])
    assert torch.equal(greedy_crops(maps, [64, 32]), alone)
    assert greedy_crops(maps[:0], [64]).shape == (0, 1, 3)


def test_bad_input_is_named() -> None:
    maps = torch.rand(1, 4, 4)
    with pytest.raises(DataError, match="crop of 300 px does not fit into an image of 224 x 224"):
        greedy_crops(maps, [300])
    with pytest.raises(DataError, match="does not fit"):
        greedy_crops(maps, [20], image_size=(64, 16))
    with pytest.raises(DataError, match="positive"):
        greedy_crops(maps, [0])
    with pytest.raises(DataError, match="NaN"):
        greedy_crops(maps * float("nan"), [32])
    with pytest.raises(DataError, match=r"\[B, h, w\]"):
        greedy_crops(maps[0], [32])


# -- extraction ----------------------------------------------------------------------------------------------


def test_crops_are_the_pixels() -> None:
    images = torch.randint(0, 256, (2, 3, 20, 30), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    boxes = torch.tensor([[[3, 5, 8], [20, 10, 10]], [[0, 0, 8], [-1, -1, -1]]])
    crops = extract_crops(images, boxes, size=8)
    assert crops.shape == (2, 2, 3, 8, 8)
    assert crops.dtype == torch.uint8
    assert torch.equal(crops[0, 0], images[0, :, 5:13, 3:11])
    assert torch.equal(crops[1, 0], images[1, :, :8, :8])
    assert crops[1, 1].sum() == 0
    enlarged = extract_crops(images.float(), boxes, size=16)
    cut = images[:1, :, 5:13, 3:11].float()
    torch.testing.assert_close(enlarged[:1, 0], F.interpolate(cut, (16, 16), mode="bilinear", align_corners=False))


def test_crops_see_nothing_outside_the_boxes() -> None:
    images = torch.rand(1, 3, 16, 16)
    changed = torch.rand(1, 3, 16, 16)
    changed[..., 4:10, 2:8] = images[..., 4:10, 2:8]
    boxes = torch.tensor([[[2, 4, 6]]])
    assert torch.equal(extract_crops(images, boxes, 12), extract_crops(changed, boxes, 12))


def test_originals_give_the_same_place_in_more_detail(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    original = rng.integers(0, 256, (96, 64, 3), dtype=np.uint8)
    Image.fromarray(original).save(tmp_path / "a.png")
    small = torch.from_numpy(np.asarray(Image.fromarray(original).resize((32, 48), Image.Resampling.BOX)).copy())
    images = small.permute(2, 0, 1)[None]
    boxes = torch.tensor([[[4, 10, 16]]])
    for source in (original, Image.fromarray(original), tmp_path / "a.png", str(tmp_path / "a.png")):
        crop = extract_crops(images, boxes, 32, originals=[source])[0, 0]
        assert torch.equal(crop, torch.from_numpy(original[20:52, 8:40]).permute(2, 0, 1))
    same = extract_crops(images, boxes, 40, originals=[small.numpy()])
    assert torch.equal(same, extract_crops(images, boxes, 40))
    outside = original.copy()
    outside[:20] = outside[52:] = 0
    assert torch.equal(
        extract_crops(images, boxes, 40, originals=[outside]), extract_crops(images, boxes, 40, originals=[original])
    )
    as_float = extract_crops(images / 255, boxes, 32, originals=[original])
    assert 0.9 < as_float.max() <= 1.0


def test_extraction_refuses_what_does_not_fit(tmp_path: Path) -> None:
    image = torch.zeros(1, 3, 32, 32)
    with pytest.raises(DataError, match="smaller than the crop"):
        extract_crops(image, torch.tensor([[[0, 0, 64]]]))
    with pytest.raises(DataError, match=r"\[B, n, 3\]"):
        extract_crops(image, torch.tensor([[0, 0, 8]]))
    with pytest.raises(DataError, match="2 originals"):
        extract_crops(image, torch.tensor([[[0, 0, 8]]]), originals=["a", "b"])
    with pytest.raises(UnreadableImage):
        extract_crops(image, torch.tensor([[[0, 0, 8]]]), originals=[tmp_path / "none.png"])
