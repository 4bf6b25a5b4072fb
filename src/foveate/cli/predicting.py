"""``foveate predict``: classes of images, with or without labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from foveate.cli.completing import datasets
from foveate.cli.inputs import DATA_OPTION, ON_BAD, ROOT, SPLIT, chosen_split, open_data
from foveate.cli.opening import MODEL_HELP, OPENER, Opener, opens_models
from foveate.cli.screen import echo, echo_csv, echo_json
from foveate.errors import FoveateError
from foveate.files import check_writable, write_rows
from foveate.registries import DATASETS

if TYPE_CHECKING:
    from foveate.data.dataset import GroupedDataset


@opens_models
def predict(
    model: str = typer.Argument(help=f"The model, saved or exported, or from elsewhere: {MODEL_HELP}"),
    what: list[str] | None = typer.Argument(
        None,
        metavar="DATA",
        help="New photos (files and folders), a CSV file with or without labels, or a dataset name with options.",
        autocompletion=datasets,
    ),
    data: str | None = DATA_OPTION,
    split: str | None = SPLIT,
    out: Path | None = typer.Option(None, "--out", "-o", help="CSV file to write; without it, the screen."),
    as_json: bool = typer.Option(False, "--json", help="Print the answers for programs, as JSON."),
    opener: Opener = OPENER,
    root: Path | None = ROOT,
    on_bad: str = ON_BAD,
) -> None:
    """Predicted class and probability of every image, as CSV.

    The class is 'unreadable' for an image that was skipped, and 'no answer' where the model gave NaN.
    """
    from foveate.export.runner import SIDECAR, Runner
    from foveate.measure import NO_ANSWER, decided_by_shares, name_of

    words = [*(what or []), *([] if data is None else [data])]
    if not words:
        raise FoveateError("expected images after the model: files, a folder, a CSV file or a dataset name.")
    if out is not None:
        check_writable(out)
    dataset, labelled = images_of(words, split, root)
    place = Path(model).expanduser()
    exported = (place / SIDECAR).is_file()
    system: Any = Runner(place, trust=opener.trust) if exported else opener.open(model, dataset if labelled else None)
    chances = system.predict_proba(dataset, on_bad=on_bad)
    answers = decided_by_shares(chances)
    columns = ["image", *(["label"] if labelled else []), "prediction", "probability"]
    rows = []
    for i, answer in enumerate(answers):
        chance = "" if answer < 0 else f"{chances[i, answer]:.4f}"
        label = [dataset.class_names[dataset.labels[i]]] if labelled else []
        rows.append([dataset.where(i), *label, name_of(int(answer), system.class_names_), chance])
    if silent := int((answers == NO_ANSWER).sum()):
        echo(f"no answer for {silent} of {len(answers)} images: the model gave NaN.", err=True)
    if as_json:
        echo_json([dict(zip(columns, row, strict=True)) for row in rows])
    if out is not None:
        write_rows(out, [columns, *rows])
        echo(f"wrote {out}", err=as_json)
    elif not as_json:
        echo_csv([columns, *rows])


def images_of(words: list[str], split: str | None, root: Path | None) -> tuple[GroupedDataset, bool]:
    """The images that were named, and whether they have labels."""
    from foveate.data.images import IMAGE_SUFFIXES
    from foveate.data.unlabelled import from_csv_without_labels, from_images, has_labels

    place = Path(words[0]).expanduser()
    if len(words) == 1 and place.suffix.lower() not in IMAGE_SUFFIXES:
        named = words[0].partition(":")[0] in DATASETS and not place.exists()
        if not named and (bare := from_csv_without_labels(place, root)) is not None:
            return chosen_split(bare, split), False
        if not place.is_dir() or has_labels(place) or (place / "benchmark.csv").is_file():
            return chosen_split(open_data(words[0], root), split), True
    if split is not None:
        raise FoveateError("--split goes with data that have splits; these are images by themselves.")
    return from_images(words), False
