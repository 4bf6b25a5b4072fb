"""The ledger: the published facts, what can be run, and a page that is never stale."""

from __future__ import annotations

from pathlib import Path

import pytest

from foveate.bench import needs, reproduce
from foveate.bench.ledger import PAPERS, Ledger, Published
from foveate.bench.reproduce import Ours, Reproduction, reproduction_page
from foveate.errors import DataError, FoveateError
from foveate.registries import DATASETS

ROOT = Path(__file__).parents[2]
RECORDS = Path("benchmarks/records/reproduction.csv")


def test_the_ledger_holds_what_was_printed() -> None:
    ledger = Ledger.published()
    assert len(ledger.all) == 1547
    assert {row.paper for row in ledger.all} == set(PAPERS)
    matrix = {(r.backbone_attn, r.backbone_embed): float(r.value) for r in ledger.rows("a2/T13")}
    assert len(matrix) == 16
    assert matrix["dinov2_s", "dinov2_g"] == 94.4
    with pytest.raises(FoveateError, match="Did you mean 'a2/T13'"):
        ledger.rows("a2/T133")


def test_every_row_has_a_reason_or_a_way() -> None:
    for row in Ledger.published().all:
        assert (
            needs.first_obstacle(row, weights=False) is None or len(needs.first_obstacle(row, weights=False) or "") > 5
        )
        if not row.quoted and needs.loader_name(row) and needs.first_obstacle(row) is None:
            assert row.metric in needs.COUNTS or needs.recipe(row) is not None


def test_recipes_name_systems_that_take_their_settings() -> None:
    from foveate.systems import get_system

    made = [r for row in Ledger.published().all if (r := needs.recipe(row)) is not None]
    assert len(made) > 500
    for recipe in {str(r): r for r in made}.values():
        assert set(recipe.settings) <= set(get_system(recipe.system).setting_names()), recipe


def test_splits_of_one_common_name_are_not_confused() -> None:
    names = {(r.paper, r.dataset): needs.loader_name(r) for r in Ledger.published().all}
    assert {dataset: name for (paper, dataset), name in names.items() if paper == "dar"} == {
        "dominoes": "dominoes",  # the only one of that name
        "waterbirds": "waterbirds-dar",
        "celeba": "celeba-dar",
        "spawrious": "spawrious-dar",
        "spuco_animals": "spuco-animals-dar",
        "urbancars": "urbancars-dar",
    }
    for paper in ("a2", "ifam_v1", "ifam_v2"):
        assert names[paper, "waterbirds"] == "waterbirds"
    assert names["a2", "celeba"] == "celeba"


def test_hours_grow_with_the_model() -> None:
    rows = Ledger.published().rows("a2/T13")
    small, large = (needs.hours(r, per_second=50.0) for r in (rows[0], rows[-1]))
    # 11,788 images, two forward passes of 6 (or 295) billion operations, 50 billion a second
    assert small == pytest.approx(11788 * 12 / 50 / 3600)
    assert large == pytest.approx(11788 * 590 / 50 / 3600)


def test_what_cannot_be_run_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(needs, "weights_here", lambda slug: slug == "dinov2_s")
    needs._data_obstacle.cache_clear()
    with DATASETS.temporarily("waterbirds", _absent):
        text = Reproduction(Ledger.published(), "a2/T13").report()
    needs._data_obstacle.cache_clear()
    assert "this machine can run 0 of 16:" in text
    assert "no weights of dinov2_b on this machine" in text
    assert "1 not: no data: waterbirds is not here" in text
    assert "would take about" in text


def _absent(root: str | None = None) -> None:
    raise DataError("waterbirds is not here.")


def row(**given: str) -> Published:
    blank = dict.fromkeys(Published.__dataclass_fields__, "")
    return Published(**{**blank, **given})


def test_counts_are_run_and_compared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import foveate as fv

    data = fv.data.critters(train=40, target=16, val=16, test=16, size=32)
    monkeypatch.setattr(reproduce, "opened", lambda name, root: data)
    monkeypatch.setattr(needs, "opened", lambda name, root: data)
    needs._data_obstacle.cache_clear()
    shared = {"paper": "p", "table": "T1", "dataset": "critters", "split": "train", "method": "dataset_stats"}
    ledger = Ledger(
        [
            row(**shared, setting="cell=all", metric="train_count", value="44"),
            row(**shared, setting="y=cat;a=meadow", metric="train_count", value="19"),
            row(**{**shared, "split": "test"}, setting="cell=all", metric="test_count", value="16"),
            row(**shared, setting="", metric="accuracy", value="90.1", note="prior-work value"),
        ]
    )
    run = Reproduction(ledger, "p/T1", command="cmd")
    text = run.report()
    needs._data_obstacle.cache_clear()
    assert "this machine can run 3 of 4" in text
    assert "quoted by the paper" in text
    compared = [line[1:4] for line in run.comparison()[1:]]
    assert compared == [["44", "40", "-4"], ["19", "19", "+0"], ["16", "16", "+0"]]
    path = run.keep(tmp_path / "ours.csv")
    assert run.keep(path).read_text().count("\n") == 4  # a second time replaces
    assert {o.key for o in reproduce.read_ours(path)} == set(run.ours)


def test_differences_have_the_printed_digits() -> None:
    printed = row(value="80.4", std="0.3")
    mine = Ours(*[""] * 9, value=81.26, seconds=1.0, command="c", commit="x")
    assert reproduce.compared(printed, mine) == ["80.4 ± 0.3", "81.3", "+0.9"]


def test_the_page_is_not_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    page = reproduction_page(Ledger.published(), RECORDS)
    written = Path("docs/reproduction.md").read_text(encoding="utf-8")
    command = f"foveate reproduce --page docs/reproduction.md --records {RECORDS}"
    assert page == written, f"docs/reproduction.md is stale; run: {command}"
    known = {r.key for r in Ledger.published().all}
    assert {o.key for o in reproduce.read_ours(RECORDS)} <= known
