"""How a pipeline reads images: where features are kept, what happens to bad files, how many at a time."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveate.data.dataset import GroupedDataset
from foveate.data.loading import Loader, OnBad
from foveate.data.preprocess import Preprocess
from foveate.errors import DataError, FoveateError
from foveate.extract import FeatureStore, FrozenModel
from foveate.extract.features import Features


@dataclass(frozen=True)
class Reading:
    """The settings, and the two ways features of a whole dataset are had with them."""

    store: str | Path | None = None
    on_bad: OnBad = "raise"
    workers: int = 0
    batch_size: int = 32
    seed: int = 0
    accelerator: str = "auto"
    progress: bool = True

    def check(self) -> None:
        if self.batch_size < 1:
            raise FoveateError(f"batch_size={self.batch_size} does not fit; at least one image is embedded at a time.")
        if self.on_bad not in ("raise", "skip"):
            raise FoveateError(f"on_bad is 'raise' or 'skip'; found '{self.on_bad}'.")

    def features(
        self,
        model: FrozenModel,
        dataset: GroupedDataset,
        view: Preprocess,
        *,
        layer: str = "pooled",
        readout: Callable[[Tensor], Tensor] | None = None,
        key: dict[str, Any] | None = None,
        views: Sequence[int] = (),
        copies: int = 0,
        workers: int | None = None,
        on_bad: OnBad | None = None,
    ) -> Features:
        """Features of ``dataset`` from the store, computed when they are not there.

        Args:
            model: the network that reads.
            view: how images reach it, or the readout.
            layer: what of the network; or
            readout: anything of a batch ``[B, 3, h, w]``, named by ``key`` and ``views``.
            copies: augmented copies beside the plain images.
        """
        what: dict[str, Any] = {"layer": layer}
        if readout is not None:
            named = json.dumps({"views": list(views), **(key or {})}, sort_keys=True)
            what = {"readout": lambda _, images: readout(images), "key": named}
        scale = max(1, view.size[0] // max(model.size, 1))
        return FeatureStore(self.store).read(
            model.backbone, dataset, view, copies=copies, seed=self.seed,
            # fewer at a time when they are read larger than the network sees them
            batch_size=max(min(4, self.batch_size), self.batch_size // scale**2),
            workers=self.workers if workers is None else workers, on_bad=on_bad or self.on_bad,
            progress=None if self.progress else lambda done, total: None, **what,
        )  # fmt: skip

    @torch.no_grad()
    def with_masks(
        self, dataset: GroupedDataset, view: Preprocess, readout: Callable[[Tensor], Tensor]
    ) -> NDArray[np.float32]:
        """What ``readout`` makes of images with their true masks as a fourth channel; not kept in the store."""
        found = []
        for batch in Loader(dataset, view, cache_bytes=0).in_order(self.batch_size):
            masks = [dataset.mask(int(i)) for i in batch.indices]
            if any(m is None for m in masks):
                raise DataError(
                    f"this model looks at true masks, and {dataset.name} has none. Add a 'mask' column, or choose "
                    "another look."
                )
            made = torch.stack([view.prepare_mask(m) for m in masks if m is not None])
            found.append(readout(torch.cat([view.normalise(batch.inputs), made[:, None]], 1)))
        return torch.cat(found).cpu().numpy()
