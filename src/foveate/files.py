"""Reading files that are files, and writing so that nothing half-written ever stays on disk."""

from __future__ import annotations

import contextlib
import csv
import errno
import hashlib
import json
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from foveate.errors import StorageError

try:
    import fcntl
except ImportError:  # Windows: left-overs are then told by their age alone
    fcntl = None  # type: ignore[assignment]

Target = str | os.PathLike[str]
_MARK = ".fv-"
_LEFT_OVER = re.compile(r"^\..+\.fv-(swap-)?[a-z0-9_]{8}(\.[^.]*)?$", re.DOTALL)
_YOUNG = 60.0
"""Seconds in which a temporary file is not taken for a left-over: its maker may not have locked it yet."""
_swept: set[Path] = set()


# -- reading ------------------------------------------------------------------------------


def open_regular(path: Target) -> BinaryIO:
    """Open ``path`` for reading if it is a regular file; a pipe, device or socket is refused without waiting for it.

    Raises:
        OSError: as :func:`open` does, and for everything that is no file.
    """
    # a pipe opened without O_NONBLOCK waits until somebody writes to it, perhaps for ever
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, "this is a folder", str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, f"this is {kind_of(mode)}, not a file", str(path))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def kind_of(mode: int) -> str:
    """What a file mode stands for, in words.

    >>> kind_of(os.stat("/").st_mode)
    'a folder'
    """
    kinds = (
        (stat.S_ISREG, "a file"), (stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a pipe"), (stat.S_ISSOCK, "a socket"),
        (stat.S_ISCHR, "a device"), (stat.S_ISBLK, "a device"),
    )  # fmt: skip
    return next((name for test, name in kinds if test(mode)), "something else")


def read_text(path: Target) -> str:
    """The text of a UTF-8 file (a byte order mark is dropped); raises ``OSError`` or ``UnicodeDecodeError``."""
    with open_regular(path) as file:
        return file.read().decode("utf-8-sig")


# -- writing ------------------------------------------------------------------------------


def explain_write_error(error: OSError, target: Path) -> StorageError:
    """The sentence for a failed write of ``target``."""
    reasons = {
        (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            "the disk (or the quota on it) is full; free some space or choose another folder",
        (errno.EACCES, errno.EPERM, errno.EROFS): "no permission to write there; choose another folder",
        (errno.ENOTDIR, errno.EEXIST): "a file stands where a folder is needed; choose another path",
        (errno.EISDIR,): "a folder stands where a file is needed; choose another path",
        (errno.ENAMETOOLONG,): "the name is too long for this disk; choose a shorter one",
        (errno.ELOOP,): "the path is a link that leads to itself; choose another path",
        (errno.ENXIO,): "it is a pipe or socket that nobody reads from",
    }  # fmt: skip
    told = next((reason for codes, reason in reasons.items() if error.errno in codes), error.strerror or str(error))
    return StorageError(f"cannot write {target}: {told}. Nothing half-written was left behind.")


@contextlib.contextmanager
def atomic_file(target: Target) -> Iterator[Path]:
    """Give a temporary path beside ``target``; on success it replaces ``target``, on failure it vanishes.

    A link to a file is followed: the file is replaced and the link stays. A device or a pipe is never replaced: what
    was written is then copied into it.

    >>> import tempfile, pathlib
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> with atomic_file(folder / "a.txt") as path:
    ...     _ = path.write_text("whole")
    >>> (folder / "a.txt").read_text()
    'whole'
    """
    target = Path(target)
    temporary: Path | None = None
    try:
        special = _is_special(target)
        final = target if special else _followed(target)
        folder = Path(tempfile.gettempdir()) if special else final.parent
        folder.mkdir(parents=True, exist_ok=True)
        sweep(folder)
        handle, name = tempfile.mkstemp(prefix=_prefix(final.name), suffix=final.suffix[:20], dir=folder)
        os.close(handle)
        temporary = Path(name)
        with _locked(temporary):
            yield temporary
            with open(temporary, "rb+") as written:
                os.fsync(written.fileno())
            if special:
                _copy_into(temporary, target)
            else:
                os.chmod(temporary, 0o666 & ~_umask())
                os.replace(temporary, final)
    except OSError as error:
        raise explain_write_error(error, target) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(target: Target) -> Iterator[Path]:
    """Give a temporary folder beside ``target``; on success it replaces ``target``, on failure it vanishes.

    An old folder makes way by two renames. A process killed between them leaves ``target`` missing and both versions in
    a hidden folder beside it, from which :func:`recover_folder` puts the new one in its place.
    """
    target = Path(target)
    temporary: Path | None = None
    try:
        final = _followed(target)
        if final.exists() and not final.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "not a folder", str(target))
        final.parent.mkdir(parents=True, exist_ok=True)
        recover_folder(final)
        sweep(final.parent)
        temporary = Path(tempfile.mkdtemp(prefix=_prefix(final.name), dir=final.parent))
        with _locked(temporary):
            yield temporary
            os.chmod(temporary, 0o777 & ~_umask())
            if final.exists():
                _swap(temporary, final)
            else:
                os.replace(temporary, final)
    except OSError as error:
        raise explain_write_error(error, target) from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def check_writable(target: Target) -> Path:
    """Raise now what writing ``target`` (a file or a folder) would raise after hours of work; gives ``target``.

    >>> check_writable("/proc/nowhere/model")
    Traceback (most recent call last):
    foveate.errors.StorageError: cannot write /proc/nowhere/model: ... Nothing half-written was left behind.
    """
    target = Path(target)
    try:
        place = _followed(target)
        for part in place.parts:
            if len(os.fsencode(part)) > 255:
                raise OSError(errno.ENAMETOOLONG, "name too long", str(target))
        there = next(p for p in (place, *place.parents, Path()) if os.path.lexists(p))
        if there != place and not there.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "not a folder", str(there))
        if there.is_dir() or not _is_special(there):
            with tempfile.TemporaryFile(dir=there if there.is_dir() else there.parent):
                pass
    except OSError as error:
        raise explain_write_error(error, target) from error
    return target


