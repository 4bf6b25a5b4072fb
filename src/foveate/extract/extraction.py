"""One extraction of features: all rows here, or the rows of a range of images anywhere, as a part to be joined."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch

from foveate.data.dataset import GroupedDataset
from foveate.data.loading import Loader, OnBad
from foveate.errors import DataError, ModelError, UnreadableImage
from foveate.extract import shelf
from foveate.extract.frozen import FrozenRun

Bad = tuple[int, str, str]
"""An image that could not be read: its position, where it is, and why."""
Range = tuple[int, int]


@dataclass
class Extraction:
    """What the rows of one entry of a store are computed from.

    It holds all that is needed to compute any range of them, so it can be sent to other processes and machines.

    Attributes:
        key: name of the entry.
        about: what the entry is made from, for people.
        run: the frozen backbone and what is read out of it.
        dataset: the images.
        batch_size: images at a time; ranges begin at multiples of it, so that every image meets the same others in
            its batch and the numbers are the same to the last bit.
        workers, on_bad, flush_seconds: as for the store.
    """

    key: str
    about: dict[str, Any]
    run: FrozenRun
    dataset: GroupedDataset
    batch_size: int
    workers: int
    on_bad: OnBad
    flush_seconds: float

    def ranges(self, rows: int) -> list[Range]:
        """All images in ranges of about ``rows``, always the same ones: a stopped extraction finds its parts again."""
        step = max(rows // self.batch_size, 1) * self.batch_size
        return [(start, min(start + step, len(self.dataset))) for start in range(0, len(self.dataset), step)]

    def part_key(self, chosen: Range) -> str:
        """The name of the entry of a part."""
        return f"{self.key}.{chosen[0]}-{chosen[1]}"

    def fill(
        self,
        writer: shelf.Writer,
        first: int = 0,
        told: Callable[[int], None] = lambda done: None,
        room: Callable[[int], None] = lambda row_bytes: None,
    ) -> None:
        """Compute the rows that ``writer`` lacks.

        Args:
            writer: of this entry, or of a part of it.
            first: the image of the writer's first row.
            told: called with the rows done, after every batch.
            room: called once with the bytes of a row, before anything is written.
        """
        size, begun, stop = self.batch_size, first + writer.done, first + writer.rows
        loader = Loader(self.dataset, self.run.preprocess, workers=self.workers, on_bad=self.on_bad, cache_bytes=0)
        loader.bad = {i: UnreadableImage(where, reason) for i, where, reason in writer.bad}
        lists = [np.arange(s, min(s + size, stop)) for s in range(begun, stop, size)]
        # DataLoader workers draw from the global generator; a run must leave it as a run with cached features does
        with torch.random.fork_rng(devices=[]), self.run.frozen():
            for batch in loader(lists):
                rows = self.run(batch)
                if writer.shape is None:
                    room(rows[0].nbytes)
                    writer.begin(rows.shape[1:], rows.dtype)
                writer.bad = _listed(loader)
                positions = lists[(int(batch.indices[0]) - begun) // size]
                write_nan(writer, int(positions[0]) - first - writer.done, size)  # batches with no image to read
                block = np.full((len(positions), *rows.shape[1:]), np.nan, dtype=rows.dtype)
                block[batch.indices.numpy() - positions[0]] = rows
                writer.write(block)
                told(writer.done)
        writer.bad = _listed(loader)
        if writer.shape is not None:
            write_nan(writer, writer.rows - writer.done, size)

    def finish(self, writer: shelf.Writer) -> None:
        """Make the entry, unless the backbone is no longer the one it is said to be made with."""
        if writer.shape is None:
            raise DataError(f"{self.dataset.name}: none of its {writer.rows} images can be read.")
        if self.run.backbone.weights_hash() != self.about["weights"]:
            writer.drop()
            raise ModelError("the backbone's weights changed while its features were computed; freeze it.")
        writer.finish()

    def part(self, root: Path, chosen: Range) -> list[Bad]:
        """Compute a range into an entry of its own in the store at ``root``; gives the images that cannot be read.

        A part that is there is left as it is, a stopped one is continued; of images that are all unreadable none is
        written.
        """
        start, stop = chosen
        key = self.part_key(chosen)
        with shelf.writing(root, key):
            opened = shelf.open_entry(root, key)
            if opened is not None:
                return [(int(i), where, reason) for i, where, reason in opened.details["bad"]]
            writer = shelf.Writer(root, key, stop - start, {**self.about, "part": [start, stop]}, self.flush_seconds)
            try:
                self.fill(writer, start)
                if writer.shape is not None:
                    self.finish(writer)
            finally:  # a stop keeps what is done; after the finish, or a failed write, this does nothing
                writer.flush()
                writer.close()
            return writer.bad


class Spread(Protocol):
    """Something that has parts of an extraction computed elsewhere, for instance on a cluster.

    Attributes:
        rows: about how many images a part has.
    """

    rows: int

    def __call__(self, extraction: Extraction, root: Path, ranges: Sequence[Range]) -> Iterator[list[Bad]]:
        """Call :meth:`Extraction.part` for every range, wherever; give what it gave, in the order of the ranges."""
        ...


def write_nan(writer: shelf.Writer, rows: int, at_once: int) -> None:
    """Rows of images that could not be read."""
    assert writer.shape is not None
    assert writer.dtype is not None
    for start in range(0, rows, at_once):
        shape = (min(at_once, rows - start), *writer.shape[1:])
        writer.write(np.full(shape, np.nan, dtype=writer.dtype))


def _listed(loader: Loader) -> list[Bad]:
    return [(i, e.where, e.reason) for i, e in sorted(loader.bad.items())]
