"""``python -m benchmarks`` runs every speed check, one after the other; each is a ratio measured in one run.

A module takes part when it has ``run() -> dict`` with the measured figures.
``python -m benchmarks store_speed dfr_speed`` runs some of them.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path


def modules() -> list[str]:
    """Names of the modules in this folder that hold a speed check."""
    files = sorted(Path(__file__).parent.glob("*.py"))
    return [f.stem for f in files if "\ndef run(" in f.read_text(encoding="utf-8")]


def main(names: list[str]) -> None:
    """Run the checks called ``names``, or all."""
    for name in names or modules():
        print(f"== {name}", flush=True)
        figures = importlib.import_module(f"benchmarks.{name}").run()
        print(json.dumps(figures, indent=2, default=str), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
