"""A model that is none of foveate's: any function from images to logits can be evaluated."""

import torch

import foveate as fv
from examples.shared import animals


def draw(small: bool = False):
    def blueness(images: torch.Tensor) -> torch.Tensor:  # [B, 3, H, W] in [0, 1] -> logits [B, 2]
        blue = images[:, 2, -12:].mean((1, 2)) - images[:, 1, -12:].mean((1, 2))
        return torch.stack([-blue, blue], dim=1)

    view = fv.data.Preprocess((64, 64), mean=(0.0,) * 3, std=(1.0,) * 3)
    model = fv.wrap(blueness, ["cat", "duck"], preprocess=view, name="the lower edge is blue")
    figure = fv.evaluate(model, animals(small).test).plot()
    figure.axes[0].set_title("a “model” that looks at the lower edge only", fontsize=10, loc="left")
    return figure
