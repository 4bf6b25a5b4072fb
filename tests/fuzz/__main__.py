"""``python -m tests.fuzz [--seed N] [--only TEXT] [--sample N] [--show N]``: run the suite, print the counts."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.fuzz.harness import run, sample, summary
from tests.fuzz.isolation import isolated
from tests.fuzz.suite import all_cases
from tests.fuzz.world import make_world


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="groups or names that contain this")
    parser.add_argument("--sample", type=int, default=0, help="about so many cases; 0: all")
    parser.add_argument("--show", type=int, default=0, help="how many faults to print in full")
    given = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="fuzz-world-"))
    try:
        with isolated(root):
            world = make_world(root)
            cases = [case for case in all_cases(world, given.seed) if given.only in str(case)]
            if given.sample:
                cases = sample(cases, given.sample, given.seed)
            outcomes, spent = [], []
            for case in cases:
                began = time.perf_counter()
                outcomes.append(run(case))
                spent.append((time.perf_counter() - began, str(case)))
                if outcomes[-1].faults and given.show:
                    given.show -= 1
                    show(f"--- {case}: {outcomes[-1].faults}, exit {outcomes[-1].code}\n{outcomes[-1].told[-1500:]}")
    finally:
        shutil.rmtree(root, ignore_errors=True)
    bad = [o for o in outcomes if o.faults]
    places = Counter(_place(o.told) for o in bad)
    for place, n in places.most_common():
        names = [str(o.case) for o in bad if _place(o.told) == place]
        show(f"{n:>4}  {place}   e.g. {names[0]}")
    show(summary(outcomes))
    slowest = ", ".join(f"{seconds:.1f} s {name}" for seconds, name in sorted(spent, reverse=True)[:5])
    show(f"seed {given.seed}, {sum(s for s, _ in spent):.0f} s; slowest: {slowest}")
    sys.stdout.flush()
    return int(bool(bad))


def show(text: str) -> None:
    print(text.encode("ascii", "backslashreplace").decode(), flush=True)


def _place(told: str) -> str:
    """Where a traceback ended inside foveate, or the end of what was said."""
    lines = told.strip().splitlines() or ["nothing was said"]
    frames = [line.strip() for line in lines if line.strip().startswith("File ") and "foveate" in line]
    return f"{frames[-1].rpartition('/')[2]} {lines[-1][:110]}" if frames else " ".join(lines[-1].split())[-110:]


if __name__ == "__main__":
    code = main()
    os._exit(code)