def recover_folder(target: Target) -> Path:
    """Finish what a process did not that was killed while it replaced the folder ``target``; gives ``target``.

    Called before a folder is read. Nothing happens when the folder is there.

    >>> import pathlib
    >>> place = pathlib.Path(tempfile.mkdtemp())
    >>> (place / ".model.fv-swap-abcdefgh" / "new").mkdir(parents=True)
    >>> recover_folder(place / "model").exists()
    True
    """
    target = Path(target)
    if os.path.lexists(target):
        return target
    with contextlib.suppress(OSError):
        for swap in sorted(target.parent.iterdir()):
            if not swap.name.startswith(f"{_prefix(target.name)}swap-"):
                continue
            for name in ("new", "old"):  # the new one was whole before the first rename
                if (swap / name).is_dir() and not os.path.lexists(target):
                    os.rename(swap / name, target)
            shutil.rmtree(swap, ignore_errors=True)
    return target


def sweep(folder: Path) -> None:
    """Remove what killed processes left in ``folder``; once for every folder and process.

    Only names that this module makes are looked at, and only those that no living process has locked.
    """
    with contextlib.suppress(OSError):
        folder = folder.resolve()
        if folder in _swept:
            return
        _swept.add(folder)
        for entry in list(os.scandir(folder)):
            if not _LEFT_OVER.match(entry.name) or time.time() - entry.stat(follow_symlinks=False).st_mtime < _YOUNG:
                continue
            place = Path(entry.path)
            if f"{_MARK}swap-" in entry.name:  # may hold the only copy of a folder: put that back, or throw it away
                recover_folder(folder / entry.name[1:].partition(f"{_MARK}swap-")[0])
            with contextlib.suppress(OSError), _locked(place, wait=False):
                shutil.rmtree(place, ignore_errors=True) if place.is_dir() else place.unlink(missing_ok=True)


def _swap(temporary: Path, target: Path) -> None:
    """Put ``temporary`` in the place of the folder ``target``, whatever interrupts it."""
    swap = Path(tempfile.mkdtemp(prefix=f"{_prefix(target.name)}swap-", dir=target.parent))
    try:
        os.replace(temporary, swap / "new")
        os.replace(target, swap / "old")
    finally:  # also when interrupted, or when another process has recovered the folder in between
        for name in ("new", "old"):
            if not os.path.lexists(target) and (swap / name).is_dir():
                os.replace(swap / name, target)
        shutil.rmtree(swap, ignore_errors=True)


