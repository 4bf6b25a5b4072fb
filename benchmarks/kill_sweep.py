"""SIGKILL at random moments over a sweep of fast trials: the final table must be that of a run nobody disturbed.

Every round forks a coordinator with two workers and kills, after a random time, the coordinator, one of the workers
or all of them at once. At the end the sweep is left alone to finish; then every figure, every record and every saved
model is compared with the undisturbed run, and the rows of the queue are checked: every slot once, and each seed that
takes over the first seed's choice was run with that choice and no other.

``python -m benchmarks.kill_sweep --delays 0.05`` also lets every process wait up to so many seconds after every
statement it sends to the database, so that whoever judges by what it read a while ago is found out.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import random
import signal
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

import foveate as fv
from foveate.assemble.needs import Needs
from foveate.assemble.system import Callbacks, System
from foveate.bench.run import Job
from foveate.bench.run import run as run_sweep
from foveate.bench.standing import Standing
from foveate.bench.sweep import Sweep
from foveate.bench.table import table
from foveate.bench.trial import Cell
from foveate.data import GroupedDataset
from foveate.data.preprocess import Preprocess
from foveate.registries import SYSTEMS

SPEC = """
name: kills
data: {{name: critters, options: {{train: 16, target: 16, val: 16, test: 40, size: 32}}}}
seeds: [0, 1]
select: average
methods:
  every seed: {{system: QuickTrial, settings: {{pause: {pause}}}, grid: {{skill: {skills}}}, repeat: search}}
  first seed: {{system: QuickTrial, settings: {{pause: {pause}}}, grid: {{skill: [0.2, 0.3, 0.4]}}}}
  drawn: {{system: QuickTrial, settings: {{pause: {pause}}}, search: random, trials: 4,
          space: {{skill: {{low: 0.01, high: 1.0, log: true}}}}}}
  failing: {{system: QuickTrial, settings: {{fails: true}}}}
