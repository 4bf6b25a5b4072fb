"""Weights out of TensorFlow.js files, and the ResNet-50 of Keras they belong to.

A TensorFlow.js model is ``model.json`` (names, shapes and types in order, and the layers) with the numbers one
after the other in binary shards. The ResNet-50 of Keras differs from timm's in three ways, all taken care of here:
it halves the resolution in the *first* 1x1 convolution of a stage, its convolutions have biases (folded into the
BatchNorm after them), and its BatchNorm has another epsilon, which is read from the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from foveate import compat  # noqa: F401  (before timm)
from foveate.errors import ModelError

from timm.models import register_model  # isort: skip
from timm.models.resnet import Bottleneck, ResNet  # isort: skip

CAFFE_MEAN_BGR = (103.939, 116.779, 123.68)
"""What this network was trained to have taken off its input: blue, green, red in 0..255; nothing is divided."""
KERAS_MEAN = tuple(round(m / 255, 9) for m in reversed(CAFFE_MEAN_BGR))
KERAS_STD = (1 / 255,) * 3
"""The same for red, green, blue in [0, 1], once the first convolution reads its channels in that order."""


@register_model
def resnet50_keras(pretrained: bool = False, eps: float = 1e-3, **args: Any) -> nn.Module:
    """The ResNet-50 (v1) of Keras: strides in the first 1x1 convolutions, BatchNorm epsilon 1e-3."""
    args = {k: v for k, v in args.items() if not k.startswith("pretrained_cfg") and k != "cache_dir"}
    layers = args.pop("layers", (3, 4, 6, 3))
    net: Any = ResNet(Bottleneck, layers, **args)  # type: ignore[arg-type]
    for module in net.modules():
        if isinstance(module, Bottleneck):
            module.conv1.stride, module.conv2.stride = module.conv2.stride, (1, 1)
        elif isinstance(module, nn.BatchNorm2d):
            module.eps = eps
    net.default_cfg = net.pretrained_cfg = {
        "url": "", "num_classes": 1000, "input_size": (3, 224, 224), "pool_size": (7, 7), "first_conv": "conv1",
        "classifier": "fc", "mean": KERAS_MEAN, "std": KERAS_STD,
    }  # fmt: skip
    return net


def read_model(folder: str | Path) -> dict[str, Any]:
    """``model.json`` of a TensorFlow.js model: its layers and the list of its weights."""
    path = Path(folder) / "model.json"
    try:
        model: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        model["weightsManifest"]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{path} is not a readable TensorFlow.js model: {error}.") from error
    return model


def read_tfjs(folder: str | Path) -> dict[str, Tensor]:
    """All tensors of a TensorFlow.js model by name, in TensorFlow's layout.

    Only plain float32 weights are read; quantised ones are refused.
    """
    folder = Path(folder)
    tensors: dict[str, Tensor] = {}
    try:
        for group in read_model(folder)["weightsManifest"]:
            # names of shards come from the file: only plain names beside it are opened
            data = b"".join((folder / Path(name).name).read_bytes() for name in group["paths"])
            at = 0
            for weight in group["weights"]:
                if weight["dtype"] != "float32" or "quantization" in weight:
                    raise ModelError(f"{folder}: '{weight['name']}' is not plain float32; only that is read here.")
                count = int(np.prod(weight["shape"], dtype=np.int64))
                array = np.frombuffer(data, dtype="<f4", count=count, offset=at)
                tensors[weight["name"]] = torch.from_numpy(array.reshape(weight["shape"]).copy())
                at += 4 * count
            if at != len(data):
                raise ModelError(f"{folder}: its weights take {at} bytes, its shards hold {len(data)}.")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{folder} does not hold a whole TensorFlow.js model: {error}.") from error
    return tensors


def keras_epsilon(model: Mapping[str, Any]) -> float:
    """The one epsilon of all BatchNorms in ``model.json``."""
    layers = model["modelTopology"]["model_config"]["config"]["layers"]
    found = {float(layer["config"]["epsilon"]) for layer in layers if layer["class_name"] == "BatchNormalization"}
    if len(found) != 1:
        raise ModelError(f"expected one epsilon for all BatchNorms of the model, found {sorted(found)}.")
    return found.pop()


def keras_resnet_state(tensors: Mapping[str, Tensor], layers: tuple[int, ...] = (3, 4, 6, 3)) -> dict[str, Tensor]:
    """Keras ResNet weights under timm's names, for :func:`resnet50_keras` with ``num_classes`` as in the file.

    Kernels ``[h, w, in, out]`` become ``[out, in, h, w]``; a convolution's bias is taken off the running mean of
    the BatchNorm after it; the first convolution is made to read red, green, blue instead of blue, green, red.
    """
    left = dict(tensors)
    state: dict[str, Tensor] = {}

    def take(name: str) -> Tensor:
        if name not in left:
            raise ModelError(f"the file has no tensor '{name}', so it is not a Keras ResNet-50.")
        return left.pop(name)

    def unit(conv: str, norm: str, to_conv: str, to_norm: str) -> None:
        state[f"{to_conv}.weight"] = take(f"{conv}/kernel").permute(3, 2, 0, 1).contiguous()
        state[f"{to_norm}.weight"] = take(f"{norm}/gamma")
        state[f"{to_norm}.bias"] = take(f"{norm}/beta")
        state[f"{to_norm}.running_mean"] = take(f"{norm}/moving_mean") - take(f"{conv}/bias")
        state[f"{to_norm}.running_var"] = take(f"{norm}/moving_variance")
        state[f"{to_norm}.num_batches_tracked"] = torch.tensor(0)

    unit("conv1", "bn_conv1", "conv1", "bn1")
    state["conv1.weight"] = state["conv1.weight"].flip(1)
    for stage, blocks in enumerate(layers):
        for block in range(blocks):
            keras, timm = f"{stage + 2}{chr(ord('a') + block)}_branch", f"layer{stage + 1}.{block}"
            for i, letter in enumerate("abc", start=1):
                unit(f"res{keras}2{letter}", f"bn{keras}2{letter}", f"{timm}.conv{i}", f"{timm}.bn{i}")
            if block == 0:
                unit(f"res{keras}1", f"bn{keras}1", f"{timm}.downsample.0", f"{timm}.downsample.1")
    state["fc.weight"] = take("fc1000/kernel").T.contiguous()
    state["fc.bias"] = take("fc1000/bias")
    if left:
        raise ModelError(
            f"the file has {len(left)} tensors a Keras ResNet-50 has not, for instance '{next(iter(left))}'."
        )
    return state
