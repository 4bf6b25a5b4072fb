"""Trains a ResNet-18 in as many processes as told and writes the seconds; run by `scaling.ddp`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch

from benchmarks.speed.scaling import _data
from foveate.assemble.network import Network
from foveate.data.loading import Loader
from foveate.data.preprocess import Preprocess
from foveate.engine import ImageFeed, TrainSettings, train
from foveate.extract import create_backbone


def main(processes: int, out: str) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    settings = TrainSettings(
        epochs=2, batch_size=32 // processes, accelerator="cpu", devices=processes,
        strategy="ddp" if processes > 1 else "auto", progress=False,
    )  # fmt: skip
    network = Network.build(create_backbone("resnet18", image_size=(128, 128)), 2)
    history = train(network, ImageFeed(Loader(_data(96, 128), Preprocess((128, 128)))), settings)
    if not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0:
        Path(out).write_text(json.dumps(history.seconds))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
