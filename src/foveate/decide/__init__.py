"""Objectives, samplers and heads: how features become a decision, and what it is trained for."""

from foveate.decide.cnc import CnCBatch, CnCBatches, cnc_batches, cnc_loss, cnc_two_sided_loss
from foveate.decide.cvar import cvar
from foveate.decide.dfr import AbsentGroupWarning, DFRHead
from foveate.decide.group_dro import GroupDROLoss, automatic_adjustment, group_means
from foveate.decide.jtt import error_set, upsample_errors
from foveate.decide.l1_logistic import l1_logistic
from foveate.decide.linear import LinearDecision, LinearHead
from foveate.decide.part_losses import PartLossWeights, part_losses, weighted_sum
from foveate.decide.penalties import l1_penalty
from foveate.decide.prompts import PromptHead
from foveate.decide.reweight import BalancedSampler, reweight, sampling_weights, subsample
from foveate.decide.spectral import spectral_decoupling

__all__ = [
    "AbsentGroupWarning", "BalancedSampler", "CnCBatch", "CnCBatches", "DFRHead", "GroupDROLoss",
    "LinearDecision", "LinearHead", "PartLossWeights", "PromptHead", "automatic_adjustment", "cnc_batches", "cnc_loss",
    "cnc_two_sided_loss", "cvar", "error_set", "group_means", "l1_logistic", "l1_penalty", "part_losses",
    "reweight",
    "sampling_weights", "spectral_decoupling", "subsample", "upsample_errors", "weighted_sum",
]  # fmt: skip
