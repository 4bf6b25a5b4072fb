"""Which arguments of a network may come from a file: an allow-list by name and by type.

A saved model names an architecture and its arguments, which go to ``timm.create_model``. Some arguments of timm name
files, hubs or pickles (``checkpoint_path`` once ran code), so what is read from disk must be one of the arguments that
only shape a network, with a plain value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from foveate.errors import ModelError, suggest

_SHAPES = """
embed_dim depth num_heads patch_size mlp_ratio qkv_bias qk_norm scale_attn_norm scale_mlp_norm proj_bias init_values
class_token reg_tokens no_embed_class pre_norm final_norm fc_norm pos_embed dynamic_img_size dynamic_img_pad
img_size global_pool drop_rate pos_drop_rate patch_drop_rate proj_drop_rate attn_drop_rate drop_path_rate norm_layer
act_layer mlp_layer attn_layer use_rot_pos_emb use_abs_pos_emb rope_mixed_mode ref_feat_shape swiglu_mlp qkv_fused
num_reg_tokens use_reg_token window_size width layers stem_stride channels depths dims in_chans num_classes
output_stride cardinality base_width stem_width stem_type replace_stem_pool block_reduce_first down_kernel_size
avg_down aa_layer drop_block_rate zero_init_last width_mult growth_rate block_config memory_efficient round_chs_fn
fix_stem num_features kernel_sizes conv_bias use_grn ls_init_value patch_stem stem_size head_hidden_size conv_mlp
channel_multiplier channel_divisor stem_ch antialias squeeze config
"""
SHAPES = frozenset(_SHAPES.split())
WORD = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,31}")
LARGEST = 1 << 14
MOST = 2e9
"""Parameters a network built from a file may have, roughly: nobody's memory is filled by an edited number."""
_VISION = """
image_size layers width head_width patch_size mlp_ratio ls_init_value patch_dropout attentional_pool attn_pooler
attn_pooler_queries attn_pooler_heads pool_type final_ln_after_pool pos_embed_type no_ln_pre output_tokens
act_kwargs norm_kwargs timm_model_name timm_model_pretrained timm_pool timm_proj timm_proj_bias timm_drop
timm_drop_path class_token_type scale_attn scale_attn_inner scale_heads scale_fc qk_norm block_type
"""
VISION = frozenset(_VISION.split())


def check_args(args: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, when all of them only shape a network; else a :class:`~foveate.errors.ModelError`.

    >>> check_args({"embed_dim": 24, "layers": [1, 1]})
    {'embed_dim': 24, 'layers': [1, 1]}
    >>> check_args({"checkpoint_path": "model.pth"})
    Traceback (most recent call last):
    foveate.errors.ModelError: 'checkpoint_path' is no argument that a saved network may have...
    """
    if not isinstance(args, Mapping):
        raise ModelError(f"the arguments of a network are names and values; found {type(args).__name__}.")
    for name, value in args.items():
        if name not in SHAPES:
            raise ModelError(
                f"'{name}' is no argument that a saved network may have.{suggest(str(name), sorted(SHAPES))} It must "
                "be one that only shapes the network, such as embed_dim, depth, width or layers."
            )
        if name == "config":
            _check_clip(value)
        elif not _plain(value):
            raise ModelError(
                f"the argument '{name}' of a network is a number, a truth value, a word, or a list of numbers; found "
                f"{str(value)[:60]!r}."
            )
    if _size(args) > MOST:
        raise ModelError("these arguments ask for a network of more than two billion parameters; the file is not ours.")
    return dict(args)


def _size(args: Mapping[str, Any]) -> float:
    """About how many parameters the arguments ask for, as a ViT or as a CNN."""
    tower = args["config"]["vision_cfg"] if "config" in args else {}
    width = max(_largest(args.get(name, 1)) for name in ("embed_dim", "width", "channels", "dims", "num_features"))
    width = max(width, _largest(tower.get("width", 1)))
    depth = max(_largest(args.get(name, 1)) for name in ("depth", "depths")) * _largest(tower.get("layers", 1))
    stages = args.get("layers", ())
    blocks = [_largest(n) for n in stages] if isinstance(stages, (list, tuple)) else [_largest(stages)]
    return 12 * depth * width**2 + 9 * sum(n * (width * 2**i) ** 2 for i, n in enumerate(blocks))


def _largest(value: Any) -> float:
    found = value if isinstance(value, (list, tuple)) else [value]
    return max((abs(float(v)) for v in found if isinstance(v, (int, float))), default=1.0)


def _plain(value: Any, nested: bool = True) -> bool:
    if isinstance(value, (bool, type(None))):
        return True
    if isinstance(value, (int, float)):
        return abs(value) <= LARGEST  # also refuses NaN and infinity
    if isinstance(value, str):
        return not value or WORD.fullmatch(value) is not None
    return (
        nested and isinstance(value, (list, tuple)) and len(value) <= 64 and all(_plain(v, nested=False) for v in value)
    )


def _check_clip(config: Any) -> None:
    """The configuration of a CLIP image tower: numbers and words, and a text tower that is never built large."""
    known = {"embed_dim", "vision_cfg", "quick_gelu", "text_cfg"}
    if not isinstance(config, Mapping) or set(config) - known or not isinstance(config.get("vision_cfg"), Mapping):
        raise ModelError("a saved CLIP tower has embed_dim, vision_cfg, quick_gelu and text_cfg, and nothing else.")
    flat = {k: v for k, v in config.items() if k not in ("vision_cfg", "text_cfg")}
    for part, names in ((config["vision_cfg"], VISION), (config.get("text_cfg", {}), _TEXT), (flat, known)):
        for name, value in dict(part).items():
            inner = value.values() if isinstance(value, Mapping) else [value]
            if name not in names or not all(_plain(v) for v in inner):
                raise ModelError(f"a saved CLIP tower may not have '{name}': {str(value)[:60]!r}.")


_TEXT = frozenset({"context_length", "vocab_size", "width", "heads", "layers"})
