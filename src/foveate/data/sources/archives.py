"""Unpacking downloads without trusting them: nothing is written outside its folder, nothing half-way."""

from __future__ import annotations

import hashlib
import pickle
import shutil
import tarfile
import zipfile
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
    Links, devices and paths that lead outside are refused.
    """
    if md5 is not None:
        tell(f"checking {archive.name}")
        if (found := md5_of(archive)) != md5:
            raise DataError(
                f"{archive} is not the published file: its MD5 is {found}, expected {md5}. "
                "The download broke off, or it is another release; download it again."
            )
    tell(f"unpacking {archive.name} to {target}")
    try:
        with atomic_folder(target) as folder:
            for name, stream in _members(archive):
                to = folder.joinpath(*_safe(name, archive).parts)
                to.parent.mkdir(parents=True, exist_ok=True)
                with open(to, "wb") as out:
                    shutil.copyfileobj(stream, out, 1 << 20)
            inside = list(folder.iterdir())
            if len(inside) == 1 and inside[0].is_dir():
                _drop(inside[0])
            wanted = [] if is_dataset(folder) else [e for e in folder.iterdir() if e.is_dir() and is_dataset(e)]
            if len(wanted) == 1 and not _clash(wanted[0]):
                _drop(wanted[0])
    except (tarfile.TarError, zipfile.BadZipFile, EOFError) as error:
        raise DataError(f"{archive} cannot be unpacked ({error}); download it again.") from error
    return target


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


def _members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive) as packed:
            for entry in packed.infolist():
                if not entry.is_dir():
                    with packed.open(entry) as stream:
                        yield entry.filename, stream
        return
    with tarfile.open(archive) as tar:
        for member in tar:
            if member.isdir():
                continue
            content = tar.extractfile(member) if member.isreg() else None
            if content is None:
                raise DataError(f"{archive} holds {member.name}, which is no plain file; it is not unpacked.")
            yield member.name, content


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
