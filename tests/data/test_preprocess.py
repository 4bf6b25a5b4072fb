"""Geometry is the same for image, mask and box; augmentation is what it says; statistics are right."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages
from foveate.data.preprocess import Preprocess, as_images, channel_statistics, image_size
from foveate.errors import DataError

sizes = st.integers(8, 60)


@settings(max_examples=40, deadline=None)
@given(sizes, sizes, sizes, sizes, st.sampled_from(["squash", "crop"]), st.data())
def test_box_follows_image_and_mask(h: int, w: int, oh: int, ow: int, fit: str, data: st.DataObject) -> None:
    """A bright rectangle, its mask and its box end in the same place."""
    x0, y0 = data.draw(st.integers(0, w - 4)), data.draw(st.integers(0, h - 4))
    x1, y1 = data.draw(st.integers(x0 + 3, w)), data.draw(st.integers(y0 + 3, h))
    image = torch.zeros(3, h, w, dtype=torch.uint8)
    image[:, y0:y1, x0:x1] = 255
    view = Preprocess((oh, ow), fit=fit)
    prepared, mask = view.prepare(image), view.prepare_mask((image[0] > 0).float())
    box = view.prepare_box(torch.tensor([x0, y0, x1, y1], dtype=torch.float32), h, w)
    assert prepared.shape == (3, oh, ow)
    assert (prepared[0].float() / 255 - mask).abs().max() < 0.02  # both antialiased alike, up to rounding
    # nothing of the object is further from its box than the filter reaches: one prepared pixel when shrinking,
    # half an original one when enlarging
    left, top, right, bottom = box.tolist()
    scales = (oh / h, ow / w) if fit == "squash" else (max(oh / h, ow / w),) * 2
    reach_y, reach_x = (max(1.0, s / 2) + 0.6 for s in scales)
    y, x = torch.arange(oh)[:, None] + 0.5, torch.arange(ow)[None] + 0.5
    far = (x < left - reach_x) | (x > right + reach_x) | (y < top - reach_y) | (y > bottom + reach_y)
    assert not (mask[far] > 1e-3).any()
    # an object of a few pixels ends where its box does; a thinner one may fade below 0.5
    if right - left >= 3 and bottom - top >= 3:
        rows, columns = (torch.nonzero((mask > 0.5).any(d)).flatten() for d in (1, 0))
        tight = [int(columns[0]), int(rows[0]), int(columns[-1]) + 1, int(rows[-1]) + 1]
        assert np.abs(np.array(tight) - box.numpy()).max() <= 0.6  # half a pixel of rounding


def test_crop_keeps_the_aspect_and_the_centre() -> None:
    image = torch.zeros(3, 10, 30, dtype=torch.uint8)
    image[:, :, 10:20] = 200
    assert (Preprocess((10, 10), fit="crop").prepare(image) == 200).all()
    assert Preprocess((10, 10)).prepare(image).float().mean() == pytest.approx(200 / 3, abs=1)


def test_augment_mirrors_and_shifts_each_image_on_its_own() -> None:
    image = torch.arange(64, dtype=torch.uint8).reshape(1, 1, 8, 8).repeat(200, 3, 1, 1)
    generator = torch.Generator().manual_seed(0)
    mirrored = Preprocess((8, 8), flip=True).augment(image, generator)
    share = float((mirrored[:, 0] == image[:, 0].flip(-1)).all(-1).all(-1).float().mean())
    assert 0.4 < share < 0.6
    view = Preprocess((8, 8), flip=False, shift=2)
    moved = view.augment(image, torch.Generator().manual_seed(1))
    padded = torch.nn.functional.pad(image[:1].float(), (2, 2, 2, 2), mode="reflect")[0, 0]
    windows = {tuple(padded[y : y + 8, x : x + 8].flatten().tolist()) for y in range(5) for x in range(5)}
    seen = {tuple(m.flatten().tolist()) for m in moved[:, 0].float()}
    assert seen <= windows
    assert len(seen) > 15
    again = view.augment(image, torch.Generator().manual_seed(1))
    assert torch.equal(moved, again)


def test_normalise_and_back() -> None:
    view = Preprocess((4, 4), mean=(0.1, 0.2, 0.3), std=(0.5, 0.6, 0.7))
    image = torch.randint(0, 256, (2, 3, 4, 4), dtype=torch.uint8)
    expected = (image / 255 - torch.tensor([0.1, 0.2, 0.3]).view(1, 3, 1, 1)) / torch.tensor([0.5, 0.6, 0.7]).view(
        1, 3, 1, 1
    )
    torch.testing.assert_close(view.normalise(image), expected)
    torch.testing.assert_close(view.denormalise(view.normalise(image)), image / 255)


def test_statistics_and_size() -> None:
    pixels = np.zeros((6, 4, 5, 3), np.uint8)
    pixels[::2, :, :, 0] = 255  # red is on in half of the images
    ds = GroupedDataset(ArrayImages(pixels), [0, 1] * 3, ["a", "b"])
    mean, std = channel_statistics(ds)
    assert mean == (0.5, 0.0, 0.0)
    assert std[0] == pytest.approx(0.5)
    assert std[1] == pytest.approx(0.001)
    assert image_size(ds) == (4, 5)


def test_images_in_any_usual_form() -> None:
    array = np.random.default_rng(0).integers(0, 256, (2, 6, 5, 3), dtype=np.uint8)
    tensors = torch.from_numpy(array.transpose(0, 3, 1, 2).copy())
    forms = [array, tensors, tensors / 255, [Image.fromarray(a) for a in array], list(array)]
    for form in forms:
        assert torch.equal(torch.stack(as_images(form)), tensors)
    with pytest.raises(DataError, match="must lie in"):
        as_images(tensors.float())
    with pytest.raises(DataError, match="expected RGB images"):
        as_images([torch.zeros(1, 4, 4)])
    with pytest.raises(DataError, match="unknown fit"):
        Preprocess((4, 4), fit="stretch")


def test_grey_images_are_repeated_to_three_channels() -> None:
    grey = np.random.default_rng(0).integers(0, 256, (6, 5), dtype=np.uint8)
    expected = torch.from_numpy(grey).repeat(3, 1, 1)
    for form in (grey, torch.from_numpy(grey), torch.from_numpy(grey) / 255, Image.fromarray(grey)):
        assert torch.equal(as_images([form])[0], expected)


@pytest.mark.parametrize(
    ("images", "sentence"),
    [
        ([], "at least one image"),
        (torch.zeros(0, 3, 4, 4), "at least one image"),
        ([np.zeros(4, np.uint8)], r"found \(4,\)"),
        ([np.zeros((2, 4, 4, 3), np.uint8)], r"found \(2, 4, 4, 3\)"),
        ([np.zeros((4, 5, 4), np.uint8)], r"found \(4, 5, 4\)"),  # not the turned round (4, 4, 5)
        ([np.zeros((0, 4, 3), np.float32)], r"found \(0, 4, 3\)"),
        ([3], "found int"),
        ([torch.full((3, 4, 4), float("nan"))], "must lie in"),
        (np.zeros((8, 9, 3), np.uint8), r"found \(8, 9, 3\).*Put one image in a list"),
        (torch.zeros(3, 8, 9), "Put one image in a list"),
        ("cat.png", "found str.*Put one image in a list"),
        (Image.new("RGB", (4, 4)), "found Image.*Put one image in a list"),
    ],
)
def test_images_that_cannot_be_read_as_such_get_a_sentence(images: object, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        as_images(images)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [0, "abc", (0, 4), (4,), (4, 4, 4), 1.5, (True, 4), (4, 10**9), None, [2.0, 2]])
def test_an_image_size_is_two_whole_numbers(size: object) -> None:
    with pytest.raises(DataError, match="an image size is height and width in pixels"):
        Preprocess(size)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "values", [{"mean": (0.5,) * 4}, {"mean": "abc"}, {"std": (0, 1, 1)}, {"std": (float("nan"),) * 3}]
)
def test_mean_and_deviation_are_numbers(values: dict[str, object]) -> None:
    with pytest.raises(DataError, match="for each of red, green and blue"):
        Preprocess((4, 4), **values)  # type: ignore[arg-type]


def test_an_image_may_become_one_pixel() -> None:
    image = torch.zeros(3, 8, 8, dtype=torch.uint8)
    image[:, :, 4:] = 200
    assert Preprocess((1, 1)).prepare(image).flatten().tolist() == [100, 100, 100]
