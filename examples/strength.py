"""The stronger habitat and animal go together in training, the lower the worst group."""

import foveate as fv
from examples.shared import NETWORK
from foveate import notebook


def draw(small: bool = False):
    strengths = [0.5, 0.95] if small else [0.5, 0.75, 0.9, 0.95, 0.99]
    size = {"train": 80, "test": 64} if small else {"train": 500, "test": 200}
    worst, average = [], []
    for strength in strengths:
        data = fv.data.critters(strength=strength, target=0, val=0, **size)
        erm = fv.ERM("micro_resnet", epochs=1 if small else 5, progress=False, **NETWORK).fit(data.train)
        report = fv.evaluate(erm, data.test)
        worst.append(100 * report.worst_group)
        average.append(100 * report.average)
    figure = notebook.figure(5, 3)
    ax = figure.subplots()
    ax.plot(strengths, average, "o-", color="#7d8a99", label="average")
    ax.plot(strengths, worst, "o-", color="#c2452d", label="worst group")
    ax.set(xlabel="strength: share of a class in its usual habitat", ylabel="test accuracy, %", ylim=(0, 102))
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    return figure
