"""What the bench costs: trials of ten seconds through ``bench run``, against the same fits called directly.

Both load the data, fit, save, and evaluate on val and test. Fitting is a pause, so that what differs is the bench
alone: the queue, the records, the logs. What is imported once a run (Optuna, SQLAlchemy) is imported before and timed
apart. The aim is less than 5 %.
"""

from __future__ import annotations

import importlib
import tempfile
import time
from pathlib import Path
from typing import Any

import foveate as fv
from benchmarks.kill_sweep import QuickTrial
from foveate.bench.run import Job
from foveate.bench.run import run as run_sweep

SPEC = """
name: overhead
data: {{name: critters, options: {{train: 16, target: 16, val: 100, test: 100, size: 32}}}}
seeds: [0]
select: average
methods:
  quick: {{system: QuickTrial, settings: {{pause: {seconds}}}, grid: {{skill: {skills}}}}}
"""


def run(seconds: float = 10.0, trials: int = 3) -> dict[str, Any]:
    """The share of time that the bench adds, with one worker in this process."""
    skills = [round(0.1 + 0.8 * n / trials, 3) for n in range(trials)]
    began = time.perf_counter()
    importlib.import_module("optuna")
    imports = time.perf_counter() - began
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        data = fv.data.critters(train=16, target=16, val=100, test=100, size=32)
        for skill in skills:
            system = QuickTrial(skill, pause=seconds).fit(data.train, data.target, data.val)
            system.save(Path(folder) / f"direct-{skill}")
            for split in (data.val, data.test):
                fv.evaluate(system, split)
        direct = time.perf_counter() - began
        job = Job(
            SPEC.format(seconds=seconds, skills=skills), "overhead.yaml", folder, str(Path(folder) / "records.db")
        )
        began, cpu = time.perf_counter(), time.process_time()
        records = run_sweep(job, workers=0, say=lambda line: None)
        bench, cpu = time.perf_counter() - began, time.process_time() - cpu
    assert len(records) == trials
    assert all(record.state == "done" for record in records)
    return {
        "trials": trials,
        "direct_seconds": round(direct, 2),
        "bench_seconds": round(bench, 2),
        "overhead": round(bench / direct - 1, 4),
        "imports_once_seconds": round(imports, 2),
        "bench_cpu_a_trial": round(cpu / trials, 3),
        "limit": 0.05,
    }
