"""The papers' pictures for any fitted systems: CEP histograms, Grad-CAM panels, query maps, part maps, ablations."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from foveate.data.dataset import GroupedDataset
from foveate.errors import DataError, StorageError
from foveate.files import atomic_file
from foveate.measure import name_of
from foveate.report.abilities import gaze_at
from foveate.report.examples import part_places

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from foveate.systems import DAR, Entanglement, System

LEVELS = ("pixel", "map", "feature")
COLOURS = ("#6b7280", "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00")
"""Colours that people with colour-blindness can tell apart (after Okabe and Ito)."""


def _axes(rows: int, columns: int, width: float, height: float, **options: Any) -> tuple[Figure, Any]:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(columns * width, rows * height), layout="constrained")
    FigureCanvasAgg(figure)  # drawn without a window system, and without pyplot's global state
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def cep_histograms(results: Mapping[str, Entanglement], levels: Sequence[str] = LEVELS) -> Figure:
    """How core (1) or spurious (0) the units of each system are, one row per level, one column per system.

    A dashed line marks the CEP of the output.
    """
    figure, axes = _axes(len(levels), len(results), 2.6, 1.9, sharex=True, sharey="row")
    for column, (name, found) in enumerate(results.items()):
        for row, level in enumerate(levels):
            ax, values = axes[row][column], getattr(found, level).live.numpy()
            shares = np.full(len(values), 1 / max(len(values), 1))
            ax.hist(values, bins=np.linspace(0, 1, 26), weights=shares, color=COLOURS[column % len(COLOURS)])
            ax.axvline(found.output.value, color="black", linestyle="--", linewidth=1)
            dead = getattr(found, level).dead
            ax.text(
                0.03, 0.96, f"mean {values.mean():.2f}" + (f", {dead} dead" if dead else ""),
                transform=ax.transAxes, va="top", fontsize=8,
            )  # fmt: skip
            if row == 0:
                ax.set_title(f"{name}\n(output {found.output.value:.2f})", fontsize=10)
            if column == 0:
                ax.set_ylabel(f"share of {level}s", fontsize=9)
            if row == len(levels) - 1:
                ax.set_xlabel("CEP: 0 spurious, 1 core", fontsize=8)
    for first in axes[:, 0]:  # room for the words above the highest bar
        first.set_ylim(0, first.get_ylim()[1] * 1.2)
    return figure


def gradcam_panels(systems: Mapping[str, System], dataset: GroupedDataset, positions: Sequence[int]) -> Figure:
    """Images in the first column, each system's Grad-CAM beside them, with what it predicts."""
    samples = [dataset[i] for i in positions]
    figure, axes = _axes(len(samples), len(systems) + 1, 1.6, 1.75)
    for row, sample in enumerate(samples):
        axes[row][0].imshow(sample.image.permute(1, 2, 0).numpy())
        axes[row][0].set_ylabel(dataset.class_names[sample.label], fontsize=9)
    for column, (name, system) in enumerate(systems.items(), start=1):
        images = [s.image for s in samples]
        prepared = torch.stack([system.preprocess_.prepare(i) for i in images])
        drawn = system.look(images).draw(prepared)
        for row, (picture, label) in enumerate(zip(drawn, system.predict(images), strict=True)):
            axes[row][column].imshow(picture)
            axes[row][column].set_xlabel(name_of(int(label), system.class_names_), fontsize=8)
        axes[0][column].set_title(_wrapped(name), fontsize=10)
    axes[0][0].set_title("image", fontsize=10)
    _no_ticks(axes)
    return figure


def query_maps(dar: DAR, dataset: GroupedDataset, positions: Sequence[int]) -> Figure:
    """Where each query of a DAR model looks (mean over heads, last layer), one row per image."""
    samples = [dataset[i] for i in positions]
    gaze = dar.attend([s.image for s in samples])
    queries = gaze.scores.get("queries", gaze.map[:, None])
    count = queries.shape[1]
    figure, axes = _axes(len(samples), count + 2, 1.25, 1.35)
    for row, sample in enumerate(samples):
        axes[row][0].imshow(sample.image.permute(1, 2, 0).numpy())
        axes[row][0].set_ylabel(dataset.class_names[sample.label], fontsize=9)
        shown = [gaze.map[row], *queries[row]]
        for column, weights in enumerate(shown, start=1):
            axes[row][column].imshow(weights.numpy(), cmap="inferno", vmin=0, extent=_extent(sample.image))
    for column, name in enumerate(["image", "mean", *(f"query {q + 1}" for q in range(count))]):
        axes[0][column].set_title(name, fontsize=8)
    _no_ticks(axes)
    return figure


