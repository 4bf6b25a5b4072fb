import errno
import os
from pathlib import Path

import pytest

from foveate.errors import StorageError
from foveate.files import atomic_file, atomic_folder, write_json, write_text


def left(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir())


def full() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_full_disk_leaves_nothing_and_keeps_the_old_file(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "old")

    def write() -> None:
        with atomic_file(tmp_path / "a.txt") as path:
            path.write_text("half")
            raise full()

    with pytest.raises(StorageError, match="full; free some space"):
        write()
    assert left(tmp_path) == ["a.txt"]
    assert (tmp_path / "a.txt").read_text() == "old"


def test_full_disk_for_a_folder(tmp_path: Path) -> None:
    def write() -> None:
        with atomic_folder(tmp_path / "model") as folder:
            (folder / "weights").write_text("half")
            raise full()

    with pytest.raises(StorageError, match="full; free some space"):
        write()
    assert left(tmp_path) == []


def test_a_crash_leaves_nothing(tmp_path: Path) -> None:
    def write() -> None:
        with atomic_folder(tmp_path / "model") as folder:
            (folder / "weights").write_text("half")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write()
    assert left(tmp_path) == []


def test_folder_replaces_folder(tmp_path: Path) -> None:
    for text in ("one", "two"):
        with atomic_folder(tmp_path / "model") as folder:
            (folder / text).write_text(text)
    assert left(tmp_path) == ["model"]
    assert left(tmp_path / "model") == ["two"]


def test_a_file_in_the_way_is_said(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(StorageError, match="file stands where a folder is needed"):
        write_json(tmp_path / "taken" / "x.json", {})
