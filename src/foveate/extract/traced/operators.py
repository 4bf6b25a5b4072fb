"""Which operators a saved program may name: pure functions of tensors, and nothing that reads, writes or draws."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch

from foveate.errors import ModelError, suggest

_ALLOWED = """
conv1d.default conv2d.default conv2d.padding convolution.default linear.default addmm.default mm.default bmm.default
matmul.default baddbmm.default einsum.default scaled_dot_product_attention.default
batch_norm.default layer_norm.default group_norm.default instance_norm.default rms_norm.default
_native_batch_norm_legit_no_training.default native_layer_norm.default native_group_norm.default
relu.default relu6.default leaky_relu.default elu.default selu.default celu.default gelu.default silu.default
mish.default hardtanh.default hardswish.default hardsigmoid.default sigmoid.default tanh.default softplus.default
prelu.default glu.default softmax.int log_softmax.int _softmax.default _log_softmax.default log_sigmoid.default
hardshrink.default softshrink.default
max_pool2d.default avg_pool2d.default adaptive_avg_pool2d.default adaptive_max_pool2d.default
max_pool2d_with_indices.default _adaptive_avg_pool2d.default adaptive_avg_pool1d.default max_pool1d.default
avg_pool1d.default pad.default constant_pad_nd.default reflection_pad2d.default replication_pad2d.default
upsample_bilinear2d.vec upsample_nearest2d.vec upsample_bicubic2d.vec upsample_bilinear2d.default
upsample_nearest2d.default upsample_bicubic2d.default _upsample_bicubic2d_aa.vec _upsample_bilinear2d_aa.vec
pixel_shuffle.default pixel_unshuffle.default channel_shuffle.default im2col.default
add.Tensor add.Scalar sub.Tensor sub.Scalar rsub.Scalar rsub.Tensor mul.Tensor mul.Scalar div.Tensor div.Scalar
div.Tensor_mode neg.default abs.default sqrt.default rsqrt.default square.default exp.default log.default
pow.Tensor_Scalar pow.Tensor_Tensor pow.Scalar reciprocal.default clamp.default clamp_min.default clamp_max.default
clamp.Tensor maximum.default minimum.default addcmul.default addcdiv.default lerp.Scalar sin.default cos.default
erf.default floor.default round.default sign.default
mean.default mean.dim sum.default sum.dim_IntList amax.default amin.default max.dim max.default min.dim
argmax.default var.correction var.dim std.correction std.dim norm.ScalarOpt_dim linalg_vector_norm.default
logsumexp.default cumsum.default prod.dim_int
view.default reshape.default _unsafe_view.default flatten.using_ints unflatten.int permute.default transpose.int
t.default unsqueeze.default squeeze.default squeeze.dim squeeze.dims expand.default expand_as.default repeat.default
cat.default concat.default stack.default split.Tensor split_with_sizes.default chunk.default unbind.int select.int
slice.Tensor narrow.default index.Tensor index_select.default gather.default roll.default flip.default
contiguous.default clone.default alias.default detach.default lift_fresh_copy.default movedim.int movedim.intlist
numpy_T.default mT.default repeat_interleave.self_int view_as.default type_as.default dropout.default
feature_dropout.default alpha_dropout.default
to.dtype to.device to.dtype_layout _to_copy.default float.default
where.self where.ScalarOther where.ScalarSelf masked_fill.Scalar masked_fill.Tensor eq.Scalar eq.Tensor ne.Scalar
ne.Tensor lt.Scalar lt.Tensor le.Scalar gt.Scalar gt.Tensor ge.Scalar logical_not.default logical_and.default
logical_or.default bitwise_not.default tril.default triu.default
zeros.default ones.default full.default arange.default arange.start arange.start_step new_zeros.default
new_ones.default new_full.default zeros_like.default ones_like.default full_like.default fill.Tensor fill.Scalar
scalar_tensor.default slice_scatter.default select_scatter.default
"""
ALLOWED = frozenset(_ALLOWED.split())
PICK = "getitem"
"""Takes one of several results apart; the only step that is no operator of ATen."""


@cache
def operator(name: str) -> Callable[..., Any]:
    """The operator a step names, ``"conv2d.default"``; an error for any that is not on the list.

    >>> operator("relu.default")(torch.tensor([-1.0, 2.0]))
    tensor([0., 2.])
    >>> operator("from_file.default")
    Traceback (most recent call last):
    foveate.errors.ModelError: a saved network may not use the operator 'from_file.default'...
    """
    if name == PICK:
        return lambda several, which: several[which]
    if name not in ALLOWED:
        raise ModelError(
            f"a saved network may not use the operator '{name[:60]}'.{suggest(name, sorted(ALLOWED))} It must be a "
            "plain function of tensors."
        )
    base, _, overload = name.partition(".")
    packet = getattr(torch.ops.aten, base, None)
    found = getattr(packet, overload, None)
    if found is None:
        raise ModelError(f"this version of torch has no operator '{name}'; update torch.")
    return found


def functional(name: str) -> str:
    """The name of the operator that gives what an in-place one writes: ``relu_.default`` is ``relu.default``.

    >>> functional("add_.Tensor"), functional("conv2d.default")
    ('add.Tensor', 'conv2d.default')
    """
    base, _, overload = name.partition(".")
    return f"{base[:-1]}.{overload}" if base.endswith("_") and not base.startswith("_") else name
