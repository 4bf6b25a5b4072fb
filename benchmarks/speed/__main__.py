"""``python -m benchmarks.speed NAME OUT``: one measurement in this process, its rows as JSON in the file OUT."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks.speed.run import MEASURES

if __name__ == "__main__":
    Path(sys.argv[2]).write_text(json.dumps([row.to_dict() for row in MEASURES[sys.argv[1]].call()()]))
