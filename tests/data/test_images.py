"""Every format the loader promises, decoded to the pixels that were put in; bad files give one kind of error."""

import io
import warnings

import numpy as np
import pytest
from PIL import Image

from foveate.data import images
from foveate.data.images import ArrayImages, FileImages, decode, decode_bytes, decode_mask
from foveate.errors import UnreadableImage


@pytest.fixture
def rgb():
    return np.random.default_rng(0).integers(0, 256, (5, 7, 3), dtype=np.uint8)


def test_rgb_png_is_exact(tmp_path, rgb):
    Image.fromarray(rgb).save(tmp_path / "a.png")
    np.testing.assert_array_equal(decode(tmp_path / "a.png"), rgb)
    assert decode(str(tmp_path / "a.png")).dtype == np.uint8


def test_bytes_decode_like_the_file(rgb):
    buffer = io.BytesIO()
    Image.fromarray(rgb).save(buffer, "png")
    np.testing.assert_array_equal(decode_bytes(buffer.getvalue(), "row 1"), rgb)


def test_grey(tmp_path):
    Image.fromarray(np.array([[0, 100], [200, 255]], np.uint8)).save(tmp_path / "a.png")
    assert decode(tmp_path / "a.png").tolist() == [[[0] * 3, [100] * 3], [[200] * 3, [255] * 3]]


def test_one_bit(tmp_path):
    Image.fromarray(np.array([[True, False]])).save(tmp_path / "a.png")
    assert Image.open(tmp_path / "a.png").mode == "1"
    assert decode(tmp_path / "a.png").tolist() == [[[255] * 3, [0] * 3]]


def test_cmyk(tmp_path):
    # no ink at all is white; full cyan leaves no red; full black is black
    ink = np.zeros((8, 24, 4), np.uint8)
    ink[:, 8:16, 0] = 255
    ink[:, 16:, 3] = 255
    Image.fromarray(ink, "CMYK").save(tmp_path / "a.tif")
    got = decode(tmp_path / "a.tif")
    assert got[4, 4].tolist() == [255, 255, 255]
    assert got[4, 12].tolist() == [0, 255, 255]
    assert got[4, 20].tolist() == [0, 0, 0]


def test_palette(tmp_path):
    picture = Image.fromarray(np.array([[0, 1, 1]], np.uint8), "P")
    picture.putpalette([10, 20, 30, 200, 150, 100])
    picture.save(tmp_path / "a.png")
    assert decode(tmp_path / "a.png").tolist() == [[[10, 20, 30], [200, 150, 100], [200, 150, 100]]]


def test_palette_with_transparency_lies_on_white(tmp_path):
    picture = Image.fromarray(np.array([[0, 1]], np.uint8), "P")
    picture.putpalette([10, 20, 30, 200, 150, 100])
    picture.save(tmp_path / "a.png", transparency=0)
    assert decode(tmp_path / "a.png").tolist() == [[[255, 255, 255], [200, 150, 100]]]


def test_alpha_lies_on_white(tmp_path):
    rgba = np.array([[[0, 0, 0, 255], [0, 0, 0, 0], [100, 0, 0, 128]]], np.uint8)
    Image.fromarray(rgba).save(tmp_path / "a.png")
    black, clear, half = decode(tmp_path / "a.png")[0].tolist()
    assert (black, clear) == ([0, 0, 0], [255, 255, 255])
    assert half == pytest.approx([177, 127, 127], abs=1)  # 255 + (colour - 255) * 128/255


def test_grey_with_alpha(tmp_path):
    Image.fromarray(np.array([[[50, 255], [50, 0]]], np.uint8), "LA").save(tmp_path / "a.png")
    assert decode(tmp_path / "a.png").tolist() == [[[50] * 3, [255] * 3]]


def test_16_bit_keeps_relative_brightness(tmp_path):
    Image.fromarray(np.array([[0, 257, 32896, 65535]], np.uint16)).save(tmp_path / "a.png")
    assert decode(tmp_path / "a.png")[0, :, 0].tolist() == [0, 1, 128, 255]


def test_float_tiff(tmp_path):
    Image.fromarray(np.array([[0.0, 0.5, 1.0, np.nan]], np.float32)).save(tmp_path / "a.tif")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert decode(tmp_path / "a.tif")[0, :, 0].tolist() == [0, 128, 255, 0]


@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_rotation(tmp_path, orientation):
    """Each stored form, turned as its tag says, is the upright picture (worked out with numpy alone)."""
    upright = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3) * 14
    stored = {
        1: upright, 2: upright[:, ::-1], 3: upright[::-1, ::-1], 4: upright[::-1],
        5: upright.transpose(1, 0, 2), 6: np.rot90(upright, 1), 7: np.rot90(upright, 2).transpose(1, 0, 2),
        8: np.rot90(upright, -1),
    }[orientation]  # fmt: skip
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(np.ascontiguousarray(stored)).save(tmp_path / "a.png", exif=exif)
    np.testing.assert_array_equal(decode(tmp_path / "a.png"), upright)


