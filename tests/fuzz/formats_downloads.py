"""What is downloaded: archives, the lists of published datasets, Hugging Face datasets."""

from __future__ import annotations

import io
import random
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.fuzz.corrupt import spoil_bytes, spoil_text
from tests.fuzz.formats import case
from tests.fuzz.harness import BAD, CHECKED, MAYBE, Case
from tests.fuzz.world import World

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
        ("zip", bytes(locked)),
        ("zip", b""),
        ("tar", b""),
        ("zip", b"PK\x05\x06" + b"\x00" * 18),
        ("tar", b"\x1f\x8b" + b"\x00" * 40),
        ("zip", packed({"../evil": b"x"}, "zip")),
        ("tar", packed({"/etc/evil": b"x"}, "tar")),
        ("zip", packed({"a\\..\\..\\x": b""}, "zip")),
        ("zip", packed({"x" * 400: b"1"}, "zip")),
        ("tar", packed({"a": b"1", "a/b": b"2"}, "tar")),
        ("zip", packed({"a/b": b"", "a": b"1"}, "zip")),
        ("tar", packed({"\x1b[31m": b""}, "tar")),
        ("zip", packed({"a": b"\x00" * 64_000_000}, "zip")),
        ("tar", packed({".": b"x"}, "tar")),
        ("tar", packed({"a" * 90 + "/" + "b" * 90 + "/" * 9 + "c" * 300: b"x"}, "tar")),
        ("zip", packed({"C:/x": b"1"}, "zip")),
    ]
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
    cub = {
        "images.txt": "1 a/b.jpg\n2 c/d.jpg\n",
        "bounding_boxes.txt": "1 0 0 4 4\n2 0 0 4 4\n",
        "train_test_split.txt": "1 1\n2 0\n",
        "image_class_labels.txt": "1 1\n2 2\n",
        "classes.txt": "1 001.a\n2 002.c\n",
        "parts/part_locs.txt": "1 1 0 0 1\n2 1 0 0 1\n",
        "parts/parts.txt": "1 beak\n",
    }
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
        [0, 1],
        ["a", "b"],
        [None, 1],
        [None, None],
        [1.5, 2.5],
        [float("nan"), 1.0],
        [[1], [2]],
        [{"a": 1}, {"a": 2}],
        [b"x", b"y"],
        ["", ""],
        [True, False],
        [-1, 0],
        ["\x1b[31m", "b"],
        [{"bytes": b"x", "path": None}, {"bytes": None, "path": "/dev/zero"}],
        [{"bytes": None, "path": None}] * 2,
    )
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
