"""``foveate data check``: everything that is wrong with a dataset, found before a model is trained on it.

An **error** means that results on this data would be wrong or cannot be had; a **warning** is worth a look.

========================  ========  =======================================================================
kind                      severity  what it means
========================  ========  =======================================================================
missing-file              error     an image is listed and not there
unreadable-image          error     an image cannot be decoded
missing-column, …         error     the CSV file or folder itself (see :mod:`foveate.data.scan`)
unknown-split             error     a split that is not train, target, val or test
one-class                 error     a split with images of a single class
label-not-in-train        error     a label that never occurs in train
empty-group               error     a group has images in other splits and none in this one
no-such-group             warning   a combination of class and attribute without images in any split
tiny-group                warning   a group with fewer images than ``tiny``
leak                      error     the same pixels in two splits (train and target: warning)
near-leak                 error     nearly the same picture in two splits (train and target: warning)
two-labels                error     the same pixels under two labels (or attributes)
duplicate                 warning   the same pixels twice in one split
near-duplicate            warning   nearly the same picture twice in one split
uniform-image             warning   every pixel has the same colour
missing-mask              error     a mask is listed and not there
unreadable-mask           error     a mask cannot be decoded
mask-size                 error     a mask has another size than its image
empty-mask                error     a mask without object
bad-box                   error     a box whose end is not after its start
box-outside               error     a box that reaches beyond the image
box-off-mask              error     a box without a single pixel of the mask
shortcut                  warning   something but the object tells the class (the command line adds it, see
                                    :mod:`foveate.report.data_shortcuts`)
========================  ========  =======================================================================

Without attributes the groups are the classes. Of a kind that is explained by another (the groups of a class
that never occurs in train, say) only the explanation is reported.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from foveate.data.benchmark import SPLITS, Benchmark
from foveate.data.dataset import GroupedDataset
from foveate.data.duplicates import THUMBNAIL, fingerprint, near_clusters
from foveate.data.images import NO_SUCH_FILE
from foveate.data.scan import Problem, scan_csv, scan_path, some
from foveate.data.tables import build, unseen_labels
from foveate.errors import DataError, UnreadableImage

if TYPE_CHECKING:
    from rich.console import Console

CheckProgress = Callable[[int, int], None]


@dataclass
class CheckReport:
    """What :func:`check` found.

    Attributes:
        source: name or path of what was checked.
        problems: every problem, in the order they were found.
        counts: ``images``, ``readable``, ``errors``, ``warnings``, ``kinds`` (problems by kind) and
            ``splits`` (for every split its number of images and the images in every group, or class without
            attributes).
        notes: remarks that are no problems (no split column, files that are not images).
        checked: the images that were looked at; None when they have no labels.
    """

    source: str
    problems: list[Problem] = field(default_factory=list)
    counts: dict[str, Any] = field(default_factory=dict)
    notes: dict[str, Any] = field(default_factory=dict)
    checked: Benchmark | None = field(default=None, repr=False)

    def add(self, problems: Iterable[Problem]) -> None:
        """Further problems, with the counts kept right."""
        self.problems += problems
        kinds = dict(Counter(problem.kind for problem in self.problems))
        self.counts |= {"errors": len(self.errors), "warnings": len(self.warnings), "kinds": kinds}

    @property
    def errors(self) -> list[Problem]:
        return [p for p in self.problems if p.severity == "error"]

    @property
    def warnings(self) -> list[Problem]:
        return [p for p in self.problems if p.severity == "warning"]

    @property
    def ok(self) -> bool:
        """True when there are no errors (warnings alone are fine)."""
        return not self.errors

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, ready for JSON."""
        problems = [asdict(p) for p in self.problems]
        return {"source": self.source, "ok": self.ok, "counts": self.counts, "notes": self.notes,
                "problems": problems}  # fmt: skip

    def summary(self) -> str:
        """One line: how much was checked and what was found."""
        found = [f"{n} {what}{'s' * (n != 1)}" for what, n in
                 (("error", len(self.errors)), ("warning", len(self.warnings))) if n]  # fmt: skip
        splits = self.counts["splits"]
        sizes = ", ".join(f"{split} {of['images']:,}" for split, of in splits.items()) or "nothing"
        return f"{self.source}: {self.counts['images']:,} images ({sizes}): {', '.join(found) or 'no problems'}."

    def print(self, console: Console | None = None, limit: int = 5) -> None:
        """Print two tables, images by group and split and the problems (``limit`` of every kind at most)."""
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        console = console or Console()
        splits = self.counts["splits"]
        groups = list(dict.fromkeys(g for of in splits.values() for g in of["groups"]))
        if splits and len(groups) <= 100:
            table = Table("group", title=f"Images in {self.source}", title_justify="left")
            for split in splits:
                table.add_column(Text(split), justify="right")
            for group in groups:
                table.add_row(Text(group), *(f"{of['groups'].get(group, 0):,}" for of in splits.values()))
            table.add_section()
            table.add_row("all", *(f"{of['images']:,}" for of in splits.values()))
            console.print(table)
        if self.problems:
            table = Table("", "kind", "what is wrong", title="Problems", title_justify="left")
            for kind, n in self.counts["kinds"].items():
                of_kind = [p for p in self.problems if p.kind == kind]
                for problem in of_kind[:limit]:
                    colour = "red" if problem.severity == "error" else "yellow"
                    row = (Text(problem.severity, colour), Text(kind), Text(problem.message, overflow="fold"))
                    table.add_row(*row)
                if n > limit:
                    table.add_row("", Text(kind), Text(f"… and {n - limit:,} more of this kind (--json lists all)"))
            console.print(table)
        for note in ("hint", "ignored_files", "shortcuts"):
            if value := self.notes.get(note):
                if note == "ignored_files":
                    value = f"{value['count']} files are not images: {some(value['first'], 3)}"
                console.print(Text(value, "dim"))
        console.print(Text(self.summary(), "bold green" if self.ok else "bold red"))


