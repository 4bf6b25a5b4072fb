"""Datasets: spoiled tables, images and folders, and the traps somebody would build of them."""

from __future__ import annotations

import csv
import io
import itertools
import os
import random
import socket
import stat
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from PIL import Image
from tests.fuzz.corrupt import ODD_TEXT, spoil_bytes, spoil_text
from tests.fuzz.formats import case, readers
from tests.fuzz.harness import CHECKED, MAYBE, Case
from tests.fuzz.lines import EPS
from tests.fuzz.world import World

# -- CSV of images ------------------------------------------------------------------------


def tables(world: World, rng: random.Random, count: int = 420) -> Iterator[Case]:
    """``benchmark.csv`` with spoiled cells, rows, headers, bytes."""
    text = (world.data / "benchmark.csv").read_text(encoding="utf-8")
    rows = list(csv.reader(io.StringIO(text)))
    header = ",".join(rows[0]).encode()
    traps = [
        b"",
        b"\n\n\n",
        b"\x00" * 200,
        b"\xff\xfe",
        b"path,label\n",
        b"path\na.png\n",
        b"label\ncat\n",
        b"path,label,label\n",
        b"path,label\n" + b'"' * 1001,
        b"path,label\n" + b"a.png,cat," * 9999,
        b"path,label\n" + b"x" * 300_000,
        ",".join(f"c{k}" for k in range(1_000_000)).encode() + b"\n1,2\n",
        b"," * 1_000_000,
        header + b"\n" + b"\x80\n",
        ("path,label\n" + "images/train/000000.png,cat\n" * 1_000).encode(),
        "path,label\nä,b\n".encode("latin-1"),
        ("path;label\n" + "images/train/000000.png;\x1b[31mcat\n" * 3).encode(),
        b"path,label\n/dev/zero,cat\n",
        "path,label\nimages/train/000000.png,cat\nimages/train/000001.png,duck\n".encode("utf-16"),
        b"path,label,x0,y0,x1,y1\nimages/train/000000.png,cat,nan,inf,1e300,-1\n",
        b"path,label,kp__x,kp__y\nimages/train/000000.png,cat,a,b\n",
        b"path,label,split\na,b,c\n",
        b"path,label,split,mask\nimages/train/000000.png,cat,train,/dev/zero\nimages/train/000001.png,duck,train,\n",
    ]
    made: list[bytes] = list(traps)
    while len(made) < count:
        how = rng.randrange(4)
        if how == 0:
            made.append(spoil_bytes(text.encode(), rng))
        elif how == 1:
            made.append(spoil_text(text, rng).encode("utf-8", "surrogatepass"))
        else:
            table = [list(row) for row in rows]
            for _ in range(rng.choice((1, 2, 8))):
                row = rng.choice(table[:1] if rng.random() < 0.2 else table)
                row[rng.randrange(len(row))] = rng.choice(ODD_TEXT)
            if how == 3:
                column = rng.randrange(len(rows[0]))
                value = rng.choice(ODD_TEXT)
                for row in table[1:]:
                    row[column] = value
            buffer = io.StringIO()
            csv.writer(buffer).writerows(table)
            made.append(buffer.getvalue().encode("utf-8", "surrogatepass"))
    for number, content in enumerate(made):

        def build(folder: Path, content: bytes = content, number: int = number) -> list[str]:
            data = world.copy_data(folder)
            (data / "benchmark.csv").write_bytes(content)
            return readers(world, data, number)[0]

        yield case("csv", number, build, readers(world, Path(), number)[1])


# -- images -------------------------------------------------------------------------------


def encoded() -> dict[str, bytes]:
    """A small picture in every format that is read."""
    rng = np.random.default_rng(0)
    picture = Image.fromarray(rng.integers(0, 256, (24, 20, 3), dtype=np.uint8))
    found = {}
    for kind in ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "PPM", "JPEG2000"):
        buffer = io.BytesIO()
        try:
            picture.save(buffer, kind)
        except OSError:  # a Pillow built without it
            continue
        found[kind] = buffer.getvalue()
    buffer = io.BytesIO()
    picture.save(buffer, "TIFF", compression="tiff_lzw")
    found["TIFF-LZW"] = buffer.getvalue()
    return found


