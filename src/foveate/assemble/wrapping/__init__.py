"""Models trained elsewhere, one file a way of holding one: modules, timm, CLIP, ONNX and other files, factories."""

from foveate.assemble.wrapping.abilities import Abilities
from foveate.assemble.wrapping.restricted import Restricted
from foveate.assemble.wrapping.wrap import wrap
from foveate.assemble.wrapping.wrapped import Wrapped

__all__ = ["Abilities", "Restricted", "Wrapped", "wrap"]
