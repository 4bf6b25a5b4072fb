"""A tiny package, installed with pip, adds a pool, a metric and a dataset; nothing of foveate is edited."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

CODE = '''
"""A pool, a metric and a dataset that foveate does not have."""

import numpy as np
from torch import nn

from foveate.data import ArrayImages, Benchmark, GroupedDataset
from foveate.measure import Metric


class MaxPool(nn.Module):
    """The strongest place of every channel."""

    def __init__(self, dim):
        super().__init__()
        self.out_dim = dim

    def forward(self, maps):
        return maps.amax((2, 3))


def missed(answers):
    return float((answers.predictions != answers.labels).sum())


MISSED = Metric("missed", "images missed", missed, higher_is_better=False, unit="", scale=1, digits=0)


def stripes(n=40):
    """Plain or striped squares."""
    pixels = np.zeros((n, 32, 32, 3), np.uint8)
    pixels[n // 2 :, ::2] = 255
    half = n // 2
    ds = GroupedDataset(
        ArrayImages(pixels), [0] * half + [1] * half, ["plain", "striped"],
        attributes=[0, 1] * half, attribute_names=["left", "right"],
    )
    return Benchmark("stripes", {"train": ds, "val": ds, "test": ds})
'''

POINTS = """
[foveate.pools]
max = tiny_extras:MaxPool

[foveate.metrics]
missed = tiny_extras:MISSED
torn = tiny_extras:NOT_THERE

[foveate.datasets]
stripes = tiny_extras:stripes
critters = tiny_extras:stripes
"""

USE = """
import json, sys, warnings
from foveate.registries import DATASETS, METRICS, POOLS
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    names = {registry.plural: registry.names() for registry in (DATASETS, METRICS, POOLS)}
    lazy = "tiny_extras" not in sys.modules and "torch" not in sys.modules
    import foveate as fv
    data = fv.data.load("stripes", n=40)
    from foveate.extract import create_backbone
    from foveate.assemble.network import Network
    net = Network.build(create_backbone("micro_resnet"), 2, pool="max")
    again = Network.from_dict(net.to_dict())
    system = fv.ERM("micro_resnet", epochs=2, progress=False, select="missed", seed=1).fit(data.train, val=data.val)
    report = fv.evaluate(system, data.test)
    table = str(report)
ours = fv.data.load("critters", train=8, target=8, val=8, test=8).name
wrong = int((system.predict(data.test) != data.test.labels).sum())
rows = [row["val_missed"] for row in system.history_.epochs]
print(json.dumps({
    "names": names, "lazy": lazy, "pool": type(again.pool).__name__, "ours": ours, "wrong": wrong,
    "missed": report.value("missed"), "table": table, "best": system.history_.best_score, "rows": rows,
    "supervision": system.supervision(),
    "warned": [str(w.message) for w in caught if w.category.__name__ == "BrokenEntryPoint"],
}))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a Python that has ``tiny-extras`` installed; no network, no build."""
    folder = tmp_path_factory.mktemp("package")
    wheel = folder / "tiny_extras-0.3-py3-none-any.whl"
    info = "tiny_extras-0.3.dist-info"
    files = {
        "tiny_extras.py": CODE,
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tiny-extras\nVersion: 0.3\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: hand\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": POINTS,
    }
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
        archive.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"]))
    target = folder / "site"
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--target", str(target)]
    subprocess.run([*pip, str(wheel)], check=True)
    import foveate

    path = [str(target), str(Path(foveate.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in path if p)}


def run(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments], env=environment, capture_output=True, text=True, check=True, timeout=300
    )


def listed(environment: dict[str, str], kind: str) -> Any:
    done = run(environment, "-c", "from foveate.cli import main; main()", "list", kind, "--json")
    return {row["name"]: row["summary"] for row in json.loads(done.stdout)}, done.stderr


@pytest.mark.parametrize(("kind", "name"), [("pools", "max"), ("metrics", "missed"), ("datasets", "stripes")])
def test_the_command_line_lists_them_with_their_package(installed: dict[str, str], kind: str, name: str) -> None:
    rows, said = listed(installed, kind)
    assert rows[name] == "from tiny-extras 0.3"
    assert len(rows) > 5
    if kind == "datasets":  # a name that is taken is left out with a warning; what stood there stays
        assert "'critters' of the package tiny-extras" in said
        assert rows["critters"].startswith("drawn animals")


def test_python_uses_them(installed: dict[str, str]) -> None:
    found = json.loads(run(installed, "-c", USE).stdout)
    assert found["lazy"], "listing names must import neither the package nor torch"
    assert "max" in found["names"]["pools"]
    assert found["pool"] == "MaxPool"
    assert found["ours"] == "critters"
    assert found["missed"] == found["wrong"]
    assert f"images missed {found['wrong']:>9}" in found["table"]
    assert found["best"] == min(found["rows"])  # less is better
    assert "missed" in found["supervision"]
    assert len(found["warned"]) == 2
    assert all("tiny-extras" in line for line in found["warned"])
    assert any("'torn'" in line and "NOT_THERE" in line for line in found["warned"])
