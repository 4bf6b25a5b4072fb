"""What ``foveate fit`` asks, chooses and warns of, and what is measured of its models afterwards."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.cli.conftest import Call

import foveate as fv
from foveate.report.look_sheet import _font, _strip

SMALL = ["--backbone", "micro_resnet", "--epochs", "1", "--set", "progress=False",
         "--set", "model_args={'width': 8, 'layers': [1, 1, 1], 'stem_stride': 2}"]  # fmt: skip


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Critters with and without attributes, and a model that learned from those without."""
    root = tmp_path_factory.mktemp("fitting")
    fv.data.write_csv(fv.data.critters(size=32, train=60, target=16, val=24, test=40), root / "data")
    with (root / "data" / "benchmark.csv").open() as file:
        rows = list(csv.DictReader(file))
    with (root / "data" / "bare.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["path", "label", "split"], extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    data = fv.data.from_csv(root / "data" / "bare.csv")
    small = {"width": 8, "layers": [1, 1, 1], "stem_stride": 2}
    fv.ERM("micro_resnet", epochs=1, progress=False, model_args=small).fit(data.train).save(root / "erm")
    return root


@pytest.fixture(autouse=True)
def _cache(world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FOVEATE_CACHE", str(world / "cache"))
    monkeypatch.chdir(world)


def test_a_saved_model_is_not_replaced_without_a_word(
    world: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["fit", "data", "--out", str(tmp_path / "m"), *SMALL]
    assert call(*words)[0] == 0
    before = (tmp_path / "m" / "system.json").stat().st_mtime_ns
    code, _, err = call(*words)
    assert (code, "holds a saved model" in err, "--force" in err) == (2, True, True)
    monkeypatch.setattr("foveate.cli.screen.can_ask", lambda: True)
    monkeypatch.setattr("typer.confirm", lambda *question, **options: False)
    code, out, _ = call(*words)
    assert (code, "left as it is" in out) == (2, True)
    assert (tmp_path / "m" / "system.json").stat().st_mtime_ns == before
    assert call(*words, "--force")[0] == 0
    assert (tmp_path / "m" / "system.json").stat().st_mtime_ns != before


def test_dar_without_attributes_chooses_by_what_is_possible(world: Path, tmp_path: Path, call: Call) -> None:
    words = ["fit", "data/bare.csv", "--system", "DAR", "--base", "erm", "--epochs", "2", "--set", "heads=4",
             "--set", "progress=False"]  # fmt: skip
    code, _, err = call(*words, "--out", str(tmp_path / "dar"))
    assert code == 0, err
    assert "has no attributes, so it chooses by worst_class here" in err
    assert fv.load(tmp_path / "dar").selection_["metric"] == "worst_class"
    code, _, err = call(*words, "--out", str(tmp_path / "other"), "--select", "worst_group")
    assert (code, "needs groups" in err) == (2, True)  # what was asked for is not replaced
    code, _, err = call(*words, "--out", str(tmp_path / "average"), "--select", "average")
    assert (code, "chooses by" in err) == (0, False)


def test_what_was_fitted_is_told_to_programs(world: Path, tmp_path: Path, call: Call) -> None:
    code, out, err = call("fit", "data", "--out", str(tmp_path / "m"), *SMALL, "--json")
    assert code == 0, err
    told = json.loads(out)
    assert (told["system"], told["folder"]) == ("ERM", str(tmp_path / "m"))
    assert told["validation"] == fv.evaluate(fv.load(tmp_path / "m"), fv.data.from_path(world / "data").val).to_dict()
    assert "saved ERM" in err


def test_a_model_that_learned_nothing_is_said_to_be_so(world: Path, tmp_path: Path, call: Call) -> None:
    untrained = [*SMALL, "--epochs", "0"]
    code, _, err = call("fit", "data", "--out", str(tmp_path / "m"), *untrained)
    assert code == 0, err
    assert "no better than naming the most frequent class every time (50.0 %)" in err


def test_random_weights_are_said(world: Path, tmp_path: Path, call: Call) -> None:
    code, _, err = call("fit", "data", "--out", str(tmp_path / "m"), *SMALL)
    assert (code, "micro_resnet starts from random weights" in err) == (0, True)
    words = ["fit", "data", "--out", str(tmp_path / "n"), "--backbone", "micro-vit", "--epochs", "0"]
    code, _, err = call(*words, "--set", "progress=False")
    assert (code, "random weights" in err) == (0, False), err


def test_without_a_network_the_hint_names_what_a_system_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    import timm

    def offline(*given: object, **options: object) -> None:
        raise OSError("We couldn't connect to the hub")

    monkeypatch.setattr(timm, "create_model", offline)
    data = fv.data.critters(size=32, train=8, target=0, val=0, test=0)
    with pytest.raises(fv.FoveateError, match=r"weights='FILE'.*mobilenet-v2.*pretrained=False") as said:
        fv.ERM("resnet18", pretrained=True, progress=False).fit(data.train)
    assert "checkpoint" not in str(said.value)


def test_misgivings_are_about_guessing_and_the_base() -> None:
    data = fv.data.critters(size=32, train=8, target=0, val=40, test=0)
    view = fv.data.Preprocess((32, 32))
    labels, groups = data.val.labels, data.val.groups

    def scripted(right: np.ndarray) -> fv.Wrapped:
        """A model whose answers on val are right where ``right`` says so."""
        import torch

        said = torch.from_numpy(np.where(right, labels, 1 - labels))
        place = {"at": 0}

        def forward(x: torch.Tensor) -> torch.Tensor:
            rows = said[place["at"] : place["at"] + len(x)]
            place["at"] = (place["at"] + len(x)) % len(said)
            return torch.nn.functional.one_hot(rows, 2).float()

        return fv.wrap(forward, data.val.class_names, preprocess=view)

    everything, nothing = np.ones(40, bool), np.zeros(40, bool)
    half = groups != groups[0]  # wrong on one group
    assert fv.assess.misgivings(scripted(everything), data.val) == []
    (said,) = fv.assess.misgivings(scripted(nothing), data.val)
    assert "right on 0.0 %" in said
    assert fv.assess.misgivings(scripted(everything), data.val, scripted(half)) == []
    (said,) = fv.assess.misgivings(scripted(half), data.val, scripted(everything))
    assert "no better than its base" in said
    assert "worst group 0.0 % (base 100.0 %)" in said
    (said,) = fv.assess.misgivings(scripted(half), data.val, scripted(half))
    assert "no better than its base" in said


def test_an_unknown_setting_is_told_with_all_settings(call: Call, tmp_path: Path) -> None:
    code, _, err = call("fit", "critters", "--set", "backbon=x", "--out", str(tmp_path / "m"))
    assert code == 2
    assert "ERM has no setting 'backbon'. Did you mean 'backbone'?" in err
    for name in ("small_stem", "weights", "select", "epochs", "weight_decay"):
        assert name in err
    with pytest.raises(fv.FoveateError, match=r"ERM has no setting 'epoch'. Did you mean 'epochs'"):
        fv.ERM().set_params(epoch=3)


OWN = '''
from foveate.assemble.trained import Trained
from foveate.parameters import configured
from foveate.registries import SYSTEMS

@configured
class MyOwn(Trained):
    """ERM by another name."""

SYSTEMS.add("MyOwn", MyOwn)
'''


@pytest.mark.usefixtures("_listed_for_now")
def test_a_system_of_ones_own_is_fitted_with_import(
    world: Path, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    (world / "my_own_system.py").write_text(OWN)
    code, _, err = call("fit", "data", "--system", "MyOwn", "--out", str(tmp_path / "m"), *SMALL)
    assert (code, "--import MODULE" in err) == (2, True)
    words = ["fit", "data", "--system", "MyOwn", "--import", "my_own_system", "--out", str(tmp_path / "m"), *SMALL]
    code, out, err = call(*words)
    assert code == 0, err
    assert "saved MyOwn" in out
    code, _, err = call("fit", "data", "--import", "no_such_module", "--out", str(tmp_path / "n"), *SMALL)
    assert (code, "cannot import 'no_such_module'" in err) == (2, True)


def test_majority_and_minority_come_from_the_data_when_the_model_knows_none(world: Path, call: Call) -> None:
    """The model learned from a table without attributes; the table it is measured on has them in its train split."""
    code, out, err = call("eval", "erm", "data", "--json")
    assert code == 0, err
    figures = json.loads(out)["erm"]
    data = fv.data.from_path(world / "data")
    known = fv.evaluate(fv.load(world / "erm"), data.test, train_counts=data.train.group_counts)
    assert figures["majority"] == known.majority is not None
    assert figures["minority"] == known.minority is not None


def test_the_card_of_an_export_with_data_is_measured(world: Path, tmp_path: Path, call: Call) -> None:
    words = ["export", "erm", "--format", "torch-export"]
    assert call(*words, str(tmp_path / "plain"))[0] == 0
    assert "Not measured" in (tmp_path / "plain" / "README.md").read_text()
    code, _, err = call(*words, str(tmp_path / "told"), "--data", "data")
    assert code == 0, err
    card = (tmp_path / "told" / "README.md").read_text()
    assert "Not measured" not in card
    assert "## Accuracy by group" in card


def test_captions_have_a_sign_for_every_letter_of_the_font() -> None:
    _, known = _font()
    assert all(ord(c) in known for c in "cat.png → château Ελλάδα Привет")

    def drawn(caption: str) -> bytes:
        return Image.fromarray(_strip([np.zeros((8, 192, 3), np.uint8)], caption, 1, 192)).tobytes()

    assert drawn("a → b") != drawn("a ? b")
    assert drawn("犬") == drawn("?")  # a question mark and not an empty box, where there is no sign
    assert drawn("x" * 400) == drawn("x" * 500)
