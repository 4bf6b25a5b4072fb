"""A study: every method of one spec file on one dataset over several seeds, as CSV, tables and figures.

    python -m benchmarks.study benchmarks/specs/dominoes.yaml            # run, or go on where it stopped
    python -m benchmarks.study benchmarks/specs/dominoes.yaml --seeds 0 --methods base DFR DAR
    python -m benchmarks.study benchmarks/specs/dominoes.yaml --table    # Markdown, mean ± std over seeds
    python -m benchmarks.study benchmarks/specs/dominoes.yaml --figures  # docs/figures/dominoes-*.png
    python -m benchmarks.study --page                                    # docs/results.md from every CSV

**Protocol.** ``base`` is ERM on ``train`` only; post-hoc systems (DFR, DAR) start from it and adapt on ``target``;
all others train on ``train`` + ``target``. Epochs and settings are chosen by the spec's ``select`` metric (minority
accuracy) on ``val``; ``test`` is only measured. A method's grid is the product of its lists. Post-hoc methods search
it on every seed, since they are cheap; trained methods search it on the first seed of the spec and reuse what was
chosen there for the others. The spec's ``training`` holds for trained methods; post-hoc ones have their own.

**Results.** ``benchmarks/results/NAME.csv`` gets one row a (seed, method) as soon as it is measured, with command,
commit, settings and seconds; a row that is there is not computed again (delete it to have it anew). Fitted models
stay in ``RUNS/NAME/SEED/METHOD`` and are reused when their settings are those of the spec; ``seconds`` is then what
the model's own training took (empty when not known) and not the search around it, and ``commit`` is that of the
measurement: a change of the code is not noticed, so remove the models it concerns. Processes for different seeds
may run side by side: a row lost to a clash of two writes is made again, from the saved model, by the next call.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import json
import re
import shlex
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

import foveate as fv
from foveate.data import Benchmark
from foveate.engine import TrainSettings
from foveate.errors import FoveateError, suggest
from foveate.files import atomic_file, write_text
from foveate.measure import METRICS, SmallGroupWarning, half_mask, minority_groups

HERE = Path(__file__).parent
ACCURACIES = ("average", "majority", "minority", "worst_group", "worst_class", "adjusted_average")
SHARES = ("cep_map", "cep_pixel", "cep_feature", "cep_output", "cap", "cgp")
COLUMNS = (
    "method", "seed", *ACCURACIES, *SHARES, "seconds", "reused", "command", "commit", "settings", "supervision",
)  # fmt: skip
TABLE = ("average", "majority", "minority", "worst_group", "cep_feature", "cep_output", "cgp")
FIGURES = {
    "cep": "CEP of the units of each level, by method",
    "gradcam": "Grad-CAM of each method on test images of minority groups",
    "queries": "Where the queries of DAR look",
    "ablation": "DAR and its variants, minority accuracy of every seed",
}
# what the study itself gives to every system
GIVEN = {"base", "backbone", "model_args", "seed", "select", "progress", "checkpoint"}
Row = dict[str, Any]


# -- the spec file ------------------------------------------------------------------------


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class DataSpec(_Strict):
    """A name for :func:`foveate.data.load` and its options; the seed is passed as ``seed``."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)


class NetworkSpec(_Strict):
    """The network every method shares."""

    backbone: str
    model_args: dict[str, Any] = Field(default_factory=dict)


class Method(_Strict):
    """One line of the table: a system, its fixed settings, and a grid of those to choose from.

    ``base`` says whether it starts from the base model; it is known from the system and may be left out.
    """

    system: str
    base: bool | None = None
    settings: dict[str, Any] = Field(default_factory=dict)
    grid: dict[str, list[Any]] = Field(default_factory=dict)

    @property
    def kind(self) -> type[fv.systems.System]:
        return fv.systems.get_system(self.system)

    @property
    def post_hoc(self) -> bool:
        return bool(getattr(self.kind, "post_hoc", False))

    def points(self) -> list[dict[str, Any]]:
        """Fixed settings with every point of the grid, the last list running fastest."""
        product = itertools.product(*self.grid.values())
        return [{**self.settings, **dict(zip(self.grid, values, strict=True))} for values in product]


