"""Files that want something: images that are none, archives that grow, names that speak to the terminal."""

from __future__ import annotations

import io
import os
import re
import socket
import stat
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

import foveate as fv
from foveate.data.images import DECODERS, FileImages, decode, decode_mask, decoders
from foveate.data.scan import MAX_COLUMNS, scan_csv
from foveate.data.sources import archives
from foveate.data.sources.archives import unpack
from foveate.errors import DataError, UnreadableImage

SRC = Path(fv.__file__).parent
EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n0 0 8 8 rectfill\nshowpage\n%%EOF\n"


# -- images ---------------------------------------------------------------------------------


def test_postscript_named_png_starts_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EpsImagePlugin, "Ghostscript", lambda *_, **__: pytest.fail("Ghostscript was started"))
    for name in ("a.png", "a.eps"):
        (tmp_path / name).write_bytes(EPS)
        for read in (decode, decode_mask):
            with pytest.raises(UnreadableImage, match="not an image of a known format"):
                read(tmp_path / name)


def test_only_the_listed_decoders_are_tried() -> None:
    assert set(decoders()) <= set(DECODERS)
    assert {"PNG", "JPEG", "GIF", "BMP", "PPM", "TIFF"} <= set(decoders())
    assert not {"EPS", "PSD", "FPX", "MIC", "WMF", "FITS"} & set(DECODERS)
    opened = re.compile(r"Image\.open\((?![^\n]*formats=)")
    found = [p.name for p in SRC.rglob("*.py") if opened.search(p.read_text(encoding="utf-8"))]
    assert found == [], "image files are opened by foveate.data.images, which limits the decoders"


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "JPEG2000"])
def test_the_usual_formats_are_read_whatever_they_are_called(tmp_path: Path, kind: str) -> None:
    Image.new("RGB", (6, 4), (200, 10, 10)).save(tmp_path / "x.bin", kind)
    assert decode(tmp_path / "x.bin").shape == (4, 6, 3)


