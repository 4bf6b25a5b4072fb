"""Unpacking downloads without trusting them: nothing is written outside its folder, nothing half-way."""

from __future__ import annotations

import bz2
import contextlib
import errno
import gzip
import hashlib
import lzma
import pickle
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any, ClassVar

from foveate.errors import DataError
from foveate.files import atomic_folder


def md5_of(path: Path) -> str:
    """MD5 of a file (what the publishers give; it guards against broken downloads, not against malice)."""
    hasher = hashlib.md5(usedforsecurity=False)
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            hasher.update(block)
    return hasher.hexdigest()


GROWTH = 20
"""Unpacked, an archive is at most so many times its own size (photographs hardly grow); a small one may be larger."""
LEAST = 64 << 20
"""What an archive may hold, however small it is, in bytes."""
ENTRIES = 3_000_000
"""Files in an archive at most."""


def unpack(
    archive: Path,
    target: Path,
    md5: str | None,
    tell: Callable[[str], None],
    is_dataset: Callable[[Path], bool] = lambda folder: True,
) -> Path:
    """Unpack a ``.tar``, ``.tar.gz``, ``.tgz`` or ``.zip`` into ``target``, whole or not at all.

    A single top folder inside the archive is dropped, so that its content lies in ``target`` itself. So is a folder
    that ``is_dataset``, when ``target`` is not: files that the archive has beside it then lie among its content.
    Links, devices and paths that lead outside are refused, and so is an archive that grows to more than :data:`GROWTH`
    times its size, is encrypted, or does not end as it should.
    """
    if md5 is not None:
        tell(f"checking {archive.name}")
        if (found := md5_of(archive)) != md5:
            raise DataError(
                f"{archive} is not the published file: its MD5 is {found}, expected {md5}. "
                "The download broke off, or it is another release; download it again."
            )
    tell(f"unpacking {archive.name} to {target}")
    limit = max(GROWTH * archive.stat().st_size, LEAST)
    with atomic_folder(target) as folder:
        _write_members(archive, folder, limit)
        inside = list(folder.iterdir())
        if len(inside) == 1 and inside[0].is_dir():
            _drop(inside[0])
        wanted = [] if is_dataset(folder) else [e for e in folder.iterdir() if e.is_dir() and is_dataset(e)]
        if len(wanted) == 1 and not _clash(wanted[0]):
            _drop(wanted[0])
    return target


def _write_members(archive: Path, folder: Path, limit: int) -> None:
    written = 0
    try:
        for number, (name, stream) in enumerate(_members(archive, limit)):
            if number >= ENTRIES:
                raise DataError(f"{archive} holds more than {ENTRIES:,} files; it is not unpacked.")
            with _placed(folder, name, archive) as out:
                while block := stream.read(1 << 20):
                    written += len(block)
                    if written > limit:
                        raise _too_large(archive, limit)
                    out.write(block)
    except (
        tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError, gzip.BadGzipFile, RuntimeError,
        NotImplementedError, ValueError, struct.error, IndexError, OverflowError,
    ) as error:  # fmt: skip
        raise DataError(f"{archive} cannot be unpacked ({error}); download it again.") from error


def _drop(inner: Path) -> None:
    """Move the content of a folder up beside it, and remove it."""
    moved = inner.with_name(".top")
    inner.rename(moved)
    for entry in list(moved.iterdir()):
        entry.rename(inner.parent / entry.name)
    moved.rmdir()


def _clash(inner: Path) -> bool:
    """Whether something in a folder has the name of something that lies beside the folder."""
    beside = {e.name for e in inner.parent.iterdir()} - {inner.name}
    return any(e.name in beside for e in inner.iterdir())


@contextlib.contextmanager
def _placed(folder: Path, name: str, archive: Path) -> Iterator[IO[bytes]]:
    """The file in ``folder`` for the member ``name``; a name that cannot be a file's is the archive's fault."""
    to = folder.joinpath(*_safe(name, archive).parts)
    try:
        to.parent.mkdir(parents=True, exist_ok=True)
        out = to.open("wb")
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EPERM, errno.EROFS):
            raise
        raise DataError(
            f"{archive} holds '{name}', which cannot be a file beside the others ({error.strerror}); it is not "
            "unpacked."
        ) from error
    with out:
        yield out


