"""What can be read off every image besides its object: each cue in numbers, for the probes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foveate.data.dataset import GroupedDataset
from foveate.report.discovery.cues import CUES, Cue, Glances, read_columns
from foveate.report.discovery.cues.file_facts import read_files
from foveate.report.discovery.objects import Objects
from foveate.report.reading import readable


@dataclass
class Observations:
    """The images at ``positions``, ``[n]``: each cue in numbers, ``[n, d]``, and the cues themselves, by key."""

    positions: NDArray[np.int64]
    features: dict[str, NDArray[np.float64]] = field(default_factory=dict)
    cues: dict[str, Cue] = field(default_factory=dict)

    def add(self, cue: Cue, values: NDArray[np.float64]) -> None:
        self.features[cue.key], self.cues[cue.key] = values, cue


def observe(
    dataset: GroupedDataset,
    positions: NDArray[np.int64],
    objects: Objects,
    *,
    batch: int = 16,
    attribute: str = "attribute",
    tick: Callable[[int], None] | None = None,
) -> Observations:
    """Read every cue of the images at ``positions``, batch by batch; unreadable images are left out.

    ``attribute`` is what to call the dataset's attribute in a sentence.
    """
    rows: dict[str, list[NDArray[np.float64]]] = {}
    kept: list[int] = []
    objects.look(positions, tick)
    tell = tick if objects.finder is None else None  # the network takes nearly all of the time
    for start in range(0, len(positions), batch):
        wanted = positions[start : start + batch]
        found = dict(readable(dataset, wanted))
        images, mine = list(found.values()), list(found)
        if tell is not None:
            tell(len(wanted))
        if not images:
            continue
        stored = [_stored(dataset, i) for i in mine]
        seen = Glances.of(images, objects.masks(images, mine), stored, objects.surroundings(images, mine))
        for cue in CUES:
            values = None if cue.read is None else cue.read(seen)
            if values is not None:
                rows.setdefault(cue.key, []).append(values)
        kept += mine
    out = Observations(np.asarray(kept, dtype=np.int64))
    for cue in CUES:
        # a cue that cannot be read off some images (they are not files) is left out for all
        if cue.key in rows and sum(len(values) for values in rows[cue.key]) == len(kept):
            out.add(cue, np.concatenate(rows[cue.key]))
    for cue, values in [*read_files(dataset, out.positions), *read_columns(dataset, out.positions, attribute)]:
        out.add(cue, values)
    return out


def _stored(dataset: GroupedDataset, i: int) -> int | None:
    """Bytes of the image file, for images that are files."""
    try:
        return Path(dataset.where(i)).stat().st_size
    except OSError:
        return None
