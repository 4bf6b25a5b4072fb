"""The feature store on disk: one folder for each entry, written row by row, whole or resumable, locked while in use.

Layout below the root of a store::

    KEY/data.npy, entry.json            a complete entry
    KEY.part/data.npy, progress.json    an extraction under way, or one that was stopped
    KEY.lock                            held by the process that writes KEY

Locks are ``flock`` locks, which the system drops when their process dies: none is ever stale. Where there
is no ``flock`` (Windows) nothing is locked, and only one process at a time should use a store.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import shutil
import time
import uuid
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from foveate.errors import StorageError
from foveate.files import explain_write_error, write_json

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger("foveate")
PART, LOCK, TRASH = ".part", ".lock", ".trash"
DATA, ENTRY, PROGRESS = "data.npy", "entry.json", "progress.json"


@contextlib.contextmanager
def explained(target: Path) -> Iterator[None]:
    """Turn an ``OSError`` while writing ``target`` into a :class:`~foveate.errors.StorageError`."""
    try:
        yield
    except OSError as error:
        raise explain_write_error(error, target) from error


# -- locks ----------------------------------------------------------------------------------


def _flock(handle: int, exclusive: bool, wait: bool) -> bool:
    if fcntl is None:
        return True
    try:
        fcntl.flock(handle, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | (0 if wait else fcntl.LOCK_NB))
        return True
    except BlockingIOError:
        return False


def _same_file(handle: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(handle), os.stat(path))
    except FileNotFoundError:
        return False


@contextlib.contextmanager
def writing(root: Path, key: str, wait: bool = True) -> Iterator[bool]:
    """Be the only one who writes entry ``key``. Gives False, at once, if another one is and ``wait`` is off."""
    path = root / (key + LOCK)
    held = False
    while True:
        with explained(path):
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            held = _flock(handle, exclusive=True, wait=False)
            if not held and wait:
                log.info("waiting for another process that is extracting the same features (%s)", key)
                held = _flock(handle, exclusive=True, wait=True)
        # the one before us removes the file when done: a lock on a removed file protects nothing
        if not held or _same_file(handle, path):
            break
        os.close(handle)
    try:
        yield held
    finally:
        if held:
            with contextlib.suppress(OSError):
                path.unlink()
        os.close(handle)


# -- complete entries -----------------------------------------------------------------------


@dataclass(frozen=True)
class StoredEntry:
    """One entry of a feature store.

    Attributes:
        key: name of its folder.
        bytes: size on disk.
        used: when it was last read or written, in seconds since 1970.
        complete: False for an extraction that was stopped, or is under way.
        details: what it was made from (dataset, backbone, preprocessing, read-out) and its shape.
    """

    key: str
    bytes: int
    used: float
    complete: bool
    details: dict[str, Any]


class Opened:
    """A complete entry, memory-mapped read-only; it is not evicted while this object lives."""

    def __init__(self, folder: Path, array: NDArray[Any], details: dict[str, Any], handle: int):
        self.folder, self.array, self.details = folder, array, details
        self._close = weakref.finalize(self, os.close, handle)


def open_entry(root: Path, key: str) -> Opened | None:
    """The complete entry ``key``, or None when there is none (a damaged one is removed, and said so)."""
    folder = root / key
    try:
        handle = os.open(folder / ENTRY, os.O_RDONLY)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        _flock(handle, exclusive=False, wait=True)
        if not _same_file(handle, folder / ENTRY):  # evicted in this very moment
            os.close(handle)
            return None
        details = json.loads((folder / ENTRY).read_text(encoding="utf-8"))
        array = np.load(folder / DATA, mmap_mode="r", allow_pickle=False)
        if list(array.shape) != details["shape"] or str(array.dtype) != details["dtype"]:
            raise ValueError(f"its array is {array.dtype} {array.shape}")
    except (OSError, ValueError, KeyError, TypeError) as error:
        os.close(handle)
        log.warning("the stored features %s are damaged (%s); they are computed anew", folder, error)
        _discard(folder)
        return None
    with contextlib.suppress(OSError):  # a read-only store can still be read
        os.utime(folder / ENTRY)
    return Opened(folder, array, details, handle)


def await_entry(root: Path, key: str, seconds: float = 30.0) -> Opened:
    """An entry that another machine has just made: a network disk may show it a moment later."""
    until = time.monotonic() + seconds
    while (opened := open_entry(root, key)) is None:
        if time.monotonic() > until:
            raise StorageError(
                f"the features {root / key} were computed elsewhere and are not here; the store must be in a folder "
                "that all machines see under the same path."
            )
        time.sleep(0.1)
    return opened


def list_entries(root: Path) -> list[StoredEntry]:
    """Every entry, the one not used for longest first; stopped extractions are among them."""
    found = []
    for folder in root.iterdir() if root.is_dir() else ():
        partial = folder.name.endswith(PART)
        sidecar = folder / (PROGRESS if partial else ENTRY)
        if folder.name.startswith(TRASH) or not (partial or sidecar.is_file()):
            continue
        with contextlib.suppress(FileNotFoundError):  # taken away while we look
            size = sum(f.stat().st_size for f in folder.iterdir())
            used = (sidecar if sidecar.is_file() else folder).stat().st_mtime
            try:
                details = json.loads(sidecar.read_text(encoding="utf-8"))
            except (OSError, ValueError):
                details = {}
            found.append(StoredEntry(folder.name.removesuffix(PART), size, used, not partial, details))
    return sorted(found, key=lambda e: e.used)


def remove(root: Path, entry: StoredEntry) -> bool:
    """Delete ``entry`` unless it is being read or written; returns whether it was."""
    with writing(root, entry.key, wait=False) as held:
        if not held:
            return False
        folder = root / (entry.key if entry.complete else entry.key + PART)
        if not entry.complete:
            _discard(folder)
            return True
        try:
            handle = os.open(folder / ENTRY, os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            if not _flock(handle, exclusive=True, wait=False):
                return False
            _discard(folder)
            return True
        finally:
            os.close(handle)


def _discard(folder: Path) -> None:
    """Take a folder out of the way in one step, then delete it."""
    aside = folder.with_name(TRASH + uuid.uuid4().hex)
    try:
        os.replace(folder, aside)
    except OSError:
        aside = folder
    shutil.rmtree(aside, ignore_errors=True)


def sweep(root: Path) -> None:
    """Delete what a killed process was about to delete."""
    for folder in root.glob(TRASH + "*"):
        shutil.rmtree(folder, ignore_errors=True)


# -- writing --------------------------------------------------------------------------------


class Writer:
    """Writes the rows of one entry in order. Use it under :func:`writing`.

    Rows go through ordinary file writes, not through a memory map: a full disk is then an error to report,
    where a memory map would kill the process, and the pages do not count as memory of the process.

    Args:
        root, key: where.
        rows: how many rows there will be.
        about: what the entry is made from; kept beside the data for people to read.
        flush_seconds: progress is made durable at most this often.
    """

    def __init__(self, root: Path, key: str, rows: int, about: dict[str, Any], flush_seconds: float):
        self.root, self.key, self.rows, self.about = root, key, rows, about
        self.folder = root / (key + PART)
        self.flush_seconds = flush_seconds
        self.done = 0
        self.bad: list[tuple[int, str, str]] = []
        self.shape: tuple[int, ...] | None = None
        self.dtype: np.dtype[Any] | None = None
        self._file: Any = None
        self._last = time.monotonic()
        self._resume()

    def _resume(self) -> None:
        """Go on where a stopped extraction ended; anything that does not fit together is started anew."""
        try:
            state = json.loads((self.folder / PROGRESS).read_text(encoding="utf-8"))
            found = np.load(self.folder / DATA, mmap_mode="r", allow_pickle=False)
            done = int(state["done"])
            bad = [(int(i), str(where), str(reason)) for i, where, reason in state["bad"]]
            if len(found) != self.rows or not 0 < done <= self.rows:
                raise ValueError("of something else")
        except (OSError, ValueError, KeyError, TypeError):
            _discard(self.folder)
            return
        self.done, self.bad, self.shape, self.dtype = done, bad, found.shape, found.dtype
        with explained(self.folder / DATA):
            self._file = open(self.folder / DATA, "r+b", buffering=0)  # noqa: SIM115
        self._start = self._file.seek(0, os.SEEK_END) - found.nbytes
        log.info("going on with a stopped extraction at image %d of %d", done, self.rows)

    def begin(self, row_shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        """Make room for all rows: a disk that is too small is noticed now and not after hours."""
        self.shape, self.dtype = (self.rows, *row_shape), dtype
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._file = open(self.folder / DATA, "w+b", buffering=0)  # noqa: SIM115
            header = {
                "descr": np.lib.format.dtype_to_descr(dtype),
                "fortran_order": False,
                "shape": self.shape,
            }
            np.lib.format.write_array_header_1_0(self._file, header)
            self._start = self._file.tell()
            size = self._start + int(np.prod(self.shape)) * dtype.itemsize
            _allocate(self._file.fileno(), size)
        except OSError as error:
            self._fail(error)

    def write(self, rows: NDArray[Any]) -> None:
        """The next rows."""
        assert self.shape is not None
        assert self.dtype is not None
        rows = np.ascontiguousarray(rows, dtype=self.dtype)
        stride = int(np.prod(self.shape[1:])) * self.dtype.itemsize
        try:
            self._file.seek(self._start + self.done * stride)
            left = memoryview(rows).cast("B")  # type: ignore[arg-type]
            while left:
                left = left[self._file.write(left) :]
            self.done += len(rows)
            if time.monotonic() - self._last >= self.flush_seconds:
                self.flush()
        except OSError as error:
            self._fail(error)

    def flush(self) -> None:
        """Make what was written durable, then say so in the progress file: never the other way round."""
        if self._file is None or not self.done:
            return
        try:
            os.fsync(self._file.fileno())
            write_json(self.folder / PROGRESS, {"done": self.done, "bad": self.bad, "about": self.about})
        except (OSError, StorageError) as error:
            self._fail(error)
        self._last = time.monotonic()

    def finish(self) -> None:
        """Turn the complete extraction into an entry, in one step."""
        assert self.shape is not None
        if self.done != self.rows:
            raise StorageError(f"{self.done} of {self.rows} rows were written; the entry is not complete.")
        target = self.root / self.key
        try:
            os.fsync(self._file.fileno())
            self.close()
            details = {
                "shape": list(self.shape),
                "dtype": str(self.dtype),
                "bad": self.bad,
                "about": self.about,
            }
            write_json(self.folder / ENTRY, details)
            (self.folder / PROGRESS).unlink(missing_ok=True)
            if target.exists():  # it is not an entry, or we would not be here
                _discard(target)
            os.replace(self.folder, target)
        except (OSError, StorageError) as error:
            self._fail(error)

    def drop(self) -> None:
        """Give the extraction up and leave nothing behind."""
        self.close()
        _discard(self.folder)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _fail(self, error: OSError | StorageError) -> NoReturn:
        """Writing failed: give the space back, so that nothing incomplete is left, and say why."""
        with contextlib.suppress(OSError):
            self.close()
        _discard(self.folder)
        if isinstance(error, StorageError):
            raise error
        raise explain_write_error(error, self.root / self.key / DATA) from error


def _allocate(handle: int, size: int) -> None:
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(handle, 0, size)
            return
        except OSError as error:  # some file systems cannot reserve space
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                raise
    os.ftruncate(handle, size)
