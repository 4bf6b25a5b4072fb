"""Whatever the mask hides is replaced. A model with an early mask cannot notice; the others do."""

import foveate as fv
from examples.shared import animals, cheat
from foveate import notebook


def draw(small: bool = False):
    data = animals(small)
    how = {"model_args": {"depth": 2, "embed_dim": 24}, "epochs": 1 if small else 3, "lr": 1e-3, "progress": False}
    models = {
        "early mask": fv.EarlyMask("micro_vit", **how).fit(data.train),
        "late mask": fv.LateMask("micro_vit", **how).fit(data.train),
        "ERM (no mask)": cheat(small),
    }
    report = fv.intervene.verify(models, data.test, images=8 if small else 32)
    figure = notebook.figure(5.5, 2)
    ax = figure.subplots()
    sizes = [system.largest for system in report.systems]
    ax.barh(list(models), sizes, color=["#3a8f5f" if size == 0 else "#c2452d" for size in sizes])
    for place, size in enumerate(sizes):
        ax.text(size, place, f" {size:.2g}", va="center", fontsize=9)
    ax.set(xlabel="largest change of a logit when hidden pixels are replaced", xlim=(0, 1.15 * max(sizes)))
    ax.spines[["top", "right"]].set_visible(False)
    return figure