def check(
    source: Benchmark | GroupedDataset | str | os.PathLike[str],
    *,
    root: str | os.PathLike[str] | None = None,
    tiny: int = 10,
    near: int | None = 6,
    progress: CheckProgress | None = None,
) -> CheckReport:
    """Look for everything that is wrong with a dataset; it goes on after every fault it finds.

    Every image is decoded once; what is kept of it does not depend on its size.

    Args:
        source: a benchmark, a dataset (checked as ``train``), a CSV file, or a folder (class folders, or one
            with ``benchmark.csv``).
        root: for a CSV file, what its paths are relative to (default: its folder).
        tiny: groups with fewer images than this are warned about.
        near: images whose 64-bit perceptual hashes differ in at most this many bits are compared for being
            nearly the same; None looks for exact copies only.
        progress: called with (images done, images in all); by default a bar when the terminal shows one.

    Raises:
        DataError: when there is no such file or folder. Everything else is a problem in the report.

    >>> from foveate.data.images import ArrayImages
    >>> pixels = np.random.default_rng(0).integers(0, 256, (40, 16, 16, 3), dtype=np.uint8)
    >>> pixels[39] = pixels[0]
    >>> ds = GroupedDataset(ArrayImages(pixels), [0, 1] * 20, ["cat", "dog"])
    >>> report = check(Benchmark("pets", {"train": ds.subset(range(20)), "test": ds.subset(range(20, 40))}))
    >>> report.ok, [p.kind for p in report.problems]
    (False, ['leak', 'two-labels'])
    """
    name, labelled, problems, notes = "", True, [], {}
    if isinstance(source, GroupedDataset):
        source = Benchmark(source.name, {"train": source})
    if isinstance(source, Benchmark):
        benchmark, name = source, source.name
    else:
        if root is not None and Path(source).expanduser().is_dir():
            raise DataError("root goes with a CSV file; paths in a folder are where they are.")
        scan = scan_path(source) if root is None else scan_csv(source, root)
        benchmark, name, labelled = build(scan), str(source), scan.labelled
        problems, notes = list(scan.problems), dict(scan.notes)
    report = CheckReport(name, problems, notes=notes)
    seen = _read_all(benchmark, report, progress)
    if labelled:
        _check_groups(benchmark, report, tiny)
    _check_copies(benchmark, seen, report, near, labelled)
    splits = {}
    for split, ds in benchmark.splits.items():
        names, of = _groups(ds)
        counts = np.bincount(of, minlength=len(names)).tolist()
        splits[split] = {
            "images": len(ds),
            "groups": dict(zip(names, counts, strict=True)) if labelled else {},
        }
    report.counts = {
        "images": sum(map(len, benchmark.splits.values())), "readable": int(seen.readable.sum()), "splits": splits,
    }  # fmt: skip
    report.add([])
    report.checked = benchmark if labelled else None
    return report