class Spec(_Strict):
    """One study. ``core`` says what CEP swaps; ``none`` leaves CEP out (the shortcut covers the object)."""

    name: str = Field(pattern=r"^[a-z0-9-]+$")
    about: str
    data: DataSpec
    core: Literal["bottom-half", "masks", "none"] = "none"
    network: NetworkSpec
    training: dict[str, Any] = Field(default_factory=dict)
    seeds: list[int] = Field(default=[0, 1, 2], min_length=1)
    select: str = "minority"
    methods: dict[str, Method] = Field(min_length=1)

    def check(self) -> None:
        """Raise a sentence for what the types alone do not tell."""
        TrainSettings.of(**self.training)
        if self.select not in METRICS:
            raise FoveateError(f"select: unknown metric '{self.select}'.{suggest(self.select, METRICS)}")
        for label, method in self.methods.items():
            at = f"methods.{label}"
            try:
                kind = method.kind
            except FoveateError as error:
                raise FoveateError(f"{at}.system: {error}") from None
            if label == "base" and kind is not fv.ERM:
                raise FoveateError(f"{at}.system: 'base' is ERM on train only; found {method.system}.")
            if method.post_hoc and "base" not in self.methods:
                raise FoveateError(
                    f"{at}: {method.system} starts from the method 'base', which the spec does not list."
                )
            if method.base is not None and method.base != method.post_hoc:
                does = "starts" if method.post_hoc else "does not start"
                raise FoveateError(f"{at}.base: {method.system} {does} from the base model; leave 'base' out.")
            known = [n for n in {**dict.fromkeys(kind.setting_names()), **TrainSettings.model_fields} if n not in GIVEN]
            for where, names in (("settings", method.settings), ("grid", method.grid)):
                for name in names:
                    if name in GIVEN:
                        raise FoveateError(
                            f"{at}.{where}.{name}: the study gives '{name}' to every method; leave it out."
                        )
                    if name not in known:
                        raise FoveateError(
                            f"{at}.{where}.{name}: {method.system} has no such setting.{suggest(name, known)}"
                        )
            for name, values in method.grid.items():
                if not values:
                    raise FoveateError(f"{at}.grid.{name}: the list is empty; give at least one value.")


class _Loader(yaml.SafeLoader):
    """Plain values only, and 1e-3 is a number (YAML 1.1 takes it for a word)."""


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
)


def read_spec(path: str | Path) -> Spec:
    """The validated spec of a YAML file; a mistake is named with its place in the file."""
    try:
        values = yaml.load(Path(path).read_text(encoding="utf-8"), Loader=_Loader)
        spec = Spec.model_validate(values)
        spec.check()
        return spec
    except OSError as error:
        raise FoveateError(f"{path}: cannot read the spec: {error.strerror}.") from error
    except yaml.YAMLError as error:
        raise FoveateError(f"{path}: this is not YAML: {' '.join(str(error).split())}.") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = [str(part) for part in first["loc"]]
        message = f"{first['msg']}, found {first['input']!r}."
        if first["type"] == "extra_forbidden":
            homes: dict[str, type[BaseModel]] = {"data": DataSpec, "network": NetworkSpec, "methods": Method}
            fields = list((homes[where[0]] if len(where) > 1 else Spec).model_fields)
            message = f"unknown field.{suggest(where[-1], fields)} Known: {', '.join(fields)}."
        elif first["type"] == "missing":
            message = "this field is missing."
        raise FoveateError(f"{path}: {'.'.join(where) or 'the file'}: {message}") from None
    except FoveateError as error:
        raise FoveateError(f"{path}: {error}") from None


# -- fitting and measuring ----------------------------------------------------------------


