"""A model that says NaN is wrong, and named; an unreadable file is left out: in every place that counts answers."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from typer.testing import CliRunner

import foveate as fv
from foveate.app.render import figures, verdict
from foveate.app.state import Session
from foveate.app.views import Change
from foveate.assemble.parts_network import Intervention
from foveate.bench.records import Record
from foveate.bench.status import Status
from foveate.bench.table import table
from foveate.cli.main import app
from foveate.data.preprocess import Preprocess
from foveate.engine import Selection, TensorFeed
from foveate.intervene.rehearsal import Rehearsal
from foveate.measure import NO_ANSWER, UNREADABLE
from foveate.report.advice import Step, next_steps
from foveate.report.groups import judge_groups
from foveate.report.levels import Level
from foveate.report.page_tables import confusions
from foveate.report.sentences import first_words, headline
from foveate.report.verdict import join

VIEW = Preprocess((16, 16), mean=(0.0,) * 3, std=(1.0,) * 3)
SMALL = {"width": 8, "layers": [1, 1, 1], "stem_stride": 2}


def by_red(x: Tensor, silent: bool = True) -> Tensor:
    """Right on every image of :func:`written`; with ``silent`` it says NaN to all of 'dog', the bright red ones."""
    red = x[:, 0].mean((1, 2))
    scores = 9 * torch.stack([0.5 - red, red - 0.5], 1)
    scores[(red > 0.5) & silent] = float("nan")
    return scores


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two classes told by red, two attributes by blue, on disk; 40 images each in val and test, 30 of test a group."""
    root = tmp_path_factory.mktemp("reds")
    rng = np.random.default_rng(0)
    rows = ["path,label,attribute,split"]
    for split, each in (("train", 10), ("val", 10), ("test", 30)):
        for k in range(4 * each):
            label, attribute = k % 2, k // 2 % 2
            image = rng.integers(0, 60, (16, 16, 3), dtype=np.uint8)
            image[..., 0] += 180 * label
            image[..., 2] += 180 * attribute
            name = f"{split}{k:03d}.png"
            Image.fromarray(image).save(root / name)
            rows.append(f"{name},{['cat', 'dog'][label]},{['land', 'sea'][attribute]},{split}")
    (root / "data.csv").write_text("\n".join(rows))
    return root


@pytest.fixture
def broken(written: Path, tmp_path: Path) -> Path:
    """The same with six unreadable cats in test."""
    for file in written.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    for k in range(0, 12, 2):
        (tmp_path / f"test{k:03d}.png").write_bytes(b"not an image")
    return tmp_path


@pytest.fixture(scope="module")
def silent() -> Any:
    return fv.wrap(by_red, ["cat", "dog"], preprocess=VIEW, name="silent")


def data(root: Path) -> Any:
    return fv.data.from_csv(root / "data.csv")


def test_nan_is_wrong_and_not_unreadable(written: Path, silent: Any) -> None:
    test = data(written).test
    assert (silent.predict(test) == np.where(test.labels == 1, NO_ANSWER, 0)).all()
    assert (silent.predict([test[1].image]) == [NO_ANSWER]).all()
    assert (silent.predict_proba(test)[test.labels == 1] == 0).all()
    report = fv.evaluate(silent, test)
    assert (report.average, report.worst_group, report.worst_class, report.unanswered) == (0.5, 0.0, 0.0, 60)
    assert "no answer for 60 of 120 images (dog 60 of 60)" in str(report)


def test_unreadable_files_are_left_out_also_beside_nan(broken: Path, silent: Any) -> None:
    test = data(broken).test
    loud = fv.wrap(lambda x: by_red(x, silent=False), ["cat", "dog"], preprocess=VIEW)
    report = fv.evaluate(loud, test, on_bad="skip")
    assert (report.average, report.n, report.skipped, report.unanswered) == (1.0, 114, 6, 0)
    both = fv.evaluate(silent, test, on_bad="skip")
    assert (both.average, both.n, both.skipped, both.unanswered) == (54 / 114, 114, 6, 60)
    said = silent.predict(test, on_bad="skip")
    assert (np.bincount(said + 2, minlength=4) == [60, 6, 54, 0]).all()  # no answer, unreadable, cat, dog


