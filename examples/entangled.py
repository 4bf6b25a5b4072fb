"""Swap animals and habitats between images: which of the two moves the network more?"""

import foveate as fv
from examples.shared import animals, cheat, cured
from foveate import notebook


def draw(small: bool = False):
    data = animals(small)
    models = {"ERM": cheat(small), "DAR": cured(small)}
    images = data.test.subset(range(32 if small else 120))
    shares = {name: 100 * fv.entanglement(model, images).output.value for name, model in models.items()}
    figure = notebook.figure(5.5, 1.6)
    ax = figure.subplots()
    names, animal = list(shares), list(shares.values())
    ax.barh(names, animal, color="#3a8f5f", label="the animal")
    ax.barh(names, [100 - share for share in animal], left=animal, color="#c9a24a", label="the habitat")
    ax.set(xlim=(0, 100), xlabel="share of the effect on the output, %")
    ax.legend(ncols=2, frameon=False, loc="upper center", bbox_to_anchor=(0.5, 1.3))
    ax.spines[["top", "right"]].set_visible(False)
    return figure
