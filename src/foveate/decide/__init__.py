"""DECIDE: objectives, samplers and heads: how features become a decision, and what it is trained for.

A decision is a part that is fitted on vectors and gives logits.

>>> import torch
>>> import foveate as fv
>>> from foveate.engine import TensorFeed
>>> train = fv.data.critters(train=40, target=16, val=16, test=16, size=32).train
>>> vectors = torch.nn.functional.one_hot(torch.from_numpy(train.labels)).float()
>>> Logistic(C=1.0).fit(TensorFeed(vectors, train))(vectors[:3]).shape
torch.Size([3, 2])
"""

from typing import Protocol, runtime_checkable

from torch import Tensor

from foveate.decide.cnc import CnCBatch, CnCBatches, cnc_batches, cnc_loss, cnc_two_sided_loss
from foveate.decide.cvar import cvar
from foveate.decide.decision import BalancedLogistic, Decision, Logistic
from foveate.decide.dfr import AbsentGroupWarning, DFRHead
from foveate.decide.gradient import CrossEntropy
from foveate.decide.group_dro import GroupDROLoss, automatic_adjustment, group_means
from foveate.decide.jtt import error_set, upsample_errors
from foveate.decide.l1_logistic import l1_logistic
from foveate.decide.linear import LinearDecision, LinearHead
from foveate.decide.part_losses import PartLossWeights, part_losses, weighted_sum
from foveate.decide.penalties import l1_penalty
from foveate.decide.prompts import PromptHead, TextPrompts
from foveate.decide.reweight import BalancedSampler, reweight, sampling_weights, subsample
from foveate.decide.spectral import spectral_decoupling


@runtime_checkable
class Decide(Protocol):
    """What DECIDE is; :class:`Decision` has the rest of it with plain answers."""

    def __call__(self, vectors: Tensor) -> Tensor:
        """Vectors ``[B, D]`` to logits ``[B, C]``."""
        ...


__all__ = [
    "BalancedLogistic", "CrossEntropy", "Decide", "Decision", "Logistic", "TextPrompts",
    "AbsentGroupWarning", "BalancedSampler", "CnCBatch", "CnCBatches", "DFRHead", "GroupDROLoss",
    "LinearDecision", "LinearHead", "PartLossWeights", "PromptHead", "automatic_adjustment", "cnc_batches", "cnc_loss",
    "cnc_two_sided_loss", "cvar", "error_set", "group_means", "l1_logistic", "l1_penalty", "part_losses",
    "reweight",
    "sampling_weights", "spectral_decoupling", "subsample", "upsample_errors", "weighted_sum",
]  # fmt: skip
