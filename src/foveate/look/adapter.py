"""A learned correction to attention, for labels that sit where default attention does not look.

The adapter is trained through the crops it would choose: its map scores a fixed grid of candidate crops, the
best are chosen with noise (:func:`~foveate.look.perturbed_topk`), their embeddings (computed once, the embedder
is frozen) fit a logistic regression in a few unrolled steps, and the loss of *that* on held-out images is what
the adapter lowers.

Reference: A² (Attending on Attention), MLP adapter with differentiable patch selection.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveate.errors import FoveateError
from foveate.measure.localisation import bilinear_weights

GRIDS = ((32, 7), (64, 3))
"""Candidate crops as (size, per side): 49 of 32 px and 9 of 64 px, 58 in all.

The paper's text gives the counts the other way round; 7 x 7 is what tiles 224 px with 32 px squares.
"""


class AttentionAdapter(nn.Module):
    """A per-patch MLP whose output is added to the attention map; it starts as no change at all.

    Args:
        dim: width of the patch tokens. With 384 and 8 hidden units it has 3,089 parameters.
        hidden: hidden units.

    >>> adapter = AttentionAdapter(dim=4)
    >>> attention = torch.rand(2, 3, 5)
    >>> torch.equal(adapter(torch.rand(2, 15, 4), attention), attention)
    True
    """

    def __init__(self, dim: int, hidden: int = 8):
        super().__init__()
        first, last = nn.Linear(dim, hidden), nn.Linear(hidden, 1)
        self.mlp = nn.Sequential(first, nn.GELU(), last)
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def forward(self, tokens: Tensor, attention: Tensor) -> Tensor:
        """Patch tokens ``[B, h * w, dim]`` and their attention ``[B, h, w]`` to an adapted map ``[B, h, w]``."""
        batch, height, width = attention.shape
        if tokens.shape[:2] != (batch, height * width):
            raise FoveateError(
                f"expected {height * width} patch tokens for a map of {height} x {width}; found {tuple(tokens.shape)}. "
                "Leave the class token and registers out."
            )
        return attention + self.mlp(tokens).view(batch, height, width)


def candidate_grid(image_size: int = 224, grids: Sequence[tuple[int, int]] = GRIDS) -> Tensor:
    """The fixed crops to choose from, evenly spread: ``int64 [n, 3]`` of ``(x, y, size)``.

    Args:
        image_size: side of the image.
        grids: ``(size, per side)`` of each set.

    >>> candidate_grid(8, [(4, 2)]).tolist()
    [[0, 0, 4], [4, 0, 4], [0, 4, 4], [4, 4, 4]]
    >>> len(candidate_grid())
    58
    """
    boxes = []
    for size, count in grids:
        if size > image_size or count < 1:
            raise FoveateError(f"cannot lay {count} x {count} crops of {size} px on an image of {image_size} px.")
        free = image_size - size
        at = [free // 2] if count == 1 else [round(free * i / (count - 1)) for i in range(count)]
        boxes += [(x, y, size) for y in at for x in at]
    return torch.tensor(boxes, dtype=torch.int64)


def candidate_scores(maps: Tensor, boxes: Tensor, image_size: int = 224) -> Tensor:
    """Mean of each bilinearly upsampled map inside each candidate, ``[B, n]``; differentiable.

    The mean, because a sum would favour the larger crops (the paper leaves it open).

    Args:
        maps: ``[B, h, w]``.
        boxes: ``[n, 3]`` of ``(x, y, size)``, the same for all images.
        image_size: side of the image the boxes live in.

    >>> candidate_scores(torch.ones(1, 4, 4), candidate_grid(16, [(4, 2), (8, 1)]), 16)
    tensor([[1., 1., 1., 1., 1.]])
    """
    x, y, size = boxes.unbind(1)
    pixel = torch.arange(image_size, device=boxes.device)

    def window(start: Tensor, cells: int) -> Tensor:  # [n, cells], rows sum to 1
        inside = ((pixel >= start[:, None]) & (pixel < (start + size)[:, None])).double()
        return ((inside @ bilinear_weights(cells, image_size).to(boxes.device)) / size[:, None]).to(maps)

    rows, columns = window(y, maps.shape[1]), window(x, maps.shape[2])
    return torch.einsum("nh,bhw,nw->bn", rows, maps, columns)


def minmax(scores: Tensor) -> Tensor:
    """Each row of ``[B, n]`` brought to ``[0, 1]``, so that one noise level suits all images.

    >>> minmax(torch.tensor([[0.002, 0.004, 0.003]])).round(decimals=4).tolist()
    [[0.0, 1.0, 0.5]]
    """
    low, high = scores.amin(1, keepdim=True), scores.amax(1, keepdim=True)
    return (scores - low) / (high - low).clamp(min=1e-12)


def mix_embeddings(selection: Tensor, embeddings: Tensor) -> Tensor:
    """Chosen crops' embeddings side by side, ``[B, k * D]``.

    Mixing embeddings instead of pixels needs every candidate embedded once and for all; both are the same
    when the choice is hard.

    Args:
        selection: ``[B, k, n]`` from :func:`~foveate.look.perturbed_topk`.
        embeddings: of all candidates, ``[B, n, D]``.

    >>> mix_embeddings(torch.eye(2)[None, [1]], torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])).tolist()
    [[3.0, 4.0]]
    """
    return (selection @ embeddings).flatten(1)


def unrolled_logistic(
    z: Tensor, y: Tensor, steps: int, lr: float, classes: int | None = None, l2: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Logistic regression by a few gradient steps from zero, differentiable with respect to its inputs.

    Args:
        z: features ``[N, D]``; standardised features make one ``lr`` fit most cases.
        y: classes ``[N]``.
        steps, lr: full-batch gradient steps of mean cross-entropy and their size.
        classes: how many there are, by default ``y.max() + 1``.
        l2: weight of ``|w|² / 2``.

    Returns:
        ``(w [D, classes], b [classes])``; the graph through all steps is kept.

    >>> w, b = unrolled_logistic(torch.tensor([[-1.0], [1.0]]), torch.tensor([0, 1]), steps=1, lr=1.0)
    >>> w.tolist(), b.tolist()
    ([[-0.5, 0.5]], [0.0, 0.0])
    """
    count = int(y.max()) + 1 if classes is None else classes
    target = F.one_hot(y, count).to(z)
    w, b = z.new_zeros(z.shape[1], count), z.new_zeros(count)
    for _ in range(steps):
        # the gradient of mean cross-entropy written out: autograd need not be nested
        error = ((z @ w + b).softmax(1) - target) / len(z)
        w, b = w - lr * (z.T @ error + l2 * w), b - lr * error.sum(0)
    return w, b


