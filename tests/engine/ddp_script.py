"""Trains a small net and writes its loss curve; run by test_ddp.py with one or two processes."""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from torch import nn

from foveate.data.dataset import GroupedDataset
from foveate.data.images import ArrayImages
from foveate.engine import TensorFeed, TrainSettings, train


def main(devices: int, batch_size: int, out: str) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 50)  # 50 is no multiple of the batch: the last batch is short
    inputs = torch.from_numpy(rng.normal(size=(50, 6)).astype(np.float32))
    data = GroupedDataset(ArrayImages(np.zeros((50, 1, 1, 3), np.uint8)), labels, ["a", "b", "c"])
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3))
    settings = TrainSettings(
        epochs=3, batch_size=batch_size, lr=0.05, optimizer="sgd", accelerator="cpu", devices=devices,
        strategy="ddp" if devices > 1 else "auto", progress=False,
    )  # fmt: skip
    history = train(model, TensorFeed(inputs, data), settings)
    if torch.distributed.is_initialized() and torch.distributed.get_rank() != 0:
        return
    Path(out).write_text(json.dumps({"losses": history.losses, "weight": model[0].weight.flatten().tolist()}))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
