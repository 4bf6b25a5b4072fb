"""Checkpoints of a training run: written whole or not at all, loaded without executing code."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import torch

from foveate.errors import ModelError, first_line
from foveate.files import atomic_file


def save_checkpoint(path: str | Path, state: dict[str, Any]) -> None:
    """Write ``state`` (tensors and plain values) atomically."""
    buffer = io.BytesIO()  # torch's own file writer hides a full disk behind another error
    torch.save(state, buffer)
    with atomic_file(path) as temporary:
        temporary.write_bytes(buffer.getbuffer())


def load_checkpoint(path: str | Path, identity: dict[str, Any]) -> dict[str, Any]:
    """Read a checkpoint and make sure it belongs to the run described by ``identity``."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise ModelError(f"{path} is not a readable checkpoint: {first_line(error)}") from error
    found = state.get("identity", {}) if isinstance(state, dict) else {}
    parts = {"shapes": "architecture", "data": "training data", "settings": "training settings", "method": "method"}
    for part, what in parts.items():
        if found.get(part) != identity[part]:
            detail = ""
            if part in ("settings", "method") and isinstance(found.get(part), dict):
                changed = [k for k, v in identity[part].items() if found[part].get(k) != v]
                detail = f" (changed: {', '.join(changed)})"
            raise ModelError(
                f"{path} belongs to a run with another {what}{detail}. "
                "Resume with what it was started with, or remove the file to start anew."
            )
    return state
