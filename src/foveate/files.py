"""Writing files so that nothing half-written ever stays on disk."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from foveate.errors import StorageError


def explain_write_error(error: OSError, target: Path) -> StorageError:
    """The sentence for a failed write of ``target``."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        reason = "the disk (or the quota on it) is full; free some space or choose another folder"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        reason = "no permission to write there; choose another folder"
    elif error.errno in (errno.ENOTDIR, errno.EEXIST):
        reason = "a file stands where a folder is needed; choose another path"
    else:
        reason = error.strerror or str(error)
    return StorageError(f"cannot write {target}: {reason}. Nothing half-written was left behind.")


@contextlib.contextmanager
def atomic_file(target: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary path beside ``target``; on success it replaces ``target``, on failure it vanishes.

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
        target.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{target.name}.", suffix=target.suffix, dir=target.parent)
        os.close(handle)
        temporary = Path(name)
        yield temporary
        with open(temporary, "rb+") as written:
            os.fsync(written.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, target)
    except OSError as error:
        raise explain_write_error(error, target) from error
    finally:
        if temporary is not None:
            temporary.unlink(missing_ok=True)


@contextlib.contextmanager
def atomic_folder(target: str | os.PathLike[str]) -> Iterator[Path]:
    """Give a temporary folder beside ``target``; on success it replaces ``target``, on failure it vanishes."""
    target = Path(target)
    temporary: Path | None = None
    try:
        if target.exists() and not target.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "not a folder", str(target))
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o777 & ~umask)
        if target.exists():
            old = Path(tempfile.mkdtemp(prefix=f".{target.name}.old.", dir=target.parent))
            os.replace(target, old / "old")
            os.replace(temporary, target)
            shutil.rmtree(old, ignore_errors=True)
        else:
            os.replace(temporary, target)
    except OSError as error:
        raise explain_write_error(error, target) from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def write_text(target: str | os.PathLike[str], text: str) -> Path:
    """Write ``text`` to ``target``, whole or not at all."""
    with atomic_file(target) as path:
        path.write_text(text, encoding="utf-8")
    return Path(target)


def write_json(target: str | os.PathLike[str], value: Any) -> Path:
    """Write ``value`` as indented JSON to ``target``, whole or not at all."""
    return write_text(target, json.dumps(value, indent=2, ensure_ascii=False) + "\n")
