"""Parts of an object found from class labels alone: prototypes, part maps and the part classifier.

Reference: Aniraj et al. 2024, "PDiscoFormer: Relaxing Part Discovery Constraints with Vision Transformers",
and its use as stage 1 in "Two-stage Vision Transformers and Hard Masking offer Robust Object Representations"
(arXiv 2506.08915). The losses are in :mod:`foveate.decide.part_losses`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveate.errors import ModelError
from foveate.look.gaze import Gaze


def prototype_distances(features: Tensor, prototypes: Tensor) -> Tensor:
    """Squared distances ``[B, K + 1, h, w]`` of ``features [B, D, h, w]`` to ``prototypes [K + 1, D]``.

    ``|x|² - 2 x.p + |p|²``, always in at least float32 and about the mean prototype: the terms are large and their
    difference small, which half precision would lose.

    >>> prototype_distances(torch.tensor([3.0, 4.0]).view(1, 2, 1, 1), torch.tensor([[3.0, 4.0], [0.0, 0.0]])).flatten()
    tensor([ 0., 25.])
    """
    with torch.autocast(features.device.type, enabled=False):
        wide = torch.promote_types(features.dtype, torch.float32)
        p = prototypes.to(wide)
        centre = p.detach().mean(0)  # distances do not depend on it, rounding does
        x, p = features.to(wide) - centre[:, None, None], p - centre
        cross = torch.einsum("bdhw,kd->bkhw", x, p)
        squared = x.square().sum(1, keepdim=True) - 2 * cross + p.square().sum(1)[None, :, None, None]
        return squared.clamp(min=0)


def assign_parts(logits: Tensor, *, temperature: float = 1.0, noise: bool = False) -> Tensor:
    """Soft assignment of every place to a part: softmax over axis 1 of ``(logits + Gumbel noise) / temperature``.

    Each call with ``noise`` draws anew; stage 2 takes a sample of its own from the same logits.

    >>> assign_parts(torch.zeros(1, 5, 1, 1)).flatten()
    tensor([0.2000, 0.2000, 0.2000, 0.2000, 0.2000])
    """
    if noise:
        return F.gumbel_softmax(logits, tau=temperature, hard=False, dim=1)
    return (logits / temperature).softmax(1)


def part_vectors(features: Tensor, maps: Tensor) -> Tensor:
    """``v[k] = 1/(h w) sum A[k] x``: ``[B, K + 1, D]`` from ``[B, D, h, w]`` and ``[B, K + 1, h, w]``.

    The mean is over all places, not over the mass of the map, so a small part has a short vector.
    """
    return torch.einsum("bkhw,bdhw->bkd", maps, features.to(maps.dtype)) / (maps.shape[-2] * maps.shape[-1])


@dataclass
class PartOutput:
    """What part discovery says about a batch of B images.

    Attributes:
        maps: soft part maps ``[B, K + 1, h, w]``, background last, 1 in sum at every place.
        distances: squared distances to the prototypes, ``[B, K + 1, h, w]``; ``-distances`` are the logits of the
            maps before noise.
        vectors: part vectors ``[B, K + 1, D]``.
        modulated: the same after the joint layer norm; the orthogonality loss reads these.
        part_logits: class scores of every foreground part, ``[B, K, classes]``.
        logits: their mean, ``[B, classes]``.
    """

    maps: Tensor
    distances: Tensor
    vectors: Tensor
    modulated: Tensor
    part_logits: Tensor
    logits: Tensor

    @property
    def assignments(self) -> Tensor:
        """The part with the largest map at every place, ``[B, h, w]``; K is the background."""
        return self.maps.argmax(1)

    def gaze(self) -> Gaze:
        """Where the parts are: one minus the background."""
        parts = self.maps.detach()
        return Gaze(1 - parts[:, -1], kind="parts", parts=parts, mask=self.assignments < parts.shape[1] - 1)


class PartDiscovery(nn.Module):
    """K part prototypes and one for the background over the feature map of any backbone, and a part classifier.

    ``centres [K + 1, D]`` remember the mean training token of each part, which :meth:`centre_on` finds after training.

    Args:
        dim: channels D of the feature map.
        parts: number of foreground parts K.
        classes: number of classes.
        temperature: of the (Gumbel) softmax.
        gumbel: add Gumbel noise to the assignments in training.
        noise_at_eval: also at evaluation, as the released code does; results are then not repeatable.
        dropout: chance that a whole part vector is zeroed in training (the others are scaled up).

    >>> discovery = PartDiscovery(dim=8, parts=3, classes=2).eval()
    >>> out = discovery(torch.randn(4, 8, 6, 6))
    >>> tuple(out.maps.shape), tuple(out.logits.shape)
    ((4, 4, 6, 6), (4, 2))
    """

    centres: Tensor

    def __init__(
        self,
        dim: int,
        parts: int,
        classes: int,
        *,
        temperature: float = 1.0,
        gumbel: bool = True,
        noise_at_eval: bool = False,
        dropout: float = 0.3,
    ):
        super().__init__()
        if parts < 1:
            raise ModelError(f"part discovery needs at least one part; got parts={parts}.")
        if temperature <= 0:
            raise ModelError(f"the temperature must be positive; got {temperature}.")
        if not 0 <= dropout < 1:
            raise ModelError(f"part dropout is a probability below 1; got {dropout}.")
        self.parts = parts
        self.temperature = temperature
        self.gumbel = gumbel
        self.noise_at_eval = noise_at_eval
        self.prototypes = nn.Parameter(torch.empty(parts + 1, dim).uniform_(-(dim**-0.5), dim**-0.5))
        self.register_buffer("centres", self.prototypes.detach().clone())
        # one norm over parts and channels together: parts keep their relative size, each has its own gain and bias
        self.modulation = nn.LayerNorm((parts + 1, dim))
        self.dropout = nn.Dropout1d(dropout)
        self.classifier = nn.Linear(dim, classes, bias=False)

    def forward(self, features: Tensor) -> PartOutput:
        """Parts of ``features [B, D, h, w]`` (patch tokens after the final norm, laid out on their grid)."""
        if features.ndim != 4 or features.shape[1] != self.prototypes.shape[1]:
            raise ModelError(
                f"part discovery expects a feature map [B, {self.prototypes.shape[1]}, h, w]; got "
                f"{list(features.shape)}. Lay tokens out on their grid first (Backbone.maps)."
            )
        if self.parts > features.shape[2] * features.shape[3]:
            raise ModelError(
                f"{self.parts} parts cannot be told apart on a map of {features.shape[2]}x{features.shape[3]} "
                "places. Use fewer parts or larger images."
            )
        distances = prototype_distances(features, self.prototypes)
        return self.classify(features, self.sample(distances), distances)

    def sample(self, distances: Tensor) -> Tensor:
        """Part maps from :func:`prototype_distances`, with noise where this module uses it; a new draw each call."""
        noise = self.gumbel and (self.training or self.noise_at_eval)
        return assign_parts(-distances, temperature=self.temperature, noise=noise)

    def classify(self, features: Tensor, maps: Tensor, distances: Tensor) -> PartOutput:
        """The rest of the forward pass from given maps, for instance after parts were removed."""
        vectors = part_vectors(features, maps)
        modulated = self.modulation(vectors)
        part_logits = self.classifier(self.dropout(modulated)[:, : self.parts])
        return PartOutput(maps, distances, vectors, modulated, part_logits, part_logits.mean(1))

    @torch.no_grad()
    def centre_on(self, batches: Iterable[Tensor]) -> None:
        """Set ``centres`` to the mean of the tokens of each part over ``batches`` of features ``[B, D, h, w]``.

        A prototype marks where its part meets the others and may lie far from all tokens; a centre lies among them. A
        part without tokens keeps its prototype as centre.
        """
        sums, counts = torch.zeros_like(self.prototypes, dtype=torch.float64), None
        for features in batches:
            part = F.one_hot(prototype_distances(features, self.prototypes).argmin(1), len(sums)).double()
            sums += torch.einsum("bhwk,bdhw->kd", part, features.double())
            counts = part.sum((0, 1, 2)) + (0 if counts is None else counts)
        if counts is None:
            raise ModelError("the centres of parts are means over tokens, and there were no images.")
        found = (sums / counts.clamp(min=1)[:, None]).to(self.centres.dtype)
        self.centres.copy_(torch.where(counts[:, None] > 0, found, self.prototypes))

    def dot_products(self, features: Tensor) -> Tensor:
        """``x.p`` for every place and prototype, ``[B, K + 1, h, w]``: what the released token removal thresholds."""
        return torch.einsum("bdhw,kd->bkhw", features.float(), self.prototypes.float())
