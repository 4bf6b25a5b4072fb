"""``python -m foveate.data.facts``: write what the datasets' modules say of them where listing reads it."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

import foveate.assets
from foveate.assets.catalogue import FACTS_FILE
from foveate.data.registry import facts
from foveate.files import write_text


def write_facts() -> Path:
    """Write ``assets/datasets.json``; datasets of other packages are left out."""
    own = [asdict(fact) for fact in facts().values() if fact.licence != "not stated"]
    place = Path(foveate.assets.__file__).with_name(FACTS_FILE)
    return write_text(place, json.dumps(own, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    print(f"wrote {write_facts()}")
