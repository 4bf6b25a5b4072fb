"""What a browser may send: images of a sane size, and nothing else."""

from __future__ import annotations

import io
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from foveate.app import guard
from foveate.app.guard import is_path, read_upload
from foveate.errors import DataError


def encoded(width: int, height: int) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (width, height), (10, 20, 30)).save(buffer, "PNG")
    return buffer.getvalue()


def bomb(width: int, height: int) -> bytes:
    """A PNG that claims to be huge in a few hundred bytes."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0" * 64)) + chunk(b"IEND", b"")
    )


def test_an_image_is_taken() -> None:
    image = read_upload(encoded(5, 4), "cat.png")
    assert image.shape == (4, 5, 3)
    assert image[0, 0].tolist() == [10, 20, 30]


@pytest.mark.parametrize("side", [10_000, 60_000])
def test_a_huge_image_is_turned_away_before_it_is_decoded(side: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "decode_bytes", lambda *_: pytest.fail("decoded"))
    with pytest.raises(DataError, match="megapixels; up to 24 are taken"):
        read_upload(bomb(side, side), "big.png")


def test_a_large_file_is_turned_away() -> None:
    with pytest.raises(DataError, match="21 MB; up to 20 MB"):
        read_upload(b"\0" * (21 * 2**20), "big.png")


def test_text_named_png_is_turned_away() -> None:
    with pytest.raises(DataError, match=r"notes\.png: this is not an image"):
        read_upload(b"dear diary", "notes.png")


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "..\\boot.ini", "C:\\x.png", "..", "a\0.png"])
def test_paths_are_turned_away(name: str) -> None:
    with pytest.raises(DataError, match="is a path"):
        read_upload(encoded(2, 2), name)


@given(st.text(st.characters(blacklist_characters="/\\:\0", blacklist_categories=["Cs"]), min_size=1, max_size=20))
def test_plain_names_are_no_paths(name: str) -> None:
    assert is_path(name) == (name in (".", ".."))
    assert is_path(f"../{name}")


@given(st.binary(max_size=200))
def test_nothing_but_our_own_error(content: bytes) -> None:
    try:
        image = read_upload(b"\x89PNG\r\n\x1a\n" + content, "x.png")
    except DataError:
        return
    assert image.dtype == np.uint8
