"""One pipeline: LOOK, RESTRICT, EXTRACT, POOL and DECIDE as five objects, fitted and used as a system."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from foveate.assemble.needs import Needs
from foveate.assemble.parts import SLOTS, Parts, built
from foveate.assemble.piped import Piped
from foveate.assemble.reading import Reading
from foveate.data.loading import OnBad
from foveate.decide.decision import Logistic
from foveate.errors import FoveateError
from foveate.extract.extractor import Frozen
from foveate.look import Everywhere
from foveate.parameters import Part, configured, setting_names, unlearned
from foveate.pool.pooling import LearnedPool, OwnPool
from foveate.restrict.restriction import Nothing

USUAL: dict[str, Callable[[], Part]] = {
    "look": Everywhere, "restrict": Nothing, "extract": Frozen, "pool": OwnPool, "decide": Logistic,
}  # fmt: skip


@configured
class Pipeline(Piped):
    """Any five parts as a system: fit, predict, look, save, load, audit, bench; export where the parts can.

    Args:
        look: where to look; by default everywhere. This and the following: a part, its name (``foveate list looks``),
            or ``{"kind": name, ...}`` with its settings, as a spec of the bench has it.
        restrict: what is let through; by default everything.
        extract: the frozen network that reads: a part, the name of a network, or a ready backbone.
        pool: many places to one vector: a part, an ``nn.Module`` from maps ``[B, C, h, w]`` to ``[B, D]``, or the name
            of one that learns; by default the network's own.
        decide: fitted on the vectors; by default logistic regression.
        store: folder of the feature store; by default the user's cache.
        on_bad: ``"raise"`` or ``"skip"`` unreadable images.
        workers: processes that decode images.
        batch_size: images embedded at a time.
        seed: of everything drawn at random, by the pipeline and by parts that were not given ready made.
        accelerator: ``"auto"``, ``"cpu"``, ``"gpu"``.
        progress: show a bar on a terminal.

    A row nobody has published: where a small ViT looks, only the most attended tokens, DAR's pool, DFR's decision.

    >>> import tempfile
    >>> import foveate as fv
    >>> data = fv.data.critters(train=40, target=24, val=16, test=16, size=64)
    >>> row = fv.Pipeline(
    ...     look=fv.look.ClsAttention("micro-vit"),
    ...     restrict=fv.restrict.TopTokens(keep=0.5),
    ...     extract=fv.extract.Frozen("micro-vit"),
    ...     pool=fv.pool.LearnedPool("attention", by=fv.decide.CrossEntropy(epochs=1, progress=False)),
    ...     decide=fv.decide.BalancedLogistic(refits=2),
    ...     store=tempfile.mkdtemp(),
    ... ).fit(data.train, target=data.target, val=data.val)
    >>> row.predict(data.test).shape, row.supervision()
    ((16,), 'target: labels, groups; selection: group labels (worst_group)')
    """

    needs: ClassVar[Needs] = Needs(train="labels")
    look: Any = field(default_factory=lambda: None)  # type: ignore[assignment]
    restrict: Any = None
    extract: Any = "vit-s-focus"
    pool: Any = None
    decide: Any = None
    store: str | Path | None = None
    on_bad: OnBad = "raise"
    workers: int = 0
    batch_size: int = 32
    seed: int = 0
    accelerator: str = "auto"
    progress: bool = True

    # ``look`` is a setting and a method: the setting is kept as ``look_part``

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__["look_part" if name == "look" else name] = value

    @property
    def look_part(self) -> Any:
        """The setting ``look``."""
        return self.__dict__.get("look_part")

    def _setting(self, name: str) -> Any:
        return self.look_part if name == "look" else getattr(self, name)

    def parts(self) -> Parts:
        return Parts(**{slot: self._part(slot, self._setting(slot)) for slot in SLOTS})

    def _part(self, slot: str, given: Any) -> Any:
        """The part that a setting stands for, not opened and not fitted."""
        if isinstance(given, Part):
            return unlearned(given)
        if given is None:
            part = USUAL[slot]()
        elif isinstance(given, Mapping):
            told = dict(given)
            if "kind" not in told:
                raise FoveateError(f"{slot} is told by its kind and settings, {{kind: …, …}}; found {told}.")
            part = built(slot, str(told.pop("kind")), told)
        elif slot == "extract":
            part = Frozen(given)
        elif slot == "pool":
            part = built("pool", given, {}) if given in ("own", "mean") else LearnedPool(given)
        else:
            part = built(slot, str(given), {})
        takes = setting_names(type(part))  # what was not given as an object has the pipeline's seed
        if "seed" in takes:
            part.set_params(seed=self.seed)
        if "training" in takes:
            part.set_params(seed=self.seed, progress=self.progress)
        return part

    def _restore(self, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        super()._restore(config, tensors)
        for slot, part in self.parts_.items():  # the settings are parts, which a file of plain values cannot hold
            setattr(self, slot, part)

    def reading(self) -> Reading:
        return Reading(
            self.store, self.on_bad, self.workers, self.batch_size, self.seed, self.accelerator, self.progress
        )
