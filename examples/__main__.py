"""Draw the pictures of the gallery into ``docs/gallery``; each remembers the code it was drawn by."""

from __future__ import annotations

import importlib
import sys
import warnings
from pathlib import Path

from examples import gallery


def main(names: list[str]) -> None:
    """Draw the examples called ``names``, or all."""
    warnings.simplefilter("ignore")
    for name in names or gallery.names():
        path = gallery.save(importlib.import_module(f"examples.{name}").draw(), name)
        print(f"{path.relative_to(Path.cwd())} ({path.stat().st_size // 1024} KB)", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
