"""What a wrapped model is held by: something that answers, and that may be opened and written down."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from torch import Tensor

from foveate.assemble.network import Network
from foveate.errors import ModelError


class Holding:
    """One way of holding a model: it answers; a subclass may also open it and write it down.

    Args:
        name: what to call the model.
    """

    kind: ClassVar[str] = ""
    """Its word in a saved model; without one it cannot be saved."""
    gradients: ClassVar[bool] = False
    why: str = "nothing inside can be reached"

    def __init__(self, name: str):
        self.name = name

    def __call__(self, inputs: Tensor) -> Any:
        """What the model gives for normalised images ``[B, 3, h, w]``."""
        raise NotImplementedError

    def network(self, size: tuple[int, int], classes: int, layer: str | None) -> Network | None:
        """Backbone and head in one, for images of ``size``; None when it cannot be opened, and ``why`` says why."""
        return None

    def described(self) -> dict[str, Any]:
        """What must be written down beside :meth:`tensors`, as JSON values."""
        raise ModelError(f"{self.name} cannot be saved: {self.why}. Keep its own file.")

    def tensors(self) -> dict[str, Tensor]:
        return {}


class HeldFunction(Holding):
    """A Python function from normalised images to logits: a black box."""

    why = "it is a Python function, of which foveate sees the answers alone"

    def __init__(self, name: str, run: Callable[[Tensor], Any]):
        super().__init__(name)
        self.run = run

    def __call__(self, inputs: Tensor) -> Any:
        return self.run(inputs)