@dataclass
class Study:
    """A spec with the folders it works in."""

    spec: Spec
    runs: Path
    results: Path
    command: str = ""
    commit: str = ""
    _bench: dict[int, Benchmark] = field(default_factory=dict)

    @property
    def csv(self) -> Path:
        return self.results / f"{self.spec.name}.csv"

    def folder(self, seed: int, label: str) -> Path:
        """Where the fitted model is kept."""
        return self.runs / self.spec.name / str(seed) / label.replace(" ", "-")

    def bench(self, seed: int) -> Benchmark:
        """The data of ``seed``; the last one asked for is kept."""
        if seed not in self._bench:
            self._bench = {seed: fv.data.load(self.spec.data.name, seed=seed, **self.spec.data.options)}
        return self._bench[seed]

    def build(self, seed: int, label: str, point: dict[str, Any]) -> fv.systems.System:
        """The system with the settings of one grid point, not fitted."""
        method, spec = self.spec.methods[label], self.spec
        shared: dict[str, Any] = {"seed": seed, "select": spec.select, "progress": False}
        if method.post_hoc:
            return method.kind(**shared, **point)
        training = dict(spec.training)
        if method.kind is fv.Subsample:  # as many steps as the others take
            bench = self.bench(seed)
            smallest = int((bench.train + bench.target).group_counts.min())
            kept = max(smallest, 1) * bench.train.num_groups
            training["epochs"] = round(TrainSettings.of(**training).epochs * len(bench.train) / kept)
        network = {"backbone": spec.network.backbone, "model_args": spec.network.model_args}
        return method.kind(**network, **shared, **{**training, **point})

    def candidates(self, seed: int, label: str) -> list[fv.systems.System]:
        """One unfitted system a grid point; for a trained method after the first seed, the point chosen there."""
        method, first = self.spec.methods[label], self.spec.seeds[0]
        points = method.points()
        if len(points) > 1 and not method.post_hoc and seed != first:
            chosen = _identity(self.fitted(first, label)[0])
            points = [p for p in points if _identity(self.build(first, label, p)) == chosen]
        return [self.build(seed, label, p) for p in points]

    def fitted(self, seed: int, label: str) -> tuple[fv.systems.System, float | None, bool]:
        """The chosen fitted system, the seconds it took (None when not known), and whether it was there before."""
        method, folder = self.spec.methods[label], self.folder(seed, label)
        options = self.candidates(seed, label)
        found = self._saved(folder, options, replace=method.post_hoc)
        if found is not None:
            return found, found.history_.seconds or None, True
        base = self.fitted(seed, "base")[0] if method.post_hoc else None
        began = time.perf_counter()
        tried, earlier = [], 0.0
        for number, system in enumerate(options):
            # a long training is kept at once, so that a killed search goes on with the next point
            part = folder.with_name(f"{folder.name}.try-{number}") if base is None and len(options) > 1 else None
            kept = None if part is None else self._saved(part, [system])
            if kept is None:
                self._fit(system, seed, label, base)
                if part is not None:
                    system.save(part)
            else:
                earlier += kept.history_.seconds
            tried.append(system if kept is None else kept)
        best = max(tried, key=lambda s: self._score(s, seed)) if len(tried) > 1 else tried[0]
        seconds = time.perf_counter() - began + earlier
        best.save(folder)
        return best, seconds, False

    def _fit(self, system: fv.systems.System, seed: int, label: str, base: fv.systems.System | None) -> None:
        bench = self.bench(seed)
        if base is not None:
            system.base = base  # type: ignore[attr-defined]
            system.fit(bench.target, val=bench.val)
        else:
            system.fit(bench.train, None if label == "base" else bench.target, bench.val)

    def _score(self, system: fv.systems.System, seed: int) -> float:
        val = self.bench(seed).val
        if system.class_names_ != val.class_names:  # it learned the attribute: its own selection score
            return float(system.history_.best_score or 0.0)  # type: ignore[attr-defined]
        return fv.evaluate(system, val).value(self.spec.select)

    def _saved(self, folder: Path, options: Sequence[fv.systems.System], replace: bool = False) -> Any:
        """The model in ``folder`` when its settings are those of one of ``options``."""
        if not (folder / "system.json").exists():
            return None
        found = fv.load(folder)
        if any(_identity(found) == _identity(o) for o in options):
            return found
        mine, wanted = _identity(found), _identity(options[0])
        names = [n for n in {**wanted, **mine} if wanted.get(n, "default") != mine.get(n, "default")]
        differs = ", ".join(f"{n} {mine.get(n, 'default')!r} instead of {wanted.get(n, 'default')!r}" for n in names)
        if not replace:
            raise FoveateError(
                f"the model in {folder} differs from the spec ({differs}); remove it, or choose other --runs."
            )
        print(f"{folder}: other settings than the spec ({differs}); fitted again", flush=True)
        return None

    def core(self, seed: int) -> Any:
        """The mask CEP swaps for all images, or None for each image's own."""
        if self.spec.core == "masks":
            return None
        height, width = self.bench(seed).test[0].image.shape[-2:]
        return half_mask(height, width)

    def entanglement(self, system: Any, seed: int) -> fv.systems.Entanglement:
        return fv.entanglement(system, self.bench(seed).test, core=self.core(seed), images=500, seed=seed)

    def record(self, seed: int, label: str) -> Row:
        """Fit (or find), evaluate on test and measure entanglement: one row of the CSV."""
        system, seconds, reused = self.fitted(seed, label)
        row: Row = {"method": label, "seed": seed}
        test = self.bench(seed).test
        if system.class_names_ == test.class_names:
            report = fv.evaluate(system, test)
            row |= {n: round(float(v), 4) for n in ACCURACIES if (v := getattr(report, n)) is not None}
        if self.spec.core != "none":
            found = self.entanglement(system, seed).to_dict()
            row |= {k if k in SHARES else f"cep_{k}": round(v, 4) for k, v in found.items()}
        settings = {k: v for k, v in system.get_params().items() if k != "base"}
        return row | {
            "seconds": "" if seconds is None else round(seconds, 1), "reused": str(reused).lower(),
            "command": self.command, "commit": self.commit,
            "settings": json.dumps(settings, default=str), "supervision": system.supervision(),
        }  # fmt: skip

    def extend(self, seeds: Sequence[int], labels: Sequence[str]) -> None:
        """Measure every (seed, method) that has no row yet."""
        for seed, label in itertools.product(seeds, labels):
            if (str(seed), label) in {(r["seed"], r["method"]) for r in read_rows(self.csv)}:
                continue
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", SmallGroupWarning)
                row = self.record(seed, label)
            # read again: another process may have added rows meanwhile
            others = [r for r in read_rows(self.csv) if (r["seed"], r["method"]) != (str(seed), label)]
            write_rows(self.csv, [*others, row])
            shown = ("seed", "method", "average", "majority", "minority", "cep_output", "seconds", "reused")
            print(json.dumps({k: row[k] for k in shown if k in row}), flush=True)