@pytest.mark.parametrize("what", ["pipe", "device", "socket", "folder"])
def test_what_is_no_file_never_blocks(tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "a.png"
    if what == "pipe":
        os.mkfifo(place)
    elif what == "folder":
        place.mkdir()
    elif what == "socket":
        monkeypatch.chdir(tmp_path)
        with socket.socket(socket.AF_UNIX) as made:
            made.bind("a.png")
    else:
        try:
            os.mknod(place, 0o666 | stat.S_IFCHR, os.makedev(1, 5))
        except PermissionError:
            pytest.skip("device nodes cannot be made here")
    with pytest.raises(UnreadableImage):
        decode(place)
    assert FileImages([place]).digest(0)


def test_a_pipe_in_a_class_folder_is_a_finding(tmp_path: Path) -> None:
    for label in ("cat", "dog"):
        (tmp_path / label).mkdir()
        Image.fromarray(np.random.default_rng(ord(label[0])).integers(0, 256, (8, 8, 3), dtype=np.uint8)).save(
            tmp_path / label / "1.png"
        )
    os.mkfifo(tmp_path / "cat" / "2.png")
    report = fv.data.check(tmp_path, tiny=0)
    assert [p.kind for p in report.errors] == ["unreadable-image"]


# -- tables ---------------------------------------------------------------------------------


def test_a_million_columns_are_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(",".join(f"c{k}" for k in range(1_000_000)) + "\n1,2\n")
    (problem,) = scan_csv(tmp_path / "a.csv").problems
    assert f"1,000,000 columns; at most {MAX_COLUMNS:,} are read" in problem.message


def test_formulas_are_made_harmless_and_come_back(tmp_path: Path) -> None:
    names = ["=cmd()", "@x", "plain", "-1"]
    images = fv.data.images.ArrayImages(np.zeros((4, 8, 8, 3), np.uint8))
    ds = fv.data.GroupedDataset(
        images, [0, 1, 2, 3], names, attributes=[0, 1, 0, 1], attribute_names=["+a", "b"],
        extras={"note": np.array(["=1", "'=1", "x", "-y"], object), "n": np.array([-1.5, 0, 1, -2])},
    )  # fmt: skip
    path = fv.data.write_csv(fv.data.Benchmark("b", {"train": ds}), tmp_path / "out")
    for cell in path.read_text().replace("\n", ",").split(","):
        assert not cell.startswith(("=", "+", "@")), cell
    assert ",-1.5" in path.read_text()
    back = fv.data.from_csv(path).train
    assert [back.class_names[k] for k in back.labels] == names
    assert [(back.attribute_names or [])[k] for k in back.attributes] == ["+a", "b", "+a", "b"]
    assert list(back.extras["note"]) == ["=1", "'=1", "x", "-y"]
    assert back.extras["n"].tolist() == [-1.5, 0, 1, -2]


def test_a_class_folder_that_is_no_utf8_is_refused_before_training(tmp_path: Path) -> None:
    for label in (b"caf\xe9", b"dog"):
        place = os.path.join(os.fsencode(tmp_path), label)
        os.mkdir(place)
        Image.new("RGB", (8, 8)).save(os.path.join(os.fsdecode(place), "1.png"))
    with pytest.raises(DataError, match=r"caf\\udce9 is no UTF-8 text.*rename it"):
        fv.data.from_folder(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe\x00", b'img_id,"', b"a,b\n1,2,3,4\n", b"\x00" * 50, b"," * 20_000])
def test_a_broken_metadata_csv_is_a_sentence(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "waterbirds").mkdir()
    (tmp_path / "waterbirds" / "metadata.csv").write_bytes(content)
    with pytest.raises(DataError, match=r"metadata\.csv"):
        fv.data.load("waterbirds", tmp_path)


# -- archives -------------------------------------------------------------------------------


def packed(path: Path, entries: dict[str, bytes]) -> Path:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in entries.items():
                archive.writestr(name, content)
    else:
        with tarfile.open(path, "w:gz" if path.suffix == ".gz" else "w") as tar:
            for name, content in entries.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return path


def refused(archive: Path, match: str) -> None:
    target = archive.parent / "unpacked"
    with pytest.raises(DataError, match=match):
        unpack(archive, target, None, lambda line: None)
    assert [p for p in archive.parent.iterdir() if p != archive] == []


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz", "a.tar"])
def test_good_archives_are_unpacked(tmp_path: Path, name: str) -> None:
    archive = packed(tmp_path / name, {"top/a.txt": b"1", "top/b/c.txt": b"2" * 5000})
    folder = unpack(archive, tmp_path / "out", None, lambda line: None)
    assert (folder / "b" / "c.txt").read_bytes() == b"2" * 5000


@pytest.mark.parametrize("name", ["a.zip", "a.tar.gz"])
def test_an_archive_that_grows_is_stopped(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archives, "LEAST", 1 << 20)
    refused(packed(tmp_path / name, {"a": bytes(8 << 20), "b": b"x"}), "grows to more than 1 MB")


def test_a_header_of_impossible_size_is_stopped(tmp_path: Path) -> None:
    info = tarfile.TarInfo("a")
    info.size = 1 << 50
    (tmp_path / "a.tar").write_bytes(info.tobuf() + bytes(2048))
    refused(tmp_path / "a.tar", "grows to more than|cannot be unpacked|breaks off")


def test_a_password_is_named(tmp_path: Path) -> None:
    content = bytearray(packed(tmp_path / "a.zip", {"a": b"1"}).read_bytes())
    content[6] |= 1
    content[content.index(b"PK\x01\x02") + 8] |= 1
    (tmp_path / "a.zip").write_bytes(content)
    refused(tmp_path / "a.zip", "locked with a password")


@pytest.mark.parametrize("cut", [1, 300, 1500])
def test_an_archive_is_checked_to_its_end(tmp_path: Path, cut: int) -> None:
    """Python's reader takes a tar that breaks off between two files for a whole one."""
    rng = np.random.default_rng(0)
    archive = packed(tmp_path / "a.tar.gz", {f"{k}.bin": rng.bytes(2000) for k in range(5)})
    archive.write_bytes(archive.read_bytes()[:-cut])
    refused(archive, "cannot be unpacked|breaks off")


@pytest.mark.parametrize("what", ["no end", "damaged header", "wrong sum"])
def test_damage_in_the_middle_is_seen(tmp_path: Path, what: str) -> None:
    archive = packed(tmp_path / ("a.tar.gz" if what == "wrong sum" else "a.tar"), {"a": b"1" * 600, "b": b"2" * 600})
    content = bytearray(archive.read_bytes())
    if what == "no end":
        content = content[: 2 * (512 + 1024)]
    elif what == "damaged header":
        content[1536 + 150] ^= 1  # in the checksum of the second file's header
    else:
        content[-6] ^= 1
    archive.write_bytes(content)
    refused(archive, "breaks off|cannot be unpacked")


def test_a_file_that_is_also_a_folder(tmp_path: Path) -> None:
    refused(packed(tmp_path / "a.tar", {"a": b"1", "a/b": b"2"}), "cannot be a file beside the others")
