"""Wheel and source archive: they hold what the package needs, and install with the core alone."""

from __future__ import annotations

import email
import json
import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

import foveate as fv

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src"


def run(*words: str, cwd: Path, env: dict[str, str] | None = None) -> str:
    done = subprocess.run(words, cwd=cwd, capture_output=True, text=True, env=env)
    assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout[-2000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the source archive, built from a copy: building leaves things beside the sources."""
    work = tmp_path_factory.mktemp("package")
    skip = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(SRC, work / "src", ignore=skip)
    for name in ("pyproject.toml", "README.md", "LICENSE", "NOTICE"):
        if (ROOT / name).is_file():
            shutil.copy(ROOT / name, work)
    code = "import setuptools.build_meta as b; b.build_sdist('dist'); b.build_wheel('dist')"
    (work / "dist").mkdir()
    run(sys.executable, "-c", code, cwd=work)
    (wheel,), (source,) = (work / "dist").glob("*.whl"), (work / "dist").glob("*.tar.gz")
    return wheel, source


@pytest.mark.slow
def test_they_hold_every_file_of_the_package(built: tuple[Path, Path]) -> None:
    wanted = {
        path.relative_to(SRC).as_posix()
        for path in (SRC / "foveate").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    with zipfile.ZipFile(built[0]) as wheel:
        inside = set(wheel.namelist())
        told = email.message_from_bytes(wheel.read(next(n for n in inside if n.endswith("METADATA"))))
    assert wanted - inside == set(), "package-data in pyproject.toml does not name these"
    assert told["Version"] == fv.__version__
    assert {"all", "dev", "onnx", "app", "bench"} <= set(told.get_all("Provides-Extra"))
    assert {url.partition(",")[0] for url in told.get_all("Project-URL")} >= {"Homepage", "Changelog"}
    assert any(name.endswith("LICENSE") for name in inside)
    with tarfile.open(built[1]) as source:
        names = {name.partition("/")[2] for name in source.getnames()}
    assert {f"src/{name}" for name in wanted} <= names
    assert {"pyproject.toml", "README.md", "LICENSE"} <= names


@pytest.mark.slow
def test_all_is_every_extra_but_those_of_developers() -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.11 reads TOML")
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    (line,) = extras["all"]
    named = set(line.removeprefix("foveate[").removesuffix("]").split(","))
    assert named == set(extras) - {"all", "dev", "docs"}


@pytest.mark.slow
def test_it_installs_and_runs_with_the_core_alone(built: tuple[Path, Path], tmp_path: Path) -> None:
    """A clean environment: needs an index with the pinned releases of PyTorch; without one it is skipped."""
    run(sys.executable, "-m", "venv", str(tmp_path / "env"), cwd=tmp_path)
    python = str(tmp_path / "env" / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    done = subprocess.run(
        [*install, "-c", str(ROOT / "constraints.txt"), str(built[0])], capture_output=True, text=True
    )
    if done.returncode and ("No matching distribution" in done.stderr or "connection" in done.stderr.lower()):
        pytest.skip(f"the core cannot be had here: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr[-2000:]
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    clean |= {"FOVEATE_BF16": "unusable", "FOVEATE_CACHE": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
    foveate = str(tmp_path / "env" / "bin" / "foveate")
    assert run(foveate, "--version", cwd=tmp_path, env=clean).strip() == fv.__version__
    told = json.loads(run(foveate, "doctor", "--json", cwd=tmp_path, env=clean))
    assert told["healthy"]
    assert str(tmp_path / "env") in next(f["told"] for f in told["findings"] if f["name"] == "foveate")
    missing = {f["name"] for f in told["findings"] if f["topic"] == "Extras" and f["health"] == "note"}
    assert {"app", "onnx", "clip", "ray", "hf"} <= missing
    small = "critters:size=32,train=16,target=8,val=8,test=8"
    words = ["fit", small, "--out", "erm", "--backbone", "micro_resnet", "--epochs", "1", "--set", "progress=False"]
    run(foveate, *words, cwd=tmp_path, env=clean)
    assert json.loads(run(foveate, "eval", "erm", small, "--json", cwd=tmp_path, env=clean))["erm"]["n"] == 8
    run(foveate, "audit", "erm", small, "--out", "audit.html", "--no-discover", cwd=tmp_path, env=clean)
    refused = subprocess.run([foveate, "app", "erm", small], cwd=tmp_path, capture_output=True, text=True, env=clean)
    assert (refused.returncode, "foveate[app]" in refused.stderr) == (2, True)
