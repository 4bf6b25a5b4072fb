"""From the many published forms of a dataset to one: ``{train,test}_{images,labels}.npy``.

Arrays are ``uint8``: images ``[N, H, W]`` or ``[N, H, W, 3]``, labels ``[N]``. The bytes of the result depend
on nothing but the data, so one checksum holds whichever source the data came from.
"""

from __future__ import annotations

import gzip
import json
import shutil
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

if TYPE_CHECKING:  # what is here is listed without them
    import numpy as np
    from numpy.typing import NDArray

_IDX_PARTS = {
    "train_images": ("train-images-idx3-ubyte", 3),
    "train_labels": ("train-labels-idx1-ubyte", 1),
    "test_images": ("t10k-images-idx3-ubyte", 3),
    "test_labels": ("t10k-labels-idx1-ubyte", 1),
}


def keep_files(raw: Path, out: Path) -> None:
    """The raw files are the canonical files (weights)."""
    for path in sorted(raw.iterdir()):
        if path.is_file():
            shutil.move(path, out / path.name)


def write_npy(path: Path, array: NDArray[np.uint8]) -> None:
    """Write ``array`` as ``.npy`` with a header of exactly 128 bytes.

    ``numpy.save`` pads the header differently from version to version, which would change the checksum.

    >>> import tempfile
    >>> import numpy as np
    >>> path = Path(tempfile.mkdtemp()) / "a.npy"
    >>> write_npy(path, np.arange(6, dtype=np.uint8).reshape(2, 3))
    >>> np.load(path, allow_pickle=False).tolist(), path.stat().st_size
    ([[0, 1, 2], [3, 4, 5]], 134)
    """
    import numpy as np

    if array.dtype != np.uint8:
        raise TypeError(f"expected uint8, found {array.dtype}")
    header = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {array.shape}, }}".ljust(117) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode("ascii"))
        file.write(np.ascontiguousarray(array).data)


def read_idx(stream: IO[bytes], dims: int) -> NDArray[np.uint8]:
    """Read an IDX stream of unsigned bytes with ``dims`` dimensions (the format of MNIST).

    >>> import io
    >>> read_idx(io.BytesIO(bytes([0, 0, 8, 1, 0, 0, 0, 3, 7, 8, 9])), 1).tolist()
    [7, 8, 9]
    """
    import numpy as np

    head = stream.read(4 + 4 * dims)
    if head[:4] != bytes([0, 0, 8, dims]) or len(head) < 4 + 4 * dims:
        raise ValueError(f"not an IDX file of bytes with {dims} dimensions")
    shape = [int.from_bytes(head[4 + 4 * i : 8 + 4 * i], "big") for i in range(dims)]
    size = int(np.prod(shape))
    body = stream.read(size + 1)
    if len(body) != size:
        raise ValueError(f"IDX file of shape {shape} holds {'more' if len(body) > size else 'only'} {len(body)} bytes")
    return np.frombuffer(body, np.uint8).reshape(shape)


def idx_to_npy(raw: Path, out: Path) -> None:
    """MNIST-type IDX files, plain or ``.gz``."""
    for name, (stem, dims) in _IDX_PARTS.items():
        plain = raw / stem
        with open(plain, "rb") if plain.exists() else gzip.open(raw / f"{stem}.gz", "rb") as stream:
            write_npy(out / f"{name}.npy", read_idx(cast(IO[bytes], stream), dims))


def cifar_bin_to_npy(raw: Path, out: Path) -> None:
    """CIFAR-10, binary version: records of one label byte and 3 x 32 x 32 colour planes."""
    import numpy as np

    def read(names: list[str]) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        records = np.concatenate([np.fromfile(raw / n, np.uint8).reshape(-1, 3073) for n in names])
        return records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), records[:, 0]

    _write_split(out, "train", *read([f"data_batch_{i}.bin" for i in range(1, 6)]))
    _write_split(out, "test", *read(["test_batch.bin"]))


def cifar_png_to_npy(raw: Path, out: Path) -> None:
    """CIFAR-10 as PNG sheets: one image of 32 x 32 pixels per row of 1024, and the labels as JSON lists."""
    import numpy as np
    from PIL import Image

    def read(names: list[str], labels: str) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        sheets = []
        for name in names:
            with Image.open(raw / name, formats=("PNG",)) as picture:
                sheets.append(np.asarray(picture.convert("RGB")).reshape(-1, 32, 32, 3))
        return np.concatenate(sheets), np.array(json.loads((raw / labels).read_text()), np.uint8)

    _write_split(out, "train", *read([f"data_batch_{i}.png" for i in range(1, 6)], "train_labels.json"))
    _write_split(out, "test", *read(["test_batch.png"], "test_labels.json"))


def _write_split(out: Path, split: str, images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> None:
    write_npy(out / f"{split}_images.npy", images)
    write_npy(out / f"{split}_labels.npy", labels)