def bilevel_loss(
    z_fit: Tensor, y_fit: Tensor, z_held: Tensor, y_held: Tensor, steps: int, lr: float, classes: int | None = None,
    l2: float = 0.0, weights: Tensor | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Held-out cross-entropy (a scalar) of a logistic regression fitted in ``steps`` unrolled steps, and its logits.

    Args: features ``[N, D]`` and classes ``[N]`` of the images fitted on and of those held out; ``weights [N]`` of
    those held out, by default all alike; the rest as for :func:`unrolled_logistic`. Gradients reach both sets of
    features.

    >>> z, y = torch.tensor([[-1.0], [1.0]]), torch.tensor([0, 1])
    >>> loss, logits = bilevel_loss(z, y, z, y, steps=1, lr=1.0)
    >>> round(loss.item(), 4), logits.tolist()                                        # log(1 + exp(-1))
    (0.3133, [[0.5, -0.5], [-0.5, 0.5]])
    """
    if classes is None:
        classes = int(max(y_fit.max(), y_held.max())) + 1
    w, b = unrolled_logistic(z_fit, y_fit, steps, lr, classes, l2)
    logits = z_held @ w + b
    losses = F.cross_entropy(logits, y_held, reduction="none")
    own = torch.ones_like(losses) if weights is None else weights.to(losses)
    return (losses * own).sum() / own.sum().clamp(min=1e-12), logits
