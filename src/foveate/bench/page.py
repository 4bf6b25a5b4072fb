"""``docs/results.md``: a page of studies, made from their spec files and their exported records alone."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from foveate.bench.orders import orders_of, orders_table
from foveate.bench.quoted import OWN, Quoted
from foveate.bench.records import Record, read_csv
from foveate.bench.spec import Spec, read_spec
from foveate.bench.summary import summary_table
from foveate.bench.table import table
from foveate.bench.trial import Cell, cells
from foveate.errors import FoveateError
from foveate.files import read_text

CAPTIONS = {
    "cep": "CEP of the units of each level, by method",
    "gradcam": "Grad-CAM of each method on test images of minority groups",
    "queries": "Where the queries of DAR look",
    "parts": "Which part claims each place, on test images of minority groups; plain is background",
    "ablation": "DAR and its variants, every seed",
}
"""What the pictures ``NAME-DATASET-WHAT.png`` show; others are called by their file name."""
NOT_RUN = "*not run*"
SUMMARY_NOTE = (
    "Mean over seeds [95 % interval by Student's t]. What a method learns from is told here; most also choose settings "
    "by the group labels of validation images, and networks trained on images (`ERM` to `GroupDRO`) have the balanced "
    "target images among their training images: the tables below say so."
)


@dataclass(frozen=True)
class Study:
    """A spec and its records.

    Attributes:
        spec: as it is now.
        path: its file.
        records: those on the page.
        older: how many of them are of an earlier state of the spec, because there are none of the present one.
    """

    spec: Spec
    path: Path
    records: list[Record]
    older: int = 0

    def of(self, dataset: str) -> list[Record]:
        return [r for r in self.records if r.dataset == dataset]


def figure_name(spec: str, dataset: str, what: str) -> str:
    """The file name of a picture that the page finds.

    >>> figure_name("dar", "critters", "cep")
    'dar-critters-cep.png'
    """
    return f"{spec}-{dataset}-{what}.png".replace(" ", "-")


def find_specs(places: Sequence[Path]) -> list[Path]:
    """The spec files among ``places``, in the order given; a folder stands for all in it, by name."""
    found: list[Path] = []
    for place in places:
        inside = sorted(place.rglob("*.yaml"), key=lambda p: (p.name, p.as_posix())) if place.is_dir() else [place]
        if not inside:
            raise FoveateError(f"there is no spec file (*.yaml) in {place}.")
        found += [p for p in inside if p not in found]
    return found


def open_study(path: Path, records: Path) -> Study:
    """A spec with the records of ``records/NAME.csv``; without that file it has none."""
    spec = read_spec(path)
    file = records / f"{spec.name}.csv"
    rows = [r for r in read_csv(file) if r.spec == spec.name] if file.exists() else []
    kept, older = [], 0
    for dataset in spec.sets():
        for method in (m for m, chosen in spec.methods.items() if chosen.runs_on(dataset)):
            mine = [r for r in rows if (r.dataset, r.method) == (dataset, method) and r.seed in spec.seeds_of(dataset)]
            fresh = [
                r for r in mine
                if r.digest == spec.digest(dataset, method) and spec.methods[method].asks(dict(r.point))
            ]  # fmt: skip
            older += 0 if fresh else len(mine)
            kept += fresh or mine
    return Study(spec, path, kept, older)


def results_page(specs: Sequence[Path], records: Path, out: Path, notes: Path | None = None) -> str:
    """The page as Markdown. Nothing in it depends on when, where or how often it is made.

    Args:
        specs: spec files, or folders of them.
        records: folder of ``NAME.csv`` files that ``foveate bench run --export`` wrote.
        out: where the page will be; pictures are looked for in ``figures`` beside it.
        notes: a Markdown file that is put at the end; by default ``notes.md`` beside the records, where there is one.
    """
    if notes is None and (records / "notes.md").exists():
        notes = records / "notes.md"
    studies = [open_study(path, records) for path in find_specs(specs)]
    for number, study in enumerate(studies):
        for other in studies[:number]:
            if other.spec.name == study.spec.name:
                raise FoveateError(f"{other.path} and {study.path} both have the name '{study.spec.name}'; rename one.")
    pictures = _pictures(studies, out.parent / "figures")
    parts = [
        "# Results",
        f"Made by `foveate bench page` from spec files and the records in `{records.as_posix()}`; every record there "
        "names the command, the commit, the settings, the weights and the seconds it took. Percent, mean ± sample "
        "standard deviation over seeds (none for one seed). CEP, CAP and CGP run from 0 (spurious) to 100 (core); CAP "
        "is of the last maps, which what is fitted on the maps of a base shares with it. Epochs and settings are "
        "chosen by the named metric on validation. An order *holds* when the 95 % intervals of the paired difference "
        "exclude zero: Student's t over seeds and, where the answers were kept, a bootstrap over test images. "
        "Nothing is decided by one seed, nor by the best mean in bold.",
    ]
    pairs = [(study.spec, study.records) for study in studies]
    if overview := summary_table(pairs):
        parts += ["## By the labels that methods take", overview, SUMMARY_NOTE]
    for study in studies:
        parts += _study(study, pictures, out.parent)
    if notes is not None:
        try:
            parts.append(Quoted(pairs, records.parent / OWN).fill(read_text(notes).strip()))
        except (OSError, UnicodeDecodeError) as error:
            raise FoveateError(f"cannot read the notes {notes}: {getattr(error, 'strerror', error)}.") from error
    return "\n\n".join(parts) + "\n"


def _study(study: Study, pictures: dict[tuple[str, str], list[Path]], home: Path) -> list[str]:
    spec = study.spec
    link = Path(os.path.relpath(study.path, home)).as_posix()
    about = f"{spec.about.strip().rstrip('.')}. " if spec.about.strip() else ""
    parts = [f"## {spec.name}", f"{about}[Spec]({link})."]
    if not study.records:
        return [*parts, NOT_RUN]
    for dataset, data in spec.sets().items():
        mine = study.of(dataset)
        if len(spec.sets()) > 1:
            parts.append(f"### {dataset}")
        options = ", ".join(f"{k} {v}" for k, v in data.options.items())
        chosen = f"selected on {spec.select_of(dataset).replace('_', ' ')}"
        if (metric := spec.metric_of(dataset)) != spec.select_of(dataset):
            chosen += f", judged by {metric.replace('_', ' ')}"
        parts.append(f"`{data.name}`" + (f": {options}; {chosen}" if options else f"; {chosen}"))
        if any(r.state == "done" for r in mine):
            parts.append(table(mine, order=list(spec.methods)))
        if orders := orders_table(orders_of(spec, mine, dataset)):
            parts.append(orders)
        parts += _absent(spec, dataset, mine)
        for picture in pictures.get((spec.name, dataset), []):
            what = picture.stem.removeprefix(figure_name(spec.name, dataset, "").removesuffix(".png"))
            parts.append(f"![{CAPTIONS.get(what, what)}]({Path(os.path.relpath(picture, home)).as_posix()})")
    if study.older:
        parts.append(
            f"{study.older} of {len(study.records)} records carry the digest of an earlier state of the spec or of the "
            "bench."
        )
    return [*parts, _commands(study.records)]


def _absent(spec: Spec, dataset: str, rows: Sequence[Record]) -> list[str]:
    """One line on the cells that have no finished trial: those not run, and those that failed."""
    states: dict[Cell, set[str]] = {}
    for row in rows:
        states.setdefault(Cell(*row.cell), set()).add(row.state)
    missing: dict[str, dict[str, list[int]]] = {"not run": {}, "failed": {}}
    every: dict[str, int] = {}
    for cell in (c for c in cells(spec) if c.dataset == dataset):
        every[cell.method] = every.get(cell.method, 0) + 1
        found = states.get(cell, set())
        if "done" not in found:
            missing["failed" if found else "not run"].setdefault(cell.method, []).append(cell.seed)
    if all(len(missing["not run"].get(m, ())) == n for m, n in every.items()):
        return [NOT_RUN]
    said = []
    for why, methods in missing.items():
        ordered = sorted(methods, key=list(spec.methods).index)
        named = [m if len(methods[m]) == every[m] else f"{m} (seed {_listed(methods[m])})" for m in ordered]
        said += [f"{why}: {', '.join(named)}"] if named else []
    return [f"*{'; '.join(said)}*"] if said else []


def _listed(seeds: Sequence[int]) -> str:
    return ", ".join(str(s) for s in seeds)


def _commands(rows: Sequence[Record]) -> str:
    """The commands that made the records, each with its commits."""
    commits: dict[str, set[str]] = {}
    for row in rows:
        commits.setdefault(row.command or "(command not known)", set()).add(row.commit or "unknown")
    if any(found.endswith("-dirty") for every in commits.values() for found in every):
        commits["# -dirty: made with uncommitted changes, so that the commit alone does not make it again"] = set()
    lines = [
        f"{command}  # {', '.join(sorted(found))}" if found else command for command, found in sorted(commits.items())
    ]
    return "```sh\n" + "\n".join(lines) + "\n```"


def _pictures(studies: Sequence[Study], folder: Path) -> dict[tuple[str, str], list[Path]]:
    """Pictures by spec and dataset; of several that fit a file name, the longest prefix is meant."""
    prefixes = {
        figure_name(s.spec.name, dataset, "").removesuffix(".png"): (s.spec.name, dataset)
        for s in studies
        for dataset in s.spec.sets()
    }
    rank = {what: place for place, what in enumerate(CAPTIONS)}
    found: dict[tuple[str, str], list[tuple[int, Path]]] = {}
    for path in sorted(folder.glob("*.png")):
        fitting = max((p for p in prefixes if path.stem.startswith(p)), key=len, default=None)
        if fitting is not None:
            what = path.stem.removeprefix(fitting)
            found.setdefault(prefixes[fitting], []).append((rank.get(what, len(rank)), path))
    return {key: [path for _, path in sorted(paths)] for key, paths in found.items()}
