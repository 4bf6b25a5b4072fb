"""Waterbirds-style composites from anyone's cut-out objects and backgrounds."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image

from foveate.data.benchmark import SPLITS, Benchmark
from foveate.data.composite import CompositeMasks, Composites, Placement, Recipe, tight_box
from foveate.data.composite_sources import SourceTable
from foveate.data.dataset import GroupedDataset
from foveate.data.images import FileImages
from foveate.data.pools import Deck, cell_counts, deal, shuffled_cells
from foveate.data.preprocess import MAX_SIDE
from foveate.errors import DataError, UnreadableImage, suggest
from foveate.files import atomic_folder, write_rows

Counts = int | Mapping[str, int]
FRACTIONS = {"target": 0.1, "val": 0.1, "test": 0.2}
"""Share of every class (and scene) held out for a split that the tables do not name themselves."""
TABLE = "benchmark.csv"


def compose(
    foregrounds: str | os.PathLike[str] | pd.DataFrame,
    backgrounds: str | os.PathLike[str] | pd.DataFrame,
    out: str | os.PathLike[str] | None = None,
    *,
    strength: float | Mapping[str, float] = 0.95,
    pairing: Mapping[str, str] | None = None,
    counts: Mapping[str, Counts] | None = None,
    fractions: Mapping[str, float] | None = None,
    reuse: bool = False,
    size: int = 224,
    scale: tuple[float, float] = (0.5, 0.8),
    position: str | float = "random",
    flip: bool = True,
    soft_edge: float = 1.0,
    mask_threshold: int = 255,
    fg_path: str = "{path}",
    fg_mask: str = "{mask}",
    fg_label: str = "label",
    bg_path: str = "{path}",
    bg_label: str = "label",
    split: str = "split",
    root: str | os.PathLike[str] | None = None,
    on_bad: str = "skip",
    image_format: str = "png",
    overwrite: bool = False,
    seed: int = 0,
    name: str = "composites",
) -> Benchmark:
    """Paste labelled objects onto labelled backgrounds so that the background becomes a shortcut.

    The label is the object's class, the attribute the background's scene. In ``train`` the share ``strength``
    of each class stands on its paired scene and the rest is spread evenly over the others; ``target``, ``val``
    and ``test`` are balanced (``val`` and ``test`` within each class, ``target`` over all groups alike).
    Group counts are exact. No foreground and no background appears in two splits. Rows that the tables mark
    ``test`` (or ``val``, ``target``) stay there; what they do not name is held out of ``train`` by
    ``fractions``. Backgrounds are used evenly, several times within their split when there are fewer of them
    than images; foregrounds only with ``reuse``. Every image keeps its true mask and tight box, at output size.

    Args:
        foregrounds: CSV file or DataFrame with the columns ``path``, ``mask``, ``label`` and maybe ``split``.
        backgrounds: CSV file or DataFrame with ``path``, ``label`` (the scene) and maybe ``split``.
        out: folder to write images, masks and ``benchmark.csv`` to, whole or not at all. Without it, images
            are rendered each time they are read.
        strength: share of each class on its paired scene in ``train``; or a dict by split.
        pairing: scene of each class; by default classes and scenes go together in sorted order.
        counts: by split, the number of images (shared equally by the classes; in a balanced split rounded
            down to equal groups), or that of each group (``{"cat/sea": 40, …}``). Default: every foreground once.
        fractions: share held out for ``target``, ``val`` and ``test`` (0 leaves the split out).
        reuse: let a foreground appear several times within its split, when ``counts`` ask for more.
        size: output side in pixels.
        scale: smallest and largest share of the output side that the object's longer side takes.
        position: ``"random"`` (anywhere the object fits wholly), ``"centre"``, or the centre bias between
            them from 0 to 1.
        flip: mirror objects and backgrounds at random.
        soft_edge: width (standard deviation in output pixels) of the soft edge; 0 for a hard one.
        mask_threshold: mask values from here up are object: 255 for a clean cut-out, 128 to include an
            undecided rim.
        fg_path, fg_mask, bg_path: how to make a path from a row, with columns in braces
            (``"photos/{name}.jpg"``); relative to ``root`` or the folder of the CSV.
        fg_label, bg_label: columns that hold class and scene.
        split: column that holds the split.
        root: folder that relative paths start from.
        on_bad: ``"skip"`` leaves unreadable pictures and empty masks out (named in a warning and in
            ``notes["bad"]``), ``"raise"`` stops.
        image_format: ``png`` (exact) or ``jpg`` (quality 95, about a quarter of the space).
        overwrite: replace an earlier benchmark in ``out``.
        seed: everything random follows from it.
        name: what to call the benchmark.

    Returns:
        A :class:`~foveate.data.benchmark.Benchmark`; ``extras`` name each image's ``foreground`` and
        ``background``.
    """
    _check_settings(scale, size, on_bad, image_format, mask_threshold)
    if not 0 <= soft_edge <= size:
        raise DataError(f"soft_edge is the width of the edge in pixels, from 0 to {size}; found {soft_edge}.")
    bias = _centre_bias(position)
    target = None if out is None else _check_out(Path(out), overwrite)
    fore = SourceTable.read("foregrounds", foregrounds, fg_path, fg_label, split, root, fg_mask)
    back = SourceTable.read("backgrounds", backgrounds, bg_path, bg_label, split, root)
    bad = fore.drop_bad(mask_threshold) + back.drop_bad(mask_threshold)
    _report_bad(bad, on_bad)
    classes, scenes = sorted(set(fore.labels)), sorted(set(back.labels))
    pairs = _pairs(classes, scenes, pairing)
    shares = {**FRACTIONS, **(fractions or {})}
    _known_splits("fractions", shares, allowed=SPLITS[1:])
    _known_splits("counts", counts or {})
    strengths = dict(strength) if isinstance(strength, Mapping) else {"train": strength}
    _known_splits("strength", strengths)
    rng = np.random.default_rng(seed)
    fore_splits, back_splits = fore.divide(classes, shares, rng), back.divide(scenes, shares, rng)
    splits: dict[str, GroupedDataset] = {}
    for which in SPLITS:
        rows, scenery = fore_splits[which], back_splits[which]
        if not len(rows) or not (which == "train" or len(scenery)):
            continue
        available = np.bincount(fore.codes(classes)[rows], minlength=len(classes))
        wanted = (counts or {}).get(which)
        cells = _cells(which, available, classes, scenes, pairs, strengths.get(which), wanted)
        labels, attributes = shuffled_cells(cells, rng)
        what = f"foregrounds in {which} (classes in the order {', '.join(classes)}; give fewer counts or reuse)"
        chosen = rows[deal(Deck(fore.codes(classes)[rows], rng, what), labels, reuse=reuse)]
        what = f"backgrounds in {which} (scenes in the order {', '.join(scenes)})"
        behind = scenery[deal(Deck(back.codes(scenes)[scenery], rng, what), attributes, reuse=True)]
        places = _placements(len(labels), scale, bias, flip, rng)
        recipe = Recipe(
            [fore.paths[i] for i in chosen], [fore.masks[i] for i in chosen], [back.paths[i] for i in behind],
            places, size, soft_edge, mask_threshold,
        )  # fmt: skip
        splits[which] = GroupedDataset(
            Composites(recipe),
            labels,
            classes,
            attributes=attributes,
            attribute_names=scenes,
            masks=CompositeMasks(recipe),
            boxes=None if target is not None else recipe.boxes(),
            extras={"foreground": [p.name for p in recipe.photos], "background": [p.name for p in recipe.scenes]},
            name=f"{name}/{which}",
        )
    notes = {"seed": seed, "strength": strengths, "bad": [str(b) for b in bad]}
    notes["pairing"] = {c: scenes[p] for c, p in zip(classes, pairs, strict=True)}
    benchmark = Benchmark(name, splits, notes)
    return benchmark if target is None else _write(benchmark, target, image_format)


def _cells(
    split: str,
    available: NDArray[np.int64],
    classes: Sequence[str],
    scenes: Sequence[str],
    pairs: Sequence[int],
    strength: float | None,
    wanted: Counts | None,
) -> NDArray[np.int64]:
    """Images of every (class, scene) cell of a split; balanced when ``strength`` is None."""
    if isinstance(wanted, Mapping):
        groups = [f"{c}/{a}" for c in classes for a in scenes]
        if unknown := sorted(set(wanted) - set(groups)):
            raise DataError(
                f"counts for {split}: unknown group '{unknown[0]}'.{suggest(unknown[0], groups)} "
                f"The groups are {', '.join(groups)}."
            )
        return np.array([wanted.get(g, 0) for g in groups], dtype=np.int64).reshape(len(classes), len(scenes))
    if wanted is not None and wanted < 0:
        raise DataError(f"counts for {split}: a number of images is 0 or more; found {wanted}.")
    if wanted is None:
        totals = [int(n) for n in available]
    else:
        totals = [(wanted + c) // len(classes) for c in reversed(range(len(classes)))]
    if strength is not None:
        return cell_counts(totals, len(scenes), strength, pairs)
    each = [n // len(scenes) for n in totals]
    if split == "target":
        each = [min(each)] * len(each)
    if min(each) == 0:
        short = classes[int(np.argmin(each))]
        raise DataError(
            f"{split} cannot be balanced: it has {totals[classes.index(short)]} images of '{short}' for "
            f"{len(scenes)} scenes. Add foregrounds, raise fractions['{split}'], or set it to 0 to go without."
        )
    return np.repeat(np.array(each, dtype=np.int64)[:, None], len(scenes), axis=1)


def _placements(
    n: int, scale: tuple[float, float], bias: float, flip: bool, rng: np.random.Generator
) -> list[Placement]:
    u = rng.random((n, 7))
    sizes = scale[0] + (scale[1] - scale[0]) * u[:, 0]
    spots = 0.5 + (1.0 - bias) * (u[:, 1:3] - 0.5)
    return [
        Placement(
            float(sizes[i]), float(spots[i, 0]), float(spots[i, 1]), bool(flip and u[i, 3] < 0.5),
            float(u[i, 4]), float(u[i, 5]), bool(flip and u[i, 6] < 0.5),
        )
        for i in range(n)
    ]  # fmt: skip


def _pairs(classes: Sequence[str], scenes: Sequence[str], pairing: Mapping[str, str] | None) -> list[int]:
    if len(classes) < 2 or len(scenes) < 2:
        raise DataError(
            f"composites need at least 2 classes and 2 scenes, found classes: {', '.join(classes)}; "
            f"scenes: {', '.join(scenes)}."
        )
    if pairing is None:
        return [i % len(scenes) for i in range(len(classes))]
    for what, names, known in (("class", pairing, classes), ("scene", pairing.values(), scenes)):
        for one in names:
            if one not in known:
                raise DataError(
                    f"pairing: unknown {what} '{one}'.{suggest(one, list(known))} There are: {', '.join(known)}."
                )
    if missing := [c for c in classes if c not in pairing]:
        raise DataError(f"pairing names no scene for '{missing[0]}'; give every class one.")
    return [scenes.index(pairing[c]) for c in classes]


def _check_settings(scale: tuple[float, float], size: int, on_bad: str, image_format: str, mask_threshold: int) -> None:
    if len(scale) != 2 or not 0 < scale[0] <= scale[1] <= 1:
        raise DataError(
            f"scale is (smallest, largest) share of the image, 0 < smallest <= largest <= 1; found {scale}."
        )
    if not 8 <= size <= MAX_SIDE:
        raise DataError(f"size is the output side in pixels, from 8 to {MAX_SIDE:,}; found {size}.")
    if on_bad not in ("raise", "skip"):
        raise DataError(f"on_bad is 'raise' or 'skip', found '{on_bad}'.")
    if image_format not in ("png", "jpg"):
        raise DataError(f"image_format is 'png' or 'jpg', found '{image_format}'.")
    if not 1 <= mask_threshold <= 255:
        raise DataError(f"mask_threshold runs from 1 to 255, found {mask_threshold}.")


def _centre_bias(position: str | float) -> float:
    named = {"random": 0.0, "centre": 1.0, "center": 1.0}
    try:
        bias = named[position] if isinstance(position, str) and position in named else float(position)
    except ValueError:
        bias = -1.0
    if not 0.0 <= bias <= 1.0:
        raise DataError(f"position is 'random', 'centre' or a centre bias from 0 to 1; found '{position}'.")
    return bias


def _known_splits(what: str, given: Iterable[str], allowed: Sequence[str] = SPLITS) -> None:
    for split in given:
        if split not in allowed:
            raise DataError(f"{what}: unknown split '{split}'; known here are {', '.join(allowed)}.")


def _report_bad(bad: Sequence[UnreadableImage], on_bad: str) -> None:
    if not bad:
        return
    some = "; ".join(str(b) for b in bad[:5]) + (" …" if len(bad) > 5 else "")
    if on_bad == "raise":
        raise DataError(f"{len(bad)} pictures cannot be used: {some}. Mend them, or leave them out with on_bad='skip'.")
    warnings.warn(f"left out {len(bad)} pictures that cannot be used: {some}", stacklevel=3)


def _check_out(out: Path, overwrite: bool) -> Path:
    out = out.expanduser()
    if out.is_dir() and any(out.iterdir()):
        ours = (out / TABLE).is_file()
        if not (ours and overwrite):
            hint = "Pass overwrite to replace it" if ours else "It is not a benchmark of ours"
            raise DataError(f"{out} is not empty. {hint}, or choose another folder.")
    elif out.exists() and not out.is_dir():
        raise DataError(f"{out} is a file; give a folder.")
    return out


def _write(benchmark: Benchmark, out: Path, image_format: str) -> Benchmark:
    """Render every split into ``out`` and return the benchmark that reads from there."""
    options: dict[str, Any] = {"compress_level": 4} if image_format == "png" else {"quality": 95, "subsampling": 0}
    rows: list[dict[str, object]] = []
    written: dict[str, GroupedDataset] = {}
    with atomic_folder(out) as folder:
        for split, ds in benchmark.splits.items():
            (folder / "images" / split).mkdir(parents=True)
            (folder / "masks" / split).mkdir(parents=True)
            paths = [f"images/{split}/{i:06d}.{image_format}" for i in range(len(ds))]
            masks = [f"masks/{split}/{i:06d}.png" for i in range(len(ds))]
            recipe = ds.images.recipe  # type: ignore[attr-defined]

            def save(i: int, recipe: Recipe = recipe, paths: list[str] = paths, masks: list[str] = masks) -> list[int]:
                image, mask = recipe.render(i)
                Image.fromarray(image).save(folder / paths[i], **options)
                Image.fromarray(mask).save(folder / masks[i])
                return list(tight_box(mask > 0) or (0, 0, 0, 0))

            with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
                boxes = np.array(list(pool.map(save, range(len(ds)))), np.float32).reshape(-1, 4)
            scenes = ds.attribute_names or []
            attributes = [scenes[g % len(scenes)] for g in ds.require_groups("compose")]
            for i in range(len(ds)):
                x0, y0, x1, y1 = (int(v) for v in boxes[i])
                rows.append(
                    {
                        "path": paths[i], "label": ds.class_names[ds.labels[i]],
                        "attribute": attributes[i], "split": split, "mask": masks[i],
                        "x0": x0, "y0": y0, "x1": x1, "y1": y1,
                        "foreground": ds.extras["foreground"][i], "background": ds.extras["background"][i],
                    }
                )  # fmt: skip
            written[split] = GroupedDataset(
                FileImages([out / p for p in paths]),
                ds.labels,
                ds.class_names,
                attributes=ds.attributes,
                attribute_names=ds.attribute_names,
                masks=FileImages([out / m for m in masks], masks=True),
                boxes=boxes,
                extras=ds.extras,
                name=ds.name,
            )
        columns = list(rows[0]) if rows else []
        write_rows(folder / TABLE, [columns, *([row[c] for c in columns] for row in rows)], "\n")
    return Benchmark(benchmark.name, written, {**benchmark.notes, "folder": str(out)})
