"""Exported graphs compute what the system computes, in every format, at every batch size."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import foveate as fv
from foveate.data.benchmark import Benchmark
from foveate.errors import DataError, FoveateError, MissingExtra, ModelError, StorageError
from foveate.export import Runner, plan_of, to_folder
from foveate.extract import create_backbone
from foveate.look import cls_attention
from foveate.look.attention_path import AttentionPath

SMALL = {"embed_dim": 24, "depth": 2, "num_heads": 2, "patch_size": 8}


@pytest.fixture(scope="module")
def data() -> Benchmark:
    return fv.data.critters(train=40, target=16, val=16, test=16, size=32)


@pytest.fixture(scope="module")
def erm(data: Benchmark) -> fv.ERM:
    return fv.ERM("micro_resnet", epochs=1, progress=False).fit(data.train)


def images(data: Benchmark, n: int = 6) -> list[torch.Tensor]:
    return [data.test[i].image for i in range(n)]


def vit(size: int = 32, **args: Any) -> Any:
    torch.manual_seed(0)
    return create_backbone("micro_vit", image_size=(size, size), **{**SMALL, **args})


def make_dar(data: Benchmark, erm: fv.ERM, store: str) -> Any:
    return fv.DAR(erm, epochs=1, progress=False, store=store).fit(data.target)


def make_ifam(data: Benchmark, erm: fv.ERM, store: str) -> Any:
    system = fv.IFAM("micro_vit", parts=3, model_args=SMALL, epochs=1, progress=False).fit(data.train)
    return system.calibrate(data.train, 0.8).with_parts_removed([1])


def make_a2(data: Benchmark, erm: fv.ERM, store: str) -> Any:
    return fv.A2(vit(), vit(16, patch_size=4), crops=(12, 8), store=store).fit(data.train)


def make_glimpse(data: Benchmark, erm: fv.ERM, store: str) -> Any:
    return fv.Glimpse(vit(), vit(32, patch_size=4), keep=0.2, store=store).fit(data.train)


def make_full(data: Benchmark, erm: fv.ERM, store: str) -> Any:
    return fv.FullImage(vit(), store=store).fit(data.train)


def make_early(data: Benchmark, erm: fv.ERM, store: str) -> Any:
    return fv.EarlyMask("micro_vit", model_args=SMALL, epochs=1, progress=False).fit(data.train)


def make_late(data: Benchmark, erm: fv.ERM, store: str) -> Any:
    return fv.LateMask("micro_vit", model_args=SMALL, epochs=1, progress=False).fit(data.train)


SLOW = [pytest.param(make, marks=pytest.mark.gate) for make in (make_ifam, make_full, make_late)]


@pytest.mark.parametrize("make", [make_dar, make_a2, make_glimpse, make_early, *SLOW])
def test_every_system_with_a_fixed_graph_agrees(
    make: Callable[..., Any], data: Benchmark, erm: fv.ERM, tmp_path: Path
) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        system = make(data, erm, str(tmp_path / "store"))
    given = images(data)
    parity = to_folder(system, tmp_path / "out", "torch-export", images=given)
    assert parity.images == 6
    assert parity.largest <= 1e-4
    with pytest.raises(ModelError, match="trust=True"):
        Runner(tmp_path / "out")
    run = Runner(tmp_path / "out", trust=True)
    extra = {}
    if make in (make_early, make_late):
        with pytest.raises(DataError, match="under masks"):
            run.predict(given)
        extra = {"masks": [data.test[i].mask for i in range(6)]}
    np.testing.assert_array_equal(run.predict(given, **extra), system.predict(given, **extra))


@pytest.mark.parametrize("make", [make_ifam, *(pytest.param(m, marks=pytest.mark.gate) for m in (make_dar, make_a2))])
def test_onnx(make: Callable[..., Any], data: Benchmark, erm: fv.ERM, tmp_path: Path) -> None:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    system = make(data, erm, str(tmp_path / "store"))
    parity = to_folder(system, tmp_path / "out", "onnx", images=images(data))
    assert parity.largest <= 1e-4
    described = json.loads((tmp_path / "out" / "foveate-export.json").read_text())
    assert described["class_names"] == ["cat", "duck"]
    assert described["preprocess"]["size"] == [32, 32]
    run = Runner(tmp_path / "out")
    for n in (1, 2, 5):  # the batch size is free
        np.testing.assert_allclose(
            run.predict_logits(images(data, n)), system.predict_logits(images(data, n)), atol=1e-4
        )
    if make is make_ifam:
        assert described["intervention"]["dropped_parts"] == [1]
        assert "Parts removed by hand: 1" in (tmp_path / "out" / "README.md").read_text()


@pytest.mark.parametrize("heads", ["mean", "max", "entropy", "lowest-entropy-k"])
@pytest.mark.parametrize("layer", [-1, 0])
def test_attention_without_hooks(heads: str, layer: int) -> None:
    backbone, x = vit().eval(), torch.rand(3, 3, 32, 32)
    expected = cls_attention(backbone.net, x, layer, heads).map
    torch.testing.assert_close(AttentionPath(backbone, layer, heads, 32)(x), expected)


def test_a_graph_that_computes_something_else_is_not_written(
    data: Benchmark, erm: fv.ERM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = copy.deepcopy(erm)
    with torch.no_grad():
        wrong.network_.head.bias += 5
    monkeypatch.setattr("foveate.export.write.plan_of", lambda system: plan_of(wrong))
    with pytest.raises(ModelError, match="do not compute what the model computes"):
        to_folder(erm, tmp_path / "out", "torch-export")
    assert list(tmp_path.iterdir()) == []


def test_bad_requests(erm: fv.ERM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FoveateError, match="unknown format 'tflite'"):
        to_folder(erm, tmp_path / "out", "tflite")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(StorageError, match="not an export"):
        to_folder(erm, tmp_path, "torch-export")
    with pytest.raises(ModelError, match="not an export"):
        Runner(tmp_path)
    with pytest.raises(ModelError, match="has not been fitted"):
        to_folder(fv.ERM("micro_resnet"), tmp_path / "out")
    import builtins

    plain = builtins.__import__

    def without(name: str, *rest: Any, **more: Any) -> Any:
        if name == "onnxscript":
            raise ImportError(name)
        return plain(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtra, match=r"foveate\[onnx\]"):
        to_folder(erm, tmp_path / "out", "onnx")


def test_a_system_without_a_fixed_graph_says_so(erm: fv.ERM) -> None:
    class Odd(fv.systems.System):
        fitted = True

    with pytest.raises(ModelError, match="no fixed graph"):
        plan_of(Odd())


def test_a_description_leads_nowhere_else(erm: fv.ERM, tmp_path: Path) -> None:
    to_folder(erm, tmp_path / "out", "torch-export")
    sidecar = tmp_path / "out" / "foveate-export.json"
    described = json.loads(sidecar.read_text())
    described["graphs"][0]["file"] = "../../elsewhere.pt2"
    sidecar.write_text(json.dumps(described))
    with pytest.raises(ModelError, match=r"elsewhere\.pt2 is missing"):
        Runner(tmp_path / "out", trust=True)


def test_a_full_disk_is_a_sentence_and_leaves_nothing(
    erm: fv.ERM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PyTorch's own writer of programs ends the process when it cannot write, so it must never see the disk."""

    def saved(program: Any, file: Any) -> None:
        assert not isinstance(file, (str, Path)), "the library must not write to the disk itself"
        file.write(b"program")

    def full(*given: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch.export, "save", saved)
    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(StorageError, match="is full"):
        to_folder(erm, tmp_path / "out", "torch-export")
    assert list(tmp_path.iterdir()) == []


