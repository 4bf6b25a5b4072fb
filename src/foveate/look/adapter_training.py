"""Training of the attention adapter: lower the held-out loss of a classifier on the crops the adapter would choose.

Reference: A² (Attending on Attention), MLP adapter with differentiable patch selection (bilevel objective).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from foveate.errors import FoveateError, TrainingStopped
from foveate.look.adapter import (
    GRIDS,
    AttentionAdapter,
    bilevel_loss,
    candidate_scores,
    minmax,
    mix_embeddings,
)
from foveate.look.topk import perturbed_topk

AdapterBatch = tuple[Tensor, Tensor, Tensor]
"""Patch tokens ``[B, h * w, D]``, attention ``[B, h, w]``, embeddings of all candidates ``[B, n, E]``."""


@dataclass(frozen=True)
class AdapterSettings:
    """How the adapter is trained. The paper gives none of these but the noise; all values are ours.

    Args:
        steps: outer steps (Adam).
        lr: of the outer steps.
        batch: images the inner classifier is fitted on in a step, and as many held out.
        inner_steps: gradient steps of the inner logistic regression.
        inner_lr: their size in units of the largest that is safe for the features at hand (:func:`safe_step`).
        inner_l2: its penalty.
        crops: how many candidates are chosen.
        sigma: noise on min-max scaled scores at the start. Without enough of it the choice never changes and
            nothing is learned: the usual 0.05 is too little to leave what default attention insists on; at 1
            nearly all candidates are tried.
        sigma_end: noise at the end; it falls linearly in between.
        samples: noise draws a step.
        seed: of batches and noise.
    """

    steps: int = 400
    lr: float = 1e-2
    batch: int = 200
    inner_steps: int = 50
    inner_lr: float = 1.0
    inner_l2: float = 1e-2
    crops: int = 1
    sigma: float = 1.0
    sigma_end: float = 0.05
    samples: int = 50
    seed: int = 0


@dataclass
class AdapterHistory:
    """Held-out loss and accuracy of every outer step."""

    loss: list[float] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)


def scaled_grids(image_size: int) -> tuple[tuple[int, int], ...]:
    """The paper's candidates (for 224 px) at another size: 49 small crops and 9 of twice their side.

    >>> scaled_grids(64)
    ((9, 7), (18, 3))
    """
    return tuple((max(1, round(size * image_size / 224)), count) for size, count in GRIDS)


def choose_crops(maps: Tensor, boxes: Tensor, crops: int = 1, image_size: int = 224) -> Tensor:
    """The hard choice, for evaluation: the ``crops`` best candidates ``[B, crops, 3]`` of every map, by position.

    >>> from foveate.look import candidate_grid
    >>> boxes = candidate_grid(8, [(4, 2)])
    >>> choose_crops(torch.tensor([[[0.0, 0.0], [0.0, 1.0]]]), boxes, image_size=8).tolist()
    [[[4, 4, 4]]]
    """
    chosen = perturbed_topk(candidate_scores(maps, boxes.to(maps.device), image_size), crops, sigma=0)
    return boxes.to(maps.device)[chosen.argmax(2)]


def standardised(z: Tensor, fitted: int) -> Tensor:
    """Features ``[N, D]`` with mean 0 and spread 1 over the first ``fitted`` rows; gradients pass through both.

    Without this an inner classifier of few steps rewards large features above telling ones: what is chosen
    already mixes in at full size, so the choice only hardens, be it the shortcut.

    >>> standardised(torch.tensor([[0.0], [2.0], [4.0]]), fitted=2).flatten().tolist()
    [-1.0, 1.0, 3.0]
    """
    fit = z[:fitted]
    return (z - fit.mean(0)) / fit.std(0, correction=0).clamp(min=1e-6)


def safe_step(z: Tensor, iterations: int = 8) -> float:
    """The step size at which gradient descent on logistic regression cannot overshoot, for features ``[N, D]``.

    One over half the largest eigenvalue of ``zᵀz / N`` (found by power iteration), which bounds the curvature
    of mean cross-entropy. Correlated features make it much smaller than independent ones; at most 2.

    >>> round(safe_step(torch.tensor([[2.0, 2.0], [-2.0, -2.0]])), 3)
    0.25
    """
    with torch.no_grad():
        direction = z.new_ones(z.shape[1])
        size = z.new_zeros(())
        for _ in range(iterations):
            direction = z.T @ (z @ (direction / direction.norm().clamp(min=1e-12))) / len(z)
            size = direction.norm()
    return 2.0 / max(float(size), 1.0)


def train_adapter(
    adapter: AttentionAdapter,
    read: Callable[[Tensor], AdapterBatch],
    labels: Tensor,
    boxes: Tensor,
    *,
    image_size: int = 224,
    weights: Tensor | None = None,
    settings: AdapterSettings | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> AdapterHistory:
    """Train ``adapter`` in place by the bilevel objective.

    Half of the images fit, half are held out (the split is drawn anew every step): the map scores the candidates,
    the best are chosen with noise, their embeddings mixed and standardised; a logistic regression is fitted to the
    one half in unrolled steps, and its loss on the other half is what the adapter lowers.

    Args:
        adapter: starts as no change of attention.
        read: gives tokens, attention and candidate embeddings of the images at some positions.
        labels: classes ``[N]`` of all images.
        boxes: the candidates, ``[n, 3]`` (:func:`~foveate.look.candidate_grid`).
        image_size: side of the image the boxes live in.
        weights: of the images in the *held-out* loss, ``[N]``; by default all count the same.
        settings: everything else.
        progress: called with ``(steps done, steps)``.

    >>> from foveate.look import candidate_grid
    >>> tokens = torch.eye(4).repeat(64, 1, 1)                    # four patches that an MLP can tell apart
    >>> labels = torch.arange(64) % 2
    >>> embeddings = torch.zeros(64, 4, 1)
    >>> embeddings[:, 3, 0] = labels * 2.0 - 1                    # only the last candidate knows the class
    >>> attention = torch.tensor([[0.9, 0.0], [0.0, 0.1]]).repeat(64, 1, 1)
    >>> adapter, boxes = AttentionAdapter(4), candidate_grid(4, [(2, 2)])
    >>> found = train_adapter(adapter, lambda i: (tokens[i], attention[i], embeddings[i]), labels, boxes, image_size=4,
    ...                       settings=AdapterSettings(steps=60, batch=16, lr=0.05))
    >>> choose_crops(adapter(tokens[:1], attention[:1]), boxes, image_size=4).tolist()
    [[[2, 2, 2]]]
    """
    settings = settings or AdapterSettings()
    if settings.batch < 2 or len(labels) < 2:
        raise FoveateError(
            f"the adapter needs at least 2 images and a batch of 2; got {len(labels)}, {settings.batch}."
        )
    classes = int(labels.max()) + 1
    half = min(settings.batch, len(labels) // 2)
    generator = torch.Generator().manual_seed(settings.seed)
    optimiser = torch.optim.Adam(adapter.parameters(), lr=settings.lr)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, max(settings.steps, 1))
    history = AdapterHistory()
    for step in range(settings.steps):
        sigma = settings.sigma + (settings.sigma_end - settings.sigma) * step / max(settings.steps - 1, 1)
        rows = torch.randperm(len(labels), generator=generator)[: 2 * half]
        tokens, attention, embeddings = read(rows)
        scores = minmax(candidate_scores(adapter(tokens, attention), boxes.to(tokens.device), image_size))
        chosen = perturbed_topk(scores, settings.crops, sigma, settings.samples, generator)
        z, y = standardised(mix_embeddings(chosen, embeddings), half), labels[rows].to(embeddings.device)
        step_size = settings.inner_lr * safe_step(z[:half])
        loss, logits = bilevel_loss(
            z[:half], y[:half], z[half:], y[half:], settings.inner_steps, step_size, classes, settings.inner_l2,
            None if weights is None else weights[rows[half:]],
        )  # fmt: skip
        if not bool(torch.isfinite(loss)):
            raise TrainingStopped(f"the adapter's loss is not finite at step {step}; lower inner_lr or lr.")
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
        history.loss.append(float(loss.detach()))
        history.accuracy.append(float((logits.argmax(1) == y[half:]).float().mean()))
        if progress is not None:
            progress(step + 1, settings.steps)
    return history
