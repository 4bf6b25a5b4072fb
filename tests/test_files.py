import errno
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foveate import files
from foveate.errors import StorageError
from foveate.files import (
    atomic_file,
    atomic_folder,
    check_writable,
    csv_cell,
    from_csv_cell,
    open_regular,
    read_text,
    recover_folder,
    write_json,
    write_text,
)


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


# -- what is there already ------------------------------------------------------------------


def test_a_link_to_a_file_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.txt").write_text("old")
    (tmp_path / "link.txt").symlink_to(tmp_path / "real" / "a.txt")
    (tmp_path / "dangling.txt").symlink_to(tmp_path / "real" / "new.txt")
    for name in ("link.txt", "dangling.txt"):
        write_text(tmp_path / name, "new")
        assert (tmp_path / name).is_symlink()
    assert (tmp_path / "real" / "a.txt").read_text() == "new"
    assert (tmp_path / "real" / "new.txt").read_text() == "new"
    (tmp_path / "folder").symlink_to(tmp_path / "real")
    with atomic_folder(tmp_path / "folder") as folder:
        (folder / "x").write_text("x")
    assert (tmp_path / "folder").is_symlink()
    assert left(tmp_path / "real") == ["x"]


def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(StorageError, match="leads to itself"):
        write_text(tmp_path / "loop", "x")
    assert left(tmp_path) == ["loop"]


def test_a_device_is_written_to_and_never_replaced(tmp_path: Path) -> None:
    device = tmp_path / "null"
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        device.write_text("")
    except OSError:
        pytest.skip("device nodes cannot be made here")
    write_text(device, "gone")
    assert stat.S_ISCHR(device.lstat().st_mode)
    assert left(tmp_path) == ["null"]


def test_a_pipe_gets_the_bytes_and_one_without_a_reader_is_no_trap(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StorageError, match="nobody reads"):
        write_text(tmp_path / "pipe", "x")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_text(tmp_path / "pipe", "through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert stat.S_ISFIFO((tmp_path / "pipe").lstat().st_mode)


def test_a_folder_or_a_long_name_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError, match="a folder stands where a file is needed"):
        write_text(tmp_path / "folder", "x")
    with pytest.raises(StorageError, match="name is too long"):
        write_text(tmp_path / ("x" * 300), "x")
    write_text(tmp_path / ("y" * 250 + ".txt"), "fits")  # though its temporary name would not
    assert left(tmp_path) == ["folder", "y" * 250 + ".txt"]


def test_only_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="this is a pipe, not a file"):
        open_regular(tmp_path / "pipe")
    with pytest.raises(OSError, match="this is a folder"):
        open_regular(tmp_path)
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfyes")
    assert read_text(tmp_path / "a.txt") == "yes"


# -- kills ----------------------------------------------------------------------------------

SAVE = """
import os, sys
from pathlib import Path
from foveate import files
moment, replace = int(sys.argv[2]), os.replace
count = 0
def counted(*given):
    global count
    if count == moment:
        os._exit(9)
    count += 1
    return replace(*given)
os.replace = counted
with files.atomic_folder(Path(sys.argv[1])) as folder:
    (folder / "weights").write_text("new")
"""


@pytest.mark.parametrize("moment", [0, 1, 2, 3])
def test_a_save_killed_at_any_rename_is_recovered(tmp_path: Path, moment: int) -> None:
    with atomic_folder(tmp_path / "model") as folder:
        (folder / "weights").write_text("old")
    ended = subprocess.run([sys.executable, "-c", SAVE, str(tmp_path / "model"), str(moment)]).returncode
    assert ended == (9 if moment < 3 else 0)
    found = (recover_folder(tmp_path / "model") / "weights").read_text()
    assert found == ("old" if moment < 2 else "new")
    for entry in tmp_path.iterdir():
        os.utime(entry, (0, 0))  # what was left behind has grown old
    files._swept.clear()
    write_text(tmp_path / "note.txt", "anything written there sweeps")
    assert left(tmp_path) == ["model", "note.txt"]
    assert (tmp_path / "model" / "weights").read_text() == found


def test_an_interrupt_between_the_renames_ends_with_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with atomic_folder(tmp_path / "model") as folder:
        (folder / "weights").write_text("old")
    replace = os.replace

    def interrupted(source: Path, target: Path) -> None:
        replace(source, target)
        if Path(target).name == "old":
            monkeypatch.setattr(os, "replace", replace)
            raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)

    def save() -> None:
        with atomic_folder(tmp_path / "model") as folder:
            (folder / "weights").write_text("new")

    with pytest.raises(KeyboardInterrupt):
        save()
    assert left(tmp_path) == ["model"]
    assert (tmp_path / "model" / "weights").read_text() == "new"


def test_a_living_writer_and_other_hidden_files_are_not_swept(tmp_path: Path) -> None:
    (tmp_path / ".bashrc.bak").write_text("mine")
    os.utime(tmp_path / ".bashrc.bak", (0, 0))
    with atomic_file(tmp_path / "a.txt") as temporary:
        os.utime(temporary, (0, 0))
        files._swept.clear()
        write_text(tmp_path / "b.txt", "b")
        assert temporary.exists()
        temporary.write_text("a")
    assert left(tmp_path) == [".bashrc.bak", "a.txt", "b.txt"]


def test_what_cannot_be_written_is_known_before(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("")
    for bad in (tmp_path / "text" / "below", tmp_path / ("x" * 300), Path("/proc/nowhere/x")):
        with pytest.raises(StorageError):
            check_writable(bad)
    assert check_writable(tmp_path / "new" / "deep") == tmp_path / "new" / "deep"
    assert left(tmp_path) == ["text"]


# -- CSV cells ------------------------------------------------------------------------------


@given(
    st.text(st.characters(blacklist_categories=["Cs"]), max_size=12)
    | st.sampled_from(["=1", "-x", "+", "@a", "'=", "''-"])
)
def test_cells_come_back_as_they_were(text: str) -> None:
    written = csv_cell(text)
    assert from_csv_cell(written) == text
    try:
        float(text)
    except ValueError:
        assert not written.startswith(("=", "+", "-", "@", "\t", "\r"))


def test_numbers_stay_numbers() -> None:
    assert [csv_cell(v) for v in (-1, -0.5, "-1", "+2.5", "-1e-3", None)] == [-1, -0.5, "-1", "+2.5", "-1e-3", None]