def images(world: World, rng: random.Random, count: int = 430) -> Iterator[Case]:
    """Spoiled pictures, pictures of other formats under a picture's name, and things that are no files."""
    good = encoded()
    other = io.BytesIO()
    Image.new("RGB", (8, 8)).save(other, "TGA")
    bomb = struct.pack(">I", 13) + b"IHDR" + struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    traps = [
        b"",
        b"\x00",
        EPS,
        other.getvalue(),
        b"GIF89a",
        b"\x89PNG\r\n\x1a\n" + bomb,
        b"8BPS\x00\x01",
        b"P6 1 1 255\n",
        b"P6 999999 999999 255\n",
        b"<svg/>",
        b"%PDF-1.4",
        b"BM" + b"\xff" * 60,
        b"II*\x00" + b"\xff" * 40,
    ]
    contents: list[bytes] = traps + [
        spoil_bytes(rng.choice(list(good.values())), rng) for _ in range(count - len(traps))
    ]
    for number, content in enumerate(contents):

        def build(folder: Path, content: bytes = content, number: int = number) -> list[str]:
            data = world.copy_data(folder)
            kind = "masks" if number % 5 == 4 else "images"
            (data / kind / "test" / "000001.png").write_bytes(content)
            if number % 7 == 6:
                return [
                    "look",
                    str(world.erm),
                    str(data / "images" / "test"),
                    "-o",
                    str(folder / "look"),
                    "--on-bad",
                    "skip",
                ]
            return readers(world, data, number)[0]

        yield case("image", number, build, MAYBE if number % 7 == 6 else readers(world, Path(), number)[1])
    for number, (verb, what) in enumerate(itertools.product(range(4), ("fifo", "device", "socket", "loop", "folder"))):

        def odd(folder: Path, what: str = what, verb: int = verb) -> list[str]:

            data = world.copy_data(folder)
            place = data / "images" / "test" / "000001.png"
            place.unlink()
            if what == "fifo":
                os.mkfifo(place)
            elif what == "device":
                os.mknod(place, 0o666 | stat.S_IFCHR, os.makedev(1, 5))  # /dev/zero
            elif what == "loop":
                place.symlink_to(place)
            elif what == "folder":
                place.mkdir()
            else:
                with socket.socket(socket.AF_UNIX) as made:
                    os.chdir(place.parent)  # the path of a socket is short
                    made.bind(place.name)
                    os.chdir("/")
            return readers(world, data, 3 * verb)[0] if verb else ["data", "check", str(data)]

        yield case("image", f"{what} {number}", odd, readers(world, Path(), 3 * verb)[1] if verb else CHECKED)


# -- folders ------------------------------------------------------------------------------


def folders(world: World, rng: random.Random, count: int = 60) -> Iterator[Case]:
    """Class folders with odd names: escapes, formulas, no UTF-8, too long for a screen."""
    names: list[bytes] = [
        t.encode("utf-8", "surrogatepass")[:200] for t in ODD_TEXT if t and "/" not in t and t not in (".", "..")
    ]
    names += [b"caf\xe9", b"\xff\xfe", b"a\nb", b"cat\x1b[2J", b"-rf", b"\xed\xa0\x80"]
    for number in range(count):
        name = names[number % len(names)]
        picture = rng.choice(names)[:80] + b".png"

        def build(folder: Path, name: bytes = name, picture: bytes = picture, number: int = number) -> list[str]:
            root = os.fsencode(folder / "pets")
            for split, label in ((b"train", name), (b"train", b"zebra"), (b"test", name), (b"test", b"zebra")):
                place = os.path.join(root, split, label)
                os.makedirs(place, exist_ok=True)
                with open(os.path.join(place, picture), "wb") as file:
                    file.write((world.root / "image.png").read_bytes())
            data = folder / "pets"
            verbs = (
                ["data", "check", str(data)],
                ["data", "export", str(data), str(folder / "out")],
                ["fit", str(data), "-o", str(folder / "m"), "--backbone", "micro_resnet", "--epochs", "1"],
                ["eval", str(world.erm), "-d", str(data)],
                ["data", "check", str(data), "--json"],
            )
            return verbs[number % len(verbs)]

        yield case("folder", number, build, CHECKED if number % 5 in (0, 4) else MAYBE)


# -- compositions -------------------------------------------------------------------------


def compositions(world: World, rng: random.Random, count: int = 60) -> Iterator[Case]:
    """CSV files of objects and scenes for ``data compose``."""
    text = (world.data / "benchmark.csv").read_text(encoding="utf-8")
    for number in range(count):
        content = (
            spoil_bytes(text.encode(), rng) if number % 2 else spoil_text(text, rng).encode("utf-8", "surrogatepass")
        )

        def build(folder: Path, content: bytes = content, number: int = number) -> list[str]:
            data = world.copy_data(folder)
            (data / "bad.csv").write_bytes(content)
            names = ("bad.csv", "benchmark.csv") if number % 4 < 2 else ("benchmark.csv", "bad.csv")
            return [
                "data",
                "compose",
                "--foregrounds",
                str(data / names[0]),
                "--backgrounds",
                str(data / names[1]),
                "--out",
                str(folder / "out"),
                "--size",
                "16",
                "--train",
                "4",
                "--target",
                "4",
                "--val",
                "4",
                "--test",
                "4",
            ]

        yield case("compose", number, build)
