"""``foveate demo``: a classifier caught taking a shortcut, and what helps, in a few minutes on a laptop."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from rich.text import Text

from foveate.cli.inputs import comparison_table, console, group_table

if TYPE_CHECKING:
    from foveate.data.dataset import Benchmark
    from foveate.systems import System

    Fitted = dict[str, System]


def _erm(data: Benchmark, seed: int, done: Fitted) -> System:
    from foveate.systems import ERM

    return ERM("micro_resnet", epochs=8, lr=2e-3, seed=seed).fit(data.train, val=data.val)


# One line a system, in the order of the table; each may build on those before it.
SYSTEMS: dict[str, Callable[[Benchmark, int, Fitted], System]] = {
    "ERM": _erm,
}


def demo(
    out: Path = typer.Option(Path("foveate-demo"), "--out", "-o", help="Folder for the models and the report."),
    seed: int = typer.Option(0, help="Another seed draws other animals and starts from other weights."),
    strength: float = typer.Option(0.95, help="How often animal and habitat go together in training."),
) -> None:
    """Draw critters on habitats, train on them, and show what the classifier really looks at."""
    from foveate.data.critters import critters
    from foveate.report import audit
    from foveate.systems import evaluate

    began = time.perf_counter()
    data = critters(seed=seed, strength=strength)
    names = data.train
    console.print(
        Text(
            f"critters: {', '.join(names.class_names)} on {', '.join(names.attribute_names or [])}; in training each "
            f"animal stands on its own habitat {100 * strength:.0f} % of the time, in the test set as often on any other."
        )
    )
    fitted: Fitted = {}
    reports = {}
    for name, build in SYSTEMS.items():
        start = time.perf_counter()
        fitted[name] = build(data, seed, fitted)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reports[name] = evaluate(fitted[name], data.test)
        fitted[name].save(out / name.lower())
        console.print(Text(f"{name} trained in {time.perf_counter() - start:.0f} s", "dim"))
    group_table(reports["ERM"], "ERM, group by group")
    console.print(comparison_table(reports, {n: s.supervision() for n, s in fitted.items()}))
    report = audit(fitted, data.test, title="Critters: what do these classifiers look at?")
    path = report.save(out / "report.html")
    console.print(Text(report.verdict, "bold"))
    console.print(Text(f"report: {path.resolve()}   ({time.perf_counter() - began:.0f} s)"))
