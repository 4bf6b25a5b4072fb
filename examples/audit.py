"""An audit of two models: the verdict in words, and what it rests on."""

import textwrap

import foveate as fv
from examples.shared import animals, cheat, looker


def draw(small: bool = False):
    models = {"ERM": cheat(small), "A²": looker(small)}
    found = fv.audit(models, animals(small).test, attribute="habitat", examples=0)
    figure = found.plot()
    words = [model.verdict.plain for model in found.findings.models]
    figure.suptitle("\n".join(textwrap.fill(sentence, 70) for sentence in words), fontsize=9, x=0.02, ha="left")
    figure.set_size_inches(6, 2.9)
    return figure
