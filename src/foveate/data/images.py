"""Where the pixels come from: arrays in memory or files decoded when asked for.

An image source knows how to read image ``i`` as ``uint8 [H, W, 3]`` and how to name it. Decoding is
lazy and never trusts the file: every failure becomes an :class:`~foveate.errors.UnreadableImage`.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import os
import threading
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, Protocol

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageFile, ImageOps, UnidentifiedImageError

from foveate.data.jpeg import decode_jpeg
from foveate.errors import UnreadableImage
from foveate.files import open_regular

IMAGE_SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".jp2", ".avif"}
)
MAX_PIXELS = 100_000_000
"""Images above this many pixels are refused as decompression bombs (100 megapixels)."""
DECODERS = ("PNG", "JPEG", "GIF", "BMP", "PPM", "WEBP", "TIFF", "JPEG2000", "AVIF")
"""What is tried on a file, whatever its name says; nothing that starts another program (EPS starts Ghostscript)."""
_ONE_AT_A_TIME = threading.Lock()
NO_SUCH_FILE = "there is no such file"
"""The reason an :class:`~foveate.errors.UnreadableImage` gives when the file is missing."""


class ImageSource(Protocol):
    """Reads images by position."""

    def __len__(self) -> int: ...

    def read(self, i: int) -> NDArray[np.uint8]:
        """Image ``i`` as ``uint8 [H, W, 3]`` (or ``[H, W]`` for a mask source)."""
        ...

    def where(self, i: int) -> str:
        """A name for image ``i`` that a person can look up."""
        ...

    def digest(self, i: int) -> bytes:
        """A hash of the content of image ``i``."""
        ...


def read_at_least(source: ImageSource, i: int, least: tuple[int, int]) -> NDArray[np.uint8]:
    """Image ``i`` of a source for somebody who needs no more than ``least`` (height, width) of it.

    Sources that can save work by that have a method of this name; all others read the whole image.

    >>> read_at_least(ArrayImages(np.zeros((1, 8, 8, 3), np.uint8)), 0, (4, 4)).shape
    (8, 8, 3)
    """
    reader = getattr(source, "read_at_least", None)
    return source.read(i) if reader is None else reader(i, least)


def reads_in_threads(source: ImageSource) -> bool:
    """Whether several threads may read from ``source`` at once; it says so by ``in_threads = True``.

    >>> reads_in_threads(FileImages(["a.jpg"])), reads_in_threads(ArrayImages(np.zeros((1, 8, 8, 3), np.uint8)))
    (True, False)
    """
    return bool(getattr(source, "in_threads", False))


def to_rgb(picture: Image.Image) -> Image.Image:
    """Any PIL image as upright 8-bit RGB: EXIF rotation applied, transparency laid on white.

    16-bit images are scaled by 255/65535 and wider ones by their maximum, where plain conversion would clip
    them to white; when no value exceeds 255 they are taken as 8-bit. Floats in ``[0, 1]`` are scaled up.
    """
    picture = ImageOps.exif_transpose(picture) or picture
    if picture.mode.startswith(("I", "F")):
        picture = _to_8_bit(picture)
    if picture.mode in ("RGBA", "LA", "PA") or "transparency" in picture.info:
        picture = picture.convert("RGBA")
        white = Image.new("RGBA", picture.size, (255, 255, 255, 255))
        picture = Image.alpha_composite(white, picture)
    return picture.convert("RGB")


def _to_8_bit(picture: Image.Image) -> Image.Image:
    """A single-channel image of more than 8 bits as mode ``L``."""
    values = np.nan_to_num(np.asarray(picture, dtype=np.float64), posinf=0.0, neginf=0.0)
    top = float(values.max()) if values.size else 0.0
    if picture.mode == "F" and 0 < top <= 1.0:
        values = values * 255.0
    elif top > 255:
        values = values / 257.0 if top <= 65535 else values * (255.0 / top)
    return Image.fromarray(np.clip(np.rint(values), 0, 255).astype(np.uint8))


@functools.lru_cache(maxsize=1)
def decoders() -> tuple[str, ...]:
    """Those of :data:`DECODERS` that this Pillow has."""
    Image.preinit()
    if any(name not in Image.OPEN for name in DECODERS):
        Image.init()
    return tuple(name for name in DECODERS if name in Image.OPEN)


@contextlib.contextmanager
def _open(path: Path) -> Iterator[tuple[BinaryIO, Image.Image]]:
    try:
        file = open_regular(path)
    except FileNotFoundError as error:
        raise UnreadableImage(str(path), NO_SUCH_FILE) from error
    except OSError as error:
        raise UnreadableImage(str(path), error.strerror or str(error)) from error
    with file, open_image(file, str(path)) as picture:
        yield file, picture


def open_image(file: BinaryIO, where: str, most: int | None = None) -> Image.Image:
    """An encoded image with its header read and nothing decoded: a known format, and at most ``most`` pixels.

    ``most`` is :data:`MAX_PIXELS` unless given.

    All image files are opened here. ``where`` names it in errors.
    """
    most = MAX_PIXELS if most is None else most
    with _ONE_AT_A_TIME, warnings.catch_warnings():  # filters of warnings are one list for all threads
        warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our own limit is below
        picture = Image.open(file, formats=decoders())
    if picture.width * picture.height > most:
        raise UnreadableImage(where, f"{picture.width}x{picture.height} is over {most:,} pixels")
    return picture


def image_size(path: str | Path) -> tuple[int, int]:
    """Width and height of an image file, from its header alone; a bad file raises ``UnreadableImage``."""
    path = Path(path)
    with _decoding(path), _open(path) as (_, picture):
        return picture.size


@contextlib.contextmanager
def _decoding(path: Path) -> Iterator[None]:
    """Whatever goes wrong inside becomes an :class:`UnreadableImage` of ``path``.

    Decoders raise nearly anything on broken files (struct, zlib and index errors among others), so no list of
    exceptions would be complete.
    """
    try:
        yield
    except UnreadableImage:
        raise
    except Exception as error:
        if os.path.isdir(path):
            reason = "this is a folder"
        elif isinstance(error, UnidentifiedImageError):
            empty = os.path.isfile(path) and path.stat().st_size == 0
            reason = "the file is empty" if empty else "this is not an image of a known format"
        else:
            reason = str(error) or type(error).__name__
        raise UnreadableImage(str(path), reason) from error


def decode(path: str | Path, least: tuple[int, int] | None = None) -> NDArray[np.uint8]:
    """Read an image file as upright RGB, ``uint8 [H, W, 3]``; a bad file raises ``UnreadableImage``.

    Args:
        path: the file.
        least: height and width that will do. A JPEG may come out reduced to a half, a quarter or an eighth, never below
            this; without it the image comes as it is.
    """
    path = Path(path)
    with _decoding(path), _open(path) as (file, picture):
        pixels = decode_jpeg(file, picture, least)
        return np.asarray(to_rgb(picture)) if pixels is None else pixels


def decode_bytes(content: bytes, where: str) -> NDArray[np.uint8]:
    """The same for an encoded image in memory; ``where`` names it in errors.

    >>> decode_bytes(b"no image", "row 3")
    Traceback (most recent call last):
    foveate.errors.UnreadableImage: cannot read image row 3: this is not an image of a known format
    """
    with _decoding(Path(where)), open_image(io.BytesIO(content), where) as picture:
        return np.asarray(to_rgb(picture))


def decode_mask(path: str | Path) -> NDArray[np.uint8]:
    """Read a mask file as ``uint8 [H, W]``, 0 = outside, 255 = object, greys in between kept as they are."""
    path = Path(path)
    with _decoding(path), _open(path) as (_, opened):
        picture = ImageOps.exif_transpose(opened) or opened
        if picture.mode == "P":  # label images: any non-zero index is object
            return np.where(np.asarray(picture) > 0, 255, 0).astype(np.uint8)
        if picture.mode.startswith(("I", "F")):
            picture = _to_8_bit(picture)
        values = np.asarray(picture.convert("L"))
    if values.size and values.max() <= 1:
        return (values * 255).astype(np.uint8)
    return values


class ArrayImages:
    """Images already in memory (or memory-mapped): ``uint8 [N, H, W, 3]``, or ``[N, H, W]`` for masks."""

    def __init__(self, array: NDArray[np.uint8], name: str = "array"):
        if array.dtype != np.uint8 or array.ndim not in (3, 4) or (array.ndim == 4 and array.shape[3] != 3):
            raise TypeError(f"expected uint8 [N, H, W, 3] or [N, H, W], found {array.dtype} {array.shape}")
        self.array = array
        self.name = name

    def __len__(self) -> int:
        return len(self.array)

    def read(self, i: int) -> NDArray[np.uint8]:
        return self.array[i]

    def where(self, i: int) -> str:
        return f"{self.name}[{i}]"

    def digest(self, i: int) -> bytes:
        image = np.ascontiguousarray(self.array[i])
        return hashlib.blake2b(image.tobytes() + str(image.shape).encode(), digest_size=16).digest()


class FileImages:
    """Image files, decoded one at a time when asked for.

    Masks may be unknown for some images: give None as their path, and reading gives an empty ``[0, 0]``.
    """

    in_threads = True

    def __init__(self, paths: Sequence[str | Path | None], masks: bool = False):
        if not masks and None in paths:
            raise TypeError("every image needs a path; only masks may be None")
        self.paths = [None if p is None else Path(p) for p in paths]
        self._decode = decode_mask if masks else decode

    def __len__(self) -> int:
        return len(self.paths)

    def read(self, i: int) -> NDArray[np.uint8]:
        path = self.paths[i]
        return np.zeros((0, 0), np.uint8) if path is None else self._decode(path)

    def read_at_least(self, i: int, least: tuple[int, int]) -> NDArray[np.uint8]:
        """Image ``i``, reduced if that saves work and leaves ``least`` pixels in height and width."""
        path = self.paths[i]
        plain = path is not None and self._decode is decode and type(self).read is FileImages.read
        return decode(path, least) if path is not None and plain else self.read(i)

    def where(self, i: int) -> str:
        return str(self.paths[i])

    def digest(self, i: int) -> bytes:
        hasher = hashlib.blake2b(digest_size=16)
        path = self.paths[i]
        if path is None:
            return hasher.digest()
        try:
            with open_regular(path) as file:
                while block := file.read(1 << 20):
                    hasher.update(block)
        except OSError as error:
            hasher.update(f"missing {error.errno}".encode())
        return hasher.digest()


ImageFile.LOAD_TRUNCATED_IMAGES = False
