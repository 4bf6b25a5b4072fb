"""One pipeline: LOOK, RESTRICT, EXTRACT, POOL and DECIDE as five objects, fitted and used as a system."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor

from foveate.assemble.needs import Needs
from foveate.assemble.parts import Parts
from foveate.assemble.piped import Piped
from foveate.assemble.reading import Reading
from foveate.data.loading import OnBad
from foveate.decide.decision import Logistic
from foveate.extract.extractor import Frozen
from foveate.look import Everywhere
from foveate.parameters import Part, configured, unlearned
from foveate.pool.pooling import LearnedPool, OwnPool
from foveate.restrict.restriction import Nothing


@configured
class Pipeline(Piped):
    """Any five parts as a system: fit, predict, look, save, load, audit, bench; export where the parts can.

    Args:
        look: where to look; by default everywhere.
        restrict: what is let through; by default everything.
        extract: the frozen network that reads: a part, a name or a ready backbone.
        pool: many places to one vector: a part, an ``nn.Module`` from maps ``[B, C, h, w]`` to ``[B, D]``, or the name
            of one that learns; by default the network's own.
        decide: fitted on the vectors.
        store: folder of the feature store; by default the user's cache.
        on_bad: ``"raise"`` or ``"skip"`` unreadable images.
        workers: processes that decode images.
        batch_size: images embedded at a time.
        seed: of everything drawn at random.
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
        def own(part: Any, usual: Any) -> Any:
            return usual if part is None else unlearned(part) if isinstance(part, Part) else part

        extract = own(self.extract, None)
        pool = own(self.pool, OwnPool())
        return Parts(
            look=own(self.look_part, Everywhere()),
            restrict=own(self.restrict, Nothing()),
            extract=extract if isinstance(extract, Part) else Frozen(extract),
            pool=pool if isinstance(pool, Part) else LearnedPool(pool),
            decide=own(self.decide, Logistic()),
        )

    def _restore(self, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        super()._restore(config, tensors)
        for slot, part in self.parts_.items():  # the settings are parts, which a file of plain values cannot hold
            setattr(self, slot, part)

    def reading(self) -> Reading:
        return Reading(
            self.store, self.on_bad, self.workers, self.batch_size, self.seed, self.accelerator, self.progress
        )
