"""What the file of a picture gives away before anyone looks at it; no experiment exchanges it, a probe reads it."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from foveate.report.discovery.cues.cue import Cue, Glances


def _read_shape(seen: Glances) -> NDArray[np.float64]:
    sizes = np.asarray([image.shape[-2:] for image in seen.images], dtype=np.float64)
    height, width = sizes[:, 0], sizes[:, 1]
    return np.stack([np.log(width / height), np.log(width * height)], 1)


def _read_compression(seen: Glances) -> NDArray[np.float64] | None:
    """Bytes a pixel; None as soon as one image is not a file."""
    if any(size is None for size in seen.stored):
        return None
    pixels = [image.shape[-2] * image.shape[-1] for image in seen.images]
    return np.log([[max(size or 0, 1) / area] for size, area in zip(seen.stored, pixels, strict=True)])


SHAPE = Cue("shape", "the size and shape of the picture", _read_shape)
COMPRESSION = Cue(
    "compression", "the file size", _read_compression, comparatives=("smaller in file size", "larger in file size")
)
