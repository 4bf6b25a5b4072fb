"""One model of parts on one dataset under many interventions, without asking stage 1 again for each."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveate.assemble.parted import Parted
from foveate.assemble.parts_network import Intervention
from foveate.data.dataset import GroupedDataset
from foveate.data.loading import Loader, OnBad
from foveate.engine import default_device
from foveate.measure import answered, decided
from foveate.restrict.removal import Measure

REMEMBERED = 4096
"""Stage-2 results kept for one dataset before the oldest are forgotten (or two for each image, if that is more)."""


class Rehearsal:
    """What a model of parts answers on ``dataset`` when parts or tokens are taken away.

    Stage 1 does not depend on what is taken away, so it runs once for each image. Stage 2 sees nothing but its mask
    and runs again only for the images whose mask has changed. Answers equal those of the system itself with the same
    intervention. (PDiscoFormer has no second stage: it is asked again each time.)

    Args:
        system: a fitted iFAM or PDiscoFormer.
        dataset: what it is asked about.
        measure: what token thresholds will be compared with; by default that of the system.
        on_bad: what an unreadable image does, ``"raise"`` or ``"skip"``.
        workers: processes that read images; with none, prepared images are kept in memory up to 1 GB.

    >>> import foveate as fv
    >>> data = fv.data.critters(train=32, target=0, val=16, test=8, size=32)
    >>> small = {"embed_dim": 24, "depth": 1, "num_heads": 2}
    >>> system = fv.IFAM(parts=3, model_args=small, epochs=1, progress=False).fit(data.train)
    >>> rehearsal = Rehearsal(system, data.val)
    >>> answers = rehearsal.logits(Intervention((1,)))
    >>> bool(np.allclose(answers, system.with_parts_removed([1]).predict_logits(data.val), atol=1e-4))
    True
    """

    def __init__(
        self,
        system: Parted,
        dataset: GroupedDataset,
        *,
        measure: Measure | None = None,
        on_bad: OnBad = "raise",
        workers: int = 0,
        batch_size: int = 64,
    ):
        self.system, self.dataset, self.batch_size = system, dataset, batch_size
        self.measure = measure or system.measure
        self._loader = Loader(dataset, system.preprocess_, workers=workers, on_bad=on_bad)
        self._known: dict[tuple[int, bytes], NDArray[np.float32]] = {}
        found: list[tuple[Tensor, Tensor, Tensor]] = []
        for batch in self._loader.in_order(batch_size):
            inputs = system.preprocess_.normalise(batch.inputs)
            found.append((batch.indices, *first_stage(system, inputs, self.measure)))
        columns = [torch.cat(column) for column in zip(*found, strict=True)] if found else [torch.zeros(0)] * 3
        self.rows: NDArray[np.int64] = columns[0].numpy().astype(np.int64)
        self.maps, self.scores = columns[1:]

    def logits(self, change: Intervention) -> NDArray[np.float32]:
        """Logits ``[n, C]`` under ``change``, rows without an answer as in ``predict_logits``."""
        out = np.full((len(self.dataset), len(self.system.class_names_)), np.nan, dtype=np.float32)
        if not len(self.rows):
            return out
        maps = change.apply(self.maps, self.scores)
        keys = [(int(row), seen) for row, seen in zip(self.rows, self._decisive(maps), strict=True)]
        new = np.asarray([i for i, key in enumerate(keys) if key not in self._known], dtype=np.int64)
        pieces = [new[start : start + self.batch_size] for start in range(0, len(new), self.batch_size)]
        fresh: dict[tuple[int, bytes], NDArray[np.float32]] = {}
        for some, batch in zip(pieces, self._loader([self.rows[some] for some in pieces]), strict=True):
            inputs = self.system.preprocess_.normalise(batch.inputs)
            answers = answered(second_stage(self.system, inputs, maps[some]).numpy())
            for i, row in zip(some, answers, strict=True):
                fresh[keys[i]] = row
        self._known.update(fresh)
        for row, key in zip(self.rows, keys, strict=True):
            out[row] = self._known[key]
        for key in list(self._known)[: max(len(self._known) - max(REMEMBERED, 2 * len(self.dataset)), 0)]:
            del self._known[key]
        return out

    def predict(self, change: Intervention) -> NDArray[np.int64]:
        """Class indices ``[n]`` under ``change``; -1 for images that cannot be read, -2 where it has no answer."""
        return decided(self.logits(change))

    def _decisive(self, maps: Tensor) -> list[bytes]:
        """For every image, the bytes that its logits follow from, the image itself aside."""
        network = self.system.network_
        if network.stage2 is None:
            return [row.numpy().tobytes() for row in maps]
        mask = network.token_mask(maps)
        seen = mask.numpy() if network.mask == "soft" else np.packbits(mask.numpy() > 0.5, axis=1)
        return [row.tobytes() for row in seen]


@torch.no_grad()
def first_stage(system: Parted, inputs: Tensor, measure: Measure | None = None) -> tuple[Tensor, Tensor]:
    """Part maps and the scores that token thresholds read, ``[B, K + 1, h, w]`` each, before any intervention."""
    device = default_device(system.training.accelerator)
    network = system.network_.to(device).eval()
    features, output = network.parts(inputs.to(device))
    return output.maps.cpu(), network.token_scores(features, output, measure or system.measure).cpu()


@torch.no_grad()
def second_stage(system: Parted, inputs: Tensor, maps: Tensor) -> Tensor:
    """Logits ``[B, C]`` that follow from normalised images and (changed) part maps."""
    device = default_device(system.training.accelerator)
    network = system.network_.to(device).eval()
    inputs, maps = inputs.to(device), maps.to(device)
    if network.stage2 is not None:
        return network.stage_two(inputs, maps, prune=True).float().cpu()
    features, output = network.parts(inputs)
    return network.discovery.classify(features, maps, output.distances).logits.float().cpu()
