"""A torch module: traced when somebody wants to look inside, and saved as what was traced."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

import torch
from torch import Tensor, nn

from foveate.assemble.network import Network
from foveate.assemble.wrapping.answers import logits_in
from foveate.assemble.wrapping.holding import Holding
from foveate.assemble.wrapping.networks import described_network, traced
from foveate.errors import ModelError, first_line
from foveate.extract.backbone import freeze
from foveate.extract.traced.open import traced_network


class HeldModule(Holding):
    """An ``nn.Module`` from normalised images to logits; read back from disk it is a network of foveate's.

    Args:
        name: what to call it.
        module: the classifier; it is put into evaluation mode and no longer trained.
    """

    kind = "network"
    gradients = True

    def __init__(self, name: str, module: nn.Module):
        super().__init__(name)
        self.module = module.requires_grad_(False)
        with contextlib.suppress(NotImplementedError):  # an exported program has one mode and does not know the word
            module.eval()
        self._opened: dict[tuple[Any, ...], Network | None] = {}
        self._answers: Network | None = None
        self.device = next((t.device for t in [*module.parameters(), *module.buffers()]), torch.device("cpu"))
        if self.device.type == "meta":
            raise ModelError(
                f"{name} has no weights yet (its tensors are on the 'meta' device). Load its weights, and wrap it then."
            )

    def __call__(self, inputs: Tensor) -> Tensor:
        try:
            if self._answers is not None:
                return self._answers(inputs)
            return logits_in(self.module(inputs.to(self.device)), self.name).cpu()
        except ModelError:
            raise
        except Exception as error:  # whatever somebody's module raises
            raise ModelError(
                f"{self.name} cannot be run on images {list(inputs.shape)}: {type(error).__name__}: "
                f"{first_line(error)[:200]} If it was made for another size, say so with image_size (--size)."
            ) from error

    def network(self, size: tuple[int, int], classes: int, layer: str | None) -> Network | None:
        asked = (size, classes, layer)
        if asked not in self._opened:
            self._opened = {asked: self._open(size, classes, layer)}
        return self._opened[asked]

    def _open(self, size: tuple[int, int], classes: int, layer: str | None) -> Network | None:
        module = self.module if self.device.type == "cpu" else copy.deepcopy(self.module).cpu()
        try:
            backbone, rest = traced_network(
                module, size, self.name, layer=layer, logits=lambda found: logits_in(found, self.name)
            )
        except ModelError as error:
            if layer is not None:
                raise
            self.why = str(error).rstrip(".")
            return None
        columns = rest.rehearse(backbone.given)[-1].shape[1]
        network = traced(backbone, rest, one_logit=classes == 2 and columns == 1)
        freeze(network)
        x = torch.randn(3, 3, *size, generator=torch.Generator().manual_seed(2))
        with torch.no_grad():  # torch has a shorter way through some layers, with other last digits: one of the two
            self._answers = None if torch.equal(network(x)[:, -columns:], logits_in(module(x))) else network
        return network

    def _network(self) -> Network:
        found = next(iter(self._opened.values()), None)
        if found is None:
            raise ModelError(f"{self.name} cannot be saved: {self.why}. Keep its own file.")
        return found

    def described(self) -> dict[str, Any]:
        return described_network(self._network())

    def tensors(self) -> dict[str, Tensor]:
        return {k: v.detach().cpu() for k, v in self._network().state_dict().items()}
