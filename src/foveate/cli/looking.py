"""``foveate look``: draws attention, crops and the crops themselves, with any model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from foveate.cli.inputs import ON_BAD
from foveate.cli.screen import echo
from foveate.errors import DataError, UnreadableImage
from foveate.files import atomic_file

if TYPE_CHECKING:
    from torch import Tensor

    from foveate.look import Gaze

    Looker = Callable[[Tensor], tuple[Gaze, list[str]]]

DEFAULT_MODEL = "vit-s-focus"
BATCH = 16
MOST = 100
"""Images on one sheet at most; more go into a folder, one picture each."""


def look(
    paths: list[Path] = typer.Argument(help="Image files or folders of images (frames in natural order)."),
    model: str | None = typer.Option(
        None, "--model", "-m", help="A saved model, or any ViT name (timm, open_clip:ARCH/TAG, vit-s-focus, micro-vit)."
    ),
    out: Path = typer.Option(
        Path("look.png"), "--out", "-o", help="One picture (.png), or a folder for one per image."
    ),
    crops: str | None = typer.Option(
        None, help="Sides of the crops in pixels the model sees: 64 or 64,32; 0 for none."
    ),
    layer: int = typer.Option(-1, help="Which block's attention; -1 is the last."),
    heads: str = typer.Option("mean", help="mean, max, entropy or lowest-entropy-k."),
    size: int | None = typer.Option(None, help="Side of the images the model sees; by default its own."),
    columns: int = typer.Option(1, min=1, help="Images beside each other on the sheet."),
    on_bad: str = ON_BAD,
) -> None:
    """Draw where a model looks on images: its attention, the crops it leads to, and the crops themselves."""
    import numpy as np
    import torch
    from PIL import Image

    from foveate.data.unlabelled import named_images
    from foveate.report.look_sheet import look_rows, look_sheet

    if model is None and (paths[0] / "system.json").is_file():  # `foveate look MODEL IMAGES`
        model, paths = str(paths[0]), paths[1:]
    if on_bad not in ("raise", "skip"):
        raise DataError(f"--on-bad is raise or skip; found '{on_bad}'.")
    files = named_images(paths)
    one_sheet = out.suffix.lower() in (".png", ".jpg", ".jpeg", ".webp")
    if one_sheet and len(files) > MOST:
        raise DataError(
            f"{len(files)} images are too many for one picture (at most {MOST}); give --out a folder instead, "
            "for one picture each."
        )
    run, prepare, whole = _looker(model or DEFAULT_MODEL, sizes_of(crops), layer, heads, size)
    sheet: list[Any] = []
    told: list[str] = []
    for paths_now, originals in _batches(files, on_bad):
        pictures = torch.stack([prepare(torch.from_numpy(o.transpose(2, 0, 1).copy())) for o in originals])
        gaze, notes = run(pictures)
        captions = [f"{p.name}{note}" for p, note in zip(paths_now, notes, strict=True)]
        rows = look_rows(pictures, gaze, captions, originals if whole else None)
        told += captions
        if one_sheet:
            sheet += rows
            continue
        for path, row in zip(paths_now, rows, strict=True):
            with atomic_file(out / f"{path.stem}.png") as temporary:
                Image.fromarray(np.asarray(row)).save(temporary)
    if not told:
        raise DataError(f"none of the {len(files)} images can be read.")
    if one_sheet:
        with atomic_file(out) as temporary:
            look_sheet(sheet, columns).save(temporary)
    shown = ", ".join(told[:8]) + (f" and {len(told) - 8} more" if len(told) > 8 else "")
    echo(f"wrote {out}: {shown}")


def _looker(
    model: str, sizes: tuple[int, ...] | None, layer: int, heads: str, size: int | None
) -> tuple[Looker, Callable[[Tensor], Tensor], bool]:
    """What looks at a batch, what prepares an image for it, and whether it sees whole images."""
    from foveate.restrict import greedy_crops

    if (Path(model).expanduser() / "system.json").is_file():
        from foveate.assemble.saving import load
        from foveate.measure import name_of

        system = load(model)

        def by_system(pictures: Tensor) -> tuple[Gaze, list[str]]:
            gaze = system.look(pictures)
            if sizes is not None:
                gaze.boxes = greedy_crops(gaze.map, sizes, (pictures.shape[-2], pictures.shape[-1])) if sizes else None
            return gaze, [f" → {name_of(int(c), system.class_names_)}" for c in system.predict(pictures)]

        return by_system, system.preprocess_.prepare, system.preprocess_.fit == "squash"

    from foveate.extract import FrozenModel
    from foveate.look import attended

    vit = FrozenModel.open(model, size)
    # two sevenths of the side is what 64 px are at 224
    chosen = (max(1, round(vit.size * 2 / 7)),) if sizes is None else sizes

    def by_attention(pictures: Tensor) -> tuple[Gaze, list[str]]:
        gaze = attended(vit, pictures.float() / 255, layer, heads)
        gaze.boxes = greedy_crops(gaze.map, chosen, vit.size) if chosen else None
        return gaze, [""] * len(pictures)

    return by_attention, vit.view.prepare, vit.view.fit == "squash"


def _batches(files: Sequence[Path], on_bad: str) -> Iterator[tuple[list[Path], list[Any]]]:
    from foveate.data.images import decode

    for start in range(0, len(files), BATCH):
        read = []
        for path in files[start : start + BATCH]:
            try:
                read.append((path, decode(path)))
            except UnreadableImage as error:
                if on_bad == "raise":
                    raise
                echo(f"skipped: {error}", err=True)
        if read:
            yield [p for p, _ in read], [o for _, o in read]


def sizes_of(text: str | None) -> tuple[int, ...] | None:
    """Crop sizes as typed.

    >>> sizes_of("64,32"), sizes_of("0"), sizes_of(None)
    ((64, 32), (), None)
    """
    if text is None:
        return None
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise DataError(f"--crops takes sizes in pixels, 64 or 64,32; found '{text}'.") from error
    return () if sizes == (0,) else sizes
