"""Bad files of every format that is read: spoiled copies of good ones, and the traps somebody would build."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import random
import struct
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from tests.fuzz.corrupt import ODD_TEXT, ODD_VALUES, spoil_bytes, spoil_text, spoil_value
from tests.fuzz.harness import BAD, CHECKED, MAYBE, Case
from tests.fuzz.lines import EPS, unharmed
from tests.fuzz.world import SPEC, World, onnx_model

Build = Callable[[Path], list[str]]


def case(group: str, number: object, build: Build, allowed: frozenset[int] = MAYBE) -> Case:
    return Case(f"file:{group}", str(number), build, allowed, unharmed)


def readers(world: World, data: Path, number: int) -> tuple[list[str], frozenset[int]]:
    """A verb that reads a dataset, another one for every number; the cheap one most often."""
    cheap = (["data", "check", str(data)], CHECKED)
    others = (
        (["eval", str(world.erm), "--data", str(data)], MAYBE),
        (["predict", str(world.erm), str(data), "--on-bad", "skip"], MAYBE),
        (["verify", str(world.ifam), str(data), "--images", "2"], CHECKED),
        (["audit", str(world.erm), "-d", str(data), "-o", str(data.parent / "a.html"), "--no-discover"], CHECKED),
    )
    return cheap if number % 3 else others[number // 3 % len(others)]


# -- CSV of images ------------------------------------------------------------------------


def tables(world: World, rng: random.Random, count: int = 420) -> Iterator[Case]:
    """``benchmark.csv`` with spoiled cells, rows, headers, bytes."""
    text = (world.data / "benchmark.csv").read_text(encoding="utf-8")
    rows = list(csv.reader(io.StringIO(text)))
    header = ",".join(rows[0]).encode()
    traps = [
        b"", b"\n\n\n", b"\x00" * 200, b"\xff\xfe", b"path,label\n", b"path\na.png\n", b"label\ncat\n", b"path,label,label\n",
        b"path,label\n" + b'"' * 1001, b"path,label\n" + b"a.png,cat," * 9999, b"path,label\n" + b"x" * 300_000,
        ",".join(f"c{k}" for k in range(1_000_000)).encode() + b"\n1,2\n", b"," * 1_000_000, header + b"\n" + b"\x80\n",
        ("path,label\n" + "images/train/000000.png,cat\n" * 1_000).encode(), "path,label\nä,b\n".encode("latin-1"),
        ("path;label\n" + "images/train/000000.png;\x1b[31mcat\n" * 3).encode(), b"path,label\n/dev/zero,cat\n",
        "path,label\nimages/train/000000.png,cat\nimages/train/000001.png,duck\n".encode("utf-16"),
        b"path,label,x0,y0,x1,y1\nimages/train/000000.png,cat,nan,inf,1e300,-1\n",
        b"path,label,kp__x,kp__y\nimages/train/000000.png,cat,a,b\n", b"path,label,split\na,b,c\n",
        b"path,label,split,mask\nimages/train/000000.png,cat,train,/dev/zero\nimages/train/000001.png,duck,train,\n",
    ]  # fmt: skip
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
    traps = [b"", b"\x00", EPS, other.getvalue(), b"GIF89a", b"\x89PNG\r\n\x1a\n" + bomb, b"8BPS\x00\x01", b"P6 1 1 255\n",
             b"P6 999999 999999 255\n", b"<svg/>", b"%PDF-1.4", b"BM" + b"\xff" * 60, b"II*\x00" + b"\xff" * 40]  # fmt: skip
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
            import socket
            import stat

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
                ["data", "check", str(data)], ["data", "export", str(data), str(folder / "out")],
                ["fit", str(data), "-o", str(folder / "m"), "--backbone", "micro_resnet", "--epochs", "1"],
                ["eval", str(world.erm), "-d", str(data)], ["data", "check", str(data), "--json"],
            )  # fmt: skip
            return verbs[number % len(verbs)]

        yield case("folder", number, build, CHECKED if number % 5 in (0, 4) else MAYBE)


# -- YAML ---------------------------------------------------------------------------------

YAML_TRAPS = (
    "", "a", "- 1", "&a [*a]", "name: &a {b: *a}", "a: &a\n  b: *a\n", "x: &x [*x, *x]", "? {}\n: 1", "? [1]\n: 2",
    "name: !!python/object/apply:os.system [id]", "!!binary x", "name: 2024-01-01", "{a: 1, a: 2}", "\t", "a: b: c", "%YAML 9",
    "[" * 3000, "{a: " * 500, "- " * 2000, "a: &a x\n" + "b: *a\n" * 3, "<<: 1", "<<: [1, 2]", "<<: {a: 1}\nname: x", "--- 1\n--- 2",
    "name: tiny\nmethods: null", "name: \x1b[31m", "\x00", "name: tiny\nseeds: [-1]\nmethods: {base: {system: ERM}}",
    "a: [&l1 [x,x,x,x,x,x,x,x,x], &l2 [*l1,*l1,*l1,*l1,*l1,*l1,*l1,*l1,*l1], &l3 [*l2,*l2,*l2,*l2,*l2,*l2,*l2,*l2], "
    "&l4 [*l3,*l3,*l3,*l3,*l3,*l3,*l3,*l3], &l5 [*l4,*l4,*l4,*l4,*l4,*l4,*l4,*l4], &l6 [*l5,*l5,*l5,*l5,*l5,*l5,*l5,*l5], "
    "&l7 [*l6,*l6,*l6,*l6,*l6,*l6,*l6,*l6]]", "name: tiny\ndata: &d {name: critters, options: *d}\nmethods: {base: {system: ERM}}",
    "1: 2\n1.5: 3\nnull: 4\n? true\n: 5", "name: tiny\n1: {}\n", "name: 1e999999999", "x: 0o8\ny: 1:60:60\n",
    "x: 99999999999999999999-01-01", "d: 2001-99-99", "!<x> y", "- !!set {a, b}", "!!omap [a: 1]", "!!timestamp x", "!!int x", "!!float x",
)  # fmt: skip


def specs(world: World, rng: random.Random, count: int = 330) -> Iterator[Case]:
    """Spec files: traps of YAML, spoiled fields, spoiled text."""
    import yaml

    good = yaml.safe_load(SPEC)
    contents: list[str] = list(YAML_TRAPS)
    while len(contents) < count:
        if rng.random() < 0.5:
            contents.append(yaml.safe_dump(spoil_value(good, rng), allow_unicode=True))
        else:
            contents.append(spoil_text(SPEC, rng))
    for number, text in enumerate(contents):

        def build(folder: Path, text: str = text, number: int = number) -> list[str]:
            spec = folder / "spec.yaml"
            spec.write_text(text, encoding="utf-8", errors="surrogatepass")
            verb = (["bench", "status"], ["bench", "table"], ["bench", "page"])[number % 3]
            more = (
                ["-o", str(folder / "page.md"), "--records", str(folder)]
                if verb[1] == "page"
                else ["--runs", str(folder / "r")]
            )
            return [*verb, str(spec), *more]

        yield case("yaml", number, build)
    for number, content in enumerate((b"\xff\xfe\x00", b"name: \xff", b"\x00" * 99, b"\xef\xbb\xbf" + SPEC.encode())):

        def raw(folder: Path, content: bytes = content) -> list[str]:
            (folder / "spec.yaml").write_bytes(content)
            return [
                "bench",
                "run",
                str(folder / "spec.yaml"),
                "--runs",
                str(folder / "r"),
                "--workers",
                "0",
                "-m",
                "nope",
            ]

        yield case("yaml", f"bytes {number}", raw)


# -- records ------------------------------------------------------------------------------


def records(world: World, rng: random.Random, count: int = 200) -> Iterator[Case]:
    """Records as CSV and as a database."""
    text = world.records.read_text(encoding="utf-8")
    rows = list(csv.reader(io.StringIO(text)))
    for number in range(count):
        if number % 3 == 0:
            content = spoil_bytes(text.encode(), rng)
        else:
            table = [list(row) for row in rows]
            row = rng.choice(table)
            value = rng.choice(ODD_VALUES)
            row[rng.randrange(len(row))] = rng.choice((rng.choice(ODD_TEXT), json.dumps(value), str(value)))
            buffer = io.StringIO()
            csv.writer(buffer).writerows(table)
            content = buffer.getvalue().encode("utf-8", "surrogatepass")

        def build(folder: Path, content: bytes = content, number: int = number) -> list[str]:
            file = folder / ("tiny.db" if number % 20 == 19 else "tiny.csv")
            file.write_bytes(content)
            if number % 5 == 4 and file.suffix == ".csv":
                (folder / "spec.yaml").write_text(SPEC)
                return [
                    "bench",
                    "page",
                    str(folder / "spec.yaml"),
                    "--records",
                    str(folder),
                    "-o",
                    str(folder / "p.md"),
                ]
            if number % 5 == 3:
                kind = ("bars", "scaling", "matrix", "layers")[number // 5 % 4]
                words = ["bench", "plot", str(file), "-o", str(folder / "p.png"), "--kind", kind]
                return words + ["--x", "refits", "--y", "method"]
            if number % 5 == 2:
                return ["reproduce", "--records", str(file), "--page", str(folder / "p.md")]
            return ["bench", "table", str(file), "--format", ("markdown", "latex", "csv")[number % 3]]

        yield case("records", number, build)


# -- ONNX, safetensors, JSON ----------------------------------------------------------------


def onnx_files(world: World, rng: random.Random, count: int = 130) -> Iterator[Case]:
    """ONNX files: odd graphs that are valid, and spoiled bytes."""
    odd: list[dict[str, Any]] = [
        {"inputs": 0}, {"inputs": 2}, {"inputs": 5}, {"kind": 7}, {"kind": 6}, {"kind": 9}, {"kind": 10}, {"kind": 11}, {"kind": 2},
        {"shape": (0, 3, 32, 32)}, {"shape": ("b", 3)}, {"shape": ()}, {"shape": (None,)}, {"shape": (1, 3, 32, 32)},
        {"shape": (5, 3, 32, 32)}, {"shape": ("b", 1, 32, 32)}, {"shape": ("b", 3, 0, 0)}, {"shape": ("b", 3, 999_999, 999_999)},
        {"rank": 1}, {"classes": 1}, {"classes": 7}, {"shape": ("b", 3, "h", "w")}, {"shape": ("b", 32, 32, 3)}, {"shape": ("b", 3, 32)},
    ]  # fmt: skip
    contents = [onnx_model(**how) for how in odd]
    strict = {0, 1, 2, 3, 4, 5, 9, 10, 11, 12, 18, 19, 20}
    good = world.onnx.read_bytes()
    for words in ('["cat"]', "7", "{}", "[", "[1, 2, 3]", "null", '["cat", "duck"]'):
        contents.append(_with_metadata(good, "class_names", words))
    for words in ("{}", "[]", '{"size": 0}', '{"size": [0, 0]}', '{"size": [32, 32], "mean": "x"}', '{"size": [-1, "a"]}', "7",
                  '{"size": [32, 32], "std": [0, 0, 0]}', '{"size": [999999, 999999]}', '{"size": null}'):  # fmt: skip
        contents.append(_with_metadata(good, "preprocess", words))
    contents += [b"", b"\x08", b"x" * 99]
    while len(contents) < count:
        contents.append(spoil_bytes(good, rng))
    for number, content in enumerate(contents):

        def build(folder: Path, content: bytes = content, number: int = number) -> list[str]:
            (folder / "m.onnx").write_bytes(content)
            more = ["--classes", "cat,duck"] if number % 2 else []
            return [
                "audit",
                str(folder / "m.onnx"),
                "-d",
                str(world.data),
                "-o",
                str(folder / "a.html"),
                "--no-discover",
                *more,
            ]

        yield case("onnx", number, build, BAD if number in strict else CHECKED)


def _with_metadata(content: bytes, key: str, value: str) -> bytes:
    import onnx

    model = onnx.load_model_from_string(content)
    entry = model.metadata_props.add()
    entry.key, entry.value = key, value
    return bytes(model.SerializeToString())


def state_dicts(world: World, rng: random.Random, count: int = 110) -> Iterator[Case]:
    """Checkpoints: safetensors with spoiled headers and bytes, PyTorch files that are none, empty files."""
    good = world.state.read_bytes()
    (size,) = struct.unpack("<Q", good[:8])
    header = json.loads(good[8 : 8 + size])
    contents: list[tuple[str, bytes]] = [("s.safetensors", b""), ("s.pt", b""), ("s.pth", b"x" * 50), ("s.safetensors", b"\xff" * 8),
        ("s.pt", b"\x80\x04."), ("s.pt", b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00idq\x00\x85R."), ("s.bin", b"PK\x03\x04")]  # fmt: skip
    while len(contents) < count:
        if rng.random() < 0.5:
            changed = json.dumps(spoil_value(header, rng)).encode()
            contents.append(("s.safetensors", struct.pack("<Q", len(changed)) + changed + good[8 + size :]))
        else:
            contents.append((rng.choice(("s.safetensors", "s.safetensors", "s.pt")), spoil_bytes(good, rng)))
    for number, (name, content) in enumerate(contents):

        def build(folder: Path, name: str = name, content: bytes = content, number: int = number) -> list[str]:
            (folder / name).write_bytes(content)
            if number % 4 == 3:
                words = ["fit", str(world.data), "-o", str(folder / "m"), "--backbone", "micro_resnet", "--epochs", "0"]
                return [*words, "--set", f"checkpoint={folder / name}"]
            return [
                "audit",
                f"micro_resnet@{folder / name}",
                "-d",
                str(world.data),
                "-o",
                str(folder / "a.html"),
                "--no-discover",
            ]

        yield case("state", number, build, MAYBE)


def sidecars(world: World, rng: random.Random, count: int = 100) -> Iterator[Case]:
    """``foveate-export.json`` beside an ONNX file, and in an export of its own."""
    good = {
        "format": 1, "foveate": "0.1.0", "system": "ERM", "written_as": "onnx", "class_names": ["cat", "duck"],
        "preprocess": {"size": [32, 32], "fit": "squash", "mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5], "flip": True, "shift": 0},
        "supervision": "train: labels", "intervention": None, "steps": {},
        "graphs": [{"name": "model", "file": "m.onnx", "outputs": ["y"], "inputs": {"images0": ["batch", 3, 32, 32]}, "boolean": []}],
    }  # fmt: skip
    for number in range(count):
        text = json.dumps(spoil_value(good, rng)) if number % 4 else spoil_text(json.dumps(good, indent=1), rng)

        def build(folder: Path, text: str = text, number: int = number) -> Any:
            (folder / "m.onnx").write_bytes(world.onnx.read_bytes())
            (folder / "foveate-export.json").write_text(text, encoding="utf-8", errors="surrogatepass")
            if number % 2:
                return lambda: _run_export(folder)
            return [
                "audit",
                str(folder / "m.onnx"),
                "-d",
                str(world.data),
                "-o",
                str(folder / "a.html"),
                "--no-discover",
            ]

        yield case("sidecar", number, build, CHECKED)


def _run_export(folder: Path) -> object:
    from foveate.export import Runner

    return Runner(folder).predict(np.zeros((2, 32, 32, 3), np.uint8))


# -- archives -------------------------------------------------------------------------------


def packed(entries: dict[str, bytes], kind: str) -> bytes:
    buffer = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in entries.items():
                archive.writestr(name, content)
    else:
        with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
            for name, content in entries.items():
                info = tarfile.TarInfo(name)
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def archives(world: World, rng: random.Random, count: int = 140) -> Iterator[Case]:
    """Archives of a published dataset: spoiled, encrypted, growing, leading outside."""
    picture = (world.root / "image.png").read_bytes()
    inside = {f"MetaDatasetCatDog/train/cat/cat(sofa)/{k}.png": picture for k in range(3)}
    good = {kind: packed(inside, kind) for kind in ("zip", "tar")}
    locked = bytearray(good["zip"])
    for signature, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        where = locked.find(signature)
        while where >= 0:
            locked[where + at] |= 1
            where = locked.find(signature, where + 1)
    traps: list[tuple[str, bytes]] = [
        ("zip", bytes(locked)), ("zip", b""), ("tar", b""), ("zip", b"PK\x05\x06" + b"\x00" * 18), ("tar", b"\x1f\x8b" + b"\x00" * 40),
        ("zip", packed({"../evil": b"x"}, "zip")), ("tar", packed({"/etc/evil": b"x"}, "tar")), ("zip", packed({"a\\..\\..\\x": b""}, "zip")),
        ("zip", packed({"x" * 400: b"1"}, "zip")), ("tar", packed({"a": b"1", "a/b": b"2"}, "tar")), ("zip", packed({"a/b": b"", "a": b"1"}, "zip")),
        ("tar", packed({"\x1b[31m": b""}, "tar")), ("zip", packed({"a": b"\x00" * 64_000_000}, "zip")), ("tar", packed({".": b"x"}, "tar")),
        ("tar", packed({"a" * 90 + "/" + "b" * 90 + "/" * 9 + "c" * 300: b"x"}, "tar")), ("zip", packed({"C:/x": b"1"}, "zip")),
    ]  # fmt: skip
    while len(traps) < count:
        kind = rng.choice(("zip", "tar"))
        traps.append((kind, spoil_bytes(good[kind], rng)))
    for number, (kind, content) in enumerate(traps):

        def build(folder: Path, kind: str = kind, content: bytes = content) -> list[str]:
            name = "MetaDatasetCatDog.zip" if kind == "zip" else "MetaDatasetCatDog.tar.gz"
            (folder / name).write_bytes(content)
            return ["data", "prepare", "metashift-catdog-disc", "--root", str(folder)]

        yield case("archive", number, build, BAD)


# -- lists of published datasets, Hugging Face ------------------------------------------------


def published_lists(world: World, rng: random.Random, count: int = 120) -> Iterator[Case]:
    """``metadata.csv`` of Waterbirds, the lists of CelebA and CUB, with spoiled content."""
    birds = "img_id,img_filename,y,split,place,place_filename\n" + "".join(
        f"{k},001.Black_footed_Albatross/a{k}.jpg,{k % 2},{k % 3},{k // 2 % 2},/f/forest/{k}.jpg\n" for k in range(12)
    )
    attributes = "3\nBlond_Hair Male\n" + "".join(
        f"00000{k}.jpg {(-1) ** k} {1 - 2 * (k // 2 % 2)}\n" for k in range(1, 4)
    )
    partition = "".join(f"00000{k}.jpg {k % 3}\n" for k in range(1, 4))
    cub = {"images.txt": "1 a/b.jpg\n2 c/d.jpg\n", "bounding_boxes.txt": "1 0 0 4 4\n2 0 0 4 4\n", "train_test_split.txt": "1 1\n2 0\n",
           "image_class_labels.txt": "1 1\n2 2\n", "classes.txt": "1 001.a\n2 002.c\n", "parts/part_locs.txt": "1 1 0 0 1\n2 1 0 0 1\n",
           "parts/parts.txt": "1 beak\n"}  # fmt: skip
    for number in range(count):
        which = number % 3
        spoiled = rng.choice(list(cub))
        seed = rng.random()

        def build(folder: Path, which: int = which, spoiled: str = spoiled, seed: float = seed) -> list[str]:
            own = random.Random(seed)

            def write(path: Path, text: str, bad: bool = True) -> None:
                path.parent.mkdir(parents=True, exist_ok=True)
                as_bytes = own.random() < 0.4
                content = (
                    spoil_bytes(text.encode(), own)
                    if as_bytes
                    else spoil_text(text, own).encode("utf-8", "surrogatepass")
                )
                path.write_bytes(content if bad else text.encode())

            if which == 0:
                write(folder / "waterbirds" / "metadata.csv", birds)
            elif which == 1:
                (folder / "celeba" / "img_align_celeba").mkdir(parents=True)
                write(folder / "celeba" / "list_attr_celeba.txt", attributes, own.random() < 0.6)
                write(folder / "celeba" / "list_eval_partition.txt", partition, own.random() < 0.6)
            else:
                for name, text in cub.items():
                    write(folder / "CUB_200_2011" / name, text, name == spoiled)
            return ["data", "check", ("waterbirds", "celeba", "cub")[which], "--root", str(folder)]

        yield case("lists", number, build, CHECKED)


def hugging_face(world: World, rng: random.Random, count: int = 40) -> Iterator[Case]:
    """Loaded Hugging Face datasets with odd columns; there is no verb for them, so the library is called."""
    columns: tuple[list[Any], ...] = (
        [0, 1], ["a", "b"], [None, 1], [None, None], [1.5, 2.5], [float("nan"), 1.0], [[1], [2]], [{"a": 1}, {"a": 2}], [b"x", b"y"],
        ["", ""], [True, False], [-1, 0], ["\x1b[31m", "b"],
        [{"bytes": b"x", "path": None}, {"bytes": None, "path": "/dev/zero"}], [{"bytes": None, "path": None}] * 2,
    )  # fmt: skip
    for number in range(count):
        image, label, attribute = (rng.choice(columns) for _ in range(3))

        def build(
            folder: Path, image: Any = image, label: Any = label, attribute: Any = attribute, number: int = number
        ) -> Any:
            return lambda: _read_hugging_face({"image": image, "label": label, "place": attribute}, number)

        yield case("huggingface", number, build, MAYBE)


def _read_hugging_face(columns: dict[str, Any], number: int) -> None:
    import datasets

    from foveate.data import check, from_huggingface

    made = datasets.Dataset.from_dict(columns)
    whole = from_huggingface(
        datasets.DatasetDict({"train": made, ("test", "odd")[number % 9 == 8]: made}),
        attribute="place" if number % 2 else None,
    )
    check(whole)


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
            return ["data", "compose", "--foregrounds", str(data / names[0]), "--backgrounds", str(data / names[1]), "--out",
                    str(folder / "out"), "--size", "16", "--train", "4", "--target", "4", "--val", "4", "--test", "4"]  # fmt: skip

        yield case("compose", number, build)
