"""JPEGs: the quick decoder gives Pillow's pixels, and a draft is what the whole image gives, but for a grey level."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from foveate.data import jpeg
from foveate.data.dataset import GroupedDataset
from foveate.data.images import FileImages, decode
from foveate.data.jpeg import GAP, reduction
from foveate.data.loading import Loader
from foveate.data.preprocess import Preprocess
from foveate.errors import UnreadableImage


def photo(height: int, width: int, seed: int = 0) -> Image.Image:
    """Soft shades, hard edges and grain: what photographs are made of."""
    rng = np.random.default_rng(seed)
    small = Image.fromarray(rng.integers(0, 256, (9, 12, 3), dtype=np.uint8))
    pixels = np.asarray(small.resize((width, height), Image.Resampling.BICUBIC)).astype(np.float32)
    for _ in range(12):
        y, x = rng.integers(0, height), rng.integers(0, width)
        pixels[y : y + height // 5, x : x + width // 5] = rng.integers(0, 256, 3)
    return Image.fromarray(np.clip(pixels + rng.normal(0, 12, pixels.shape), 0, 255).astype(np.uint8))


def save(path: Path, picture: Image.Image, orientation: int = 1, **options: object) -> Path:
    exif = Image.Exif()
    exif[jpeg.ORIENTATION] = orientation
    picture.save(path, "JPEG", exif=exif, **options)
    return path


@pytest.fixture(params=["quick", "Pillow"])
def decoder(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    if request.param == "quick":
        pytest.importorskip("simplejpeg")
    else:
        monkeypatch.setattr(jpeg, "quick_decoder", lambda: None)
    return request.param


@pytest.mark.parametrize("options", [{}, {"quality": 40}, {"subsampling": 0}, {"progressive": True}])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_the_quick_decoder_gives_pillows_pixels(
    options: dict[str, object], orientation: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("simplejpeg")
    path = save(tmp_path / "a.jpg", photo(40, 56), orientation, **options)
    found = decode(path), decode(path, (8, 8))
    monkeypatch.setattr(jpeg, "quick_decoder", lambda: None)
    assert np.array_equal(found[0], decode(path))
    assert np.array_equal(found[1], decode(path, (8, 8)))
    assert found[0].shape == ((40, 56, 3) if orientation < 5 else (56, 40, 3))
    assert min(found[1].shape[:2]) == 10


@pytest.mark.parametrize("mode", ["L", "CMYK"])
def test_other_modes_are_pillows(mode: str, decoder: str, tmp_path: Path) -> None:
    path = tmp_path / "a.jpg"
    photo(40, 60).convert(mode).save(path, "JPEG")
    assert decode(path).shape == (40, 60, 3)
    assert decode(path, (20, 30)).shape == ((20, 30, 3) if mode == "L" else (40, 60, 3))


@pytest.mark.parametrize("orientation", [1, 6])
def test_a_draft_is_never_smaller_than_asked(orientation: int, decoder: str, tmp_path: Path) -> None:
    path = save(tmp_path / "a.jpg", photo(120, 208), orientation)
    upright = (120, 208) if orientation == 1 else (208, 120)
    for least in ((1, 1), (30, 30), (60, 60), (61, 61), (120, 120), (300, 300)):
        factor = reduction(*upright, least)
        found = decode(path, least).shape[:2]
        assert found == tuple(side // factor for side in upright)
        assert factor == 1 or min(f - n for f, n in zip(found, least, strict=True)) >= 0
    assert decode(path).shape[:2] == upright


def test_reductions_by_hand() -> None:
    assert [reduction(1000, 800, (n, n)) for n in (100, 101, 200, 201, 400, 401)] == [8, 4, 4, 2, 2, 1]
    assert [reduction(h, 800, (10, 10)) for h in (1000, 1004, 1002, 1001)] == [8, 4, 2, 1]


@pytest.mark.parametrize("fit", ["squash", "crop"])
def test_what_a_network_sees_of_a_draft_is_within_a_grey_level(fit: str, decoder: str, tmp_path: Path) -> None:
    view = Preprocess((32, 32), fit=fit)
    paths = [save(tmp_path / f"{i}.jpg", photo(304 + 40 * i, 400, i), quality=90) for i in range(6)]
    data = GroupedDataset(FileImages(paths), [0, 1] * 3, ["a", "b"])
    seen = torch.cat([batch.inputs for batch in Loader(data, view).in_order(4)]).float()
    whole = torch.stack([view.prepare(torch.tensor(decode(p)).permute(2, 0, 1)) for p in paths]).float()
    assert all(reduction(*decode(p).shape[:2], (GAP * 32, GAP * 32)) == 4 for p in paths)
    assert (seen - whole).abs().mean(dim=(1, 2, 3)).max() < 1
    assert not torch.equal(seen, whole)  # they were drafts


def test_a_cut_file_is_unreadable_whoever_decodes(decoder: str, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    photo(80, 80).save(buffer, "JPEG")
    path = tmp_path / "cut.jpg"
    path.write_bytes(buffer.getvalue()[: len(buffer.getvalue()) // 2])
    for least in (None, (10, 10)):
        with pytest.raises(UnreadableImage, match="truncated"):
            decode(path, least)
