"""The straight-through gradient into a mask over keys, for any model that calls fused attention."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

LARGEST_WEIGHT = 1e4


class _KeyGradient(torch.autograd.Function):
    """Passes attention's output through and adds the gradient that the weights of the keys should get."""

    @staticmethod
    def forward(
        ctx: Any, output: Tensor, query: Tensor, key: Tensor, value: Tensor, weights: Tensor, scale: float
    ) -> Tensor:
        ctx.save_for_backward(output, query, key, value, weights)
        ctx.scale = scale
        return output.view_as(output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:  # type: ignore[override]
        output, query, key, value, weights = ctx.saved_tensors
        with torch.autocast(grad.device.type, enabled=False):
            wide = torch.promote_types(query.dtype, torch.float32)
            query, key, value, output, upstream = (t.to(wide) for t in (query, key, value, output, grad))
            logits = query @ key.transpose(-2, -1) * ctx.scale
            kept = weights[:, None, None, :] > 0
            total = logits.masked_fill(~kept, -torch.inf).logsumexp(-1, keepdim=True)
            # exp(q.k) / sum over kept keys: the attention weight, or what a masked key would enter with
            share = (logits - total).exp().clamp(max=LARGEST_WEIGHT)
            pull = upstream @ value.transpose(-2, -1) - (upstream * output).sum(-1, keepdim=True)
            into = (share * pull).sum((1, 2))
        return grad, None, None, None, into.to(weights.dtype), None


class KeyWeights(TorchFunctionMode):
    """While active, fused attention passes a gradient to ``weights``, the mask over its keys.

    Attention with weighted keys is ``A[i, j] = s[j] exp(q[i].k[j]) / sum_l s[l] exp(q[i].k[l])``. For a hard mask
    s its value is attention with a boolean mask, and so the fused kernel computes it; its derivative with
    respect to ``s[j]`` is not zero, not even where ``s[j] = 0``:
    ``exp(q[i].k[j]) / sum_l s[l] exp(q[i].k[l]) * (v[j] - out[i])``, which is what is added here. The share of a
    masked key can be any number; it is cut at ``LARGEST_WEIGHT``.

    Args:
        weights: the mask over all keys, ``[B, T]``, zeros and ones that carry a gradient.
    """

    def __init__(self, weights: Tensor):
        super().__init__()
        self.weights = weights
        self.calls = 0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        kwargs = dict(kwargs or {})
        result = func(*args, **kwargs)
        if func is not F.scaled_dot_product_attention:
            return result
        self.calls += 1
        query, key, value = (args[i] if i < len(args) else kwargs[n] for i, n in enumerate(("query", "key", "value")))
        scale = kwargs.get("scale") or query.shape[-1] ** -0.5
        return _KeyGradient.apply(result, query, key, value, self.weights, scale)  # type: ignore[no-untyped-call]
