"""Models for the page: made once, tiny; what matters is that a part removed changes a prediction."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

import foveate as fv
from foveate.data.benchmark import Benchmark

SMALL = {"embed_dim": 24, "depth": 2, "num_heads": 2, "patch_size": 8}


@pytest.fixture(scope="session")
def critters() -> Benchmark:
    return fv.data.critters(train=48, target=16, val=40, test=16, size=32)


@pytest.fixture(scope="session")
def saved_models(critters: Benchmark, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``ifam`` and ``erm``.

    After one epoch an iFAM hardly reads its mask; its head is turned so that the amount that is let through decides:
    removing a part of any size then moves the logits of the images that show it.
    """
    folder = tmp_path_factory.mktemp("models")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ifam = fv.IFAM("micro_vit", parts=3, model_args=SMALL, epochs=1, progress=False, seed=1).fit(critters.train)
        erm = fv.ERM("micro_resnet", epochs=1, progress=False).fit(critters.train)
    _let_the_mask_decide(ifam, critters)
    ifam.save(folder / "ifam")
    erm.save(folder / "erm")
    return folder


def _let_the_mask_decide(ifam: fv.IFAM, data: Benchmark) -> None:
    """Fit stage 2's head so that class 0 means "part 0 is seen" on the validation images."""
    network = ifam.network_.eval()
    inputs = ifam.preprocess_.normalise(torch.stack([ifam.preprocess_.prepare(s.image) for s in data.val]))
    with torch.no_grad():
        maps = network.parts(inputs)[1].maps
        both = []
        for gone in ((), (0,)):
            changed = fv.intervene.remove_parts(maps, gone)
            moved = inputs * network._scale + network._shift
            features = network.stage2.features(moved, network.token_mask(changed) > 0.5)
            both.append(network.stage2.head[0](features))
        shows = (maps.argmax(1) == 0).flatten(1).any(1)
        assert shows.float().mean() > 0.3, "the fixture needs a part 0 that occurs"
        step = (both[0] - both[1])[shows].mean(0)
        middle = float((torch.cat(both) @ step).median())
        weight = step / step.norm() ** 2 * 8
        # no bias in this head: the feature's own mean direction stands in for one
        centre = torch.cat(both).mean(0)
        weight = weight - centre * (middle / float(step.norm() ** 2) * 8) / float(centre @ centre)
        network.stage2.head[1].weight.copy_(torch.stack([weight, -weight]))


@pytest.fixture(scope="session")
def toggled(saved_models: Path, critters: Benchmark) -> int:
    """A validation image whose prediction changes when part 0 is switched off."""
    system = fv.load(saved_models / "ifam")
    changed = system.predict(critters.val) != system.with_parts_removed([0]).predict(critters.val)
    assert changed.any(), "the fixture's model does not read part 0"
    return int(np.flatnonzero(changed)[0])
