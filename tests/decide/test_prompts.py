"""Prompts as a head: averages over templates, cosines, and sentences for prompts that do not fit."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import foveate as fv
from foveate.decide.prompts import TextPrompts, class_embeddings, class_texts
from foveate.errors import FoveateError

MEANING = {"a cat.": [3.0, 0.0], "one cat.": [0.0, 5.0], "a dog.": [0.0, -1.0], "one dog.": [0.0, -2.0]}


def encode(texts: list[str]) -> Tensor:
    return torch.tensor([MEANING[t] for t in texts])


def test_known_answer() -> None:
    head = fv.decide.PromptHead(["cat", "dog"], encode, templates=["a {}.", "one {}."], scale=10)
    # cat: the mean of (1, 0) and (0, 1), normalised; the length of a text's embedding does not count
    half = math.sqrt(0.5)
    torch.testing.assert_close(head.weight, torch.tensor([[half, half], [0.0, -1.0]]))
    logits = head(torch.tensor([[2.0, 0.0], [0.0, -7.0]]))
    torch.testing.assert_close(logits, torch.tensor([[10 * half, 0.0], [-10 * half, 10.0]]))
    assert not list(head.parameters()), "nothing in it is trained"


def test_tokenise_comes_before_encoding() -> None:
    numbers = {"a cat.": 0, "a dog.": 1}
    head = fv.decide.PromptHead(
        ["cat", "dog"],
        lambda tokens: torch.eye(2)[tokens],
        templates=["a {}."],
        tokenise=lambda texts: torch.tensor([numbers[t] for t in texts]),
    )
    assert head(torch.tensor([[0.0, 4.0]])).tolist() == [[0.0, 100.0]]


@given(st.floats(0.01, 100), st.integers(0, 1000))
def test_length_of_an_image_embedding_does_not_count(length: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    head = fv.decide.PromptHead.of(torch.nn.functional.normalize(torch.randn(3, 5, generator=generator), dim=1))
    x = torch.randn(2, 5, generator=generator)
    torch.testing.assert_close(head(x * length), head(x), rtol=1e-4, atol=1e-3)
    assert bool((head(x).abs() <= 100.01).all())


def test_names_read_as_words_and_prompts_by_name_or_order() -> None:
    assert class_texts(["water_bird"]) == [["a photo of a water bird."]]
    by_name = class_texts(["cat", "dog"], prompts={"dog": "a hound", "cat": ["a cat", "a tabby"]})
    assert by_name == class_texts(["cat", "dog"], prompts=[["a cat", "a tabby"], "a hound"])


@pytest.mark.parametrize(
    ("prompts", "said"),
    [
        (["a cat"], "1 prompts for 2 classes"),
        ("a cat", "1 prompts for 2 classes"),
        ({"cat": "a cat"}, "the class 'dog' has none"),
        ({"cat": "a cat", "dog": "a dog", "dogg": "x"}, "Did you mean 'dog'"),
        (["a cat", []], "'dog' has an empty prompt"),
        (["a cat", " "], "'dog' has an empty prompt"),
    ],
)
def test_prompts_that_do_not_match_the_classes(prompts: object, said: str) -> None:
    with pytest.raises(FoveateError, match=said):
        class_texts(["cat", "dog"], prompts=prompts)  # type: ignore[arg-type]


@pytest.mark.parametrize("templates", [["a photo"], [], "a photo of a {}"])
def test_templates_need_a_place_for_the_name(templates: object) -> None:
    with pytest.raises(FoveateError, match="\\{\\}"):
        class_texts(["cat"], templates)  # type: ignore[arg-type]


def test_an_encoder_that_gives_another_number_of_embeddings() -> None:
    with pytest.raises(FoveateError, match=r"expected text embeddings \[3, D\]"):
        class_embeddings(torch.zeros(2, 4), [2, 1])


def test_prompts_as_a_layer_decide_the_same() -> None:
    """What audits and exports put behind the image tower."""
    decide = TextPrompts()
    drawn = torch.randn(9, 5, generator=torch.Generator().manual_seed(0))
    vectors, weight = drawn[:6], 30 * drawn[6:].double()
    decide.restore({"texts": []}, {"weight": weight})
    torch.testing.assert_close(decide.as_layer()(vectors), decide(vectors), atol=1e-5, rtol=1e-5)