def test_a_dataset_is_read_batch_by_batch(data: Benchmark, erm: fv.ERM, tmp_path: Path) -> None:
    """A folder of files goes through the graphs a few images at a time, and a bad one is no answer."""
    from PIL import Image
    from typer.testing import CliRunner

    from foveate.cli import app
    from foveate.data.images import FileImages

    to_folder(erm, tmp_path / "model", "torch-export")
    (tmp_path / "photos").mkdir()
    paths = [tmp_path / "photos" / f"{i}.png" for i in range(7)]
    for i, path in enumerate(paths):
        Image.fromarray(data.test.images.read(i)).save(path)
    paths[3].write_bytes(b"no image")
    files = fv.data.GroupedDataset(FileImages(paths), [0, 1, 0, 1, 0, 1, 0], ["cat", "duck"])
    run = Runner(tmp_path / "model", trust=True)
    found = run.predict_logits(files, batch_size=2, on_bad="skip")
    assert np.isnan(found[3]).all()
    good = [0, 1, 2, 4, 5, 6]
    assert np.allclose(found[good], erm.predict_logits([data.test[i].image for i in good]), atol=1e-4)
    assert run.predict(files, on_bad="skip").tolist()[3] == -1
    words = ["predict", str(tmp_path / "model"), str(tmp_path / "photos"), "-o", str(tmp_path / "told.csv")]
    assert CliRunner().invoke(app, [*words, "--on-bad", "skip"]).exit_code != 0  # it holds programs
    assert CliRunner().invoke(app, [*words, "--on-bad", "skip", "--trust"]).exit_code == 0
    lines = (tmp_path / "told.csv").read_text().splitlines()
    assert len(lines) == 8
    assert sum("unreadable" in line for line in lines) == 1