def part_panels(systems: Mapping[str, System], dataset: GroupedDataset, positions: Sequence[int]) -> Figure:
    """One row an image; beside it, for each system with parts, which part claims each place, and what it predicts."""
    samples = [dataset[i] for i in positions]
    images = [s.image for s in samples]
    figure, axes = _axes(len(samples), len(systems) + 1, 1.6, 1.75)
    for row, sample in enumerate(samples):
        axes[row][0].imshow(sample.image.permute(1, 2, 0).numpy())
        axes[row][0].set_ylabel(dataset.class_names[sample.label], fontsize=9)
    for column, (name, system) in enumerate(systems.items(), start=1):
        gazes = gaze_at(system, images)
        if gazes is None or gazes[0].parts is None:
            raise DataError(f"{name} has no parts to draw; PDiscoFormer and IFAM have.")
        predicted = system.predict(images)
        for row, (gaze, image, label) in enumerate(zip(gazes, images, predicted, strict=True)):
            axes[row][column].imshow(part_places(gaze, image))
            axes[row][column].set_xlabel(name_of(int(label), system.class_names_), fontsize=8)
        axes[0][column].set_title(_wrapped(name), fontsize=10)
    axes[0][0].set_title("image", fontsize=10)
    _no_ticks(axes)
    return figure


def _wrapped(name: str) -> str:
    """A name over a picture, in as many lines as it needs."""
    return textwrap.fill(name, 18, break_long_words=False)


def ablation_bars(values: Mapping[str, Sequence[float]], title: str, unit: str = "minority accuracy, %") -> Figure:
    """One bar a variant: the mean over seeds, every seed as a dot; the first variant is the reference line."""
    figure, axes = _axes(1, 1, 1.1 * len(values) + 1.2, 3.0)
    ax = axes[0][0]
    means = [float(np.mean(v)) for v in values.values()]
    ax.bar(range(len(means)), means, color=[COLOURS[1]] + [COLOURS[0]] * (len(means) - 1), width=0.65)
    for place, seeds in enumerate(values.values()):
        ax.scatter([place] * len(seeds), seeds, color="black", s=12, zorder=3)
        mean = f"{np.mean(seeds):.1f}"
        ax.annotate(mean, (place, max(seeds)), xytext=(0, 6), textcoords="offset points", ha="center", fontsize=9)
    ax.axhline(means[0], color=COLOURS[1], linewidth=1, linestyle="--")
    ax.set_xticks(range(len(means)), list(values), fontsize=9)
    start = max(0.0, 10 * np.floor((min(min(v) for v in values.values()) - 5) / 10))
    ax.set_ylim(start, max(max(v) for v in values.values()) + 6)
    ax.set_yticks([tick for tick in ax.get_yticks() if start <= tick <= 100])
    ax.set_ylabel(f"{unit}" + (f"\n(the axis starts at {start:.0f})" if start else ""), fontsize=9)
    ax.set_title(title, fontsize=10)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    return figure


def figure_kind(path: str | Path) -> str:
    """png, svg or pdf, from the ending of ``path``; another ending is a :class:`StorageError`.

    >>> figure_kind("plot.PNG")
    'png'
    """
    kind = Path(path).suffix.lower().removeprefix(".")
    if kind not in ("png", "svg", "pdf"):
        raise StorageError(f"cannot write {path}: a figure is a .png, .svg or .pdf file; give the name such an ending.")
    return kind


def save_figure(figure: Figure, path: str | Path, dpi: int = 120) -> Path:
    """Write a figure, whole or not at all; the suffix chooses PNG, SVG or PDF."""
    kind = figure_kind(path)
    with atomic_file(path) as temporary:
        figure.savefig(temporary, dpi=dpi, format=kind)
    return Path(path)


def _extent(image: torch.Tensor) -> tuple[float, float, float, float]:
    return (0.0, float(image.shape[-1]), float(image.shape[-2]), 0.0)


def _no_ticks(axes: Any) -> None:
    for ax in axes.flat:
        ax.set_xticks([])
        ax.set_yticks([])