@pytest.mark.parametrize("discover", [False, True])
def test_audit_names_both(broken: Path, silent: Any, discover: bool, tmp_path: Path) -> None:
    test = data(broken).test
    loud = fv.wrap(lambda x: by_red(x, silent=False), ["cat", "dog"], preprocess=VIEW)
    found = fv.audit({"silent": silent, "loud": loud}, test, discover=discover, objects="centre", on_bad="skip")
    first, second = found.findings.models
    assert (first.worst_class, first.unanswered, second.unanswered) == (0.0, 60, 0)
    assert second.average == 1.0
    assert len(first.unanswered_images) == 60
    assert len(found.findings.unreadable) == 6
    assert "silent gave no answer for 60 of 114 images (dog 60 of 60)" in found.verdict
    assert any("6 of 120 images could not be read" in note for note in found.findings.notes)
    assert any("silent gave no answer for 60 of 114" in note for note in found.findings.notes)
    assert found.findings.advice[0].title == "First mend silent: it says NaN"
    assert Step.KEEP not in [advice.step for advice in found.findings.advice]
    shown = confusions(found.findings)
    assert shown.names == ["cat", "dog", "(no answer)"]
    assert sum(row.counts[2] for row in shown.tables[0].rows) == 60
    assert any(a.prediction == "no answer" for e in found.findings.examples for a in e.answers)
    html = found.save(tmp_path / "audit.html").read_text()
    assert "silent had no answer to 60 images" in html
    json.dumps(found.to_dict(), allow_nan=False)


def test_without_a_shortcut_the_headline_is_what_got_no_answer() -> None:
    said, labels, attributes = np.arange(800) % 2, np.arange(800) % 2, np.arange(800) // 2 % 2
    said[:40] = NO_ANSWER  # ten of each group
    names = ["cat", "dog"]
    report = fv.measure.group_report(said, labels, attributes, class_names=names)
    counts = fv.measure.confusion_by_group(said, labels, attributes)
    found = join("M", judge_groups(report, counts, class_names=names), attribute="place")
    assert (found.level, headline(found)) == (Level.NONE, "No answer for 40 images")
    assert first_words(found).endswith("they count as wrong.")
    assert next_steps([found], attributes=True) == [Step.MEND]


def test_audit_of_a_model_that_is_no_system(broken: Path) -> None:
    class Foreign:
        class_names_ = ("cat", "dog")

        def predict_proba(self, dataset: Any, **_: Any) -> np.ndarray:
            out = np.eye(2)[dataset.labels]
            out[dataset.labels == 1] = np.nan
            out[:12:2] = np.nan  # the unreadable ones
            return out

    found = fv.audit({"foreign": Foreign()}, data(broken).test).findings
    assert len(found.unreadable) == 6
    assert (found.models[0].unanswered, found.models[0].worst_class) == (60, 0.0)


