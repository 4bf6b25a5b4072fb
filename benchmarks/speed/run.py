"""All measurements one after the other, each in a process of its own; what is done already is not done again."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.speed.older import OLDER
from benchmarks.speed.page import page
from benchmarks.speed.peers import NotHad, python_with, surroundings
from benchmarks.speed.rows import ROOT, Row, busy, machine
from foveate.errors import FoveateError, suggest
from foveate.files import read_text, write_text

PATIENCE = 420
"""Seconds a measurement may take."""


@dataclass(frozen=True)
class Measure:
    """One measurement: a function by name, and the peer it needs."""

    address: str
    seconds: int
    """What it takes about on two cores."""
    peer: str | None = None

    def call(self) -> Callable[[], list[Row]]:
        module, _, name = self.address.partition(":")
        found = getattr(importlib.import_module(f"benchmarks.speed.{module}"), name.partition("=")[0])
        given = name.partition("=")[2]
        return (lambda: found(given)) if given else found


MEASURES: dict[str, Measure] = {
    "spuco-resnet18": Measure("training:resnet18", 150, "spuco"),
    "spuco-resnet50": Measure("training:resnet50", 210, "spuco"),
    "spuco-micro": Measure("training:micro", 50, "spuco"),
    "embedding": Measure("reading:embedding", 90),
    "exported": Measure("reading:exported", 60),
    "grad-cam": Measure("reading:grad_cam", 60),
    "decoding": Measure("reading:decoding", 20),
    "reading": Measure("reading:reading_ahead", 40),
    "wilds": Measure("reading:group_accuracies", 15, "wilds"),
    "s2wrapper": Measure("reading:tiles", 10, "s2wrapper"),
    "predict": Measure("reading:streaming", 60),
    "ray": Measure("scaling:ray_store", 90),
    "ddp": Measure("scaling:ddp", 60),
    "ceiling": Measure("scaling:ceiling", 60),
    **{name: Measure(f"older:measured={name}", 60) for name in OLDER},
}


def run(
    record: Path, out: Path, only: Sequence[str] = (), again: bool = False, say: Callable[[str], None] = print
) -> dict[str, Any]:
    """Take the measurements that ``record`` (JSON) lacks for this commit, and write it and the page after each."""
    for name in only:
        if name not in MEASURES:
            raise FoveateError(f"there is no measurement '{name}'.{suggest(name, list(MEASURES))}")
    here = machine()
    kept: dict[str, Any] = json.loads(read_text(record)) if record.is_file() else {}
    results: dict[str, Any] = kept.get("results", {})
    chosen = [name for name in MEASURES if not only or name in only]
    todo = [n for n in chosen if again or results.get(n, {}).get("commit") != here["commit"] or "skipped" in results[n]]
    say(f"{len(todo)} of {len(chosen)} measurements, about {sum(MEASURES[n].seconds for n in todo) / 60:.0f} minutes")
    for name in todo:
        began = time.perf_counter()
        load = busy()
        results[name] = {**_taken(name), "commit": here["commit"], "load": load}
        results[name]["seconds"] = round(time.perf_counter() - began, 1)
        told = [f"{row['ratio']:.2f}x  {row['what']}" for row in results[name].get("rows", [])]
        say("\n".join(told) or f"{name} skipped: {results[name]['skipped']}")
        found = {"machine": here, "results": {n: results[n] for n in MEASURES if n in results}}
        write_text(record, json.dumps(found, indent=1) + "\n")
        write_text(out, page(found))
    return {"machine": here, "results": results}


def _taken(name: str) -> dict[str, Any]:
    """The rows of a measurement, or the reason why there are none."""
    measure = MEASURES[name]
    try:
        python = sys.executable if measure.peer is None else str(python_with(measure.peer))
    except (NotHad, OSError, subprocess.SubprocessError) as error:
        return {"skipped": str(error)}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "rows.json"
        call = [python, "-m", "benchmarks.speed", name, str(out)]
        try:
            done = subprocess.run(
                call, capture_output=True, text=True, timeout=PATIENCE, cwd=ROOT,
                env={**surroundings(), "FOVEATE_CACHE": folder},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"skipped": f"not done after {PATIENCE} s"}
        if done.returncode or not out.is_file():
            said = done.stderr.strip().splitlines() if done.returncode > 0 else []  # a signal leaves no last words
            return {"skipped": f"it failed (exit {done.returncode}){': ' + said[-1] if said else ''}"}
        return {"rows": json.loads(out.read_text())}