def _prefix(name: str) -> str:
    """How the temporary files of ``name`` begin; long names are cut, because the ending makes them longer."""
    if len(os.fsencode(name)) > 200:
        name = name[:40] + "~" + hashlib.blake2b(os.fsencode(name), digest_size=4).hexdigest()
    return f".{name}{_MARK}"


def _is_special(target: Path) -> bool:
    """Whether ``target`` is there and is something that must be written to and not replaced."""
    try:
        mode = os.stat(target).st_mode
    except FileNotFoundError:
        return False
    if stat.S_ISDIR(mode):
        return False
    # /dev/stdout may lead to a file that the shell has open
    return not stat.S_ISREG(mode) or str(target).startswith(("/dev/", "/proc/"))


def _followed(target: Path) -> Path:
    """``target``, or what it leads to when it is a link; raises for a link that leads to itself."""
    if target.name and len(os.fsencode(target.name)) > 255:
        raise OSError(errno.ENAMETOOLONG, "name too long", str(target))
    if not target.is_symlink():
        return target
    with contextlib.suppress(FileNotFoundError):
        os.stat(target)
    return Path(os.path.realpath(target))


@contextlib.contextmanager
def _locked(place: Path, wait: bool = True) -> Iterator[None]:
    """Hold a lock on ``place``, so that others see that its maker lives; ``wait=False`` raises when it does."""
    if fcntl is None:
        yield
        return
    handle = os.open(place, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # somebody else has it, or the file system knows no locks
            if not wait:
                raise
        yield
    finally:
        os.close(handle)


def _copy_into(source: Path, target: Path) -> None:
    """The bytes of ``source`` into a device or pipe that is there; one that nobody reads from is an error."""
    handle = os.open(target, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0))
    os.set_blocking(handle, True)
    with os.fdopen(handle, "wb") as out, open(source, "rb") as written:
        shutil.copyfileobj(written, out)


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


def write_text(target: Target, text: str) -> Path:
    """Write ``text`` to ``target``, whole or not at all. Bytes of file names that are no UTF-8 are written out."""
    with atomic_file(target) as path:
        path.write_text(text, encoding="utf-8", errors="backslashreplace")
    return Path(target)


def write_json(target: Target, value: Any) -> Path:
    """Write ``value`` as indented JSON to ``target``, whole or not at all."""
    return write_text(target, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


# -- CSV cells ----------------------------------------------------------------------------

_FORMULA = re.compile(r"'*[=+\-@\t\r]")
_ESCAPED = re.compile(r"'+[=+\-@\t\r]")


def csv_cell(value: Any) -> Any:
    """A value for a CSV file: text that a spreadsheet would run as a formula gets an apostrophe in front.

    Numbers stay numbers, as text too. :func:`from_csv_cell` takes the apostrophe off again.

    >>> csv_cell("=1+1"), csv_cell("-1.5"), csv_cell(-3), csv_cell("cat"), csv_cell("'@x")
    ("'=1+1", '-1.5', -3, 'cat', "''@x")
    """
    if not isinstance(value, (str, os.PathLike)):
        return value
    text = os.fspath(value)
    if isinstance(text, bytes) or not _FORMULA.match(text):
        return text
    try:
        float(text)
        return text
    except ValueError:
        return "'" + text


def from_csv_cell(text: str) -> str:
    """The text that :func:`csv_cell` was given.

    >>> from_csv_cell("'=1+1"), from_csv_cell("''@x"), from_csv_cell("'tis"), from_csv_cell("-1")
    ('=1+1', "'@x", "'tis", '-1')
    """
    return text[1:] if _ESCAPED.match(text) else text


def write_rows(target: Target, rows: Iterable[Sequence[Any]], lineterminator: str = "\r\n") -> Path:
    """Write rows as a CSV file, whole or not at all; what looks like a formula is made harmless (:func:`csv_cell`).

    Bytes of a file name that are no UTF-8 are written as they are: the path still leads to the file.
    """
    with (
        atomic_file(target) as temporary,
        open(temporary, "w", newline="", encoding="utf-8", errors="surrogateescape") as file,
    ):
        csv.writer(file, lineterminator=lineterminator).writerows([csv_cell(cell) for cell in row] for row in rows)
    return Path(target)
