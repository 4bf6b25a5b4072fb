"""Where a classifier looks before and after the cure, on animals in the wrong habitat."""

from examples.shared import animals, cheat, cured, unusual
from foveate.report import gradcam_panels


def draw(small: bool = False):
    data = animals(small)
    return gradcam_panels({"ERM": cheat(small), "DAR": cured(small)}, data.test, unusual(data, each=3))
