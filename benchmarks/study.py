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
import itertools
import json
import shlex
import subprocess
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import foveate as fv
from benchmarks.study_results import ACCURACIES, SHARES, Row, figures, page, read_rows, table, write_rows
from benchmarks.study_spec import Spec, read_spec
from foveate.data import Benchmark
from foveate.engine import TrainSettings
from foveate.errors import FoveateError, suggest
from foveate.files import write_text
from foveate.measure import SmallGroupWarning, half_mask

HERE = Path(__file__).parent


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
    code = ["src", "benchmarks/study*.py", "benchmarks/specs"]
    changed = subprocess.run(["git", "status", "--porcelain", "--", *code], **ask)  # type: ignore[call-overload]
    return (head.stdout.strip() or "unknown") + ("-dirty" if changed.stdout.strip() else "")


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