def _groups(ds: GroupedDataset) -> tuple[list[str], NDArray[np.int64]]:
    """Names of the groups and the group of every image; classes stand in for groups without attributes."""
    return (ds.class_names, ds.labels) if ds.groups is None else (ds.group_names, ds.groups)


# -- every image, once ----------------------------------------------------------------------


class _Seen:
    """What is kept of every image, over all splits one after the other."""

    def __init__(self, benchmark: Benchmark):
        self.at = [(split, i) for split, ds in benchmark.splits.items() for i in range(len(ds))]
        n = len(self.at)
        self.content = np.zeros(n, "V16")
        self.hashes = np.zeros(n, np.uint64)
        self.thumbnails = np.zeros((n, THUMBNAIL), np.uint8)
        self.readable, self.uniform, self.plain = np.zeros((3, n), bool)


def _read_all(benchmark: Benchmark, report: CheckReport, progress: CheckProgress | None) -> _Seen:
    seen = _Seen(benchmark)
    with _bar(len(seen.at)) if progress is None else contextlib.nullcontext(progress) as tell:
        for k, (split, i) in enumerate(seen.at):
            ds = benchmark.splits[split]
            size = None
            try:
                image = ds.images.read(i)
            except UnreadableImage as error:
                kind = "missing-file" if error.reason == NO_SUCH_FILE else "unreadable-image"
                report.problems.append(Problem(kind, "error", error.where, f"{error.where}: {error.reason}."))
            else:
                size = image.shape[:2]
                print_ = fingerprint(image)
                seen.content[k] = np.void(print_.content)
                seen.hashes[k] = print_.perceptual
                seen.thumbnails[k] = print_.thumbnail
                seen.readable[k], seen.uniform[k], seen.plain[k] = True, print_.uniform, print_.plain
                if print_.uniform:
                    where = ds.where(i)
                    message = f"{where}: every pixel has the same colour, there is nothing to see."
                    report.problems.append(Problem("uniform-image", "warning", where, message))
            report.problems.extend(_region_problems(ds, i, size))
            tell(k + 1, len(seen.at))
    return seen


