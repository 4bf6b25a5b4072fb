"""``foveate verify | intervene``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import typer
from rich.table import Table
from rich.text import Text

from foveate.cli.inputs import (
    DATA_HELP,
    DATA_OPTION,
    ON_BAD,
    SPLIT,
    chosen_split,
    labels_of,
    needed_data,
    one_data,
    open_data,
)
from foveate.cli.inputs import ROOT as _ROOT
from foveate.cli.screen import console, echo
from foveate.errors import FoveateError, ModelError
from foveate.files import check_writable
from foveate.parameters import MAX_SEED


def verify(
    model: Path = typer.Argument(help="A saved model."),
    data: str | None = typer.Argument(None, help=f"{DATA_HELP} Without it, drawn critters."),
    against: list[Path] | None = typer.Option(None, help="Another saved model to show beside it; may be repeated."),
    images: int = typer.Option(16, help="How many images to test on."),
    split: str | None = SPLIT,
    seed: int = typer.Option(0, min=0, max=MAX_SEED, help="Chooses the images and the noise."),
    data_option: str | None = DATA_OPTION,
    as_json: bool = typer.Option(False, "--json", help="Print the figures for programs."),
    root: Path | None = _ROOT,
) -> None:
    """Does anything outside the model's mask reach its prediction? Exit code 1 when it does, or when a control fails.

    Replaces the pixels that the mask hides, with the mask held fixed, and reports the largest change of the logits.
    The mask itself is made from the whole image: that a background cannot change the mask is not shown.
    """
    from foveate.assemble.saving import load
    from foveate.intervene import verify as run_verify

    paths = [model, *(against or [])]
    loaded = {label: load(path) for label, path in zip(labels_of(paths), paths, strict=True)}
    data = one_data(data, data_option)
    dataset = chosen_split(
        open_data("critters:train=16,target=16,val=16,test=64" if data is None else data, root), split
    )
    report = run_verify(loaded, dataset, images=images, seed=seed)
    echo(json.dumps(report.to_dict(), indent=2, ensure_ascii=False) if as_json else str(report))
    if not report.holds:
        raise typer.Exit(1)


def intervene(
    model: Path = typer.Argument(help="A saved model of parts: IFAM or PDiscoFormer."),
    data: str | None = typer.Argument(None, help=DATA_HELP),
    drop: list[str] | None = typer.Option(None, help="Parts to remove: --drop 3, --drop 1,3, or repeated."),
    q: float | None = typer.Option(None, help="Remove tokens unlike their part: keeps this share on train (0.99)."),
    auto: str | None = typer.Option(None, help="Choose parts on val: leave-one-out or greedy."),
    metric: str = typer.Option("worst_group", help="What --auto wants to raise."),
    min_gain: float = typer.Option(0.0, help="How much --auto must raise it, as a share: 0.01 is a point."),
    data_option: str | None = DATA_OPTION,
    clear: bool = typer.Option(False, "--clear", help="Forget the interventions saved with the model first."),
    split: str = typer.Option("test", help="What to measure before and after on: train, target, val or test."),
    out: Path | None = typer.Option(None, "--out", "-o", help="Folder to save the changed model in."),
    as_json: bool = typer.Option(False, "--json", help="Print the figures for programs."),
    root: Path | None = _ROOT,
    on_bad: str = ON_BAD,
) -> None:
    """Remove parts, or tokens unlike their part, from a trained model; shows what that changes. Nothing is trained."""
    from foveate.assemble.saving import check_folder, load
    from foveate.assemble.system import aligned
    from foveate.intervene import effect, search_parts
    from foveate.intervene.search import part_count

    if out is not None:
        check_folder(check_writable(out))
    before: Any = load(model)
    parts = part_count(before)
    if drop is None and q is None and auto is None and not clear:
        raise FoveateError("say what to do: --drop PARTS, --q SHARE, --auto leave-one-out (or greedy), or --clear.")
    if drop is not None and auto is not None:
        raise FoveateError("--drop names the parts and --auto chooses them: give one of the two.")
    benchmark = open_data(needed_data(data, data_option), root)
    changed: Any = before.with_parts_removed(()).with_thresholds(None) if clear else before
    if q is not None:
        changed = changed.with_thresholds(None)  # a copy: calibrating changes its thresholds, not those of `before`
        changed.calibrate(aligned(before, benchmark.train), q)
    found = None
    if drop is not None:
        gone = {*_numbers(drop), *(changed.dropped_parts_ or ())}
        if len(gone) >= parts and set(range(parts)) <= gone:
            raise ModelError(
                f"removing all {parts} parts leaves nothing to look at, and one prediction for every image; keep one."
            )
        changed = changed.with_parts_removed(gone)
    elif auto is not None:
        changed, found = search_parts(
            changed,
            benchmark.val,
            metric=metric,
            how=auto,  # type: ignore[arg-type]
            min_gain=min_gain,
            on_bad=on_bad,
        )
    dataset = benchmark[split]
    effects = {name: effect(m, dataset, on_bad=on_bad) for name, m in (("before", before), ("after", changed))}
    if out is not None:
        changed.save(out)
    thresholds = changed.token_thresholds_
    told = {
        "removed": list(changed.dropped_parts_ or ()),
        "q": None if thresholds is None else thresholds.q,
        "alone": None if found is None else {str(k): v for k, v in found.scores.items()},
        "baseline": None if found is None else found.baseline,
        **{name: vars(figures) for name, figures in effects.items()},
        "saved": None if out is None else str(out),
        "supervision": changed.supervision(),
    }
    if as_json:
        echo(json.dumps(told, indent=2, ensure_ascii=False))
        return
    if found is not None:
        alone = ", ".join(f"{k}: {100 * v:.1f}" for k, v in found.scores.items())
        console.print(Text(f"{metric} on val {100 * found.baseline:.1f}; without part {alone}"))
    console.print(Text(f"parts removed: {', '.join(map(str, told['removed'])) or 'none'} (of {parts})"))
    if thresholds is not None:
        console.print(
            Text(f"tokens removed: those farther from their part than {thresholds.q:.0%} of the training tokens")
        )
    console.print(_table(effects, split))
    console.print(Text(f"labels used: {changed.supervision()}"))
    if out is not None:
        console.print(Text(f"saved to {out}"))


def _numbers(given: list[str]) -> list[int]:
    words = [word for text in given for word in text.replace(",", " ").split()]
    try:
        if not words:
            raise ValueError
        return [int(word) for word in words]
    except ValueError:
        raise FoveateError(f"--drop takes part numbers, such as 3 or 1,3; found '{' '.join(given)}'.") from None


def _table(effects: dict[str, Any], split: str) -> Table:
    table = Table("", title=f"{split}, %", title_justify="left")
    shown = {"average": "average", "worst_group": "worst group", "miou": "foreground mIoU"}
    names = [n for n in shown if any(getattr(figures, n) is not None for figures in effects.values())]
    for name in names:
        table.add_column(shown[name], justify="right")
    for name, figures in effects.items():
        values = [getattr(figures, n) for n in names]
        table.add_row(name, *("–" if v is None else f"{100 * v:.1f}" for v in values))
    return table