def test_animated_gif_gives_the_first_frame(tmp_path):
    first, second = Image.new("RGB", (4, 4), (255, 0, 0)), Image.new("RGB", (4, 4), (0, 0, 255))
    first.save(tmp_path / "a.gif", save_all=True, append_images=[second])
    assert decode(tmp_path / "a.gif")[0, 0].tolist() == [255, 0, 0]


@pytest.mark.parametrize("size", [(1, 1), (1, 300), (301, 2)])
def test_any_size(tmp_path, size):
    Image.new("RGB", size, (1, 2, 3)).save(tmp_path / "a.png")
    assert decode(tmp_path / "a.png").shape == (size[1], size[0], 3)


# -- bad files ------------------------------------------------------------------------------


def damaged(tmp_path, kind):
    path = tmp_path / "bad.png"
    if kind == "zero bytes":
        path.write_bytes(b"")
    elif kind == "text":
        path.write_text("this is not a picture")
    elif kind == "folder":
        path.mkdir()
    elif kind == "truncated":
        noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
        Image.fromarray(noise).save(path)
        path.write_bytes(path.read_bytes()[:2000])
    elif kind == "truncated jpeg":
        noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
        Image.fromarray(noise).save(path, "jpeg")
        path.write_bytes(path.read_bytes()[:1500])
    return path


REASONS = {
    "missing": "no such file",
    "zero bytes": "the file is empty",
    "text": "not an image of a known format",
    "folder": "this is a folder",
    "truncated": "truncated",
    "truncated jpeg": "truncated",
}


@pytest.mark.parametrize("kind", REASONS)
@pytest.mark.parametrize("read", [decode, decode_mask])
def test_bad_files_are_named_with_a_reason(tmp_path, kind, read):
    path = damaged(tmp_path, kind)
    with pytest.raises(UnreadableImage, match=REASONS[kind]) as caught:
        read(path)
    assert caught.value.where == str(path)


def test_random_damage_never_gives_another_error(tmp_path):
    """Flipped bytes either still decode or give an UnreadableImage: decoders raise many other things."""
    rng = np.random.default_rng(1)
    picture = Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8))
    path = tmp_path / "a"
    failed = 0
    for kind in ("png", "jpeg", "gif", "bmp", "tiff", "webp", "ppm"):
        picture.save(path, kind)
        whole = bytearray(path.read_bytes())
        for _ in range(40):
            broken = bytearray(whole)
            for at in rng.integers(0, min(len(whole), 200), 8):
                broken[at] = rng.integers(0, 256)
            path.write_bytes(broken)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    decode(path)
            except UnreadableImage:
                failed += 1
    assert failed > 50


def test_a_decompression_bomb_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(images, "MAX_PIXELS", 99)
    Image.new("RGB", (10, 10)).save(tmp_path / "a.png")
    with pytest.raises(UnreadableImage, match="10x10 is over 99 pixels"):
        decode(tmp_path / "a.png")


# -- masks ----------------------------------------------------------------------------------


def test_mask_kinds(tmp_path):
    soft = np.array([[0, 40, 255]], np.uint8)
    Image.fromarray(soft).save(tmp_path / "soft.png")
    Image.fromarray(np.array([[0, 1, 1]], np.uint8)).save(tmp_path / "binary.png")
    Image.fromarray(np.array([[False, True, True]])).save(tmp_path / "bit.png")
    labels = Image.fromarray(np.array([[0, 3, 1]], np.uint8), "P")
    labels.putpalette([0, 0, 0, 9, 9, 9, 0, 0, 0, 1, 1, 1])
    labels.save(tmp_path / "labels.png")
    Image.fromarray(np.array([[0, 32896, 65535]], np.uint16)).save(tmp_path / "deep.png")
    got = {n: decode_mask(tmp_path / f"{n}.png")[0].tolist() for n in ("soft", "binary", "bit", "labels", "deep")}
    assert got == {
        "soft": [0, 40, 255],
        "binary": [0, 255, 255],
        "bit": [0, 255, 255],
        "labels": [0, 255, 255],
        "deep": [0, 128, 255],
    }


# -- sources --------------------------------------------------------------------------------


def test_array_source_refuses_other_shapes():
    for bad in (np.zeros((2, 4, 4, 3)), np.zeros((4, 4), np.uint8), np.zeros((2, 4, 4, 4), np.uint8)):
        with pytest.raises(TypeError, match="expected uint8"):
            ArrayImages(bad)


def test_array_digest_follows_the_pixels():
    array = np.zeros((3, 2, 2, 3), np.uint8)
    array[2, 0, 0, 0] = 1
    source = ArrayImages(array, "toy")
    assert source.digest(0) == source.digest(1) != source.digest(2)
    assert source.where(1) == "toy[1]"


def test_file_source_reads_only_when_asked(tmp_path):
    source = FileImages([tmp_path / "not-there.png"])
    assert len(source) == 1
    assert len(source.digest(0)) == 16
    with pytest.raises(UnreadableImage):
        source.read(0)


def test_unknown_masks_are_empty_and_images_must_have_a_path():
    assert FileImages([None], masks=True).read(0).shape == (0, 0)
    with pytest.raises(TypeError, match="every image needs a path"):
        FileImages([None])
