"""The packages that are compared with, in an environment of their own beside this one.

It has this environment's packages behind its own, so PyTorch is not installed twice, and theirs are installed without
what they ask for: that would replace packages of ours by older ones.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

from benchmarks.speed.rows import ROOT

PEERS = {
    # SpuCo's trainers import its text models and WILDS when they are imported
    "spuco": ["spuco==2.0.3", "wilds==2.0.0", "transformers==4.57.1", "tokenizers==0.22.1", "huggingface_hub==0.36.0"],
    "wilds": ["wilds==2.0.0", "torch_scatter"],
    "s2wrapper": ["s2wrapper"],
}
TRIED = {
    "spuco": "from spuco.robust_train import ERM, GroupDRO",
    "wilds": "from wilds.common.metrics.all_metrics import Accuracy\nimport torch_scatter",
    "s2wrapper": "import s2wrapper",
}
PATIENCE = 240


class NotHad(Exception):
    """A peer that cannot be installed or imported here, with the reason."""


def home() -> Path:
    """Where the environments are."""
    cache = os.environ.get("XDG_CACHE_HOME")
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    return (Path(cache) if cache else Path.home() / ".cache") / "foveate" / f"peers-{version}"


def python_with(peer: str) -> Path:
    """A Python that has ``peer`` and everything that this one has; :class:`NotHad` tells why there is none."""
    folder = home() / peer
    python = folder / "bin" / "python"
    if not python.exists():
        _call([sys.executable, "-m", "venv", "--without-pip", str(folder)], "no environment could be made")
    inside = next((folder / "lib").glob("python*")) / "site-packages"
    (inside / "beside.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    trial = [str(python), "-c", f"from foveate import compat\n{TRIED[peer]}"]
    if subprocess.run(trial, capture_output=True, timeout=PATIENCE, env=surroundings()).returncode:
        pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q", "--python", str(python), "install"]
        wanted = PEERS[peer]
        _call([*pip, "--no-deps", "--only-binary=:all:", *wanted], f"{' '.join(wanted)} cannot be installed")
        _call(trial, f"{peer} cannot be imported")
    return python


def surroundings() -> dict[str, str]:
    """The environment of a measurement: this clone comes first, also where foveate itself is not installed."""
    paths = [str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _call(command: list[str], otherwise: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=surroundings())
    except (OSError, subprocess.TimeoutExpired) as error:
        raise NotHad(f"{otherwise}: {type(error).__name__}") from error
    if done.returncode:
        said = [line for line in done.stderr.strip().splitlines() if "WARNING" not in line]
        raise NotHad(f"{otherwise}: {said[-1] if said else f'exit {done.returncode}'}")
