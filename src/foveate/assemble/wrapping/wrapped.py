"""A model trained elsewhere as a system: it predicts, is audited, and is where a remedy starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from foveate.assemble.graphs import NO_GRAPH, Graph, GraphPlan
from foveate.assemble.network import Network
from foveate.assemble.system import Images, System
from foveate.assemble.wrapping.abilities import Abilities
from foveate.assemble.wrapping.answers import checked, logits_in
from foveate.assemble.wrapping.holding import Holding
from foveate.assemble.wrapping.networks import HeldNetwork
from foveate.assemble.wrapping.onnx_files import HeldOnnx
from foveate.errors import ModelError
from foveate.extract.masked_vit import check_maskable
from foveate.look import Gaze
from foveate.look.occlusion import occlusion

_KINDS: dict[str, Callable[[str, dict[str, Any], dict[str, Tensor]], Holding]] = {
    HeldNetwork.kind: HeldNetwork.restored,
    HeldOnnx.kind: HeldOnnx.restored,
}
"""Ways of holding a model that can be read back, by their word in a file."""


class Wrapped(System):
    """A model trained elsewhere: it predicts, can be audited, and is the base of DFR, DAR and other remedies.

    Made by :func:`wrap`; what it can do beyond predicting is in :attr:`abilities`. Where it can be opened it has a
    ``network_`` (a backbone and a head), ``look`` gives Grad-CAM, and it can be saved; else ``look`` is by occlusion.
    """

    assumed_: bool = False
    """Whether nobody said that the classes are those, in that order."""

    def __init__(self, model: Holding | None = None, name: str = "model", layer: str | None = None):
        self.model = model
        self.name = name
        self.layer = layer

    def __repr__(self) -> str:
        return f"Wrapped({self.name}, {len(self.class_names_)} classes: {self.abilities})"

    def __sklearn_clone__(self) -> Wrapped:
        return self  # there is no settings-only form of it, and nothing here can change it

    def supervision(self) -> str:
        return "not known (trained elsewhere)"

    def fit(self, train: Any = None, target: Any = None, val: Any = None, *, callbacks: Any = ()) -> Wrapped:
        raise ModelError(
            f"{self.name} was trained elsewhere and is left as it is; start a remedy from it, for instance "
            "fv.DFR(wrapped).fit(target)."
        )

    def try_out(self) -> None:
        """Show it one blank image: a size that does not fit, or other classes than were named, are told at once."""
        blank = torch.zeros(1, 3, *self.preprocess_.size, dtype=torch.uint8)
        self._logits(self.preprocess_.normalise(blank))

    def _held(self) -> Holding:
        if self.model is None:
            raise ModelError("there is no model in this wrapper; make one with fv.wrap(model).")
        return self.model

    @property
    def network_(self) -> Network | None:
        """Backbone and head in one; None for a black box."""
        return self._held().network(self.preprocess_.size, len(self.class_names_), self.layer)

    @property
    def abilities(self) -> Abilities:
        """What there is to work with inside."""
        network, held = self.network_, self._held()
        if network is None:
            return Abilities(gradients=held.gradients, why=held.why)
        backbone = network.backbone
        try:
            check_maskable(backbone.net)
            masks = True
        except ModelError:
            masks = False
        try:
            with torch.no_grad():
                maps = backbone.maps(torch.zeros(1, 3, *self.preprocess_.size))
        except ModelError:
            return Abilities(embedding=backbone.dim, gradients=held.gradients, masks=masks)
        cuts = getattr(backbone, "cuts", None)
        layer = "its last block" if cuts is None else cuts.layer or "the layer before its pooling"
        tokens = backbone.is_vit if cuts is None else cuts.layout == "tokens"
        embedding = backbone.dim if cuts is None or cuts.embedding is not None else None
        grid = (int(maps.shape[2]), int(maps.shape[3]))
        return Abilities(layer, backbone.map_dim, grid, tokens, masks, embedding, held.gradients)

    @torch.no_grad()
    def _logits(self, inputs: Tensor) -> Tensor:
        return checked(logits_in(self._held()(inputs), self.name), len(inputs), self.class_names_, self.name)

    def look(self, images: Images, method: str = "grad-cam") -> Gaze:
        """Grad-CAM where there is a network to look into, else occlusion (49 predictions an image)."""
        inputs, network = self.inputs(images), self.network_
        if network is not None:
            return network.cpu().eval().gradcam(inputs, method=method)
        return occlusion(self._logits, inputs)

    def graphs(self) -> GraphPlan:
        """One graph, from images to logits, where the model could be opened."""
        network = self.network_
        if network is None:
            raise ModelError(f"{self.name} cannot be exported: {self._held().why}. {NO_GRAPH}")
        shape = {"images": (3, *self.preprocess_.size)}
        return GraphPlan([Graph("model", network.cpu().eval(), shape, ("logits",))])

    # -- saving ---------------------------------------------------------------------------

    def save(self, folder: str | Path) -> Path:
        """Write it to ``folder``: what it computes as data, and its weights; a black box cannot be saved."""
        _ = self.network_  # opened now, if it can be
        return super().save(folder)

    def settings(self) -> dict[str, Any]:
        return {"name": self.name}

    def _config(self) -> dict[str, Any]:
        held = self._held()
        return {"kind": held.kind, **held.described()}

    def _tensors(self) -> dict[str, Tensor]:
        return self._held().tensors()

    def _restore(self, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        told = dict(config)
        kind = told.pop("kind", None)
        if kind not in _KINDS:
            raise ModelError(f"a saved model from elsewhere is one of {', '.join(_KINDS)}; found {str(kind)[:40]!r}.")
        self.name, self.layer = str(self.name)[:200], None
        self.model = _KINDS[kind](self.name, told, tensors)
