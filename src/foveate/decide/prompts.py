"""DECIDE without training: a class is the direction of its prompts in a joint space of images and texts.

Reference: Radford et al. 2021, "Learning transferable visual models from natural language supervision" (CLIP),
section 3.1.4 on prompt ensembles; A² uses one template, "a photo of a {class}".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from foveate.data.dataset import GroupedDataset
from foveate.decide.decision import Decision
from foveate.decide.linear import LinearDecision
from foveate.errors import FoveateError, suggest
from foveate.extract.clip import class_embeddings
from foveate.extract.frozen_model import Models
from foveate.parameters import configured

TEMPLATES = ("a photo of a {}.",)
Prompts = Mapping[str, str | Sequence[str]] | Sequence[str | Sequence[str]]
"""Whole texts of every class, by class name or in class order; one text or several each."""


class PromptHead(nn.Module):
    """Zero-shot head: ``logits = scale * cosine(image embedding, class embedding)``.

    A class embedding is the mean of the normalised embeddings of its texts, normalised again.

    Args:
        class_names: in class order.
        encode_text: gives embeddings ``[n, D]`` of a list of texts, or of what ``tokenise`` makes of it.
        templates: every class name goes into every template at ``{}``.
        prompts: whole texts instead of templates, one or several for every class.
        tokenise: from a list of texts to what ``encode_text`` reads, where these are two steps.
        scale: of the cosine; 100 is what CLIP models are trained to. It changes probabilities, not predictions.

    >>> meaning = {"a cat": [1.0, 0.0], "a dog": [0.0, 2.0]}
    >>> head = PromptHead(["cat", "dog"], lambda texts: torch.tensor([meaning[t] for t in texts]), templates=["a {}"])
    >>> head(torch.tensor([[3.0, 0.0], [0.0, 0.5]])).tolist()
    [[100.0, 0.0], [0.0, 100.0]]
    """

    weight: Tensor

    def __init__(
        self,
        class_names: Sequence[str],
        encode_text: Callable[[Any], Tensor],
        *,
        templates: Sequence[str] = TEMPLATES,
        prompts: Prompts | None = None,
        tokenise: Callable[[list[str]], Any] | None = None,
        scale: float = 100.0,
    ):
        super().__init__()
        self.scale = float(scale)
        self.texts = class_texts(class_names, templates, prompts)
        with torch.no_grad():
            every = [text for texts in self.texts for text in texts]
            encoded = encode_text(every if tokenise is None else tokenise(every))
        self.register_buffer("weight", class_embeddings(encoded, [len(texts) for texts in self.texts]))

    @classmethod
    def of(cls, weight: Tensor, scale: float = 100.0) -> PromptHead:
        """A head from class embeddings ``[C, D]`` known already, for instance saved ones.

        >>> PromptHead.of(torch.eye(2), scale=1)(torch.tensor([[0.0, 5.0]])).tolist()
        [[0.0, 1.0]]
        """
        head = cls.__new__(cls)
        nn.Module.__init__(head)
        head.scale, head.texts = float(scale), []
        head.register_buffer("weight", weight)
        return head

    def forward(self, features: Tensor) -> Tensor:
        """Image embeddings ``[B, D]`` of any length to logits ``[B, C]``."""
        return self.scale * F.normalize(features, dim=-1) @ self.weight.to(features).T


def class_texts(
    class_names: Sequence[str], templates: Sequence[str] = TEMPLATES, prompts: Prompts | None = None
) -> list[list[str]]:
    """The texts of every class, in class order.

    >>> class_texts(["cat", "dog"], ["a {}.", "one {}."])
    [['a cat.', 'one cat.'], ['a dog.', 'one dog.']]
    >>> class_texts(["cat", "dog"], prompts={"dog": "a hound", "cat": ["a cat", "a tabby"]})
    [['a cat', 'a tabby'], ['a hound']]
    """
    names = [str(name) for name in class_names]
    if prompts is None:
        if isinstance(templates, str) or not templates:
            raise FoveateError(f"templates is a list of texts with {{}} in them; found {templates!r}.")
        for template in templates:
            if "{}" not in template:
                raise FoveateError(
                    f"the template '{template}' has no {{}} for the class name; write 'a photo of a {{}}.'"
                )
        # a class called "water_bird" in a file is written "water bird" in a sentence
        return [[template.replace("{}", name.replace("_", " ")) for template in templates] for name in names]
    if isinstance(prompts, Mapping):
        unknown = [name for name in prompts if name not in names]
        missing = [name for name in names if name not in prompts]
        if unknown or missing:
            about = f"there is no class '{unknown[0]}'.{suggest(unknown[0], names)}" if unknown else (
                f"the class '{missing[0]}' has none."
            )  # fmt: skip
            raise FoveateError(f"the prompts do not match the classes ({', '.join(names)}): {about}")
        given = [prompts[name] for name in names]
    else:
        given = list(prompts) if not isinstance(prompts, str) else [prompts]
        if len(given) != len(names):
            raise FoveateError(
                f"the prompts do not match the classes: {len(given)} prompts for {len(names)} classes "
                f"({', '.join(names)}). Give one for every class, in this order, or by name."
            )
    texts = [[one] if isinstance(one, str) else [str(text) for text in one] for one in given]
    for name, own in zip(names, texts, strict=True):
        if not own or not all(text.strip() for text in own):
            raise FoveateError(f"the class '{name}' has an empty prompt; write what its images show.")
    return texts


class PromptDecision(LinearDecision):
    """A :class:`PromptHead` as a decision on raw features: they are brought to length 1 first.

    >>> PromptDecision(np.eye(2) * 100).decision_function([[3.0, 0.0]]).tolist()
    [[100.0, 0.0]]
    """

    def __init__(self, weight: NDArray[np.float64]):
        self.weight_, self.bias_ = weight, np.zeros(len(weight))

    def decision_function(self, features: ArrayLike) -> NDArray[np.float64]:
        x = np.asarray(features, dtype=np.float64)
        return super().decision_function(x / np.maximum(np.linalg.norm(x, axis=1, keepdims=True), 1e-12))


@configured
class TextPrompts(Decision):
    """The class whose texts lie closest, in the joint space of a CLIP model: nothing is learned from images.

    Args:
        model, size: the CLIP model, as for :class:`~foveate.extract.ClipTower`.
        prompts: whole texts of every class, by name or in class order, instead of ``templates``.
        templates: texts with ``{}`` for the class name; embeddings are averaged over them.
    """

    model: Any = field(default="open_clip:ViT-B-32/openai", kw_only=False)
    size: int | None = None
    prompts: Prompts | None = None
    templates: Sequence[str] = TEMPLATES
    on = "train"
    select = "average"
    uses = "none (class names only)"

    def expects(self, data: GroupedDataset, who: str) -> None:
        class_texts(data.class_names, self.templates, self.prompts)  # a mismatch is told before models are opened

    def open(self, models: Models) -> None:
        self._clip = models.clip(self.model, self.size)

    def name_classes(self, class_names: Sequence[str]) -> TextPrompts:
        """Embed the texts of every class."""
        head = PromptHead(
            class_names, self._clip.encode_text, templates=self.templates, prompts=self.prompts, scale=self._clip.scale
        )
        self.texts_ = head.texts
        self.head_ = PromptDecision(head.scale * head.weight.double().numpy())
        return self

    def __call__(self, vectors: Tensor) -> Tensor:
        return torch.from_numpy(self.head_.decision_function(vectors.float().cpu().numpy())).float()

    def as_layer(self) -> nn.Module:
        return PromptHead.of(torch.from_numpy(self.head_.weight_).float(), scale=1.0)  # the scale is in the weights

    def learned(self) -> dict[str, Any]:
        return {"texts": self.texts_}

    def tensors(self) -> dict[str, Tensor]:
        return {"weight": torch.from_numpy(self.head_.weight_.copy())}

    def restore(self, learned: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        self.texts_ = learned["texts"]
        self.head_ = PromptDecision(tensors["weight"].numpy())