@contextlib.contextmanager
def _bar(total: int) -> Iterator[CheckProgress]:
    """A progress bar on the error stream, nothing when that is not a terminal."""
    if not sys.stderr.isatty():
        yield lambda done, of: None
        return
    from rich.console import Console
    from rich.progress import Progress as Bar

    with Bar(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("checking images", total=total)
        yield lambda done, of: bar.update(task, completed=done)


def _region_problems(ds: GroupedDataset, i: int, size: tuple[int, ...] | None) -> Iterator[Problem]:
    """What is wrong with mask and box of image ``i``, which is ``size`` (height, width) or unreadable."""
    where = ds.where(i)
    mask = None
    if ds.masks is not None:
        try:
            mask = ds.masks.read(i)
        except UnreadableImage as error:
            kind = "missing-mask" if error.reason == NO_SUCH_FILE else "unreadable-mask"
            yield Problem(kind, "error", error.where, f"mask {error.where} of {where}: {error.reason}.")
    if mask is not None and mask.size == 0:
        mask = None
    if mask is not None and mask.max() < 128:
        yield Problem("empty-mask", "error", where, f"{where}: its mask {ds.masks.where(i)} marks no object.")  # type: ignore[union-attr]
    if mask is not None and size is not None and mask.shape != size:
        message = f"{where}: the image is {size[1]}x{size[0]}, its mask {mask.shape[1]}x{mask.shape[0]}."
        yield Problem("mask-size", "error", where, message)
        mask = None
    if ds.boxes is None or np.isnan(ds.boxes[i]).any():
        return
    x0, y0, x1, y1 = (float(v) for v in ds.boxes[i])
    box = f"box ({x0:g}, {y0:g}, {x1:g}, {y1:g})"
    if x1 <= x0 or y1 <= y0:
        message = f"{where}: {box} ends before it starts; expected x0 < x1 and y0 < y1."
        yield Problem("bad-box", "error", where, message)
    elif size is not None and (min(x0, y0) < -1e-3 or x1 > size[1] + 1e-3 or y1 > size[0] + 1e-3):
        message = f"{where}: {box} reaches beyond the image of {size[1]}x{size[0]}."
        yield Problem("box-outside", "error", where, message)
    elif mask is not None and mask.max() >= 128:
        inside = mask[int(y0) : int(np.ceil(y1)), int(x0) : int(np.ceil(x1))]
        if not inside.size or inside.max() < 128:
            yield Problem("box-off-mask", "error", where, f"{where}: {box} holds no pixel of the mask.")


# -- groups ---------------------------------------------------------------------------------


def _check_groups(benchmark: Benchmark, report: CheckReport, tiny: int) -> None:
    unseen = unseen_labels(benchmark)
    report.problems.extend(unseen)
    never = {p.where.split(": ", 1)[1] for p in unseen}
    known = {s: ds for s, ds in benchmark.splits.items() if s in SPLITS}
    everywhere: Counter[str] = Counter()
    for ds in known.values():
        names, of = _groups(ds)
        everywhere.update(names[g] for g in of)
    for split, ds in known.items():
        classes = np.flatnonzero(ds.class_counts)
        if len(classes) == 1:
            only = ds.class_names[classes[0]]
            message = f"all {len(ds)} images of '{split}' are '{only}'; expected two classes or more."
            report.problems.append(Problem("one-class", "error", split, message))
        names, of = _groups(ds)
        per_class = max(1, ds.num_attributes if ds.groups is not None else 1)
        for g, n in enumerate(np.bincount(of, minlength=len(names)).tolist()):
            absent = ds.class_counts[g // per_class] == 0
            explained = absent and (len(classes) == 1 or (split == "train" and ds.class_names[g // per_class] in never))
            if 0 < n < tiny:
                message = f"'{split}' has only {n} image{'s' * (n != 1)} of {names[g]} (fewer than {tiny})."
                report.problems.append(Problem("tiny-group", "warning", f"{split}: {names[g]}", message))
            elif n == 0 and everywhere[names[g]] and not explained:
                message = f"'{split}' has no image of {names[g]}, other splits have {everywhere[names[g]]}."
                report.problems.append(Problem("empty-group", "error", f"{split}: {names[g]}", message))
    for name in dict.fromkeys(n for ds in known.values() for n in _groups(ds)[0]):
        if not everywhere[name]:
            message = f"there is no image of {name} in any split."
            report.problems.append(Problem("no-such-group", "warning", name, message))


# -- copies ---------------------------------------------------------------------------------


def _check_copies(benchmark: Benchmark, seen: _Seen, report: CheckReport, near: int | None, labelled: bool) -> None:
    usable = np.flatnonzero(seen.readable & ~seen.uniform)
    _, first, inverse = np.unique(seen.content[usable], return_index=True, return_inverse=True)
    members: list[list[int]] = [[] for _ in first]
    for k, c in zip(usable, inverse, strict=True):
        members[c].append(int(k))
    for group in sorted(m for m in members if len(m) > 1):
        report.problems.extend(_copy_problems(benchmark, seen, group, exact=True, labelled=labelled))
    if near is None:
        return
    one_each = np.sort(usable[first])  # exact copies are reported above
    candidates = one_each[~seen.plain[one_each]]
    for cluster in near_clusters(seen.hashes[candidates], seen.thumbnails[candidates], near):
        group = [int(candidates[c]) for c in cluster]
        report.problems.extend(_copy_problems(benchmark, seen, group, exact=False, labelled=labelled))


def _copy_problems(
    benchmark: Benchmark, seen: _Seen, group: list[int], *, exact: bool, labelled: bool
) -> Iterator[Problem]:
    """What it means that the images of ``group`` are the same (or nearly)."""
    at = [seen.at[k] for k in group]
    splits = list(dict.fromkeys(split for split, _ in at))
    named = [f"{benchmark.splits[split].where(i)} [{split}]" for split, i in at]
    where = benchmark.splits[at[0][0]].where(at[0][1])
    how = "the same image" if exact else "nearly the same image"
    groups = [_groups(benchmark.splits[split]) for split, _ in at]
    called = dict.fromkeys(names[of[i]] for (names, of), (_, i) in zip(groups, at, strict=True))
    contradiction = exact and labelled and len(called) > 1
    if len(splits) > 1:
        # A target set drawn from train is a legitimate choice; one that overlaps val or test is not.
        severity: Literal["error", "warning"] = "warning" if set(splits) == {"train", "target"} else "error"
        message = f"{how} in {' and '.join(splits)}: {some(named)}."
        yield Problem("leak" if exact else "near-leak", severity, where, message)
    elif not contradiction:
        message = f"{how} {len(group)} times in {splits[0]}: {some(named)}."
        yield Problem("duplicate" if exact else "near-duplicate", "warning", where, message)
    if contradiction:
        message = f"the same image is called {' and '.join(called)}: {some(named)}."
        yield Problem("two-labels", "error", where, message)
