"""The gallery: which examples there are, their pictures, and the code each picture was drawn by."""

from __future__ import annotations

import ast
import hashlib
import io
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PICTURES = HERE.parent / "docs" / "gallery"
BESIDE = {"__init__", "__main__", "shared", "gallery", "poster", "demo_table", "methods_table"}
LARGEST = 150_000


def names() -> list[str]:
    """The examples, in the order of a first walk through them."""
    first = ["training_groups", "groups", "before_and_after", "audit", "crops", "parts"]
    there = sorted(path.stem for path in HERE.glob("*.py") if path.stem not in BESIDE)
    return [*first, *(name for name in there if name not in first)]


def source(name: str) -> str:
    """The script."""
    return (HERE / f"{name}.py").read_text(encoding="utf-8")


def about(name: str) -> str:
    """What it shows: the first line of the script."""
    return (ast.get_docstring(ast.parse(source(name))) or "").splitlines()[0]


def stamp(*scripts: str) -> str:
    """Which code a picture is drawn by: the script, and what it starts from."""
    return hashlib.blake2b("".join(source(s) for s in scripts).encode(), digest_size=12).hexdigest()


def save(figure: Any, name: str, *, dpi: int = 110, out: Path | None = None, suffix: str = "") -> Path:
    """Write the picture of ``name`` with its stamp, in few colours so that it stays small."""
    from PIL import Image, PngImagePlugin

    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=dpi, format="png", facecolor=figure.get_facecolor())
    facts = PngImagePlugin.PngInfo()
    facts.add_text("drawn by", stamp("shared", name))
    path = (out or PICTURES) / f"{name}{suffix}.png"
    Image.open(buffer).convert("RGB").quantize(192).save(path, pnginfo=facts, optimize=True)
    return path


def drawn_by(path: Path) -> str:
    """The stamp in a picture."""
    from PIL import Image

    with Image.open(path) as image:
        return str(image.info.get("drawn by", ""))
