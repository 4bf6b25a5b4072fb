"""Heads that are trained by gradient: features to logits."""

from __future__ import annotations

from torch import nn

from foveate.errors import ModelError


def build_head(kind: str, features: int, classes: int) -> nn.Module:
    """``linear``, ``bias-free``, or ``two-layer`` (one hidden layer of the same width, ReLU)."""
    if kind in ("linear", "bias-free"):
        return nn.Linear(features, classes, bias=kind == "linear")
    if kind == "two-layer":
        return nn.Sequential(nn.Linear(features, features), nn.ReLU(), nn.Linear(features, classes))
    raise ModelError(f"unknown head '{kind}'; use 'linear', 'bias-free' or 'two-layer'.")
