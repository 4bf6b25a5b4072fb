"""Whether an image is unlike anything in training, by its colours and textures alone.

No network is asked: what a network makes of an image it was never meant for is the very thing in doubt. A drawing, a
page of text, noise or a black frame among photographs is told; a photograph of an animal the model never saw is not.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from foveate.data.dataset import GroupedDataset
from foveate.errors import DataError, UnreadableImage

SIDE, LEVELS = 64, 4
STEPS = (0, 0.004, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 1.01)
"""Edges of the histogram of grey-level steps between neighbours."""
UNUSUAL = 0.01
"""Share of the training images themselves that may count as unlike the others."""
LEAST_IMAGES = 16


def appearance(image: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Colours and textures of an image ``uint8 [H, W, 3]`` as a vector whose Euclidean distances are Hellinger's.

    64 colours, and for three scales how often neighbours differ by how much.

    >>> appearance(np.zeros((9, 7, 3), np.uint8)).shape
    (88,)
    """
    pixels = np.asarray(Image.fromarray(image).resize((SIDE, SIDE), Image.Resampling.BOX), np.float64)
    level = np.minimum(pixels.astype(np.int64) * LEVELS // 256, LEVELS - 1)
    codes = (level[..., 0] * LEVELS + level[..., 1]) * LEVELS + level[..., 2]
    shares = [np.bincount(codes.ravel(), minlength=LEVELS**3) / codes.size]
    grey = pixels.mean(-1) / 255
    for scale in (1, 2, 4):
        blocks = grey.reshape(SIDE // scale, scale, SIDE // scale, scale).mean((1, 3))
        steps = np.concatenate([np.abs(np.diff(blocks, axis=axis)).ravel() for axis in (0, 1)])
        counts = np.histogram(steps, STEPS)[0]
        shares.append(counts / counts.sum())
    return np.sqrt(np.concatenate(shares))


class Familiar:
    """What images of a dataset look like; says how far another image is from all of them.

    The limit comes from the dataset itself: all but one in a hundred of its images are nearer than that to another.
    """

    def __init__(self, dataset: GroupedDataset):
        seen = []
        for i in range(len(dataset)):
            try:
                seen.append(appearance(dataset.images.read(i)))
            except UnreadableImage:
                continue
        if len(seen) < LEAST_IMAGES:
            raise DataError(f"{len(seen)} images are too few to say what is usual; {LEAST_IMAGES} are needed.")
        self.seen = np.stack(seen)
        apart = np.stack([np.linalg.norm(self.seen - one, axis=1) for one in self.seen])
        np.fill_diagonal(apart, np.inf)
        nearest = np.sort(apart.min(1))
        self.limit = float(nearest[-1 - int(UNUSUAL * len(nearest))])

    def __len__(self) -> int:
        return len(self.seen)

    def strangeness(self, image: NDArray[np.uint8]) -> float:
        """Distance to the nearest image known, in units of the limit: over 1 is unlike all of them."""
        nearest = float(np.linalg.norm(self.seen - appearance(image), axis=1).min())
        return nearest / max(self.limit, 1e-9)
