"""Grad-CAM from the grad-cam library, on the model's own grid, for CNNs and ViTs, through any pooling."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

import numpy as np
import torch
from torch import Tensor, nn

from foveate import compat  # noqa: F401  (before grad-cam, which imports torchvision)
from foveate.errors import ModelError
from foveate.look.gaze import Gaze

METHODS = {
    "grad-cam": "GradCAM", "grad-cam++": "GradCAMPlusPlus", "xgrad-cam": "XGradCAM",
    "eigengrad-cam": "EigenGradCAM", "hires-cam": "HiResCAM", "layer-cam": "LayerCAM",
}  # fmt: skip


def gradcam(
    model: nn.Module,
    inputs: Tensor,
    layer: nn.Module,
    classes: Tensor | None = None,
    *,
    to_grid: Callable[[Tensor], Tensor] | None = None,
    method: str = "grad-cam",
) -> Gaze:
    """What in ``layer``'s output raised the logit of ``classes`` (by default the predicted ones).

    Args:
        model: maps ``inputs`` to logits ``[B, C]``; its weights, gradients and mode are left as they were.
        inputs: normalised images ``[B, 3, H, W]``.
        layer: a module of ``model`` whose output is ``[B, C, h, w]``, or tokens with ``to_grid``.
        classes: class index for every image, ``[B]``.
        to_grid: turns the layer's output into ``[B, C, h, w]`` (ViTs).
        method: one of ``grad-cam``, ``grad-cam++``, ``xgrad-cam``, ``eigengrad-cam``, ``hires-cam``,
            ``layer-cam``.

    Returns:
        A gaze whose ``map`` is the raw ReLU'd heat ``[B, h, w]``, not rescaled; all zero where nothing on
        the map speaks for the class.

    Reference: Selvaraju et al. 2017, "Grad-CAM", equations 1 and 2.

    >>> net = nn.Sequential(nn.Conv2d(3, 2, 1, bias=False), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    >>> tuple(gradcam(net, torch.rand(1, 3, 4, 4), net[0]).map.shape)
    (1, 4, 4)
    """
    import pytorch_grad_cam

    if method not in METHODS:
        raise ModelError(f"unknown Grad-CAM method '{method}'; known: {', '.join(METHODS)}.")
    with _undisturbed(model), _Caught(layer) as caught:
        with torch.enable_grad():
            logits = model(inputs.detach())
            chosen = logits.argmax(1) if classes is None else classes.to(logits.device)
            # only what lies after the layer is gone back through: a small part of the network
            gradient = caught.gradient(logits[torch.arange(len(logits)), chosen].sum())
        grid = (lambda t: t) if to_grid is None else to_grid
        activations = grid(caught.output.detach()).cpu().numpy()
        gradients = grid(gradient).cpu().numpy()
        cam = getattr(pytorch_grad_cam, METHODS[method])(model=model, target_layers=[])
        heat = cam.get_cam_image(inputs, layer, None, activations, gradients, False)
    return Gaze(
        torch.from_numpy(np.maximum(np.nan_to_num(heat), 0).astype(np.float32)),  # NaN logits have no reasons
        kind=method,
        scores={"class": chosen.detach().cpu(), "logits": logits.detach().cpu()},
    )


class _Caught:
    """The output of a layer in the next forward pass, cut off from what came before it.

    The derivative of the logits by that output does not need the way from the images to it, which is most of the
    network: no graph is kept of it, and nothing is computed backwards through it.
    """

    def __init__(self, layer: nn.Module):
        self.layer = layer
        self.seen: Tensor | None = None

    def __enter__(self) -> _Caught:
        self.handle = self.layer.register_forward_hook(self._cut)
        return self

    def __exit__(self, *_: object) -> None:
        self.handle.remove()

    def _cut(self, _module: nn.Module, _inputs: object, output: Tensor) -> Tensor:
        self.seen = output.detach().requires_grad_(True)
        return self.seen.clone()  # layers after it may work in place, which a leaf does not allow

    @property
    def output(self) -> Tensor:
        if self.seen is None:
            raise ModelError("Grad-CAM needs a layer that the forward pass goes through; this one is not used.")
        return self.seen

    def gradient(self, score: Tensor) -> Tensor:
        """How ``score`` changes with the output; zero where it does not depend on it."""
        found = torch.autograd.grad(score, self.output, allow_unused=True)[0] if score.requires_grad else None
        return torch.zeros_like(self.output) if found is None else found


@contextlib.contextmanager
def _undisturbed(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without parameter gradients, and everything back as it was afterwards."""
    modes = {m: m.training for m in model.modules()}
    wanted = {p: p.requires_grad for p in model.parameters()}
    model.eval()
    model.requires_grad_(False)
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training
        for parameter, requires in wanted.items():
            parameter.requires_grad_(requires)
