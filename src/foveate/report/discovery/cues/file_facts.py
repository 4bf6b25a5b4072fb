"""What the file of a picture gives away before anyone looks at it; no experiment exchanges it, a probe reads it.

A model never sees most of it, but whatever tells two sources of files apart (a camera, an encoder, a year) leaves
traces in the pixels too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from foveate.data.dataset import GroupedDataset
from foveate.data.headers import FileFacts, file_facts
from foveate.report.discovery.cues.columns import by_value
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


# -- what headers tell ------------------------------------------------------------------------------


def _kinds(what: Callable[[FileFacts], object]) -> Callable[[Sequence[FileFacts]], NDArray[np.float64] | None]:
    return lambda files: by_value(np.asarray([str(what(file)) for file in files]))


def _encoding(files: Sequence[FileFacts]) -> NDArray[np.float64] | None:
    """Quality, progressive or not, and the sampling of colours; None without any JPEG file."""
    if not any(file.quality for file in files):
        return None
    quality = [[file.quality or 101, file.quality is None, file.progressive] for file in files]
    sampling = by_value(np.asarray([str(file.sampling) for file in files]))
    return np.concatenate([np.asarray(quality, dtype=np.float64), *([] if sampling is None else [sampling])], 1)


def _date(files: Sequence[FileFacts]) -> NDArray[np.float64] | None:
    """The year and whether there is one; None without any."""
    known = [file.taken for file in files if file.taken is not None]
    if not known:
        return None
    mean = float(np.mean(known))
    return np.asarray([[mean if f.taken is None else f.taken, f.taken is None] for f in files], dtype=np.float64)


FILE_CUES: tuple[tuple[Cue, Callable[[Sequence[FileFacts]], NDArray[np.float64] | None]], ...] = (
    (Cue("file-format", "the file format"), _kinds(lambda file: (file.format, file.mode))),
    (Cue("file-encoding", "the JPEG encoding of the file"), _encoding),
    (Cue("file-camera", "the camera named in the file"), _kinds(lambda file: file.camera)),
    (Cue("file-date", "the date in the file"), _date),
    (Cue("file-profile", "the colour profile of the file"), _kinds(lambda file: file.profile)),
    (Cue("file-name", "the pattern of the file name"), _kinds(lambda file: file.pattern)),
)
"""Facts of the header, each with how its numbers ``[n, d]`` are made; None where it does not differ."""


def read_files(dataset: GroupedDataset, positions: NDArray[np.int64]) -> list[tuple[Cue, NDArray[np.float64]]]:
    """What the headers of the files give away; empty as soon as one image is not a file.

    Names that hold the name of their class are left out: whoever named the files so meant no harm by it.
    """
    files: list[FileFacts] = []
    for i in positions:
        found = file_facts(dataset.where(int(i)))
        if found is None:
            return []
        files.append(found)
    named = [
        dataset.class_names[k].lower() in f.name.lower() for k, f in zip(dataset.labels[positions], files, strict=True)
    ]
    out = []
    for cue, numbers in FILE_CUES:
        values = None if not files or (cue.key == "file-name" and np.mean(named) > 0.5) else numbers(files)
        if values is not None and (values.std(0) > 1e-9).any():
            out.append((cue, values))
    return out
