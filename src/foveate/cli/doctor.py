"""``foveate doctor``: is everything here that foveate needs, and what would mend what is not?"""

from __future__ import annotations

import importlib
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

import typer
from rich.text import Text

from foveate.cli.screen import console, echo_json, plain_table

Health = Literal["ok", "note", "broken"]
_STYLE = {"ok": "green", "note": "yellow", "broken": "bold red"}
CORE = ("torch", "torchvision", "timm", "scikit-learn", "lightning-fabric", "safetensors", "numpy", "pandas", "pillow")
PURPOSES = {
    "clip": "CLIP models", "onnx": "ONNX models and exports", "bench": "studies", "ray": "studies on many machines",
    "app": "the page", "hf": "Hugging Face datasets", "dicom": "DICOM images", "postgres": "studies in PostgreSQL",
    "tensorboard": "logs for TensorBoard", "mlflow": "logs for MLflow", "pretrain": "pretraining",
    "fast": "faster decoding", "transformers": "models of transformers",
}  # fmt: skip
"""By extra: what it is for."""
NOT_FOR_USERS = ("all", "dev", "docs")
LITTLE_SPACE = 2e9


@dataclass(frozen=True)
class Symptom:
    """One line of the examination: how it is, and what would mend it where something is to be mended."""

    topic: str
    name: str
    health: Health
    told: str
    fix: str = ""


def doctor(as_json: bool = typer.Option(False, "--json", help="Print the findings for programs.")) -> None:
    """Versions, threads, GPU, bf16, caches and weights on this machine, and what to do about what is missing.

    Exit code 1 when something is broken; what is only not installed or not fetched is no fault.
    """
    found = examine()
    broken = [symptom for symptom in found if symptom.health == "broken"]
    if as_json:
        echo_json({"healthy": not broken, "findings": [asdict(symptom) for symptom in found]})
    else:
        _show(found)
        console.print(Text(f"{len(broken)} broken" if broken else "Nothing is broken.", "bold"))
    if broken:
        raise typer.Exit(1)


def examine() -> list[Symptom]:
    """Everything the doctor looks at, in the order it is shown."""
    return [*_program(), *_arithmetic(), *_extras(), *_places(), *_weights(), *_environment()]


def _show(found: list[Symptom]) -> None:
    for topic in dict.fromkeys(symptom.topic for symptom in found):
        table = plain_table("", "", "", title=topic)
        table.show_header, table.title_style = False, "bold"
        for symptom in found:
            if symptom.topic == topic:
                told = Text(symptom.told)
                if symptom.fix:
                    told.append(f"\n→ {symptom.fix}", "cyan")
                table.add_row(Text(symptom.health, _STYLE[symptom.health]), Text(symptom.name), told)
        console.print(table)
        console.print()


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _program() -> Iterator[Symptom]:
    from foveate import __version__

    topic = "Program"
    where = Path(__file__).resolve().parents[1]
    yield Symptom(topic, "foveate", "ok", f"{__version__} in {where}")
    yield Symptom(topic, "Python", "ok", f"{platform.python_version()} ({sys.executable}) on {platform.platform()}")
    for package in CORE:
        version = _version(package)
        if version is None:
            yield Symptom(topic, package, "broken", "not installed", "pip install --force-reinstall foveate")
        else:
            yield Symptom(topic, package, "ok", version)
    for module in ("torch", "timm"):
        try:
            importlib.import_module("foveate.compat")
            importlib.import_module(module)
        except Exception as error:  # whatever a broken installation raises
            reason = " ".join(str(error).split())[:200]
            fix = "install torch and torchvision releases that belong together: pip install -c constraints.txt foveate"
            yield Symptom(topic, f"import {module}", "broken", f"{type(error).__name__}: {reason}", fix)


