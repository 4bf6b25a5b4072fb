"""GroupDRO: raise the weight of the groups that do badly, and minimise the weighted loss.

Reference: Sagawa et al. 2020, "Distributionally robust neural networks for group shifts", algorithm 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from foveate.errors import FoveateError


class GroupDROLoss(nn.Module):
    """The GroupDRO objective: ``sum_g q_g * loss_g``, where ``q`` follows the losses by exponentiated
    gradient.

    In training mode every call first updates ``q_g ← q_g * exp(step_size * (loss_g + c_g / sqrt(n_g)))`` and
    renormalises; in eval mode ``q`` stays. Use it with a group-balanced sampler.

    Groups without a sample in the batch: by default they keep their weight exactly, and only the groups that
    are there share what they had among them. With ``absent="reference"`` they count with loss 0, as in the
    public reference code (github.com/kohpangwei/group_DRO, loss.py), and so lose weight to the others whenever they
    are missing; and all groups start with the same weight, those without any training image included. Either way
    they add nothing to the objective, which is *not* rescaled for them: rescaling would train hard on groups whose
    weight is small whenever the group that matters is missing.

    The adjustment moves ``q`` only; the loss returned does not contain it (the reference reports it inside).
    It is applied whatever its sign (the reference applies it only when all entries are positive).

    Args:
        num_groups: G.
        step_size: eta, 0.01 in the paper.
        adjustment: C, one number or one per group; needs ``counts``.
        counts: training images per group, ``[G]``. Groups with none start (and stay) at weight 0; with
            ``absent="reference"`` they start like the others and only lose weight from there.
        absent: ``"keep"`` or ``"reference"``.

    >>> import math
    >>> loss = GroupDROLoss(num_groups=2, step_size=math.log(2))
    >>> loss(torch.tensor([1.0, 0.0]), torch.tensor([0, 1]))
    tensor(0.6667)
    >>> loss.q
    tensor([0.6667, 0.3333])
    """

    log_q: Tensor
    adjustment: Tensor

    def __init__(
        self,
        num_groups: int,
        step_size: float = 0.01,
        adjustment: float | Sequence[float] | Tensor = 0.0,
        counts: Sequence[int] | Tensor | None = None,
        absent: str = "keep",
    ):
        super().__init__()
        if absent not in ("keep", "reference"):
            raise FoveateError(f"GroupDROLoss: absent must be 'keep' or 'reference'; got '{absent}'.")
        if num_groups < 1 or step_size < 0:
            raise FoveateError(
                f"GroupDROLoss: expected num_groups >= 1 and step_size >= 0; got {num_groups}, {step_size}."
            )
        self.num_groups, self.step_size, self.absent = num_groups, step_size, absent
        self.counts = None if counts is None else torch.as_tensor(counts, dtype=torch.float32)
        if self.counts is not None and (self.counts.shape != (num_groups,) or not bool((self.counts > 0).any())):
            raise FoveateError(f"GroupDROLoss: expected {num_groups} counts, not all zero; got {self.counts.tolist()}.")
        alike = torch.ones(num_groups)
        present = alike if self.counts is None or absent == "reference" else (self.counts > 0).float()
        # Kept as logarithms: over many steps a weight can pass below what float32 holds and still come back.
        self.register_buffer("log_q", (present / present.sum()).log())
        self.register_buffer("adjustment", torch.zeros(num_groups))
        self.set_adjustment(adjustment)

    @property
    def q(self) -> Tensor:
        """The weights of the groups, ``[G]``; they sum to 1."""
        return self.log_q.exp()

    def set_adjustment(self, adjustment: float | Sequence[float] | Tensor) -> None:
        """Set C (one number or one per group), for instance to :func:`automatic_adjustment` after an
        epoch."""
        c = torch.as_tensor(adjustment, dtype=torch.float32).expand(self.num_groups)
        if bool((c != 0).any()) and self.counts is None:
            raise FoveateError("GroupDROLoss: an adjustment needs counts, the training images per group.")
        self.adjustment.copy_(c)

    def forward(self, losses: Tensor, groups: Tensor) -> Tensor:
        """``losses`` ``[B]``, one per example; ``groups`` ``int [B]``. Returns the objective, a scalar."""
        means, present = group_means(losses, groups, self.num_groups)
        if self.training:
            self._update(means.detach(), present)
        return (self.q.to(means.dtype) * means).sum()

    @torch.no_grad()
    def _update(self, means: Tensor, present: Tensor) -> None:
        gain = means.to(self.log_q)
        if self.counts is not None:
            n = self.counts.to(gain.device)
            gain = gain + torch.where(n > 0, self.adjustment / n.clamp(min=1).sqrt(), 0.0)
        moved = self.log_q + self.step_size * gain
        if self.absent == "keep":
            present = present & torch.isfinite(self.log_q)
            if not bool(present.any()):
                return
            before, after = self.log_q[present].logsumexp(0), moved[present].logsumexp(0)
            self.log_q[present] = moved[present] - after + before
        else:
            self.log_q.copy_(moved)
        self.log_q -= self.log_q.logsumexp(0)  # rounding must not add up over the steps


def group_means(losses: Tensor, groups: Tensor, num_groups: int) -> tuple[Tensor, Tensor]:
    """Mean loss of every group ``[G]`` (0 when absent) and which groups are there, ``bool [G]``.

    >>> group_means(torch.tensor([1.0, 3.0, 5.0]), torch.tensor([0, 0, 2]), 3)
    (tensor([2., 0., 5.]), tensor([ True, False,  True]))
    """
    if losses.ndim != 1 or losses.shape != groups.shape:
        raise FoveateError(
            f"expected a loss and a group per example, [B]; got {tuple(losses.shape)}, {tuple(groups.shape)}."
        )
    if len(groups) and not 0 <= int(groups.min()) <= int(groups.max()) < num_groups:
        raise FoveateError(
            f"groups run from {int(groups.min())} to {int(groups.max())}, but there are {num_groups} groups."
        )
    counts = torch.bincount(groups, minlength=num_groups)
    sums = torch.zeros(num_groups, dtype=losses.dtype, device=losses.device).index_add(0, groups, losses)
    return sums / counts.clamp(min=1), counts > 0


def automatic_adjustment(val_losses: Tensor, train_losses: Tensor, counts: Tensor) -> Tensor:
    """C for every group from its generalisation gap: ``(val loss − train loss) * sqrt(n)``, all ``[G]``.

    After division by ``sqrt(n)`` in the objective, each group is judged by its validation loss.

    >>> automatic_adjustment(torch.tensor([0.75, 2.0]), torch.tensor([0.5, 0.5]), torch.tensor([100, 4]))
    tensor([2.5000, 3.0000])
    """
    return (val_losses - train_losses) * counts.to(val_losses).sqrt()
