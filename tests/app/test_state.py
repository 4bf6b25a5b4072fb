"""The page's logic without a browser: what it shows is what the models say."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import foveate as fv
from foveate.app.pictures import PictureFiles, part_picture, seen_picture
from foveate.app.state import Session, _even
from foveate.app.views import Change, PartView
from foveate.data.benchmark import Benchmark
from foveate.errors import DataError, FoveateError, ModelError
from foveate.intervene import rehearsal
from foveate.intervene.rehearsal import second_stage


@pytest.fixture(scope="module")
def session(saved_models: Path, critters: Benchmark) -> Session:
    models = {"ifam": fv.load(saved_models / "ifam"), "erm": fv.load(saved_models / "erm")}
    return Session(models, critters)


def test_rows_are_the_groups_and_the_errors(session: Session, critters: Benchmark) -> None:
    val = critters.val
    told = session.views["erm"].system.predict(val)
    assert session.rows("erm", "val", which="errors") == np.flatnonzero(told != val.labels).tolist()
    assert session.rows("erm", "val", which="right") == np.flatnonzero(told == val.labels).tolist()
    group = session.groups("val")[1]
    assert session.rows("erm", "val", group) == np.flatnonzero(val.groups == val.group_names.index(group)).tolist()
    other = session.views["ifam"].system.predict(val)
    assert session.rows("erm", "val", which="differ") == np.flatnonzero(told != other).tolist()
    with pytest.raises(DataError, match="no group 'dog/moon'"):
        session.rows("erm", "val", "dog/moon")


@pytest.mark.parametrize("change", [Change(), Change((0,)), Change((0, 2)), Change((), 0.8), Change((1,), 0.7)])
def test_a_change_predicts_as_the_saved_model_would(session: Session, critters: Benchmark, change: Change) -> None:
    """The remembered stages give the same as the system itself with the same intervention."""
    view = session.views["ifam"]
    system = view.system.with_parts_removed(change.parts).with_thresholds(view.thresholds(change.q))
    expected = system.predict_logits(critters.val)
    np.testing.assert_allclose(view.logits(session.data["val"], change), expected, atol=2e-5)
    report = session.report("ifam", change=change)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert report.worst_group == fv.evaluate(system, critters.val).worst_group


def test_thresholds_are_those_of_the_system(session: Session, critters: Benchmark) -> None:
    again = session.views["ifam"].system.with_thresholds(None)
    expected = again.calibrate(critters.train, 0.9).token_thresholds_
    np.testing.assert_allclose(session.views["ifam"].thresholds(0.9).values, expected.values, rtol=1e-5)


def test_saved_thresholds_are_read_in_their_own_measure(saved_models: Path, critters: Benchmark) -> None:
    """Thresholds that were calibrated on distances to the prototypes, in a model whose own measure is another."""
    model = fv.load(saved_models / "ifam")
    assert isinstance(model, fv.IFAM)
    model.token_measure = "distance"
    model.calibrate(critters.train, 0.8)
    model.token_measure = "centre"
    view = PartView(model, critters.train)
    np.testing.assert_allclose(view.logits(critters.test, view.saved), model.predict_logits(critters.test), atol=1e-4)


def test_stage_two_runs_only_where_the_mask_changes(
    saved_models: Path, critters: Benchmark, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Session({"ifam": fv.load(saved_models / "ifam")}, critters)
    view = session.views["ifam"]
    seen: list[int] = []

    def counted(system: fv.IFAM, inputs: torch.Tensor, maps: torch.Tensor) -> torch.Tensor:
        seen.append(len(inputs))
        return second_stage(system, inputs, maps)

    monkeypatch.setattr(rehearsal, "second_stage", counted)
    session.report("ifam")
    assert sum(seen) == len(critters.val)
    session.report("ifam")
    assert sum(seen) == len(critters.val)
    maps = view._rehearsal(session.data["val"]).maps
    shows = int((maps.argmax(1) == 0).flatten(1).any(1).sum())
    session.report("ifam", change=Change((0,)))
    assert sum(seen) == len(critters.val) + shows


def test_switching_a_part_off_changes_what_is_shown(session: Session, toggled: int) -> None:
    image = session.image("val", toggled)
    before, after = session.show("ifam", image), session.show("ifam", image, Change((0,)))
    assert before.prediction != after.prediction
    assert after.coverage < before.coverage
    assert not np.array_equal(before.parts, after.parts)
    assert not np.array_equal(before.seen, after.seen)
    assert sum(after.chances.values()) == pytest.approx(1)


def test_saved_interventions_survive_a_restart(
    saved_models: Path, critters: Benchmark, tmp_path: Path, toggled: int
) -> None:
    folder = shutil.copytree(saved_models / "ifam", tmp_path / "ifam")
    session = Session({"m": fv.load(folder)}, critters, folders={"m": folder})
    change = Change((0,), 0.9)
    expected = session.predictions("m", "val", change)
    session.save("m", change)
    again = Session({"m": fv.load(folder)}, critters, folders={"m": folder})
    assert again.saved("m") == change
    np.testing.assert_array_equal(again.predictions("m", "val", again.saved("m")), expected)
    np.testing.assert_array_equal(fv.load(folder).predict(critters.val), expected)
    again.save("m", Change())
    assert Session({"m": fv.load(folder)}, critters).saved("m") == Change()


def test_a_model_without_parts_has_nothing_to_save(session: Session, saved_models: Path, critters: Benchmark) -> None:
    assert session.parts("erm") == 0
    with pytest.raises(ModelError, match="not loaded from a folder"):
        session.save("erm", Change())
    folder = saved_models / "erm"
    other = Session({"erm": fv.load(folder)}, critters, folders={"erm": folder})
    with pytest.raises(ModelError, match="has no parts"):
        other.save("erm", Change((1,)))


def test_a_painted_mask_hides_the_rest(session: Session) -> None:
    """Of iFAM nothing outside the painted patches can matter; painting all is the full image."""
    image = session.image("val", 0)
    mask = np.zeros((8, 8), dtype=bool)
    mask[:2, :2] = True  # one patch of 8 px in 32
    shown = session.paint("ifam", image, mask)
    assert shown.coverage == pytest.approx(1 / 16)
    noise = image.copy()
    noise[8:], noise[:, 8:] = 255, 0
    assert session.paint("ifam", noise, mask).chances == shown.chances
    rest = session.paint("ifam", image, mask, hide=True)
    assert rest.coverage == pytest.approx(15 / 16)
    everything = session.paint("erm", image, np.ones((3, 3), dtype=bool))
    expected = session.show("erm", image).chances
    assert everything.chances == pytest.approx(expected, abs=1e-5)
    with pytest.raises(DataError, match="nothing is painted"):
        session.paint("ifam", image, np.zeros((8, 8), dtype=bool))


def test_find_compares_names_and_opens_nothing(session: Session) -> None:
    assert session.find("val", "3") == 3
    assert session.find("val", session.title("val", 5)) == 5
    for name in ("../../etc/passwd", "/etc/passwd", "999999", " "):
        with pytest.raises(DataError):
            session.find("val", name)
    with pytest.raises(DataError, match="no number 4000"):
        session.image("val", 4000)


def test_titles_tell_nothing_about_the_machine(critters: Benchmark, saved_models: Path, tmp_path: Path) -> None:
    from foveate.data.tables import from_path, write_csv

    write_csv(critters, tmp_path / "mine")
    session = Session({"erm": fv.load(saved_models / "erm")}, from_path(tmp_path / "mine"))
    assert "/" not in session.title("val", 0)
    assert session.title("val", 0).endswith(".png")


def test_classes_are_matched_by_name(saved_models: Path, critters: Benchmark) -> None:
    """Two models that list their classes in another order are compared class by class."""
    erm = fv.load(saved_models / "erm")
    turned = fv.load(saved_models / "erm")
    turned.class_names_ = turned.class_names_[::-1]
    head = turned.network_.head
    with torch.no_grad():
        head.weight.copy_(head.weight.flip(0))
        head.bias.copy_(head.bias.flip(0))
    session = Session({"a": erm, "b": turned}, critters)
    assert session.rows("a", "val", which="differ") == []
    assert session.report("a").average == session.report("b").average
    image = session.image("val", 0)
    assert session.show("a", image).chances == pytest.approx(session.show("b", image).chances, abs=1e-6)


def test_what_cannot_be_shown(saved_models: Path, critters: Benchmark) -> None:
    erm = fv.load(saved_models / "erm")
    with pytest.raises(FoveateError, match="one model or compares two"):
        Session({}, critters)
    other = fv.load(saved_models / "erm")
    other.class_names_ = ["cat", "dog"]
    with pytest.raises(ModelError, match="other classes"):
        Session({"a": erm, "b": other}, critters)
    with pytest.raises(DataError, match="no images"):
        Session({"a": erm}, Benchmark("nothing", {}))


def test_a_large_split_is_sampled_evenly(saved_models: Path, critters: Benchmark) -> None:
    session = Session({"erm": fv.load(saved_models / "erm")}, critters, limit=20)
    assert session.whole["val"] == 40
    assert session.data["val"].group_counts.tolist() == [5, 5, 5, 5]
    assert _even(critters.val, 20).tolist() == _even(critters.val, 20).tolist()


def test_pictures_are_written_once(tmp_path: Path) -> None:
    """A file that the browser may be reading is not touched again."""
    store = PictureFiles(tmp_path / "served")
    image = np.arange(48, dtype=np.uint8).reshape(4, 4, 3)
    first = Path(store.path(image))
    assert first.is_relative_to(tmp_path / "served")
    before = first.stat()
    assert store.path(image.copy()) == str(first)
    assert (first.stat().st_mtime_ns, first.stat().st_ino) == (before.st_mtime_ns, before.st_ino)
    assert store.path(image.reshape(2, 8, 3)) != str(first)
    np.testing.assert_array_equal(np.asarray(Image.open(first)), image)
    store.close()
    assert not store.folder.exists()


def test_pictures() -> None:
    image = np.full((4, 4, 3), 200, np.uint8)
    parts = torch.tensor([[[1.0, 0.0], [0.0, 0.0]], [[0.0, 1.0], [1.0, 1.0]]])  # one part, upper left; background
    drawn = part_picture(image, parts)
    assert drawn[0, 0].tolist() == [218, 175, 80]  # 0.4 * 200 + 0.6 * (230, 159, 0)
    assert (drawn[2:] == 200).all()
    kept = seen_picture(image, torch.tensor([[True, False], [False, False]]))
    assert (kept[:2, :2] == 200).all()
    assert (kept[2:] != 200).all()