def _arithmetic() -> Iterator[Symptom]:
    topic = "Processor"
    try:
        import torch
    except Exception:  # told above
        return
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    limit = os.environ.get("OMP_NUM_THREADS")
    told = f"{torch.get_num_threads()} of {cores} cores" + (f" (OMP_NUM_THREADS={limit})" if limit else "")
    yield Symptom(topic, "threads", "ok", told)
    if torch.cuda.is_available():
        names = ", ".join(torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count()))
        yield Symptom(topic, "GPU", "ok", f"{names} (CUDA {torch.version.cuda})")
    elif torch.backends.mps.is_available():
        yield Symptom(topic, "GPU", "ok", "Apple (mps)")
    elif torch.version.cuda is None:
        yield Symptom(topic, "GPU", "note", "none: this PyTorch is built for processors alone")
    else:
        fix = "check the driver with nvidia-smi; without a GPU nothing is wrong"
        yield Symptom(topic, "GPU", "note", f"PyTorch is built for CUDA {torch.version.cuda} but finds none", fix)
    yield _half_precision(topic)


def _half_precision(topic: str) -> Symptom:
    from foveate.engine.bf16 import LIMIT, LIMIT_VALUE, bf16_problem
    from foveate.errors import FoveateError

    try:
        problem = bf16_problem()
    except FoveateError as error:  # the environment variable that decides is mistyped
        return Symptom(topic, "bf16", "broken", str(error))
    if problem is None:
        return Symptom(topic, "bf16", "ok", "usable: precision='bf16-mixed' works")
    fix = f"set {LIMIT}={LIMIT_VALUE} before Python starts, or stay with precision='32-true' (the default)"
    return Symptom(topic, "bf16", "note", f"not usable: {problem}", fix)


def extra_packages() -> dict[str, list[str]]:
    """By extra: the packages it brings, as this installation of foveate says."""
    try:
        lines = metadata.requires("foveate") or []
    except metadata.PackageNotFoundError:  # run from its sources
        return {}
    found: dict[str, list[str]] = {}
    for line in lines:
        package, extra = re.match(r"[\w.-]+", line), re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", line)
        if package and extra and package[0] != "foveate" and extra[1] not in NOT_FOR_USERS:
            found.setdefault(extra[1], []).append(package[0])
    return found


def _extras() -> Iterator[Symptom]:
    for extra, packages in extra_packages().items():
        versions = {package: _version(package) for package in packages}
        missing = [package for package, version in versions.items() if version is None]
        purpose = f" (for {PURPOSES[extra]})" if extra in PURPOSES else ""
        if missing:
            told = f"{', '.join(missing)} not installed{purpose}"
            yield Symptom("Extras", extra, "note", told, f"pip install 'foveate[{extra}]'")
        else:
            yield Symptom("Extras", extra, "ok", ", ".join(f"{p} {v}" for p, v in versions.items()) + purpose)


def _places() -> Iterator[Symptom]:
    from foveate.cli.caching import caches, size_text

    for place in caches():
        free = _free(place.folder)
        told = f"{place.folder}: {size_text(place.bytes)} in {place.entries} {place.unit}"
        if not _writable(place.folder):
            fix = f"change its permissions, or choose another folder with {place.variable}"
            yield Symptom("Caches", place.name, "broken", f"{told}; nothing can be written there", fix)
        elif free is not None and free < LITTLE_SPACE:
            fix = f"foveate cache prune, or choose another folder with {place.variable}"
            yield Symptom("Caches", place.name, "note", f"{told}; only {size_text(free)} of the disk are free", fix)
        else:
            yield Symptom("Caches", place.name, "ok", told)


def _nearest(folder: Path) -> Path:
    """The folder, or the first one above it that is there."""
    return next((p for p in (folder, *folder.parents) if p.exists()), Path("/"))


def _free(folder: Path) -> int | None:
    try:
        return shutil.disk_usage(_nearest(folder)).free
    except OSError:
        return None


def _writable(folder: Path) -> bool:
    nearest = _nearest(folder)
    return nearest.is_dir() and os.access(nearest, os.W_OK)


def _weights() -> Iterator[Symptom]:
    from foveate import assets

    yield Symptom("Weights and raw data", "micro-vit", "ok", "comes with foveate")
    for row in assets.status():
        told = f"{row.title}, {row.size / 1e6:.0f} MB"
        if row.ready:
            yield Symptom("Weights and raw data", row.name, "ok", told)
        else:
            fix = f"foveate assets {row.name}"
            yield Symptom("Weights and raw data", row.name, "note", f"not here ({told})", fix)


def _environment() -> Iterator[Symptom]:
    for name in sorted(n for n in os.environ if n.startswith("FOVEATE_")):
        yield Symptom("Environment", name, "ok", os.environ[name])
