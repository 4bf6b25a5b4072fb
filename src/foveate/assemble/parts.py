"""The five decisions of a pipeline, together: how they are described, written down and had again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import Tensor

from foveate.errors import ModelError
from foveate.parameters import setting_names
from foveate.registries import DECISIONS, EXTRACTORS, LOOKS, POOLS, RESTRICTIONS

SLOTS = {"look": LOOKS, "restrict": RESTRICTIONS, "extract": EXTRACTORS, "pool": POOLS, "decide": DECISIONS}
"""Every decision and the registry its parts are listed in."""


@dataclass
class Parts:
    """One part for each decision."""

    look: Any
    restrict: Any
    extract: Any
    pool: Any
    decide: Any

    def items(self) -> list[tuple[str, Any]]:
        """``(decision, part)`` in the order an image meets them."""
        return [(slot, getattr(self, slot)) for slot in SLOTS]

    def shared(self, slot: str) -> str | None:
        """An earlier decision whose network this one uses too: it is saved once."""
        own = getattr(getattr(self, slot), "model_", None)
        before = {"look": ("extract",), "extract": ()}.get(slot, ())
        return next((s for s in before if own is not None and getattr(getattr(self, s), "model_", None) is own), None)

    def recipe(self) -> dict[str, Any]:
        """What the features depend on: the key of the feature store."""
        told: dict[str, Any] = {slot: getattr(self, slot).recipe() for slot in ("look", "restrict", "extract")}
        # a pool that learns reads maps as they are; one without weights is part of what is kept
        return {**told, "pool": "maps" if self.pool.learns else self.pool.recipe()}

    def config(self) -> dict[str, Any]:
        """Kind, settings and what was learned of every part, as JSON values."""
        found = {}
        for slot, part in self.items():
            kind = SLOTS[slot].name_of(type(part))
            if kind is None:
                raise ModelError(
                    f"{type(part).__name__} is not among the registered {SLOTS[slot].plural}, so a saved pipeline "
                    f"could not be loaded again: foveate.registries.{SLOTS[slot].plural.upper()}.add('name', "
                    f"{type(part).__name__})."
                )
            found[slot] = {"kind": kind, "settings": part.plain(), "learned": part.learned()}
            if (other := self.shared(slot)) is not None:
                found[slot]["learned"]["model"] = other
        return found

    def tensors(self) -> dict[str, Tensor]:
        """What every part gives, under the name of its decision; a shared network once."""
        found: dict[str, Tensor] = {}
        for slot, part in self.items():
            own = part.tensors()
            if self.shared(slot) is not None:
                own = {k: v for k, v in own.items() if k not in part.model_.tensors()}
            found |= {f"{slot}.{k}": v for k, v in own.items()}
        return found

    @classmethod
    def restored(cls, config: dict[str, Any], tensors: dict[str, Tensor]) -> Parts:
        """The parts that :meth:`config` and :meth:`tensors` told of."""
        made: dict[str, Any] = {}
        for slot in ("extract", "look", "restrict", "pool", "decide"):
            told = config[slot]
            part = made[slot] = built(slot, told["kind"], told["settings"])
            own = {k.removeprefix(f"{slot}."): v for k, v in tensors.items() if k.startswith(f"{slot}.")}
            learned = dict(told["learned"])
            if isinstance(other := learned.get("model"), str):
                learned["model"] = config[other]["learned"]["model"]
                theirs = {k.removeprefix(f"{other}."): v for k, v in tensors.items() if k.startswith(f"{other}.")}
                part.restore(learned, {**theirs, **own})
                part.model_ = made[other].model_
            else:
                part.restore(learned, own)
            if not getattr(part, "model", "named"):  # given ready made: a new fit starts from what was saved
                part.model = part.model_
        return cls(**made)


def built(slot: str, kind: str, settings: dict[str, Any]) -> Any:
    """A part from its name in the registry and its settings."""
    maker = SLOTS[slot].get(kind)
    known = setting_names(maker)
    words = "training" in known
    for name in settings:
        if name not in known and not words:
            raise ModelError(f"the {slot} '{kind}' has no setting '{name}'; it has {', '.join(known) or 'none'}.")
    return maker(**settings)
