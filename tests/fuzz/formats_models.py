"""Model files: ONNX, state dicts, the description beside an export (saved models: ``formats_folders.py``)."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tests.fuzz.corrupt import spoil_bytes, spoil_text, spoil_value
from tests.fuzz.formats import case
from tests.fuzz.harness import BAD, CHECKED, MAYBE, Case
from tests.fuzz.world import World, onnx_model

# -- ONNX, safetensors, JSON ----------------------------------------------------------------


def onnx_files(world: World, rng: random.Random, count: int = 130) -> Iterator[Case]:
    """ONNX files: odd graphs that are valid, and spoiled bytes."""
    odd: list[dict[str, Any]] = [
        {"inputs": 0},
        {"inputs": 2},
        {"inputs": 5},
        {"kind": 7},
        {"kind": 6},
        {"kind": 9},
        {"kind": 10},
        {"kind": 11},
        {"kind": 2},
        {"shape": (0, 3, 32, 32)},
        {"shape": ("b", 3)},
        {"shape": ()},
        {"shape": (None,)},
        {"shape": (1, 3, 32, 32)},
        {"shape": (5, 3, 32, 32)},
        {"shape": ("b", 1, 32, 32)},
        {"shape": ("b", 3, 0, 0)},
        {"shape": ("b", 3, 999_999, 999_999)},
        {"rank": 1},
        {"classes": 1},
        {"classes": 7},
        {"shape": ("b", 3, "h", "w")},
        {"shape": ("b", 32, 32, 3)},
        {"shape": ("b", 3, 32)},
    ]
    contents = [onnx_model(**how) for how in odd]
    strict = {0, 1, 2, 3, 4, 5, 9, 10, 11, 12, 18, 19, 20}
    good = world.onnx.read_bytes()
    for words in ('["cat"]', "7", "{}", "[", "[1, 2, 3]", "null", '["cat", "duck"]'):
        contents.append(_with_metadata(good, "class_names", words))
    for words in (
        "{}",
        "[]",
        '{"size": 0}',
        '{"size": [0, 0]}',
        '{"size": [32, 32], "mean": "x"}',
        '{"size": [-1, "a"]}',
        "7",
        '{"size": [32, 32], "std": [0, 0, 0]}',
        '{"size": [999999, 999999]}',
        '{"size": null}',
    ):
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
    contents: list[tuple[str, bytes]] = [
        ("s.safetensors", b""),
        ("s.pt", b""),
        ("s.pth", b"x" * 50),
        ("s.safetensors", b"\xff" * 8),
        ("s.pt", b"\x80\x04."),
        ("s.pt", b"\x80\x02cos\nsystem\nX\x02\x00\x00\x00idq\x00\x85R."),
        ("s.bin", b"PK\x03\x04"),
    ]
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
        "format": 1,
        "foveate": "0.1.0",
        "system": "ERM",
        "written_as": "onnx",
        "class_names": ["cat", "duck"],
        "preprocess": {
            "size": [32, 32],
            "fit": "squash",
            "mean": [0.5, 0.5, 0.5],
            "std": [0.5, 0.5, 0.5],
            "flip": True,
            "shift": 0,
        },
        "supervision": "train: labels",
        "intervention": None,
        "steps": {},
        "graphs": [
            {
                "name": "model",
                "file": "m.onnx",
                "outputs": ["y"],
                "inputs": {"images0": ["batch", 3, 32, 32]},
                "boolean": [],
            }
        ],
    }
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

    return Runner(folder, trust=True).predict(np.zeros((2, 32, 32, 3), np.uint8))
