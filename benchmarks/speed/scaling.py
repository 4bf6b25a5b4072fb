"""Two workers against one: features over Ray, training over two processes; and what the cores can do at most."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.speed.rows import ROOT, Row, against, alternating
from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages
from foveate.data.preprocess import Preprocess
from foveate.extract import create_backbone

TURNS = 3


def _data(images: int, size: int) -> GroupedDataset:
    pixels = np.random.default_rng(0).integers(0, 256, (images, size, size, 3), dtype=np.uint8)
    return GroupedDataset(ArrayImages(pixels), np.arange(images) % 2, ["a", "b"])


def ray_store(images: int = 128) -> list[Row]:
    """Features by one and by two Ray workers of one thread each."""
    import ray
    from ray.cluster_utils import Cluster

    from foveate.bench.ray_cluster import RaySpread
    from foveate.extract.store import FeatureStore

    torch.set_num_threads(1)
    # nice workers would wait behind this process, and a raylet may need a minute to start on two cores
    os.environ |= {"OMP_NUM_THREADS": "1", "RAY_worker_niceness": "0", "RAY_raylet_start_wait_time_s": "120"}
    data, view = _data(images, 224), Preprocess((224, 224))
    backbone = create_backbone("resnet18")
    taken: dict[int, list[float]] = {1: [], 2: []}
    for workers in taken:
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": workers, "include_dashboard": False})
        try:
            ray.init(cluster.address, log_to_driver=False, configure_logging=False)
            for turn in range(TURNS + 1):
                with tempfile.TemporaryDirectory() as folder, RaySpread(cluster.address, rows=16, threads=1) as spread:
                    began = time.perf_counter()
                    FeatureStore(folder, spread=spread).features(
                        backbone, data, view, batch_size=16, progress=lambda *_: None
                    )  # fmt: skip
                    if turn:  # the first turn starts the workers
                        taken[workers].append(time.perf_counter() - began)
        finally:
            ray.shutdown()
            cluster.shutdown()
    return [_scaled("features of a ResNet-18 by two Ray workers", "by one", taken, f"{images} images of 224 px")]


def ddp() -> list[Row]:
    """An epoch of a ResNet-18 in one process and in two, the same whole batch."""
    taken: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(TURNS):
        for processes, found in taken.items():
            with tempfile.TemporaryDirectory() as folder:
                out = Path(folder) / "seconds.json"
                script = Path(__file__).with_name("ddp_epochs.py")
                subprocess.run(
                    [sys.executable, str(script), str(processes), str(out)], check=True, capture_output=True,
                    env={**os.environ, "OMP_NUM_THREADS": "1"}, cwd=ROOT,
                )  # fmt: skip
                found.append(json.loads(out.read_text()))
    return [_scaled("training a ResNet-18 in two processes (DDP)", "in one", taken, "128 px, whole batch 32")]


def _scaled(what: str, anchor: str, taken: dict[int, list[float]], note: str) -> Row:
    row = against(what, anchor, taken[2], taken[1])
    row.note = f"{note}, one thread each; efficiency {100 * row.ratio / 2:.0f} %"
    return row


def ceiling() -> list[Row]:
    """What the cores can multiply at most, and which share of it a training step reaches."""
    import timm
    import torch.nn.functional as F

    a, b = (torch.randn(2048, 2048) for _ in range(2))
    rounded = a.bfloat16(), b.bfloat16()
    rates = {
        "32 bit": _rate(lambda: a @ b, 2 * 2048**3),
        "bf16": _rate(lambda: rounded[0] @ rounded[1], 2 * 2048**3),
    }
    rows = []
    for name, size, batch in (("resnet18", 128, 32), ("resnet50", 224, 8)):
        network: Any = timm.create_model(name, num_classes=2).to(memory_format=torch.channels_last).train()
        inputs = torch.randn(batch, 3, size, size).contiguous(memory_format=torch.channels_last)
        labels = torch.arange(batch) % 2
        work = 3 * _flops(network, inputs[:1]) * batch

        def step(half: bool, network: Any = network, inputs: Any = inputs, labels: Any = labels) -> None:
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=half):
                loss = F.cross_entropy(network(inputs), labels)
            network.zero_grad()
            loss.backward()

        times = alternating({"32 bit": lambda: step(False), "bf16": lambda: step(True)})
        for kind, seconds in times.items():
            rate = work / statistics.median(seconds) / 1e9
            rows.append(
                Row(
                    f"a training step of {name}, {size} px, {kind}: share of what matrix products reach",
                    f"{rates[kind]:.0f} GFLOP/s, a product of 2048 x 2048 matrices", rate / rates[kind],
                    work / max(seconds) / 1e9 / rates[kind], work / min(seconds) / 1e9 / rates[kind],
                    statistics.median(seconds), work / rates[kind] / 1e9, len(seconds),
                    note=f"{work / batch / 1e9:.1f} GFLOP an image (forward and twice that back), {rate:.0f} GFLOP/s",
                )
            )  # fmt: skip
    return rows


def _rate(call: Any, work: float) -> float:
    times = alternating({"it": call})["it"]
    return work / min(times) / 1e9


def _flops(network: Any, inputs: torch.Tensor) -> float:
    from torch.utils.flop_counter import FlopCounterMode

    network.eval()
    with FlopCounterMode(display=False) as counted, torch.no_grad():
        network(inputs)
    network.train()
    return float(counted.get_total_flops())
