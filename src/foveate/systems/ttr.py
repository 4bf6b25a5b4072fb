"""TTR: CLIP's own patches, clustered; the cluster that a general prompt fits decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import ClassVar, Literal

from foveate.assemble.needs import NO_LABELS, Needs
from foveate.assemble.parts import Parts
from foveate.assemble.probe import DEFAULT_CLIP, Prompted
from foveate.errors import FoveateError
from foveate.extract import ClipTower
from foveate.look import PatchClusters
from foveate.parameters import configured
from foveate.pool import MeanPool, OwnPool
from foveate.restrict import MaskedTokens

HOW = ("masked", "mean")


@configured
class TTR(Prompted):
    """Test-time refinement with CLIP: cluster the patches, keep the one cluster a general prompt fits, classify it.

    1. *Look*: patch embeddings in the joint space, principal components, k-means.
    2. *Restrict*: the cluster whose mean lies closest to ``general`` ("a photo of a bird.").
    3. *Extract*: CLIP on what is left. 4. *Decide*: class prompts.

    **What the source leaves open.** This follows a short description in the A² paper, not the original code,
    which we could not obtain: it is no faithful port, and its numbers must not be read as those of TTR. Given are
    the principal components (3), k-means (3 clusters), the choice by a general prompt, and the prompts. Open, and
    chosen by us: which patch features are clustered (after the last norm, projected), how k-means starts
    (deterministically), exact instead of low-rank principal components, and how the cluster is read
    (``how``). The original also has a queue (24 to 28 entries) and a Gaussian (sigma about 0.7) whose
    roles we do not know; neither is here.

    Args:
        model: a CLIP model by open_clip name, with a plain ViT image tower.
        general: what every image shows, in words; one text or several.
        clusters, components: of the clustering.
        how: ``"masked"`` runs CLIP again with all other patches grey; ``"mean"`` takes the mean of the
            cluster's patch embeddings.
        prompts, templates, embed_size, store …: see :class:`~foveate.assemble.probe.Prompted`.

    >>> print(TTR(general="a photo of a bird.").needs)
    train: none (class names only)
    """

    needs: ClassVar[Needs] = NO_LABELS
    model: str = field(default=DEFAULT_CLIP, kw_only=False)
    general: str | Sequence[str] = "a photo of an animal."
    clusters: int = 3
    components: int = 3
    how: Literal["masked", "mean"] = "masked"

    def check(self) -> None:
        if self.how not in HOW:
            raise FoveateError(f"unknown way to read a cluster: '{self.how}'; known: {', '.join(HOW)}.")
        super().check()

    def parts(self) -> Parts:
        grey = self.how == "masked"
        return Parts(
            look=PatchClusters(
                self.model, general=self.general, clusters=self.clusters, components=self.components,
                size=self.embed_size,
            ),
            restrict=MaskedTokens("grey" if grey else "late"),
            extract=ClipTower(self.model, size=self.embed_size),
            pool=OwnPool() if grey else MeanPool(),
            decide=self.decision(self.model),
        )  # fmt: skip
