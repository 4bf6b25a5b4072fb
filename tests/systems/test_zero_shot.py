"""Zero-shot systems with a tiny CLIP model whose prompts are made to mean something."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import foveate as fv
from foveate.data.images import ArrayImages
from foveate.errors import FoveateError, ModelError

open_clip = pytest.importorskip("open_clip")

TINY = {
    "embed_dim": 24,
    "vision_cfg": {"image_size": 32, "layers": 2, "width": 64, "head_width": 16, "patch_size": 8},
    "text_cfg": {"context_length": 16, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1},
}
GREY, RED, BLUE = (120, 120, 120), (230, 20, 20), (20, 20, 230)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(3)
    folder = tmp_path_factory.mktemp("clip")
    (folder / "tiny.json").write_text(json.dumps(TINY))
    save_file(dict(open_clip.CLIP(**TINY).state_dict()), str(folder / "tiny.safetensors"))
    return f"open_clip:{folder}/tiny.json@{folder}/tiny.safetensors"


def picture(ground: tuple[int, int, int], square: tuple[int, int, int], at: int = 16) -> np.ndarray[Any, Any]:
    image = np.empty((64, 64, 3), np.uint8)
    image[:] = ground
    image[at : at + 24, at : at + 24] = square
    return image


def dataset(images: list[np.ndarray[Any, Any]], labels: list[int]) -> fv.data.GroupedDataset:
    return fv.data.GroupedDataset(ArrayImages(np.stack(images)), labels, ["red", "blue"])


@pytest.fixture
def meaning(tiny: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts that mean what the tiny model sees: "red" is where it puts a plain red image, and so on."""
    import foveate.extract.frozen_model as models

    real = models.open_clip_model

    def with_meaning(name: str, size: int | None = None) -> Any:
        clip = real(name, size)
        means = torch.tensor(clip.preprocess.mean).view(3, 1, 1)
        stds = torch.tensor(clip.preprocess.std).view(3, 1, 1)
        plain = {w: torch.tensor(c).view(3, 1, 1).expand(3, 32, 32) / 255 for w, c in (("red", RED), ("blue", BLUE))}
        with torch.no_grad():
            seen = {w: clip.visual(((x - means) / stds)[None])[0] for w, x in plain.items()}
        middle = (seen["red"] + seen["blue"]) / 2

        def encode(texts: Any) -> torch.Tensor:
            return torch.stack([seen["red"] if "red" in t else seen["blue"] if "blue" in t else middle for t in texts])

        return type(clip)(clip.visual, clip.preprocess, encode, 100.0, clip.name)

    monkeypatch.setattr(models, "open_clip_model", with_meaning)


class Looks:
    """An attention model that looks at one given place, in the form FrozenModel gives maps."""

    def __init__(self, at: tuple[int, int]):
        self.at = at

    def __call__(self, images: torch.Tensor) -> fv.look.Gaze:
        maps = torch.zeros(len(images), 8, 8)
        maps[:, self.at[0], self.at[1]] = 1.0
        return fv.look.Gaze(maps)


def test_one_crop_decides_where_the_whole_image_misleads(
    tiny: str, meaning: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # a small red square on a large blue ground, and the reverse: the ground is the shortcut
    data = dataset([picture(BLUE, RED), picture(RED, BLUE)], [0, 1])
    vit = fv.extract.create_backbone("micro_vit")
    full = fv.ZeroShot(tiny, store=tmp_path).fit(data)
    assert full.predict(data).tolist() == [1, 0]
    system = fv.A2ZeroShot(tiny, vit, crop=16, store=tmp_path)
    monkeypatch.setattr(fv.look.ClsAttention, "__call__", lambda self, images: Looks((3, 3))(images))
    system.fit(data)
    assert system.predict(data).tolist() == [0, 1]
    x, y, size = system.look([data[0].image]).boxes[0, 0].tolist()  # type: ignore[index]
    assert size == 16
    assert x >= 16
    assert x + 16 <= 40
    assert y >= 16


def test_nothing_but_class_names_is_read(tiny: str, tmp_path: Path) -> None:
    images = [picture(GREY, RED), picture(GREY, BLUE)]
    vit = fv.extract.create_backbone("micro_vit")
    for make in (
        lambda: fv.ZeroShot(tiny, store=tmp_path),
        lambda: fv.A2ZeroShot(tiny, vit, crop=16, store=tmp_path),
        lambda: fv.TTR(tiny, store=tmp_path),
    ):
        right, wrong = make().fit(dataset(images, [0, 1])), make().fit(dataset(images, [1, 0]))
        assert np.array_equal(right.head_.weight_, wrong.head_.weight_)
        assert right.supervision() == "train: none (class names only)"


def test_prompts_and_their_faults(tiny: str, tmp_path: Path) -> None:
    data = dataset([picture(GREY, RED), picture(GREY, BLUE)], [0, 1])
    named = fv.ZeroShot(tiny, prompts={"blue": "blue", "red": ["red", "scarlet"]}, store=tmp_path).fit(data)
    assert named.chosen_["texts"] == [["red", "scarlet"], ["blue"]]
    assert named.predict_proba(data).shape == (2, 2)
    with pytest.raises(FoveateError, match="3 prompts for 2 classes"):
        fv.ZeroShot(tiny, prompts=["a", "b", "c"]).fit(data)
    with pytest.raises(ModelError, match="needs a CLIP model"):
        fv.A2ZeroShot("resnet18").fit(data)


@pytest.mark.parametrize("kind", ["A2ZeroShot", "ZeroShot", "TTR"])
def test_save_and_load_bit_for_bit(kind: str, tiny: str, tmp_path: Path) -> None:
    data = dataset([picture(GREY, RED, 8), picture(GREY, BLUE, 30), picture(RED, BLUE, 2)], [0, 1, 1])
    options: dict[str, Any] = {"store": tmp_path / "store"}
    if kind == "A2ZeroShot":
        options |= {"attention": fv.extract.create_backbone("micro_vit"), "crop": 24}
    system = getattr(fv, kind)(tiny, **options).fit(data)
    again = fv.load(system.save(tmp_path / "saved"))
    assert np.array_equal(again.predict_logits(data), system.predict_logits(data))
    pictures = [data[i].image for i in range(3)]
    assert np.array_equal(again.predict_logits(pictures), system.predict_logits(pictures))
    assert torch.equal(again.look(pictures).map, system.look(pictures).map)
    assert again.supervision() == system.supervision()
    names = load_file(str(tmp_path / "saved" / "weights.safetensors"))
    assert not any("token_embedding" in name for name in names), "the text tower is not part of a saved system"
