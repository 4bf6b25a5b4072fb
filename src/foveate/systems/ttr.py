"""TTR: CLIP's own patches, clustered; the cluster that a general prompt fits decides."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from foveate.data.loading import OnBad
from foveate.decide.prompts import TEMPLATES, Prompts, class_embeddings
from foveate.errors import FoveateError
from foveate.extract.clip import Clip
from foveate.look import Gaze
from foveate.look.clusters import cluster_patches
from foveate.systems.probe import Views
from foveate.systems.prompted import DEFAULT_CLIP, NO_LABELS, Prompted, joint_tokens
from foveate.systems.system import Images, Needs

HOW = ("masked", "mean")


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
        prompts, templates, embed_size: as for :class:`~foveate.systems.A2ZeroShot`.
        store, on_bad, workers, batch_size, accelerator, progress: as for every probe.

    >>> print(TTR(general="a photo of a bird.").needs)
    train: none (class names only)
    """

    needs: ClassVar[Needs] = NO_LABELS

    def __init__(
        self,
        model: str = DEFAULT_CLIP,
        *,
        general: str | Sequence[str] = "a photo of an animal.",
        clusters: int = 3,
        components: int = 3,
        how: Literal["masked", "mean"] = "masked",
        prompts: Prompts | None = None,
        templates: Sequence[str] = TEMPLATES,
        embed_size: int | None = None,
        store: str | Path | None = None,
        on_bad: OnBad = "raise",
        workers: int = 0,
        batch_size: int = 32,
        accelerator: str = "auto",
        progress: bool = True,
    ):
        super().__init__(
            model, embed_size=embed_size, store=store, on_bad=on_bad, workers=workers, batch_size=batch_size,
            accelerator=accelerator, progress=progress,
        )  # fmt: skip
        self.model, self.general, self.clusters, self.components = model, general, clusters, components
        self.how, self.prompts, self.templates = how, prompts, templates

    def _check(self) -> None:
        if self.how not in HOW:
            raise FoveateError(f"unknown way to read a cluster: '{self.how}'; known: {', '.join(HOW)}.")
        if not self._general() or not all(text.strip() for text in self._general()):
            raise FoveateError("general is empty; say in words what every image shows, such as 'a photo of a bird.'")

    def _general(self) -> list[str]:
        return [self.general] if isinstance(self.general, str) else list(self.general)

    def _write_prompts(self, clip: Clip) -> None:
        super()._write_prompts(clip)
        texts = self._general()
        self.general_ = class_embeddings(clip.encode_text(texts), [len(texts)])[0]

    def _cluster(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """The chosen cluster as a mask ``[B, N]``, and the patch embeddings ``[B, N, D]``."""
        tokens = joint_tokens(self.embedder_, images)
        member = F.one_hot(cluster_patches(tokens, self.clusters, self.components), self.clusters).to(tokens)
        means = member.transpose(1, 2) @ F.normalize(tokens, dim=-1)  # sums: only the direction counts
        fit = F.cosine_similarity(means, self.general_.to(means), dim=-1)  # [B, K]
        fit = fit.masked_fill(member.sum(1) == 0, -2.0)
        return member[torch.arange(len(member)), :, fit.argmax(1)], tokens

    def _features(self, images: Tensor, views: Views) -> Tensor:
        found = [self._read_cluster(part) for part in images.split(self.batch_size)]
        return torch.cat(found)[:, None]

    @torch.no_grad()
    def _read_cluster(self, images: Tensor) -> Tensor:
        kept, tokens = self._cluster(images)
        if self.how == "mean":
            return (F.normalize(tokens, dim=-1) * kept[..., None]).sum(1) / kept.sum(1, keepdim=True)
        inputs = self.embedder_.prepare(images)
        # 0 is the mean colour once normalised
        return self.embedder_.backbone(inputs * F.interpolate(self._grid(kept)[:, None], inputs.shape[-2:]))

    def _grid(self, kept: Tensor) -> Tensor:
        patch = self.embedder_.backbone.net.patch_embed.patch_size[0]  # type: ignore[union-attr,index]
        return kept.unflatten(1, (self.embedder_.size // int(patch), -1))

    def _recipe(self) -> dict[str, Any]:
        return {
            "restrict": "cluster", "general": self.general_.tolist(), "clusters": self.clusters,
            "components": self.components, "how": self.how,
        }  # fmt: skip

    @torch.no_grad()
    def look(self, images: Images) -> Gaze:
        """The chosen cluster, as ``map`` and ``mask`` ``[B, h, w]``."""
        inputs = self.inputs(images)
        kept = torch.cat([self._grid(self._cluster(part)[0]) for part in inputs.split(self.batch_size)]).cpu()
        return Gaze(kept, kind="cluster", mask=kept > 0)

    def _tensors(self) -> dict[str, Tensor]:
        return {**super()._tensors(), "general": self.general_}

    def _restore(self, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        super()._restore(config, tensors)
        self.general_ = tensors["general"]
