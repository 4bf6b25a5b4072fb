"""Makes ``import torchvision`` work beside a CPU-only PyTorch.

The torchvision wheel carries operators compiled against the CUDA build. Beside a CPU-only torch they do
not load, and then the Python part fails too, because it registers fake kernels for two operators whose
schemas are unknown. Declaring these schemas is enough for everything foveate, timm and open_clip use.
When torchvision is healthy nothing is done at all.

Import this module before anything that imports torchvision::

    from foveate import compat  # noqa: F401
    import timm
"""

from __future__ import annotations

import importlib
import sys

import torch

SCHEMAS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
)
_library: torch.library.Library | None = None


def ensure_torchvision() -> bool:
    """Import torchvision, declaring its missing operators if need be. Returns whether that was needed."""
    global _library
    try:
        importlib.import_module("torchvision")
        return False
    except RuntimeError as error:
        if "torchvision::" not in str(error):
            raise
    for name in [m for m in sys.modules if m == "torchvision" or m.startswith("torchvision.")]:
        del sys.modules[name]
    _library = torch.library.Library("torchvision", "DEF")  # must live as long as the process
    for schema in SCHEMAS:
        _library.define(schema)
    importlib.import_module("torchvision")
    return True


repaired = ensure_torchvision()
