"""The folder of cut-out pets and scenes (``--pets FOLDER``) of the studies on photographs, and what they make of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import foveate as fv
from foveate.data import Benchmark


def composed(root: Path, **chosen: Any) -> Benchmark:
    """Cats and dogs on forests and seas: :func:`foveate.data.compose` with the names that the folder's tables use."""
    return fv.data.compose(
        root / "foregrounds.csv", root / "backgrounds.csv", fg_path="foregrounds/{name}.jpg",
        fg_mask="masks/{name}.png", fg_label="species", bg_path="backgrounds/{name}.jpg", bg_label="scene", **chosen,
    )  # fmt: skip
