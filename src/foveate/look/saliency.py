"""Where the object is, whatever it is: U2-Net-p, a small saliency network, and the seed step of FOUND on any ViT."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.data.preprocess import IMAGENET_MEAN, IMAGENET_STD, as_images
from foveate.errors import DataError, MissingExtra, ModelError, first_line
from foveate.look.attention import _arguments, _cls_row, _evaluating, _query_and_key, _Seen, _tower
from foveate.look.gaze import Gaze

U2NET_SIZE = 320


# -- U2-Net-p ----------------------------------------------------------------------------------------------


def u2netp(
    images: Tensor | NDArray[np.uint8] | Sequence[Any], grid: tuple[int, int] | None = None, model: str | None = None
) -> Gaze:
    """Saliency of U2-Net-p: how much each pixel belongs to what stands out.

    Needs the extra ``onnx`` and the asset ``u2netp`` (4.6 MB), which is fetched when it is not there.

    Args:
        images: a batch in any form :func:`foveate.data.preprocess.as_images` takes, of any sizes; not normalised.
        grid: ``(h, w)`` to average the map down to, for instance the patches of a ViT. Default: the network's own
            320 x 320.
        model: an ONNX file with the same input and output instead of the asset.

    Returns:
        A gaze with ``map`` ``[B, h, w]``, each image stretched to ``[0, 1]`` as its authors do (all zero when it is
        flat), and ``mask``, where the map is at least one half.

    Reference: Qin et al. 2020, "U2-Net: Going deeper with nested U-structure for salient object detection".
    """
    session = _session(model)
    name = session.get_inputs()[0].name
    maps = []
    for image in as_images(images):
        resized = F.interpolate(image[None].float(), (U2NET_SIZE, U2NET_SIZE), mode="bilinear", antialias=True)
        pixels = resized / resized.max().clamp(min=1e-6)  # its authors divide by the brightest value, not by 255
        x = (pixels - torch.tensor(IMAGENET_MEAN).view(3, 1, 1)) / torch.tensor(IMAGENET_STD).view(3, 1, 1)
        maps.append(
            torch.from_numpy(session.run(None, {name: x.numpy()})[0])[0, 0]
        )  # one image a call: its shape is fixed
    saliency = torch.stack(maps)
    saliency = saliency - saliency.amin((1, 2), keepdim=True)
    saliency = saliency / saliency.amax((1, 2), keepdim=True).clamp(min=1e-6)
    if grid is not None:
        saliency = F.adaptive_avg_pool2d(saliency[:, None], grid)[:, 0]
    return Gaze(saliency, kind="u2netp", mask=saliency >= 0.5)


@lru_cache(maxsize=2)
def _session(model: str | None) -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtra("onnxruntime", "onnx", "U2-Net-p saliency") from error
    if model is None:
        from foveate import assets

        try:
            model = str(assets.fetch("u2netp") / "u2netp.onnx")
        except DataError as error:
            raise ModelError(
                "the weights of 'u2netp' are not on this machine and could not be fetched. With a network, run: "
                f"foveate assets u2netp. {error}"
            ) from error
    elif not Path(model).is_file():
        raise ModelError(f"there is no file {model}. Check the path.")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    try:
        return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its error classes are private and many
        raise ModelError(f"{model} cannot be opened by onnxruntime: {first_line(error)}") from error


# -- FOUND -------------------------------------------------------------------------------------------------


def background_seed(attention: Tensor) -> tuple[Tensor, Tensor]:
    """The patch that is looked at least, and how much each head counts.

    A head that attends to few patches counts more: with ``Q_h`` the share of patches whose attention exceeds the
    mean over the image (over its patches and heads), its weight is ``log(sum(Q) / Q_h)``.

    Args:
        attention: CLS attention per head over the patches, ``[B, heads, N]``.

    Returns:
        The seed's index ``[B]`` (least weighted attention, first of equals), and the weights ``[B, heads]``.

    Reference: Siméoni et al. 2023, "Unsupervised object localization: observing the background to discover objects"
    (FOUND), the search for the background seed.

    >>> seed, weights = background_seed(torch.tensor([[[0.9, 0.0, 0.1], [0.4, 0.2, 0.4]]]))
    >>> seed.tolist(), [round(w, 2) for w in weights[0].tolist()]
    ([1], [1.1, 0.41])
    """
    if attention.ndim != 3:
        raise ModelError(f"expected attention per head over patches, [B, heads, N]; found {tuple(attention.shape)}.")
    share = (attention > attention.mean((1, 2), keepdim=True)).float().mean(-1)
    share = share.clamp(min=1 / attention.shape[-1])  # a head that exceeds the mean nowhere would count infinitely
    weights = torch.log(share.sum(1, keepdim=True) / share)
    return (attention * weights[..., None]).sum(1).argmin(-1), weights


def background_similarity(keys: Tensor, seed: Tensor, weights: Tensor) -> Tensor:
    """Cosine of every patch's keys with those of the seed, heads weighted and joined, ``[B, N]``.

    Args:
        keys: keys of the last block, ``[B, heads, N, d]``.
        seed: index of the background patch, ``[B]``.
        weights: one for each head, ``[B, heads]``.

    Reference: FOUND, the background mask before thresholding.

    >>> keys = torch.tensor([[[[1.0, 0.0], [0.0, 2.0], [3.0, 0.0]]]])
    >>> background_similarity(keys, torch.tensor([0]), torch.ones(1, 1)).tolist()
    [[1.0, 0.0, 1.0]]
    """
    joined = (keys * weights[:, :, None, None]).transpose(1, 2).flatten(2)
    joined = F.normalize(joined, dim=-1)
    return (joined @ joined[torch.arange(len(seed)), seed][:, :, None])[..., 0]


def found_saliency(vit: nn.Module, images: Tensor, threshold: float = 0.3, *, centre: bool = False) -> Gaze:
    """The object as what is unlike the background: the training-free first step of FOUND.

    The patch attended least is taken for background, and so is every patch whose keys resemble its keys; the rest
    is foreground. This is FOUND's coarse mask. What FOUND adds and is left out here: a 1 x 1 convolution trained
    on these masks and refined by a bilateral solver; published FOUND masks are finer. Its authors use DINO ViT-S/8 and
    0.3; another ViT may want another threshold.

    Args:
        vit: a ViT with a class token, as for :func:`foveate.look.cls_attention`, without rotary positions.
        images: normalised images ``[B, 3, H, W]``.
        threshold: patches whose cosine with the seed exceeds this are background.
        centre: take the mean key of each image off its keys first (ours, not FOUND's). DINOv2-type models need it:
            all their keys share a large part, so that every patch resembles the seed.

    Returns:
        A gaze with ``map`` ``[B, h, w]``, unlikeness to the background ``(1 - cosine) / 2`` in ``[0, 1]``;
        ``mask``, the foreground; and ``scores["seed"]``, the index of the background patch ``[B]``.

    >>> from timm.models.vision_transformer import VisionTransformer
    >>> vit = VisionTransformer(img_size=32, patch_size=8, embed_dim=12, depth=2, num_heads=3)
    >>> gaze = found_saliency(vit, torch.rand(2, 3, 32, 32))
    >>> tuple(gaze.map.shape), gaze.mask.dtype
    ((2, 4, 4), torch.bool)
    """
    keys, attention, (height, width) = _last_keys(vit, images)
    seed, weights = background_seed(attention)
    if centre:
        keys = keys - keys.mean(2, keepdim=True)
    cosine = background_similarity(keys, seed, weights).unflatten(-1, (height, width))
    return Gaze((1 - cosine).clamp(0, 2) / 2, kind="found", mask=cosine <= threshold, scores={"seed": seed})


def _last_keys(vit: nn.Module, images: Tensor) -> tuple[Tensor, Tensor, tuple[int, int]]:
    """Keys ``[B, heads, N, d]`` and CLS attention ``[B, heads, N]`` of the last block over the patches; the grid."""
    tower = _tower(vit)
    attn: Any = tower.blocks[-1].attn
    seen: list[Tensor] = []

    def read(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x, rope = _arguments(module, args, kwargs)
        if rope is not None:
            raise ModelError(f"{type(vit).__name__} has rotary positions, which FOUND does not know; use a DINO ViT.")
        _, (weight, bias) = _query_and_key(module)
        keys = F.linear(x, weight, bias).unflatten(-1, (-1, len(weight) // int(attn.num_heads))).transpose(1, 2)
        norm = getattr(module, "k_norm", None)
        seen.extend([keys if norm is None else norm(keys), _cls_row(module, x, None)])
        raise _Seen

    handle = attn.register_forward_pre_hook(read, with_kwargs=True)
    try:
        with torch.no_grad(), _evaluating(tower.root), contextlib.suppress(_Seen):
            tower.forward(images.to(next(vit.parameters())))
    except AssertionError as error:  # timm's check of the image size
        raise ModelError(f"the model does not take images of {tuple(images.shape[-2:])}: {error}") from error
    finally:
        handle.remove()
    keys, row = seen
    grid = tower.grid(images)
    patches = grid[0] * grid[1]
    return keys[:, :, -patches:], row[:, :, -patches:], grid
