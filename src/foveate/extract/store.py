"""Features of a frozen backbone: computed once, streamed to disk, read again as a memory map.

Everything that is trained on top of a frozen network (DFR, DAR, probes, linear heads) reads the same features
in every epoch. The store computes them once. The key of an entry is a hash of the pixels, the weights, the
preprocessing and what is read out, so a changed image or weight makes another entry and never a wrong one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict, cast

import numpy as np

from foveate.data.dataset import GroupedDataset
from foveate.data.loading import OnBad
from foveate.data.preprocess import Preprocess
from foveate.engine.progress import Progress
from foveate.errors import DataError, ModelError, StorageError, UnreadableImage
from foveate.extract import shelf
from foveate.extract.backbone import Backbone
from foveate.extract.extraction import Extraction, Spread, write_nan
from foveate.extract.features import Features, Maps
from foveate.extract.frozen import FrozenRun, ReadOut, layer_readout

if TYPE_CHECKING:
    from typing_extensions import Unpack

log = logging.getLogger("foveate")
FORMAT = 2
"""Part of every key; 2: large JPEGs are decoded at a reduced size."""
ProgressCall = Callable[[int, int], None]
_spread: ContextVar[Spread | None] = ContextVar("spread", default=None)


class Options(TypedDict, total=False):
    """How features are computed; see :meth:`FeatureStore.read`."""

    copies: int
    seed: int
    batch_size: int
    workers: int
    on_bad: OnBad
    progress: ProgressCall | None


class FeatureStore:
    """Computes features of a frozen backbone once and keeps them on disk.

    An extraction that is killed goes on where it was when it is asked for again. Memory stays flat however
    many images there are. Several processes may use one store: who asks for features another one is computing
    waits for them. To train on ever new augmentations run the backbone live instead of through the store.

    Args:
        root: folder of the store. Default: ``$FOVEATE_CACHE``, else ``foveate/features`` in the user's cache.
        max_bytes: when new features need the room, the entries not used for longest are deleted until the
            store is at most this large. Entries in use are never deleted.
        dtype: how features are stored; ``"float16"`` halves the size and keeps about three digits.
        flush_seconds: how much work, in seconds, a killed extraction may lose.
        spread: has features computed elsewhere in parts that are joined here (they need the room twice for a while);
            by default what :func:`spreading` says, else all is computed in this process. The numbers are the same.

    >>> import tempfile
    >>> from foveate.data.images import ArrayImages
    >>> from foveate.extract import create_backbone
    >>> images = np.random.default_rng(0).integers(0, 256, (5, 32, 32, 3), dtype=np.uint8)
    >>> ds = GroupedDataset(ArrayImages(images), [0, 1, 0, 1, 0], ["cat", "dog"])
    >>> store = FeatureStore(tempfile.mkdtemp())
    >>> maps = store.maps(create_backbone("micro_resnet"), ds, Preprocess((32, 32)))
    >>> maps
    Maps([5, 128, 4, 4] float32)
    >>> tuple(maps.batch([3, 1]).shape), maps.channels, len(store.entries())
    ((2, 128, 4, 4), 128, 1)
    """

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        *,
        max_bytes: int | None = None,
        dtype: Literal["float32", "float16"] = "float32",
        flush_seconds: float = 2.0,
        spread: Spread | None = None,
    ):
        if dtype not in ("float32", "float16"):
            raise StorageError(f"unknown dtype '{dtype}'; features are stored as 'float32' or 'float16'.")
        self.root = Path(root).expanduser() if root is not None else default_root()
        self.max_bytes = max_bytes
        self.dtype = np.dtype(dtype)
        self.flush_seconds = flush_seconds
        self.spread = spread

    # -- asking for features --------------------------------------------------------------

    def features(
        self, backbone: Backbone, dataset: GroupedDataset, preprocess: Preprocess, **options: Unpack[Options]
    ) -> Features:
        """Pooled features ``[N, dim]``; ``options`` as in :meth:`read`."""
        return self.read(backbone, dataset, preprocess, layer="pooled", **options)

    def maps(
        self, backbone: Backbone, dataset: GroupedDataset, preprocess: Preprocess, **options: Unpack[Options]
    ) -> Maps:
        """Feature maps ``[N, C, h, w]``; ``options`` as in :meth:`read`."""
        return cast(Maps, self.read(backbone, dataset, preprocess, layer="maps", **options))

    def read(
        self,
        backbone: Backbone,
        dataset: GroupedDataset,
        preprocess: Preprocess,
        *,
        layer: str = "pooled",
        readout: ReadOut | None = None,
        key: str | None = None,
        copies: int = 0,
        seed: int = 0,
        batch_size: int = 64,
        workers: int = 0,
        on_bad: OnBad = "raise",
        progress: ProgressCall | None = None,
    ) -> Features:
        """Anything that can be read out of a frozen backbone, one row per image.

        Args:
            backbone: is run in evaluation mode and left exactly as it was.
            dataset: only its images matter; other labels on the same images share the features.
            preprocess: geometry and normalisation; its augmentation is used for ``copies``.
            layer: ``"pooled"``, ``"maps"``, or the name of a module of the backbone (``"net.layer3"``).
            readout: instead of a layer, any ``readout(backbone, inputs[B, 3, h, w]) -> [B, ...]``.
            key: names what ``readout`` computes, with every setting and every further weight it depends on.
            copies: this many augmented copies of every image are stored beside the plain one.
            seed: of the augmentation; image ``i`` of copy ``j`` depends on ``(seed, j, i)`` only.
            batch_size, workers: for the extraction. Another batch size may change the last digits.
            on_bad: ``"skip"`` goes on without unreadable images: see ``valid`` of the result.
            progress: called with ``(images done, images)``; without it a terminal gets a bar.
        """
        if not len(dataset):
            raise DataError(f"{dataset.name} has no images, so there are no features to compute.")
        if copies < 0 or batch_size < 1:
            raise DataError(f"copies={copies} and batch_size={batch_size} do not fit; use at least 0 and 1.")
        if readout is not None and not key:
            raise ModelError("a readout needs a key: a text that names what it computes, with all its settings.")
        source = {
            "format": FORMAT,
            "images": images_digest(dataset),
            "backbone": backbone.spec.to_dict(),
            "weights": backbone.weights_hash(),
            "preprocess": preprocess.to_dict(),
            "readout": f"layer {layer}" if readout is None else f"key {key}",
            "dtype": str(self.dtype),
            "copies": copies,
            "seed": seed if copies else 0,
        }
        text = json.dumps(source, sort_keys=True, default=str)
        name = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        opened = shelf.open_entry(self.root, name)
        if opened is None:
            run = FrozenRun(backbone, preprocess, readout or layer_readout(backbone, layer), copies, seed, self.dtype)
            about = {"title": f"{dataset.name}: {len(dataset)} images, {backbone.spec.name}", **json.loads(text)}
            extraction = Extraction(name, about, run, dataset, batch_size, workers, on_bad, self.flush_seconds)
            with shelf.explained(self.root):
                self.root.mkdir(parents=True, exist_ok=True)
            with shelf.writing(self.root, name):
                # another process may have finished it while we waited
                opened = shelf.open_entry(self.root, name)
                if opened is None:
                    self._extract(extraction, progress)
                    opened = shelf.open_entry(self.root, name)
        if opened is None:
            raise StorageError(f"the features just written to {self.root / name} are gone; who deleted them?")
        found = (Maps if readout is None and layer == "maps" else Features)(opened, copies)
        if found.bad and on_bad == "skip":
            log.warning("skipped %d unreadable images of %s, first %s", len(found.bad), dataset.name, found.bad[0][1])
        if found.bad and on_bad == "raise":
            _, where, reason = found.bad[0]
            raise UnreadableImage(where, f"{reason}. Remove it, or go on without it: on_bad='skip' (--on-bad skip)")
        return found

    # -- the extraction -------------------------------------------------------------------

    def _extract(self, extraction: Extraction, progress: ProgressCall | None) -> None:
        """Compute an entry, here or in parts elsewhere; a stopped extraction goes on where it was."""
        total = len(extraction.dataset)
        writer = shelf.Writer(self.root, extraction.key, total, extraction.about, self.flush_seconds)
        spread = self.spread or _spread.get()
        ranges = [] if spread is None else extraction.ranges(spread.rows)
        with Progress("extracting features", total, shown=progress is None) as bar:
            bar.advance(said := writer.done)

            def told(done: int) -> None:
                nonlocal said
                bar.advance(done - said)
                said = done
                if progress is not None:
                    progress(done, total)

            def room(row_bytes: int) -> None:
                self._make_room(extraction.key, total * row_bytes)

            try:
                if spread is not None and len(ranges) > 1:
                    self._join(extraction, writer, spread, ranges, told, room)
                else:
                    extraction.fill(writer, 0, told, room)
                extraction.finish(writer)
            finally:  # a stop keeps what is done; after the finish, or a failed write, this does nothing
                writer.flush()
                writer.close()
        if any(self.root.glob(f"{extraction.key}.*-*")):  # parts, joined now or left by a stopped extraction
            for entry in self.entries():
                if entry.key.startswith(f"{extraction.key}."):
                    shelf.remove(self.root, entry)

    def _join(
        self,
        extraction: Extraction,
        writer: shelf.Writer,
        spread: Spread,
        ranges: Sequence[tuple[int, int]],
        told: Callable[[int], None],
        room: Callable[[int], None],
    ) -> None:
        """Have the parts computed elsewhere and write them one after the other."""
        left = [r for r in ranges if r[1] > writer.done]
        for chosen, bad in zip(left, spread(extraction, self.root.resolve(), left), strict=True):
            writer.bad = sorted({b[0]: b for b in [*writer.bad, *bad]}.values())
            if len(bad) == chosen[1] - chosen[0]:
                continue  # nothing to read in it
            opened = shelf.await_entry(self.root, extraction.part_key(chosen))
            rows = opened.array
            if writer.shape is None:
                room(rows[0].nbytes)
                writer.begin(rows.shape[1:], rows.dtype)
            write_nan(writer, chosen[0] - writer.done, extraction.batch_size)
            for start in range(writer.done - chosen[0], len(rows), extraction.batch_size):
                writer.write(np.asarray(rows[start : start + extraction.batch_size]))
            told(writer.done)
        if writer.shape is not None:
            write_nan(writer, writer.rows - writer.done, extraction.batch_size)

    def _make_room(self, key: str, need: int) -> None:
        """Delete the entries not used for longest until ``need`` bytes more keep the store within its limit."""
        if self.max_bytes is None:
            return
        if need > self.max_bytes:
            raise StorageError(
                f"these features take {need / 1e6:,.1f} MB, but the store at {self.root} is limited to "
                f"{self.max_bytes / 1e6:,.1f} MB. Raise max_bytes, or store them as float16."
            )
        shelf.sweep(self.root)
        others = [e for e in self.entries() if e.key.partition(".")[0] != key]
        total = need + sum(e.bytes for e in others)
        for entry in others:
            if total > self.max_bytes and shelf.remove(self.root, entry):
                total -= entry.bytes
                log.info("deleted the features %s, not used for longest", entry.key)
        if total > self.max_bytes:
            log.warning("the store at %s grows over its limit: its other entries are in use", self.root)

    # -- looking after the store ----------------------------------------------------------

    def entries(self) -> list[shelf.StoredEntry]:
        """What is in the store, the entry not used for longest first."""
        return shelf.list_entries(self.root)

    def size(self) -> int:
        """Bytes on disk."""
        return sum(e.bytes for e in self.entries())

    def clear(self, key: str | None = None) -> int:
        """Delete every entry (or the one called ``key``) that is not in use; returns the bytes set free."""
        shelf.sweep(self.root)
        chosen = [e for e in self.entries() if key is None or e.key == key]
        if key is not None and not chosen:
            raise StorageError(f"the store at {self.root} has no entry '{key}'; entries() lists what it has.")
        return sum(e.bytes for e in chosen if shelf.remove(self.root, e))

    def __repr__(self) -> str:
        return f"FeatureStore({str(self.root)!r})"


@contextlib.contextmanager
def spreading(spread: Spread) -> Iterator[None]:
    """Within this, features that are not there are computed through ``spread``, whoever asks for them.

    On a Ray cluster::

        with RaySpread("auto") as cluster, spreading(cluster):
            fv.FullImage("vit-s-focus", store="shared/features").fit(data.train)
    """
    token = _spread.set(spread)
    try:
        yield
    finally:
        _spread.reset(token)


def default_root() -> Path:
    """``$FOVEATE_CACHE``, else ``foveate/features`` in the user's cache folder."""
    if given := os.environ.get("FOVEATE_CACHE"):
        return Path(given).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "foveate" / "features"


def images_digest(dataset: GroupedDataset) -> str:
    """A hash of the images alone, taken anew every time.

    Not ``dataset.fingerprint``: that one covers labels too, so the same images under other labels would be
    extracted twice, and it is remembered, so a file changed since would not be noticed.
    """
    hasher = hashlib.blake2b(digest_size=16)
    for i in range(len(dataset)):
        hasher.update(dataset.images.digest(i))
    return hasher.hexdigest()
