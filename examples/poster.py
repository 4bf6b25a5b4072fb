"""The picture of the README: a classifier caught taking a shortcut, and one that looks at the animal.

``python -m examples.poster`` trains both (the models of the gallery), audits them and draws what came out, for light
and for dark pages. Nothing in it is written by hand: images, maps, answers, figures and sentences come from the models.
"""

from __future__ import annotations

import textwrap
from functools import lru_cache
from typing import Any

import numpy as np

import foveate as fv
from examples import gallery
from examples.shared import animals, batch, cheat, looker, unusual
from foveate import notebook

SKINS = {"light": ("#ffffff", "#1f2328", "#59636e"), "dark": ("#0d1117", "#e6edf3", "#9198a1")}
BAD, GOOD = "#cf4a30", "#2f9e63"


@lru_cache
def _audit(small: bool) -> Any:
    models = {"ERM": cheat(small), "A²": looker(small)}
    return models, fv.audit(models, animals(small).test, attribute="habitat", examples=0)


def draw(small: bool = False, skin: str = "light") -> Any:
    ground, ink, faint = SKINS[skin]
    data = animals(small)
    models, found = _audit(small)
    positions = _telling(data, models)
    images = batch(data, positions)
    figure = notebook.figure(10.2, 3.9)
    figure.set_facecolor(ground)
    left, right = figure.subfigures(1, 2, width_ratios=(1.22, 1))
    axes = left.subplots(2, 3)
    pictures = [
        images.permute(0, 2, 3, 1).numpy(),
        *(model.look(images).draw(images, strength=0.8) for model in models.values()),
    ]
    titles = ["the image", "before: ERM", "after: A²"]
    for column, (title, shown) in enumerate(zip(titles, pictures, strict=True)):
        for row in range(2):
            ax = axes[row, column]
            ax.imshow(shown[row], interpolation="nearest" if column == 0 else "bilinear")
            ax.set(xticks=[], yticks=[])
            ax.set_frame_on(False)
            ax.set_xlabel(*_says(column, row, positions, data, models), fontsize=10, labelpad=3)
            ax.xaxis.label.set_color(_colour(column, row, positions, data, models, faint))
            if row == 0:
                ax.set_title(title, color=ink, fontsize=11)
    _verdicts(right.subplots(), found, ink, faint)
    return figure


def _telling(data: Any, models: dict[str, Any]) -> list[int]:
    """Of each rare group the image on which the first model is most surely wrong, among those the second gets right."""
    chosen = []
    for start in unusual(data, each=1):
        same = [int(i) for i in np.flatnonzero(data.test.groups == data.test.groups[start])][:40]
        before, after = (model.predict_proba(batch(data, same)) for model in models.values())
        truth = data.test.labels[same]
        doubt = np.where(after.argmax(1) == truth, before[np.arange(len(same)), truth], 1.0)
        chosen.append(same[int(doubt.argmin())])
    return chosen[:2]


def _answer(column: int, row: int, positions: list[int], data: Any, models: dict[str, Any]) -> tuple[str, bool]:
    position = positions[row]
    guess = int(list(models.values())[column - 1].predict(batch(data, [position]))[0])
    return data.test.class_names[guess], guess == data.test.labels[position]


def _says(column: int, row: int, positions: list[int], data: Any, models: dict[str, Any]) -> tuple[str]:
    if column == 0:
        return (f"a {data.test.class_names[data.test.labels[positions[row]]]}",)
    name, right = _answer(column, row, positions, data, models)
    return (f"says “{name}” {'✓' if right else '✗'}",)


def _colour(column: int, row: int, positions: list[int], data: Any, models: dict[str, Any], faint: str) -> str:
    if column == 0:
        return faint
    return GOOD if _answer(column, row, positions, data, models)[1] else BAD


def _verdicts(ax: Any, found: Any, ink: str, faint: str) -> None:
    ax.set_axis_off()
    ax.set(xlim=(0, 1), ylim=(0, 1))
    for place, model in enumerate(found.findings.models):
        top, bad = 0.97 - 0.52 * place, model.verdict.level.value == "found"
        head = f"{model.name}: shortcut {'found' if bad else 'not found'}"
        ax.text(0, top, head, color=BAD if bad else GOOD, fontsize=13, weight="bold", va="top")
        ax.text(
            0, top - 0.095, textwrap.fill(model.verdict.plain, 46), color=ink, fontsize=11, va="top", linespacing=1.35
        )
        words = (("average", model.average), ("worst group", model.worst_group))
        for line, (word, share) in enumerate(words):
            y = top - 0.30 - 0.075 * line
            ax.text(0, y, word, color=faint, fontsize=10, va="center")
            ax.barh(y, 0.5, 0.04, left=0.26, color=faint, alpha=0.25)
            ax.barh(y, 0.5 * share, 0.04, left=0.26, color=notebook.colour_of(share))
            ax.text(0.79, y, f"{100 * share:.0f} %", color=ink, fontsize=10, va="center")


def main() -> None:
    """Draw both."""
    for skin in SKINS:
        path = gallery.save(draw(skin=skin), "poster", dpi=130, suffix=f"-{skin}")
        print(path, path.stat().st_size // 1024, "KB")


if __name__ == "__main__":
    main()
