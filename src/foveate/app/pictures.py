"""Pictures the page shows, as arrays: parts in colours, what is let through, crops."""

from __future__ import annotations

import atexit
import base64
import hashlib
import io
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from foveate.files import atomic_file
from foveate.look import Gaze

Picture = NDArray[np.uint8]

# distinct for the colour-blind (after Okabe and Ito), dark and light pages alike
COLOURS = (
    (230, 159, 0), (86, 180, 233), (0, 158, 115), (240, 228, 66), (0, 114, 178), (213, 94, 0), (204, 121, 167),
    (148, 103, 189), (140, 86, 75), (127, 127, 127), (188, 189, 34), (23, 190, 207),
)  # fmt: skip


def colour_of(part: int) -> tuple[int, int, int]:
    """The colour of a part; they repeat after twelve."""
    return COLOURS[part % len(COLOURS)]


def part_picture(image: Picture, parts: Tensor) -> Picture:
    """Every place in the colour of its strongest part, the background as it is.

    Args:
        image: ``uint8 [H, W, 3]``.
        parts: part maps ``[K + 1, h, w]``, background last.

    >>> maps = torch.tensor([1.0, 0.0]).view(2, 1, 1)  # one place, one part, all of it
    >>> part_picture(np.zeros((1, 1, 3), np.uint8), maps)[0, 0].tolist()
    [138, 95, 0]
    """
    owner = F.interpolate(parts.argmax(0)[None, None].float(), image.shape[:2], mode="nearest-exact")[0, 0].long()
    count = len(parts) - 1
    palette = np.asarray([*(colour_of(k) for k in range(count)), (0, 0, 0)], dtype=np.float32)
    weight = np.where(owner.numpy()[..., None] < count, 0.6, 0.0)
    return np.rint((1 - weight) * image + weight * palette[owner.numpy()]).astype(np.uint8)


def seen_picture(image: Picture, mask: Tensor) -> Picture:
    """The image with everything outside ``mask [h, w]`` hatched away: what is let through."""
    size = image.shape[:2]
    kept = F.interpolate(mask[None, None].float(), size, mode="nearest-exact")[0, 0].numpy()[..., None] > 0.5
    rows, columns = np.indices(size)
    step = max(min(size) // 32, 1)
    hatch = np.where(((rows + columns) // step) % 4 == 0, 150, 118)[..., None]
    return np.where(kept, image, hatch).astype(np.uint8)


def crop_pictures(image: Picture, gaze: Gaze, view_size: tuple[int, int]) -> list[Picture]:
    """The crops of the first image of ``gaze``, cut from ``image``; boxes are in pixels of ``view_size``."""
    if gaze.boxes is None:
        return []
    sy, sx = image.shape[0] / view_size[0], image.shape[1] / view_size[1]
    found = []
    for x, y, size in gaze.boxes[0].tolist():
        if size > 0:
            top, left = int(y * sy), int(x * sx)
            found.append(image[top : max(int((y + size) * sy), top + 1), left : max(int((x + size) * sx), left + 1)])
    return found


def to_uri(picture: Picture, least: int = 0) -> str:
    """A picture as a PNG in a ``data:`` address; small ones are enlarged to ``least`` pixels, unsmoothed."""
    made = Image.fromarray(picture)
    if least and max(made.size) < least:
        by = -(-least // max(made.size))
        made = made.resize((made.width * by, made.height * by), Image.Resampling.NEAREST)
    buffer = io.BytesIO()
    made.save(buffer, "PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def to_tensor(picture: Picture) -> Tensor:
    """``uint8 [H, W, 3]`` as a tensor ``[3, H, W]``."""
    return torch.from_numpy(np.ascontiguousarray(picture.transpose(2, 0, 1)).copy())


class PictureFiles:
    """Pictures as files for the browser, each written once and whole.

    An array would do for Gradio too, but it writes the file anew every time, also while the browser is reading it.

    Args:
        folder: a folder that Gradio may serve from; the pictures go into one of their own in it.
    """

    def __init__(self, folder: str | os.PathLike[str]):
        Path(folder).mkdir(parents=True, exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix="pictures-", dir=folder))
        atexit.register(self.close)

    def path(self, picture: Picture) -> str:
        """Where ``picture`` lies."""
        named = hashlib.blake2b(repr(picture.shape).encode() + picture.tobytes(), digest_size=16).hexdigest()
        file = self.folder / f"{named}.png"
        if not file.exists():
            with atomic_file(file) as temporary:
                Image.fromarray(picture).save(temporary, "PNG")
        return str(file)

    def close(self) -> None:
        """Remove them all."""
        shutil.rmtree(self.folder, ignore_errors=True)
