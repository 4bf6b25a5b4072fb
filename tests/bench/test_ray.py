"""A Ray cluster of two nodes, started here: trials and features are those of this process."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from typer.testing import CliRunner

pytest.importorskip("optuna", reason="sweeps need the extra [bench]")
pytest.importorskip("ray", reason="a cluster needs the extra [ray]")

import ray
from ray.cluster_utils import Cluster

from foveate.bench.ray_cluster import RaySpread
from foveate.bench.run import Job, run
from foveate.cli.bench import bench_app
from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages
from foveate.data.preprocess import Preprocess
from foveate.errors import FoveateError, UnreadableImage
from foveate.extract import Backbone, create_backbone
from foveate.extract.store import FeatureStore

pytestmark = pytest.mark.gate  # most of it is starting processes: a minute on a free machine, several on a busy one
ROOT = Path(__file__).parents[2]
VIEW = Preprocess((32, 32))
PATIENCE = 120
"""Seconds: a machine may have much else to do."""
SPEC = """
name: spread
data: {name: critters, options: {train: 16, target: 16, val: 16, test: 40, size: 32}}
seeds: [0, 1]
select: average
methods:
  grid: {system: QuickTrial, grid: {skill: [0.2, 0.3]}, repeat: search}
  failing: {system: QuickTrial, settings: {fails: true}}
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of a cluster that lives as long as these tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_raylet_start_wait_time_s", str(PATIENCE))
        patch.setenv("RAY_worker_niceness", "0")  # beside other work, nice workers would hardly get a turn
        patch.setenv("RAY_DISABLE_IMPORT_WARNING", "1")
        patch.setenv("OMP_NUM_THREADS", "1")
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # the nodes cannot import a test
        try:
            cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        except Exception as error:
            if os.environ.get("FOVEATE_GATE"):  # there it must run
                raise
            pytest.skip(f"Ray cannot start here: {type(error).__name__}: {error}")
        try:
            cluster.add_node(wait=False, num_cpus=1)
            cluster.wait_for_nodes(timeout=PATIENCE)
            yield cluster.address
        finally:
            ray.shutdown()
            cluster.shutdown()


@pytest.fixture(scope="module")
def connected(address: str) -> Iterator[str]:
    """The address, with one connection that all share: every new one has its workers import PyTorch anew."""
    ray.init(address, log_to_driver=False, configure_logging=False)
    yield address
    ray.shutdown()


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def job(folder: Path, **more: Any) -> Job:
    return Job(SPEC, "spread.yaml", str(folder), str(folder / "records.db"), command="cmd", commit="c0", **more)


def test_trials(kills: Any, address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # tasks work in the caller's folder and find its modules
    told: list[str] = []
    spread = run(job(tmp_path / "ray", imports=("benchmarks.kill_sweep",)), ray=address, say=told.append)
    here = run(job(tmp_path / "here"), workers=0, say=str)
    assert len(told) == len(spread) == 6
    assert {(r.key, r.score, r.state, r.weights) for r in spread} == {
        (r.key, r.score, r.state, r.weights) for r in here
    }
    assert not ray.is_initialized()  # a connection of our own is closed


def test_a_cluster_that_is_not_there_is_missed_at_once() -> None:
    assert not ray.is_initialized()
    with pytest.raises(FoveateError, match="there is no Ray cluster at 'localhost:1'"), RaySpread("localhost:1"):
        pass
    with pytest.raises(FoveateError, match="at least 1 image"):
        RaySpread("localhost:1", rows=0)


class Gaps(ArrayImages):
    """One image cannot be read."""

    def read(self, i: int) -> np.ndarray:
        if i == 13:
            raise UnreadableImage(self.where(i), "broken")
        return super().read(i)


def images(kind: type[ArrayImages] = ArrayImages) -> GroupedDataset:
    pixels = np.random.default_rng(0).integers(0, 256, (23, 32, 32, 3), dtype=np.uint8)
    return GroupedDataset(kind(pixels), np.arange(23) % 2, ["cat", "dog"])


def read(store: FeatureStore, net: Backbone, data: GroupedDataset, **more: Any) -> Any:
    return store.read(net, data, VIEW, **{"batch_size": 4, "progress": lambda *_: None, **more})


def test_features_are_the_same_bits_from_both_nodes(connected: str, tmp_path: Path) -> None:
    net = create_backbone("micro_resnet", width=4)
    nodes, dead = tmp_path / "nodes", tmp_path / "dead"
    nodes.mkdir()
    caller = os.getpid()

    def readout(backbone: Backbone, inputs: Tensor) -> Tensor:
        if os.getpid() != caller:
            (nodes / ray.get_runtime_context().get_node_id()).touch()
            if len(inputs) == 3 and not dead.exists():  # the last batch: its task dies the first time
                dead.touch()
                os._exit(1)
        return backbone.maps(inputs)

    for more in ({}, {"layer": "maps", "copies": 1}, {"readout": readout, "key": "told"}):
        whole = read(FeatureStore(tmp_path / "here"), net, images(), **more)  # type: ignore[arg-type]
        with RaySpread(connected, rows=4) as cluster:
            store = FeatureStore(tmp_path / "there", spread=cluster)
            joined = read(store, net, images(), **more)  # type: ignore[arg-type]
        assert joined.key == whole.key
        assert joined.array.tobytes() == whole.array.tobytes()
    assert len(list(nodes.iterdir())) == 2
    assert dead.exists()
    assert len(list((tmp_path / "there").iterdir())) == 3  # no part and no lock is left


def test_a_mistake_on_a_node_is_a_sentence_here(connected: str, tmp_path: Path) -> None:
    net = create_backbone("micro_resnet", width=4)
    with RaySpread(connected, rows=4) as cluster:
        store = FeatureStore(tmp_path, spread=cluster)
        with pytest.raises(UnreadableImage, match="broken"):
            read(store, net, images(Gaps))
        found = read(store, net, images(Gaps), on_bad="skip")
    assert np.flatnonzero(~found.valid).tolist() == [13]


def test_the_command(connected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # and a relative folder is the same on all nodes
    words = ["features", "critters:train=40,target=0,val=0,test=8", "--backbone", "micro-vit", "--batch-size", "8"]
    for place, more in (("here", []), ("there", ["--ray", connected, "--rows", "8"])):
        done = CliRunner().invoke(bench_app, [*words, "--store", place, "-o", f"{place}-out", *more])
        assert done.exit_code == 0, done.output
        assert "train: Features([40, 96] float32) in" in done.output
    for split in ("train", "test"):
        with np.load(f"here-out/{split}.npz") as here, np.load(f"there-out/{split}.npz") as there:
            assert sorted(here) == ["attributes", "features", "labels", "valid"]
            for name in here:
                assert here[name].tobytes() == there[name].tobytes()