@pytest.fixture(scope="module")
def erm(written: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = fv.ERM("micro_resnet", epochs=1, model_args=SMALL, image_size=16, progress=False).fit(data(written).train)
    return made.save(tmp_path_factory.mktemp("erm"))


def test_commands_say_so_in_words(broken: Path, erm: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(fv.ERM, "_logits", lambda self, x: by_red(0.25 * x + 0.5))
    source, skip = str(broken / "data.csv"), ["--on-bad", "skip"]
    shown = CliRunner().invoke(app, ["eval", str(erm), "--data", source, *skip])
    told = " ".join(shown.output.split())
    assert "6 images could not be read and are not counted" in told
    assert "no answer for 60 of 114 images (dog 60 of 60)" in told
    one = CliRunner().invoke(app, ["eval", str(erm), "--data", source, "--metric", "worst_class", *skip])
    assert one.stdout.endswith(" worst_class 0.0\n")
    assert "no answer for 60 of 114 images" in one.stderr
    wanted = json.loads(CliRunner().invoke(app, ["eval", str(erm), "--data", source, "--json", *skip]).output)
    assert next(iter(wanted.values()))["unanswered"] == 60
    out = tmp_path / "said.csv"
    spoken = CliRunner().invoke(app, ["predict", str(erm), source, "--out", str(out), *skip])
    assert "no answer for 60 of 120 images" in spoken.output
    rows = list(csv.DictReader(io.StringIO(out.read_text())))
    assert [sum(row["prediction"] == word for row in rows) for word in ("no answer", "unreadable", "cat")] == [
        60, 6, 54,
    ]  # fmt: skip
    assert {row["probability"] for row in rows if row["prediction"] in ("no answer", "unreadable")} == {""}
    report = CliRunner().invoke(
        app, ["audit", str(erm), "--data", source, "--no-discover", "--out", str(tmp_path / "a.html"), *skip]
    )
    assert "gave no answer for 60 of 114 images" in " ".join(report.output.split())
    failed = CliRunner().invoke(
        app, ["audit", str(erm), "--data", source, "--no-discover", "--fail-under", "worst_class=0.5",
              "--out", str(tmp_path / "a.html"), *skip],
    )  # fmt: skip
    assert failed.exit_code == 1
    card = fv.export.model_card(fv.load(erm), data(broken).test, on_bad="skip")
    assert "No answer for 60 of 114 images (dog 60 of 60)" in card


def test_the_page_says_so(broken: Path, erm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fv.ERM, "_logits", lambda self, x: by_red(0.25 * x + 0.5))
    session = Session({"erm": fv.load(erm)}, data(broken))
    told = session.predictions("erm", "test")
    assert [(told == code).sum() for code in (NO_ANSWER, UNREADABLE, 0)] == [60, 6, 54]
    assert "no answer for 20 of 40 images" in figures(session, "erm", Change())
    shown = session.show("erm", session.image("val", 1), label="dog")
    assert (shown.prediction, shown.correct, set(shown.chances.values())) == ("no answer", False, {0.0})
    assert "no answer" in verdict("erm", shown, name=False)
    assert len(session.rows("erm", "val", which="errors")) == 20
    assert len(session.rows("erm", "test", which="errors")) == 60  # the unreadable ones are nobody's error


class ByFirst(nn.Module):
    """Features ``[B, 2]`` as logits, NaN for those whose first number is negative."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x: Tensor) -> Tensor:
        out = torch.stack([self.scale * x[:, 0], self.scale * x[:, 1]], 1)
        return torch.where(x[:, :1] < 0, float("nan"), out)


def test_selection_does_not_take_nan_for_the_first_class(written: Path) -> None:
    val = data(written).val
    # right on every dog, NaN on every cat: the first class, which is what argmax makes of NaN
    features = torch.from_numpy(np.where(val.labels[:, None] == 0, [-1.0, 0.0], [0.0, 1.0])).float()
    scores = Selection("worst_group", TensorFeed(features, val)).score(ByFirst(), torch.device("cpu"), 8)
    assert (scores["worst_group"], scores["average"], scores["worst_class"]) == (0.0, 0.5, 0.0)


def test_first_stages_that_say_nan_make_errors(broken: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    test = data(broken).test
    monkeypatch.setattr(fv.ERM, "_logits", lambda self, x: by_red(0.25 * x + 0.5))
    settings = {"model_args": SMALL, "image_size": 16, "epochs": 1, "progress": False, "on_bad": "skip"}
    jtt = fv.JTT("micro_resnet", first_epochs=1, **settings).fit(test)
    assert (jtt.errors_ == np.flatnonzero(test.labels == 1)).all()  # all dogs, and no unreadable cat
    cnc = fv.CnC("micro_resnet", first_epochs=1, samples=4, **settings)
    cnc._first(test, ())
    taught = np.concatenate(cnc._epoch(test, 0)[0])
    assert set(taught) <= set(np.flatnonzero(cnc.first_predictions_ != UNREADABLE))
    assert (test.labels[taught] == 1).any()


def test_interventions_count_it_too(written: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = data(written)
    vit = {"embed_dim": 24, "depth": 1, "num_heads": 2, "patch_size": 8}
    ifam = fv.IFAM("micro_vit", parts=2, model_args=vit, image_size=32, epochs=1, progress=False).fit(bench.train)
    monkeypatch.setattr(
        "foveate.intervene.rehearsal.second_stage", lambda system, inputs, maps: by_red(0.25 * inputs + 0.5)
    )
    said = Rehearsal(ifam, bench.val).predict(Intervention())
    assert (said == np.where(bench.val.labels == 1, NO_ANSWER, 0)).all()


def test_exports_and_studies_say_so(written: Path, erm: Path, tmp_path: Path) -> None:
    fv.export.to_folder(fv.load(erm), tmp_path / "out", "torch-export")
    runner = fv.export.Runner(tmp_path / "out", trust=True)
    runner.graphs["model"] = lambda x: [by_red(0.25 * x + 0.5).numpy()]
    test = data(written).test
    assert runner.predict([test[0].image, test[1].image]).tolist() == [0, NO_ANSWER]
    assert (runner.predict_logits([test[1].image]) == -np.inf).all()
    record = Record("s", "d", "reds", "ERM", 0, {}, score=0.5, metrics={"average": 0.5, "unanswered": 0.5})
    assert "| no answer |" in table([record])
    told = str(Status(1, 1, 0, 0, 0, 0, 0.0, [], [record]))
    assert "reds, ERM, seed 0: no answer (NaN) for 50.0 % of the test images; they count as wrong" in told
