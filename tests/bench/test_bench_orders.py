"""What a page may claim: orders judged by their intervals, figures quoted from records, answers kept for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import foveate as fv
from foveate.bench.hits import KeptHits
from foveate.bench.orders import orders_of, orders_table
from foveate.bench.quoted import Quoted
from foveate.bench.records import Record, read_csv, write_csv
from foveate.bench.spec import Spec, parse_spec
from foveate.bench.summary import summary_table
from foveate.errors import FoveateError
from foveate.measure import group_report

pytest.importorskip("yaml", reason="specs need the extra [bench]")

SPEC = """
name: small
datasets: {drawn: {name: critters, summary: true}}
seeds: [0, 1, 2]
select: average
metric: worst_group
orders:
  - {better: crop, than: full, says: a paper}
  - {better: full, than: crop}
methods:
  full: {system: FullImage, settings: {embedder: micro-vit}}
  crop: {system: CentreCrop, settings: {embedder: micro-vit}}
"""


def spec() -> Spec:
    return parse_spec(SPEC)


def rows(full: list[float], crop: list[float], answers: bool = False) -> list[Record]:
    """Records whose worst group, of two groups of 100 images, is as given; the other group is all right."""
    made = []
    for method, values in (("full", full), ("crop", crop)):
        for seed, value in enumerate(values):
            right = np.arange(100) < round(100 * value)
            kept = KeptHits({"a/x": right, "a/y": np.ones(100, bool)}, ("a/x",))
            made.append(
                Record(
                    "small", spec().digest("drawn", method), "drawn", method, seed, {}, score=0.5,
                    metrics={"worst_group": value, "average": (1 + value) / 2}, supervision="train: labels",
                    seconds=1800.0, answers=kept.packed() if answers else {},
                )
            )  # fmt: skip
    return made


def test_an_order_holds_only_when_the_interval_says_so() -> None:
    # differences .30, .28, .32: mean .30, sample deviation .02, half width 4.3027 * .02 / sqrt(3) = .0497
    clear, reverse = orders_of(spec(), rows([0.5, 0.5, 0.5], [0.8, 0.78, 0.82]), "drawn")
    assert (clear.verdict, reverse.verdict) == ("holds", "the reverse holds")
    assert clear.sentence() == "crop is above full in worst group (+30.0 [25.0, 35.0], 3 seeds)"
    assert reverse.sentence() == "full is *below* crop in worst group (-30.0 [-35.0, -25.0], 3 seeds)"
    # the same mean difference, but the seeds disagree
    vague, _ = orders_of(spec(), rows([0.5, 0.5, 0.5], [0.5, 0.8, 1.0]), "drawn")
    assert vague.verdict == "not decided"
    assert vague.sentence().startswith("crop and full cannot be told apart in worst group (+26.7 [")
    one, _ = orders_of(spec(), rows([0.1], [0.9], answers=True), "drawn")
    assert one.verdict == "one seed: not decided"
    assert one.sentence() == "crop and full cannot be told apart in worst group (+80.0, one seed)"
    assert one.by_image is not None
    assert one.by_image.sign == 1


def test_images_must_agree_with_seeds() -> None:
    """Three seeds that agree on a difference of one image in a hundred: their spread is small, the images' is not."""
    seeds_only, _ = orders_of(spec(), rows([0.5] * 3, [0.51, 0.51, 0.511]), "drawn")
    assert seeds_only.verdict == "holds"
    found, _ = orders_of(spec(), rows([0.5] * 3, [0.51, 0.51, 0.511], answers=True), "drawn")
    assert found.by_image is not None
    assert found.by_image.value == pytest.approx(0.01)
    assert found.by_image.low == 0  # one draw in twenty (e ** -3) takes none of the three images
    assert found.verdict == "not decided"
    assert "| crop > full | a paper | +1.0 [0.9, 1.2] | +1.0 [0.0, 2" in orders_table([found])
    assert orders_table([]) == ""


def test_only_seeds_of_both_count() -> None:
    found, _ = orders_of(spec(), rows([0.5, 0.5], [0.8, 0.8, 0.1]), "drawn")
    assert found.seeds == (0, 1)
    assert orders_of(spec(), rows([], [0.8]), "drawn") == []


def test_answers_survive_the_file_and_give_the_metrics_back(tmp_path: Path) -> None:
    data = fv.data.critters(train=200, target=8, val=8, test=96, size=32)
    predictions = np.random.default_rng(0).integers(0, 2, 96)
    report = group_report(predictions, data.test.labels, data.test.attributes, data.train.group_counts)
    kept = KeptHits.of(predictions, data.test, data.train.group_counts)
    assert kept is not None
    record = Record("s", "d", "x", "m", 0, {}, score=0.5, metrics={}, answers=kept.packed())
    again = KeptHits.unpacked(read_csv(write_csv(tmp_path / "r.csv", [record]))[0].answers)
    assert again is not None
    shares = {name: bits.mean() for name, bits in again.right.items()}
    assert min(shares.values()) == pytest.approx(report.worst_group)
    few = np.concatenate([again.right[name] for name in again.minority])
    assert few.mean() == pytest.approx(report.minority)
    assert KeptHits.unpacked({}) is None
    assert KeptHits.of(np.full(96, -1), data.test, None) is None  # unreadable: no pairs
    for odd in ({"right": {"a": "9:ff"}}, {"right": {"a": "x"}, "minority": []}, {"right": 1, "minority": []}):
        with pytest.raises(FoveateError, match="answers of a record"):
            KeptHits.unpacked(odd)


