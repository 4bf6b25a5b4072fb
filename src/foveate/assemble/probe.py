"""The settings that probes share: how images are read, and a linear decision or text prompts at the end."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from foveate.assemble.piped import Piped
from foveate.assemble.reading import Reading
from foveate.data.loading import OnBad
from foveate.decide.decision import BalancedLogistic, Decision, Logistic
from foveate.decide.dfr import C_GRID
from foveate.decide.prompts import TEMPLATES, Prompts, TextPrompts
from foveate.errors import FoveateError
from foveate.parameters import configured

DEFAULT_CLIP = "open_clip:ViT-B-32/openai"


@configured
class Reads:
    """Settings of how images are read.

    Args:
        embed_size: side in pixels of what the embedder sees; by default its own.
        store: folder of the feature store; by default the user's cache.
        on_bad: ``"raise"`` or ``"skip"`` unreadable images.
        workers: processes that decode images.
        batch_size: images embedded at a time.
        accelerator: ``"auto"``, ``"cpu"``, ``"gpu"``.
        progress: show a bar on a terminal.
    """

    embed_size: int | None = None
    store: str | Path | None = None
    on_bad: OnBad = "raise"
    workers: int = 0
    batch_size: int = 32
    accelerator: str = "auto"
    progress: bool = True

    def reading(self) -> Reading:
        """How images are read."""
        return Reading(
            self.store, self.on_bad, self.workers, self.batch_size, int(getattr(self, "seed", 0)), self.accelerator,
            self.progress,
        )  # fmt: skip


@configured
class Probe(Reads, Piped):
    """A linear head on what a frozen embedder makes of some views of an image.

    Features go through the store: another head on the same views starts in seconds, a killed extraction goes on where
    it was, and datasets are predicted through it as well.

    Args:
        head: ``"logistic"``, logistic regression on ``train``; or ``"dfr"``, the DFR head (balanced L1 logistic
            regression, averaged), which needs groups, on ``target`` or, without one, on ``train``.
        C: inverse strength of the regularisation; several are chosen from on ``val`` (DFR without ``val``: on a
            held-out half of its own data). By default 1, and for DFR the grid of its paper.
        refits: balanced subsets averaged by the DFR head.
        standardize: scale every feature to mean 0 and spread 1 first.
        select: metric on ``val`` for every choice; by default ``average`` (no group labels), and
            ``worst_group`` for DFR (``worst_class``, with a warning, where ``val`` has no attributes).
        seed: of everything drawn at random.
        embed_size, store, on_bad, workers, batch_size, accelerator, progress: see :class:`Reads`.
    """

    head: Literal["logistic", "dfr"] = "logistic"
    C: float | Sequence[float] | None = None
    refits: int = 20
    standardize: bool = True
    select: str | None = None
    seed: int = 0

    def decision(self) -> Decision:
        """The linear decision that ``head`` names."""
        if self.head == "logistic":
            strength = 1.0 if self.C is None else self.C
            return Logistic(strength, standardize=self.standardize, select=self.select or "average")
        if self.head == "dfr":
            return BalancedLogistic(
                C_GRID if self.C is None else self.C, refits=self.refits, standardize=self.standardize,
                select=self.select, seed=self.seed,
            )  # fmt: skip
        raise FoveateError(f"unknown head '{self.head}'; use 'logistic' or 'dfr'.")


@configured
class Prompted(Reads, Piped):
    """A probe whose head is text: ``fit`` reads class names, no label and no pixel.

    Args:
        prompts: whole texts of every class, by name or in class order, instead of ``templates``.
        templates: texts with ``{}`` for the class name; embeddings are averaged over them.
        embed_size, store, on_bad, workers, batch_size, accelerator, progress: see :class:`Reads`.
    """

    prompts: Prompts | None = None
    templates: Sequence[str] = TEMPLATES

    def decision(self, model: Any) -> TextPrompts:
        """The classes' texts in the joint space of ``model``."""
        return TextPrompts(model, size=self.embed_size, prompts=self.prompts, templates=self.templates)
