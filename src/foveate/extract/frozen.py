"""Running a frozen backbone: what is read out of it, and proof that it is left as it was."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.data.loading import Batch
from foveate.data.preprocess import Preprocess
from foveate.engine.seeds import derived_seed
from foveate.errors import ModelError, StorageError
from foveate.extract.backbone import Backbone

ReadOut = Callable[[Backbone, Tensor], Tensor]
"""``readout(backbone, inputs[B, 3, h, w]) -> [B, ...]``, on normalised float images."""


def layer_readout(backbone: Backbone, name: str) -> ReadOut:
    """Read out a layer by name."""
    if name == "pooled":
        return lambda net, x: net(x)
    if name == "maps":
        return lambda net, x: net.maps(x)
    modules = dict(backbone.named_modules())
    if name not in modules:
        raise ModelError(
            f"{backbone.spec.name} has no layer '{name}'. Use 'pooled', 'maps', or one of its modules: "
            f"{', '.join(n for n in modules if n.count('.') == 1)}."
        )
    module: nn.Module = modules[name]

    def read(net: Backbone, x: Tensor) -> Tensor:
        caught: list[Tensor] = []
        handle = module.register_forward_hook(lambda _module, _inputs, output: caught.append(output))
        try:
            net(x)
        finally:
            handle.remove()
        if not caught:
            raise ModelError(f"{net.spec.name} does not use its layer '{name}' in a forward pass.")
        return caught[-1]

    return read


class FrozenRun:
    """One frozen backbone and what is read out of it."""

    def __init__(
        self, backbone: Backbone, preprocess: Preprocess, readout: ReadOut, copies: int, seed: int,
        dtype: np.dtype[Any],
    ):  # fmt: skip
        self.backbone, self.preprocess, self.readout = backbone, preprocess, readout
        self.copies, self.seed, self.dtype = copies, seed, dtype
        self.device = next((p.device for p in backbone.parameters()), torch.device("cpu"))

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Evaluation mode without gradients; afterwards every module is in the mode it was in."""
        modes = [(module, module.training) for module in self.backbone.modules()]
        self.backbone.eval()
        try:
            # not inference_mode: what a net creates lazily here must still be usable in training later
            with torch.no_grad():
                yield
        finally:
            for module, training in modes:
                module.training = training

    def __call__(self, batch: Batch) -> NDArray[Any]:
        """``[B, ...]``, or ``[B, copies + 1, ...]``."""
        plain = self._one(batch.inputs)
        if not self.copies:
            return plain
        copies = [self._one(self._augmented(batch, j)) for j in range(1, self.copies + 1)]
        return np.stack([plain, *copies], axis=1)

    def _augmented(self, batch: Batch, copy: int) -> Tensor:
        """Every image has its own generator: batch size, skipped images and restarts change nothing."""
        images = []
        for image, i in zip(batch.inputs, batch.indices.tolist(), strict=True):
            generator = torch.Generator().manual_seed(derived_seed(self.seed, copy, i))
            images.append(self.preprocess.augment(image[None], generator))
        return torch.cat(images)

    def _one(self, images: Tensor) -> NDArray[Any]:
        inputs = self.preprocess.normalise(images.to(self.device))
        # convolutions on CPU are faster in this layout; the numbers agree to about 1e-6
        out = self.readout(self.backbone, inputs.contiguous(memory_format=torch.channels_last))
        if not isinstance(out, Tensor) or out.ndim < 2 or len(out) != len(images):
            found = list(out.shape) if isinstance(out, Tensor) else type(out).__name__
            raise ModelError(f"a read-out must give one row per image, [{len(images)}, ...]; it gave {found}.")
        rows = out.float().cpu().numpy()
        with np.errstate(over="ignore"):
            stored = np.ascontiguousarray(rows, dtype=self.dtype)
        if self.dtype == np.float16 and np.isinf(stored).any() and not np.isinf(rows).any():
            raise StorageError("some features are too large for float16 (over 65504); use dtype='float32'.")
        return stored