def _identity(system: Any) -> dict[str, Any]:
    """What makes two systems the same before they are fitted, as plain JSON values."""
    return json.loads(json.dumps(system.identity(), default=str))


def commit() -> str:
    """The commit the figures are made with; ``-dirty`` when code or specs differ from it."""
    ask = {"capture_output": True, "text": True, "cwd": HERE.parent}
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], **ask)  # type: ignore[call-overload]
    code = ["src", "benchmarks/study.py", "benchmarks/specs"]
    changed = subprocess.run(["git", "status", "--porcelain", "--", *code], **ask)  # type: ignore[call-overload]
    return (head.stdout.strip() or "unknown") + ("-dirty" if changed.stdout.strip() else "")


# -- results ------------------------------------------------------------------------------


def read_rows(path: Path) -> list[Row]:
    """The rows of a CSV, as text; none when it is not there."""
    if not path.exists():
        return []
    with open(path, newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """The whole CSV, or the old one when something fails."""
    with atomic_file(path) as temporary, open(temporary, "w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def table(rows: Sequence[Row], labels: Sequence[str]) -> str:
    """Markdown: mean ± standard deviation over seeds, in percent, methods in the order of ``labels``."""
    lines = ["| method | " + " | ".join(TABLE) + " | seeds |", "|---" * (len(TABLE) + 2) + "|"]
    for label in labels:
        mine = [r for r in rows if r["method"] == label]
        if not mine:
            continue
        cells = []
        for column in TABLE:
            values = [100 * float(r[column]) for r in mine if r.get(column) not in (None, "")]
            cells.append(f"{np.mean(values):.1f} ± {np.std(values):.1f}" if values else "–")
        name = "ERM, train only (base)" if label == "base" else label
        lines.append(f"| {name} | " + " | ".join(cells) + f" | {len(mine)} |")
    return "\n".join(lines)


def page(specs: Sequence[Spec], results: Path, docs: Path) -> str:
    """docs/results.md, from the CSVs alone; the studies with most methods first."""
    parts = [
        "# Results",
        "Made by `python -m benchmarks.study --page` from the CSVs in `benchmarks/results/`; every row there names the "
        "command, the commit, the settings and the seconds it took. Percent, mean ± standard deviation over seeds. "
        "CEP and CGP run from 0 (spurious) to 100 (core). Epochs and settings are chosen by the named metric on "
        "validation.",
    ]
    for spec in sorted(specs, key=lambda s: (-len(s.methods), s.name)):
        rows = read_rows(results / f"{spec.name}.csv")
        if not rows:
            continue
        shared = {**spec.network.model_args, **spec.training}
        how = f"`{spec.network.backbone}`, " + ", ".join(f"{k} {v}" for k, v in shared.items())
        commands = "\n".join(dict.fromkeys(r["command"] for r in rows))
        parts += [
            f"## {spec.name}",
            f"{spec.about.rstrip('.')}. Network and training: {how}; selected on {spec.select}.",
            table(rows, list(spec.methods)),
            f"```sh\n{commands}\n```",
        ]
        files = {what: f"figures/{spec.name}-{what}.png" for what in FIGURES}
        parts += [f"![{FIGURES[what]}]({file})" for what, file in files.items() if (docs / file).exists()]
    notes = results / "notes.md"
    if notes.exists():
        parts.append(notes.read_text(encoding="utf-8").strip())
    return "\n\n".join(parts) + "\n"


def figures(study: Study, seed: int, folder: Path) -> list[Path]:
    """The figures that the saved models of ``seed`` and the CSV allow, as ``folder/NAME-*.png``."""
    from foveate.report.figures import ablation_bars, cep_histograms, gradcam_panels, query_maps, save_figure

    drawn, spec = {}, study.spec
    shown = [m for m in ("base", "DFR", "DAR", "DAR on spurious") if m in spec.methods]
    missing = [m for m in shown if not (study.folder(seed, m) / "system.json").exists()]
    if missing:
        print(f"no saved model of seed {seed} for {', '.join(missing)}: left out of the figures")
    systems: dict[str, Any] = {
        "ERM" if m == "base" else m: fv.load(study.folder(seed, m)) for m in shown if m not in missing
    }
    if systems:
        bench = study.bench(seed)
        few = minority_groups(bench.train.group_counts.reshape(bench.train.num_classes, -1)).ravel()
        places = np.flatnonzero(few[bench.test.require_groups("figures")])
        four = [int(i) for i in places[np.linspace(0, len(places) - 1, min(4, len(places))).astype(int)]]
        if spec.core != "none":
            drawn["cep"] = cep_histograms({n: study.entanglement(s, seed) for n, s in systems.items()})
        if four:
            drawn["gradcam"] = gradcam_panels(systems, bench.test, four)
            if "DAR" in systems:
                drawn["queries"] = query_maps(systems["DAR"], bench.test, four)
    values = {
        label: [100 * float(r["minority"]) for r in read_rows(study.csv) if r["method"] == label and r["minority"]]
        for label, m in spec.methods.items()
        if m.kind is fv.DAR and not {"learn", "pool"} & {*m.settings, *m.grid}
    }
    values = {label: seeds for label, seeds in values.items() if seeds}
    if "DAR" in values and len(values) > 1:
        ordered = {"DAR": values.pop("DAR"), **{k.removeprefix("DAR "): v for k, v in values.items()}}
        drawn["ablation"] = ablation_bars(ordered, f"{spec.name}: DAR and its variants")
    return [save_figure(figure, folder / f"{spec.name}-{what}.png") for what, figure in drawn.items()]


# -- command line -------------------------------------------------------------------------


def main(argv: Sequence[str] | None = None) -> int:
    """Run a study, or show what it found; a user's mistake is one sentence and exit code 2."""
    argv = list(sys.argv[1:] if argv is None else argv)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("spec", type=Path, nargs="?", help="a file of benchmarks/specs")
    parser.add_argument("--seeds", type=int, nargs="+", help="by default those of the spec")
    parser.add_argument("--methods", nargs="+", help="by default all of the spec")
    parser.add_argument("--runs", type=Path, default=Path("runs"), help="folder of the fitted models")
    parser.add_argument("--results", type=Path, default=HERE / "results", help="folder of the CSVs")
    parser.add_argument("--docs", type=Path, default=HERE.parent / "docs", help="folder of the page and the figures")
    parser.add_argument("--table", action="store_true", help="print the table of the rows so far")
    parser.add_argument("--figures", action="store_true", help="draw figures from saved models and rows")
    parser.add_argument("--page", action="store_true", help="write results.md from all CSVs")
    chosen = parser.parse_args(argv)
    if chosen.spec is None and not chosen.page:
        parser.error("name a spec file (only --page goes without)")
    try:
        if chosen.spec is not None:
            _one(chosen, "python -m benchmarks.study " + shlex.join(argv))
        if chosen.page:
            specs = [read_spec(p) for p in sorted((HERE / "specs").glob("*.yaml"))]
            write_text(chosen.docs / "results.md", page(specs, chosen.results, chosen.docs))
    except FoveateError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


def _one(chosen: argparse.Namespace, command: str) -> None:
    spec = read_spec(chosen.spec)
    labels, seeds = chosen.methods or list(spec.methods), chosen.seeds or spec.seeds
    for label in labels:
        if label not in spec.methods:
            known = list(spec.methods)
            raise FoveateError(f"unknown method '{label}'.{suggest(label, known)} {spec.name} has: {', '.join(known)}.")
    study = Study(spec, chosen.runs, chosen.results, command, commit())
    if not (chosen.table or chosen.figures or chosen.page):
        study.extend(seeds, labels)
    if chosen.figures:
        for path in figures(study, seeds[0], chosen.docs / "figures"):
            print(path)
    if chosen.table:
        rows = read_rows(study.csv)
        print(table([r for r in rows if int(r["seed"]) in seeds] if chosen.seeds else rows, labels))


if __name__ == "__main__":
    sys.exit(main())
