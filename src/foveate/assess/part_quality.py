"""How well the parts of PDiscoFormer and iFAM sit on the object: overlap, mass, coverage, keypoint error."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby

import torch

from foveate.assemble.parted import Parted
from foveate.data.dataset import GroupedDataset
from foveate.errors import DataError
from foveate.measure import ForegroundIoU, PartPoints, attention_mass, keypoint_error, part_points

BATCH = 100


@dataclass(frozen=True)
class PartQuality:
    """What :func:`part_quality` measured.

    Attributes:
        miou: foreground mIoU of all parts together with the object masks.
        mass: mean share of the foreground map that lies on the object.
        coverage: mean share of the patches that are selected.
        kp: keypoint error in percent of the object's box; None without keypoints, boxes or images to fit it on.
    """

    miou: float
    mass: float
    coverage: float
    kp: float | None = None

    def to_dict(self) -> dict[str, float]:
        """The measures that could be taken."""
        found = {"miou": self.miou, "mass": self.mass, "coverage": self.coverage, "kp": self.kp}
        return {name: value for name, value in found.items() if value is not None}


def part_quality(system: Parted, dataset: GroupedDataset, fit_on: GroupedDataset | None = None) -> PartQuality:
    """Compare the parts that ``system`` finds in ``dataset`` with its object masks and, where given, its keypoints.

    Args:
        system: a fitted system with parts.
        dataset: images with masks.
        fit_on: images (train) on which the regression from part centroids to keypoints is fitted.

    >>> import foveate as fv
    >>> data = fv.data.critters(train=32, target=0, val=0, test=16, size=32)
    >>> model = fv.PDiscoFormer("micro_vit", parts=2, epochs=1, progress=False).fit(data.train)
    >>> found = fv.systems.part_quality(model, data.test, fit_on=data.train)
    >>> sorted(found.to_dict()), 0 <= found.miou <= 1
    (['coverage', 'kp', 'mass', 'miou'], True)
    """
    if dataset.masks is None:
        raise DataError(f"{dataset.name} has no masks; part quality compares the parts with the object's mask.")
    overlap, masses, kept = ForegroundIoU(), [], []
    for rows in _batches(dataset):
        gaze = system.look(torch.stack([dataset[i].image for i in rows]))
        masks = [mask for i in rows if (mask := dataset[i].mask) is not None]
        if len(masks) < len(rows):
            raise DataError(f"{dataset.name}: some images have no mask; every image needs one here.")
        assert gaze.parts is not None
        assert gaze.mask is not None
        true = torch.stack(masks)
        overlap.update(gaze.parts, true)
        masses.append(attention_mass(gaze.map, true))
        kept.append(gaze.mask.float().mean((1, 2)))
    kp = None
    if fit_on is not None and all(d.keypoints is not None and d.boxes is not None for d in (fit_on, dataset)):
        kp = keypoint_error(_points(system, fit_on), _points(system, dataset))
    return PartQuality(
        overlap.compute(), float(torch.cat(masses).nanmean()), float(torch.cat(kept).mean()), kp
    )  # fmt: skip


def _points(system: Parted, dataset: GroupedDataset) -> PartPoints:
    assert dataset.keypoints is not None
    assert dataset.boxes is not None
    found = []
    for rows in _batches(dataset):
        images = torch.stack([dataset[i].image for i in rows])
        parts = system.look(images).parts
        assert parts is not None
        height, width = images.shape[-2:]
        found.append(part_points(parts, dataset.keypoints[rows], dataset.boxes[rows], (height, width)))
    return PartPoints.join(found)


def _batches(dataset: GroupedDataset) -> list[list[int]]:
    """Rows in order, in batches whose images are all of one size."""
    found = []
    for _, same in groupby(range(len(dataset)), key=lambda i: tuple(dataset[i].image.shape)):
        rows = list(same)
        found += [rows[start : start + BATCH] for start in range(0, len(rows), BATCH)]
    return found