"""


class QuickTrial(System):
    """Learns nothing, quickly, and predicts something that depends on its settings alone: a trial for tests.

    Args:
        skill: what the predictions depend on.
        pause: seconds that fitting takes.
        fails: raise instead.
        seed: of the run.
    """

    needs: ClassVar[Needs] = Needs()

    def __init__(self, skill: float = 0.5, *, pause: float = 0.0, fails: bool = False, seed: int = 0):
        self.skill, self.pause, self.fails, self.seed = skill, pause, fails, seed

    def fit(
        self,
        train: GroupedDataset,
        target: GroupedDataset | None = None,
        val: GroupedDataset | None = None,
        *,
        callbacks: Callbacks = (),
    ) -> QuickTrial:
        time.sleep(self.pause)
        if self.fails:
            raise RuntimeError("this trial was asked to fail")
        self._remember(train)
        self.preprocess_ = Preprocess((32, 32))
        self.weight_ = torch.tensor([self.skill, float(self.seed)])
        return self

    def _logits(self, inputs: Tensor) -> Tensor:
        mean = inputs.flatten(1).mean(1)
        return torch.stack([torch.sin(1000 * mean * self.skill + self.seed), torch.cos(1000 * mean)], 1)

    def _config(self) -> dict[str, Any]:
        return {}

    def _tensors(self) -> dict[str, Tensor]:
        return {"weight": self.weight_}

    def _restore(self, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.weight_ = tensors["weight"]


if "QuickTrial" not in SYSTEMS:  # workers of a run import this file and ask for it by name
    SYSTEMS.add("QuickTrial", QuickTrial)


def job(folder: Path, points: int, pause: float) -> Job:
    """The sweep of this check in ``folder``."""
    text = SPEC.format(pause=pause, skills=[round(0.1 + 0.8 * n / points, 4) for n in range(points)])
    return Job(text, "kills.yaml", str(folder), str(folder / "records.db"), command="test", commit="test")


def _coordinate(work: Job) -> None:
    os.setsid()  # so that it can be killed together with its workers
    run_sweep(work, workers=2, say=lambda line: None)
    os._exit(0)


def _workers_of(pid: int) -> list[int]:
    try:
        text = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8")
    except OSError:
        return []
    return [int(n) for n in text.split()]


def kill_often(work: Job, kills: int, longest: float, seed: int = 0) -> int:
    """Run ``work`` with ``kills`` kills, then to the end; how many kills found it still at work."""
    rng = random.Random(seed)
    context = multiprocessing.get_context("fork")
    struck = 0
    for _ in range(kills):
        process = context.Process(target=_coordinate, args=(work,))
        process.start()
        process.join(rng.uniform(0.02, longest))
        if not process.is_alive():
            break
        struck += 1
        what = rng.choice(["coordinator", "worker", "all"])
        with contextlib.suppress(ProcessLookupError):
            if what == "worker" and (children := _workers_of(process.pid or 0)):
                os.kill(rng.choice(children), signal.SIGKILL)
                process.join(rng.uniform(0.02, longest / 2))  # the coordinator has time to notice
            os.kill(process.pid or 0, signal.SIGKILL)
            if what == "all":
                os.killpg(process.pid or 0, signal.SIGKILL)
        process.join()
    run_sweep(work, workers=2, say=lambda line: None)
    return struck


def compare(calm: Job, killed: Job) -> dict[str, Any]:
    """What differs between two runs of the sweep, and what the killed one left behind."""
    first, second = Sweep(calm.spec(), calm.storage), Sweep(killed.spec(), killed.storage)
    left, right = first.current(), second.current()

    def figures(rows: list[Any]) -> dict[str, Any]:
        return {r.key: (r.dataset, r.method, r.seed, r.state, r.score, r.metrics, r.weights) for r in rows}

    standing = second.standing()
    # every slot has one row, no row is of two slots or of none, and nothing waits or runs
    slots = [slot for cell in second.cells for slot in standing.slots[cell]]
    rows = [row for cell in second.cells for row in standing.rows[cell]]
    filled = [slot.row.key for slot in slots if slot.row is not None and slot.over]
    chosen = [(cell, first) for cell in second.cells if (first := second.agenda.chosen_at(cell)) is not None]
    saved = [p.parent for p in Path(killed.runs).rglob("system.json")]
    for folder in saved:
        fv.load(folder)
    return {
        "records": len(right),
        "same_records": figures(left) == figures(right),
        "same_table": table(left, order=list(calm.spec().methods)) == table(right, order=list(calm.spec().methods)),
        "every_slot_once": len(slots) == len(filled) and sorted(filled) == sorted(row.key for row in rows),
        "right_choice": all(_took_the_best(standing, cell, first) for cell, first in chosen),
        "half_written": len([p for p in Path(killed.runs).rglob(".*") if p.is_dir()]),
        "models": len(saved),
    }


def _took_the_best(standing: Standing, cell: Cell, first: Cell) -> bool:
    """Whether a cell was run with one point, and none was better at the first seed; judged by the rows alone."""
    scores = {json.dumps(row.point): row.score or 0.0 for row in standing.rows[first] if row.state == "done"}
    points = [json.dumps(row.point) for row in standing.rows[cell]]
    return len(points) == 1 and scores[points[0]] == max(scores.values())


@contextlib.contextmanager
def delayed(longest: float) -> Iterator[None]:
    """Wait up to ``longest`` seconds, at random, after every statement, here and in processes forked meanwhile."""
    import sqlalchemy as sa

    chance = random.SystemRandom()  # forked processes must not all wait alike

    def wait(connection: Any, cursor: Any, statement: str, *_: Any) -> None:
        if statement.lstrip().startswith(("SELECT", "UPDATE", "INSERT")):
            time.sleep(chance.uniform(0, longest))

    if not longest:
        yield
        return
    sa.event.listen(sa.engine.Engine, "after_cursor_execute", wait)
    try:
        yield
    finally:
        sa.event.remove(sa.engine.Engine, "after_cursor_execute", wait)


def run(
    kills: int = 50, points: int = 60, pause: float = 0.15, longest: float = 1.5, seed: int = 0, delays: float = 0.0
) -> dict[str, Any]:
    """Both runs in temporary folders; figures of the comparison, ``struck`` of the kills hit a running sweep."""
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        calm, killed = (job(Path(name) / which, points, pause) for which in ("calm", "killed"))
        began = time.perf_counter()
        run_sweep(calm, workers=2, say=lambda line: None)
        undisturbed = time.perf_counter() - began
        began = time.perf_counter()
        with delayed(delays):
            struck = kill_often(killed, kills, longest, seed)
        seconds = time.perf_counter() - began
        found = compare(calm, killed)
    return {"kills": kills, "struck": struck, **found, "seconds": round(seconds, 1), "calm": round(undisturbed, 1)}


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for option, default in (("kills", 50), ("points", 60), ("pause", 0.15), ("longest", 1.5), ("delays", 0.0)):
        options.add_argument(f"--{option}", type=type(default), default=default)
    options.add_argument("--seed", type=int, default=0)
    print(json.dumps(run(**vars(options.parse_args())), indent=2))
