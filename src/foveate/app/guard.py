"""What comes from a browser is not trusted: uploads are measured before they are decoded."""

from __future__ import annotations

import io
import warnings
from pathlib import PurePosixPath, PureWindowsPath

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from foveate.data.images import decode_bytes, open_image
from foveate.errors import DataError

UPLOAD_BYTES = 20 * 2**20
"""Uploaded files above this many bytes are turned away."""
UPLOAD_PIXELS = 24_000_000
"""Uploaded images above this many pixels are turned away before anything is decoded."""


def read_upload(content: bytes, name: str = "upload") -> NDArray[np.uint8]:
    """An uploaded image as ``uint8 [H, W, 3]``; everything else raises a :class:`DataError` that says why.

    >>> read_upload(b"just text", "cat.png")
    Traceback (most recent call last):
    foveate.errors.UnreadableImage: cannot read image cat.png: this is not an image of a known format
    >>> read_upload(b"", "../../etc/passwd")
    Traceback (most recent call last):
    foveate.errors.DataError: '../../etc/passwd' is a path, not the name of an image; choose the file itself.
    """
    if is_path(name):
        raise DataError(f"'{name}' is a path, not the name of an image; choose the file itself.")
    if len(content) > UPLOAD_BYTES:
        raise DataError(
            f"{name} has {len(content) / 2**20:.0f} MB; up to {UPLOAD_BYTES // 2**20} MB are taken. "
            "Make the image smaller first."
        )
    width, height = _size(content)
    if width * height > UPLOAD_PIXELS:
        raise DataError(
            f"{name} has {width}×{height} px, {width * height / 1e6:.0f} megapixels; up to "
            f"{UPLOAD_PIXELS // 10**6} are taken. Make the image smaller first."
        )
    return decode_bytes(content, name)


def is_path(name: str) -> bool:
    """Whether ``name`` would lead somewhere else than to a file beside us, on any system.

    >>> is_path("cat.png"), is_path("../cat.png"), is_path("C:\\\\cat.png"), is_path("a\\0b")
    (False, True, True, True)
    """
    plain = PurePosixPath(name).name == name and PureWindowsPath(name).name == name
    return not plain or name in (".", "..") or "\0" in name


def _size(content: bytes) -> tuple[int, int]:
    """Width and height from the header alone; (0, 0) when there is none, so that decoding says what is wrong."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with open_image(io.BytesIO(content), "upload", most=UPLOAD_PIXELS**2) as picture:
                return picture.size
    except Image.DecompressionBombError:
        return UPLOAD_PIXELS, UPLOAD_PIXELS
    except Exception:  # decoders raise nearly anything on broken files
        return 0, 0
