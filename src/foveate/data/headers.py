"""What the header of an image file tells: format, size, how it was encoded, camera, date. No pixel is decoded."""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import warnings
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from PIL import Image, JpegImagePlugin

from foveate.data.images import decoders
from foveate.files import open_regular

_LUMA = (
    16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55, 14, 13, 16, 24, 40, 57, 69, 56, 14, 17, 22, 29, 51,
    87, 80, 62, 18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92, 49, 64, 78, 87, 103, 121, 120, 101,
    72, 92, 95, 98, 112, 100, 103, 99,
)  # fmt: skip
"""Luminance steps at quality 50 (JPEG standard, ITU-T T.81, table K.1)."""
_MAKE, _MODEL, _DATE, _MORE, _TAKEN = 271, 272, 306, 0x8769, 36867
SAMPLINGS = {0: "4:4:4", 1: "4:2:2", 2: "4:2:0"}


@dataclass(frozen=True)
class FileFacts:
    """What an image file tells before anyone looks at the picture.

    Attributes:
        bytes: size of the file.
        width, height: in pixels, before any EXIF rotation.
        format: ``"JPEG"``, ``"PNG"`` …
        mode: how colours are stored: ``"RGB"``, ``"L"``, ``"P"`` …
        quality: of a JPEG file, 1 to 100, by its quantisation table; None for other formats.
        progressive: of a JPEG file.
        sampling: of the colours of a JPEG file, ``"4:2:0"``.
        camera: make and model from EXIF.
        taken: date from EXIF as a year, ``2021.5``.
        profile: bytes of the embedded colour profile, 0 without one.
        name: the file's name without folder and suffix.
    """

    bytes: int
    width: int
    height: int
    format: str
    mode: str
    quality: int | None = None
    progressive: bool = False
    sampling: str | None = None
    camera: str | None = None
    taken: float | None = None
    profile: int = 0
    name: str = ""

    @property
    def pattern(self) -> str:
        """The name with its numbers taken out: ``"IMG_0042"`` is ``"IMG_#4"``, a number of four digits.

        >>> FileFacts(1, 1, 1, "PNG", "RGB", name="IMG_0042-b").pattern
        'IMG_#4-b'
        """
        return re.sub(r"\d+", lambda digits: f"#{len(digits[0])}", self.name)


def file_facts(path: str | os.PathLike[str]) -> FileFacts | None:
    """Read the header of an image file; None for what is no file, or not an image.

    >>> import tempfile
    >>> picture = Path(tempfile.mkdtemp()) / "a7.jpg"
    >>> Image.new("RGB", (30, 20)).save(picture, quality=80, progressive=True, subsampling=0)
    >>> facts = file_facts(picture)
    >>> facts.format, (facts.width, facts.height), facts.quality, facts.progressive, facts.sampling, facts.pattern
    ('JPEG', (30, 20), 80, True, '4:4:4', 'a#1')
    """
    try:
        with open_regular(Path(path)) as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # odd EXIF entries, and pictures that would be large if decoded
            size = os.fstat(file.fileno()).st_size
            with Image.open(file, formats=decoders()) as picture:
                camera, taken = _exif(picture)
                jpeg = isinstance(picture, JpegImagePlugin.JpegImageFile)
                return FileFacts(
                    size, picture.width, picture.height, picture.format or "", picture.mode,
                    quality=_quality(picture) if jpeg else None,
                    progressive=bool(picture.info.get("progressive") or picture.info.get("progression")),
                    sampling=_sampling(picture) if jpeg else None,
                    camera=camera, taken=taken, profile=len(picture.info.get("icc_profile") or b""),
                    name=Path(path).stem,
                )  # fmt: skip
    except (OSError, ValueError, SyntaxError, Image.DecompressionBombError, OverflowError):
        return None


@cache
def _sums() -> list[int]:
    """The sum of the luminance steps at every quality from 1 to 100, as libjpeg scales them."""
    out = []
    for quality in range(1, 101):
        scale = 5000 // quality if quality < 50 else 200 - 2 * quality
        out.append(sum(min(255, max(1, (step * scale + 50) // 100)) for step in _LUMA))
    return out


def _quality(picture: Any) -> int | None:
    """The libjpeg quality whose luminance steps add up to nearly the same."""
    table = (getattr(picture, "quantization", None) or {}).get(0)
    if not table:
        return None
    total = sum(table)
    return 1 + min(range(100), key=lambda at: abs(_sums()[at] - total))


def _sampling(picture: Any) -> str | None:
    with contextlib.suppress(Exception):  # a header with odd layers
        return SAMPLINGS.get(JpegImagePlugin.get_sampling(picture), "other")
    return None


def _exif(picture: Image.Image) -> tuple[str | None, float | None]:
    raw = picture.info.get("exif")
    if not isinstance(raw, bytes):
        return None, None
    exif = Image.Exif()
    with contextlib.suppress(Exception):  # whatever a camera, or an attacker, wrote there
        exif.load(raw)
        names = [str(exif[tag]).strip("\0 ") for tag in (_MAKE, _MODEL) if exif.get(tag)]
        when = str(exif.get_ifd(_MORE).get(_TAKEN) or exif.get(_DATE) or "")
        return " ".join(names)[:80] or None, _year(when)
    return None, None


def _year(when: str) -> float | None:
    """EXIF's date as a year.

    >>> _year("2020:07:02 00:00:00"), _year("0000:00:00 00:00:00")
    (2020.5, None)
    """
    try:
        day = datetime.datetime.strptime(when[:19], "%Y:%m:%d %H:%M:%S")
    except ValueError:
        return None
    days = (datetime.date(day.year, 12, 31) - datetime.date(day.year, 1, 1)).days + 1
    return day.year + (day.timetuple().tm_yday - 1) / days