def test_figures_in_text(tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text("method,seed,miou,kp\nplain,0,0.5,10\nplain,1,0.6,20\n", encoding="utf-8")
    quoted = Quoted([(spec(), rows([0.5, 0.5, 0.6], [0.8, 0.78, 0.82]))], tmp_path)
    text = quoted.fill(
        "{mean small/drawn: full}, {seeds small/drawn:\n  crop | average}; {order small/drawn: crop > full}; "
        "{mean results/own: plain | miou}, {seeds results/own: plain | kp} and {not: this}"
    )
    assert text == (
        "53.3, 90.0 / 89.0 / 91.0; crop is above full in worst group (+26.7 [16.3, 37.0], 3 seeds); "
        "55.0, 10.0 / 20.0 and {not: this}"
    )
    assert quoted.fill("{order small/drawn: crop > full | average}") == (
        "crop is above full in average (+13.3 [8.2, 18.5], 3 seeds)"  # half of the other: average is 0.5 + half of it
    )
    for wrong, why in (
        ("{mean smal/drawn: full}", "Did you mean 'small'"), ("{mean small/drwn: full}", "Did you mean 'drawn'"),
        ("{mean small/drawn: fool}", "no record of 'fool'"), ("{order small/drawn: full > fool}", "add it to its"),
        ("{mean results/own: fancy | miou}", "no row 'fancy'"), ("{mean results/none: plain}", "none.csv"),
    ):  # fmt: skip
        with pytest.raises(FoveateError, match=why):
            quoted.fill(wrong)


def test_orders_of_studies_with_a_script_of_their_own(tmp_path: Path) -> None:
    """By hand: differences of 10, 20 and 30 points have the mean 20 and t(2) * 10 / sqrt(3) = 24.8 on either side."""
    lines = ["method,seed,worst_group,kp,miou"]
    for seed, (plain, changed) in enumerate([(0.5, 0.6), (0.5, 0.7), (0.5, 0.8)]):
        lines += [f"plain,{seed},{plain},20,0.5", f"changed,{seed},{changed},{10 - seed},0.{seed}"]
    (tmp_path / "own.csv").write_text("\n".join([*lines, "plain,7,0.1,20,0.5", "twice,0,0,0,0", "twice,0,0,0,0"]))
    quoted = Quoted([], tmp_path)
    assert quoted.fill("{order results/own: changed > plain}") == (
        "changed and plain cannot be told apart in worst group (+20.0 [-4.8, 44.8], 3 seeds)"
    )
    assert quoted.fill("{order results/own: plain > changed | miou}").startswith("plain is above changed in")
    assert "is above" in quoted.fill("{order results/own: changed > plain | kp}")  # a smaller error is better
    for wrong, why in (
        ("{order results/own: changed over plain}", "written 'A > B'"),
        ("{order results/own: changed > none}", "no row 'none'"),
        ("{seeds results/own: twice}", "several rows of 'twice' for one seed"),
    ):
        with pytest.raises(FoveateError, match=why):
            quoted.fill(wrong)


def test_summary_by_labels_taken() -> None:
    records = rows([0.5, 0.5, 0.5], [0.8, 0.78, 0.82])
    for record in records[3:]:
        record.supervision = "target: labels, groups; selection: group labels (worst_group)"
    assert summary_table([(spec(), records)]) == (
        "| learns | method | small, drawn: worst group | hours |\n| --- | --- | --- | --- |\n"
        "| without group labels | full | 50.0 [50.0, 50.0] | 1.5 |\n"
        "| with a balanced target set | crop | 80.0 [75.0, 85.0] | 1.5 |"
    )
    assert "| 50.0 (one seed) | 0.5 |" in summary_table([(spec(), records[:1])])
    assert summary_table([(spec(), [])]) == ""
    without = spec()
    without.methods["crop"].summary = False
    table = summary_table([(without, records)])
    assert "| full | 50.0 [50.0, 50.0] |" in table
    assert "crop" not in table


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("than: full, says", "than: ful, says"), "Did you mean 'full'"),
        (("than: crop}", "than: full}"), "compared with itself"),
        (("metric: worst_group", "metric: worst"), "metric"),
        (("than: crop}", "than: crop, datasets: [drwn]}"), "Did you mean 'drawn'"),
        (("than: crop}", "then: crop}"), "orders.1.then: unknown field"),
    ],
)
def test_mistakes_in_orders_are_named(change: tuple[str, str], why: str) -> None:
    with pytest.raises(FoveateError, match=why):
        parse_spec(SPEC.replace(*change))
