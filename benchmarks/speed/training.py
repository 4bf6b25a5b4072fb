"""Training against SpuCo's trainer: the same files, network, batch size, optimiser and epochs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import foveate as fv
from benchmarks.speed.rows import Row, against, alternating
from foveate.data.dataset import GroupedDataset
from foveate.data.images import FileImages
from foveate.engine.quick import chosen_precision
from foveate.extract import create_backbone

EPOCHS = 2
GROUPS = 4


def photos(folder: Path, images: int, size: int) -> GroupedDataset:
    """JPEG files of critters, with the group of each."""
    drawn = fv.data.critters(train=max(images, 16), target=0, val=0, test=0, strength=0.75).train
    paths = []
    for i in range(images):
        picture = Image.fromarray(drawn.images.read(i)).resize((size, size), Image.Resampling.BICUBIC)
        picture.save(folder / f"{i}.jpg", quality=90)
        paths.append(folder / f"{i}.jpg")
    groups = np.arange(images) % GROUPS
    return GroupedDataset(
        FileImages(paths), groups // 2, ["cat", "duck"], attributes=groups % 2, attribute_names=["a", "b"]
    )


def theirs(method: str, data: GroupedDataset, backbone: str, size: int, batch: int) -> Callable[[], None]:
    """The same in SpuCo: its dataset, its model wrapper, its trainer with the four processes that it starts."""
    from spuco.datasets import BaseSpuCoCompatibleDataset, GroupLabeledDatasetWrapper
    from spuco.models import SpuCoModel
    from spuco.robust_train import ERM, GroupDRO
    from torchvision import transforms

    class Files(BaseSpuCoCompatibleDataset):
        def __init__(self) -> None:
            super().__init__()
            self.data = [data.where(i) for i in range(len(data))]
            self._labels = data.labels.tolist()
            self.transform = transforms.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
            self._group_partition = {(g // 2, g % 2): np.flatnonzero(data.groups == g).tolist() for g in range(GROUPS)}

    def run() -> None:
        network: Any = create_backbone(backbone, image_size=(size, size))
        model = SpuCoModel(network, network.dim, 2)
        optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)
        files: Any = Files()
        kind = ERM if method == "ERM" else GroupDRO
        if method != "ERM":
            files = GroupLabeledDatasetWrapper(files, files.group_partition)
        kind(model=model, trainset=files, batch_size=batch, optimizer=optimizer, num_epochs=EPOCHS).train()

    return run


def ours(method: str, data: GroupedDataset, backbone: str, size: int, batch: int, precision: str) -> Callable[[], None]:
    def run() -> None:
        getattr(fv, method)(
            backbone, image_size=size, augment=False, epochs=EPOCHS, batch_size=batch, lr=1e-3, progress=False,
            precision=precision, pretrained=False,
        ).fit(data)  # fmt: skip

    return run


def compared(backbone: str, size: int, images: int, batch: int, methods: dict[str, float | None]) -> list[Row]:
    """A row for every method and precision."""
    rows = []
    quick = chosen_precision("auto", torch.device("cpu"))
    with tempfile.TemporaryDirectory() as folder:
        data = photos(Path(folder), images, size)
        for method, target in methods.items():
            given = (method, data, backbone, size, batch)
            calls = {"SpuCo": theirs(*given), "32-true": ours(*given, "32-true")}
            if quick != "32-true":
                calls[quick] = ours(*given, quick)
            times = alternating(calls)
            for precision in list(calls)[1:]:
                told = "32 bit, the default" if precision == "32-true" else f"precision='auto', here {precision}"
                rows.append(
                    against(
                        f"{method}, {EPOCHS} epochs, {backbone}, {images} JPEG files of {size} px: {told}",
                        "SpuCo 2.0.3's trainer (32 bit; it has no other)", times[precision], times["SpuCo"],
                        target=target, note=f"batch {batch}, Adam; from files to the trained network, all counted",
                    )
                )  # fmt: skip
    return rows


def resnet18() -> list[Row]:
    return compared("resnet18", 128, 96, 32, {"GroupDRO": 1.5, "ERM": 1.5})


def resnet50() -> list[Row]:
    return compared("resnet50", 224, 16, 8, {"GroupDRO": 1.3, "ERM": 1.3})


def micro() -> list[Row]:
    return compared("micro_resnet", 64, 256, 32, {"ERM": 1.8})
