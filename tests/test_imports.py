"""Imports point one way, `import foveate` is quick, and optional packages stay optional."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "foveate"

# Each layer may import its own folder and any layer above it in this list; folders of one layer may not
# import each other unless the layer's entry says so.
LAYERS = [
    {"errors"},
    {"registry", "parameters"},
    {"registries"},
    {"files", "compat", "notebook"},
    {"measure", "assets"},
    {"data"},
    {"engine"},
    {"pool"},
    {"extract"},
    {"look"},
    {"restrict"},
    {"decide"},
    {"assemble"},
    {"assess"},
    {"systems"},
    {"intervene"},
    {"export"},
    {"report"},
    {"remedy"},
    {"app"},
    {"bench"},
    {"cli"},
]
LEVEL = {name: level for level, layer in enumerate(LAYERS) for name in layer}
# torchmetrics imports torchvision, hence compat; registries only hold addresses; notebook makes tables of text
MEASURE_MAY = {"errors", "registry", "registries", "compat", "notebook", "measure"}


def part_of(path: Path) -> str:
    relative = path.relative_to(SRC)
    return relative.parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [f"foveate.{alias.name}" for alias in node.names] if node.module == "foveate" else [node.module]
        else:
            continue
        found |= {name.split(".")[1] for name in names if name.startswith("foveate.")}
    return found - {"__version__"}


FILES = sorted(p for p in SRC.rglob("*.py") if p != SRC / "__init__.py")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SRC)))
def test_imports_point_one_way(path: Path) -> None:
    here = part_of(path)
    assert here in LEVEL, f"src/foveate/{here} has no place in LAYERS; give it one"
    for other in imported(path) - {here}:
        assert LEVEL[other] < LEVEL[here], f"{path.relative_to(SRC)} must not import foveate.{other}"
    if here == "measure":
        assert imported(path) <= MEASURE_MAY, "measure knows only arrays"


def test_no_catch_all_modules() -> None:
    assert not [p for p in FILES if p.stem in {"utils", "util", "misc", "helpers", "common"}]


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_import_is_light() -> None:
    heavy = run(
        "import sys, foveate; print([m for m in ('torch', 'timm', 'pandas', 'matplotlib') if m in sys.modules])"
    )
    assert heavy.strip() == "[]"


def test_no_extra_is_imported() -> None:
    code = (
        "import sys, foveate as fv; fv.data.critters, fv.ERM, fv.audit; import foveate.cli\n"
        "print([m for m in ('datasets', 'optuna', 'ray', 'gradio', 'open_clip', 'onnx', 'onnxruntime', 'lightly')"
        " if m in sys.modules])"
    )
    assert run(code).strip() == "[]"