def _too_large(archive: Path, limit: int) -> DataError:
    return DataError(
        f"{archive} grows to more than {limit / 2**20:,.0f} MB when it is unpacked, far too much for its size; it "
        "is not unpacked. Download it again, or unpack it by hand if you know where it comes from."
    )


class _Counted:
    """A stream of unpacked bytes that ends in a :class:`DataError` when there are too many of them."""

    def __init__(self, stream: IO[bytes], archive: Path, limit: int):
        self.stream, self.archive, self.limit = stream, archive, limit

    def read(self, size: int = -1) -> bytes:
        if self.stream.tell() > self.limit + (1 << 20) or size > self.limit:
            raise _too_large(self.archive, self.limit)
        return self.stream.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        if offset > 2 * self.limit:  # by headers alone: one file of impossible size
            raise _too_large(self.archive, self.limit)
        return self.stream.seek(offset, whence)

    def tell(self) -> int:
        return self.stream.tell()


def _members(archive: Path, limit: int) -> Iterator[tuple[str, IO[bytes]]]:
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as packed:
            for entry in packed.infolist():
                if entry.flag_bits & 1:
                    raise DataError(
                        f"{archive} is locked with a password; unlock it first: unzip it and pack it again."
                    )
                if not entry.is_dir():
                    with packed.open(entry) as stream:
                        yield entry.filename, stream
        return
    with _unpacked_stream(archive) as plain:
        counted: Any = _Counted(plain, archive, 2 * limit)  # headers and padding count here as well
        with tarfile.open(fileobj=counted, mode="r:") as tar:
            for member in tar:
                if member.isdir():
                    continue
                content = tar.extractfile(member) if member.isreg() else None
                if content is None:
                    raise DataError(f"{archive} holds {member.name}, which is no plain file; it is not unpacked.")
                yield member.name, content
            _check_end(archive, counted, tar.offset)


def _unpacked_stream(archive: Path) -> IO[bytes]:
    """The tar inside ``archive``; how it is packed is told by its first bytes."""
    with open(archive, "rb") as file:
        start = file.read(6)
    kinds: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ": lzma.open}
    opener = next((kind for magic, kind in kinds.items() if start.startswith(magic)), open)
    return opener(archive, "rb")


def _check_end(archive: Path, stream: _Counted, offset: int) -> None:
    """Python takes any block that is no header for the end of a tar; the real end is a block of zeros.

    What follows is read too: only at its very end does a compressed file tell whether all of it was right.
    """
    stream.seek(offset)
    if stream.read(tarfile.BLOCKSIZE) != bytes(tarfile.BLOCKSIZE):
        raise DataError(f"{archive} breaks off or is damaged in the middle; download it again.")
    while stream.read(1 << 20):
        pass


def _safe(name: str, archive: Path) -> PurePosixPath:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or not path.parts or ":" in path.parts[0]:
        raise DataError(f"{archive} holds the path '{name}', which leads outside; it is not unpacked.")
    return path


class _Containers(pickle.Unpickler):
    """Reads dictionaries, lists, sets, text and numbers; anything that names another class or function is refused."""

    ALLOWED: ClassVar[dict[tuple[str, str], Callable[..., Any]]] = {
        ("builtins", "set"): set, ("builtins", "frozenset"): frozenset, ("builtins", "list"): list,
        ("builtins", "dict"): dict, ("__builtin__", "set"): set, ("collections", "OrderedDict"): dict,
        ("collections", "defaultdict"): lambda *_: {},
    }  # fmt: skip

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in self.ALLOWED:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return self.ALLOWED[module, name]


def read_containers(path: Path) -> Any:
    """The plain data in a ``.pkl`` that a dataset is published as; a file that wants to run anything is refused."""
    try:
        with open(path, "rb") as file:
            return _Containers(file).load()
    except (pickle.UnpicklingError, EOFError, ValueError, IndexError, TypeError, AttributeError, KeyError) as error:
        raise DataError(
            f"{path} is not read: {error}. Expected a pickle of plain dictionaries, lists and text and nothing else; "
            "download it again from the address in the dataset's card."
        ) from error
