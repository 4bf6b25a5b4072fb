"""Optuna in memory: points and prunings are those of a study that Optuna itself had kept."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

pytest.importorskip("optuna", reason="sweeps need the extra [bench]")

import optuna

from foveate.bench.search import REDRAWS, Race, draws
from foveate.bench.spec import Method
from foveate.bench.standing import TrialRow
from foveate.bench.trial import Cell
from foveate.engine import derived_seed

CELL = Cell("critters", "m", 3)
SPACE = {"lr": {"low": 1e-4, "high": 1e-1, "log": True}, "width": {"low": 2, "high": 9}}
GRID = {"layers": [[1, 1], [2, 2]], "name": ["a", "b"]}


def method(**more: Any) -> Method:
    return Method(**{"system": "ERM", "search": "tpe", "trials": 20, "space": SPACE, "grid": GRID, **more})


def row(
    slot: int, point: dict[str, Any] | None, score: float | None = None, state: str = "done", **more: Any
) -> TrialRow:
    return TrialRow(f"k{slot}", "d", CELL, point, state, score, slot, "m", "", "", 0.0, 0, **more)


def score_of(point: dict[str, Any]) -> float:
    return -abs(point["lr"] - 0.01) - 0.1 * point["width"]


def test_tpe_draws_what_optuna_draws_after_the_same_trials() -> None:
    chosen, rows = method(), []
    theirs = optuna.create_study(direction="maximize")
    kinds = {
        "layers": optuna.distributions.CategoricalDistribution(["[1, 1]", "[2, 2]"]),
        "name": optuna.distributions.CategoricalDistribution(["a", "b"]),
        "lr": optuna.distributions.FloatDistribution(1e-4, 1e-1, log=True),
        "width": optuna.distributions.IntDistribution(2, 9),
    }
    for slot in range(16):  # after 10 trials TPE no longer draws at random
        point = next(draws(chosen, "name", 3, slot, rows))
        assert point == next(draws(chosen, "name", 3, slot, rows[::-1]))
        theirs.sampler = optuna.samplers.TPESampler(seed=derived_seed(3, slot))
        asked = theirs.ask(kinds)
        assert {**point, "layers": str(point["layers"])} == asked.params
        state = "failed" if slot == 4 else "done"
        rows.append(row(slot, point, score_of(point), state))
        theirs.tell(asked, *([] if state == "failed" else [score_of(point)]), **(
            {"state": optuna.trial.TrialState.FAIL} if state == "failed" else {}
        ))  # fmt: skip
    best = max(rows, key=lambda r: r.score or 0.0)
    assert best.point is not None
    assert chosen.asks(best.point)
    # slots that nobody has taken yet are no evidence
    assert next(draws(chosen, "name", 3, 14, rows[:12])) == next(
        draws(chosen, "name", 3, 14, [*rows[:12], row(13, None)])
    )


def test_random_draws_depend_on_seed_and_slot_alone() -> None:
    chosen = method(search="random")
    points = [next(draws(chosen, "name", 3, slot, ())) for slot in range(6)]
    for slot, point in enumerate(points):
        theirs = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=derived_seed(3, slot)))
        asked = theirs.ask()
        assert point == {
            "layers": json.loads(asked.suggest_categorical("layers", ["[1, 1]", "[2, 2]"])),
            "name": asked.suggest_categorical("name", ["a", "b"]),
            "lr": asked.suggest_float("lr", 1e-4, 1e-1, log=True),
            "width": asked.suggest_int("width", 2, 9),
        }  # fmt: skip
        assert chosen.asks(point)
    turns = list(draws(chosen, "name", 3, 0, ()))
    assert len(turns) == REDRAWS
    assert turns[0] == points[0]
    assert len({str(point) for point in turns}) > REDRAWS // 2


def test_a_space_that_was_narrowed_no_longer_asks_for_what_lies_outside() -> None:
    point = {"layers": [1, 1], "name": "a", "lr": 0.05, "width": 3}
    assert method().asks(point)
    assert not method(space={**SPACE, "lr": {"low": 1e-4, "high": 1e-2, "log": True}}).asks(point)
    assert not method(grid={**GRID, "name": ["b"]}).asks(point)


@pytest.mark.parametrize("kind", ["median", "halving", "hyperband"])
def test_pruning_is_that_of_a_study_optuna_keeps(kind: str) -> None:
    """Trials one after the other, and two at a time: every verdict is the one of one long-lived study."""
    pruners = {
        "median": optuna.pruners.MedianPruner, "halving": optuna.pruners.SuccessiveHalvingPruner,
        "hyperband": optuna.pruners.HyperbandPruner,
    }  # fmt: skip
    size, epochs, rng = 24, 9, random.Random(0)
    chosen = method(prune=kind, trials=size)
    curves = [[rng.random() * (epoch + 1) for epoch in range(epochs)] for _ in range(size)]
    theirs = optuna.create_study(direction="maximize", study_name="name", pruner=pruners[kind]())
    asked = [theirs.ask() for _ in range(size)]
    rows: dict[int, TrialRow] = {}
    verdicts = []
    for slot in range(size):
        race, state, seen = Race(chosen, "name", size), "done", []
        for epoch, score in enumerate(curves[slot], 1):
            seen.append(score)
            race.follow({n: r for n, r in rows.items() if n != slot})
            asked[slot].report(score, epoch)
            verdict = race.lags(slot, epoch, score)
            assert verdict == asked[slot].should_prune(), (slot, epoch)
            if verdict:
                state = "pruned"
                break
        theirs.tell(
            asked[slot], *([seen[-1]] if state == "done" else []),
            **({} if state == "done" else {"state": optuna.trial.TrialState.PRUNED}),
        )  # fmt: skip
        rows[slot] = row(slot, {}, seen[-1], state, reports=tuple(seen))
        verdicts.append(state)
    assert {"done", "pruned"} == {*verdicts}


def test_a_race_follows_others_that_are_still_running() -> None:
    race = Race(method(prune="halving", trials=5), "name", 5)
    done = row(0, {}, 5.0, reports=(3.0, 4.0, 5.0))
    race.follow({0: done, 1: row(1, {}, state="running", reports=(9.0,))})
    race.follow({0: done, 1: row(1, {}, state="running", reports=(9.0, 9.5))})
    assert [t.state.name for t in race.study.trials] == ["COMPLETE"] + ["RUNNING"] * 4
    assert race.study.trials[1].intermediate_values == {1: 9.0, 2: 9.5}
    assert race.lags(2, 1, 1.0)  # far behind the one that runs
    race.follow({1: row(1, {}, state="running")})  # its worker died and it was begun anew
    race.follow({1: row(1, {}, 9.9, reports=(9.0, 9.5, 9.9))})
    assert race.study.trials[1].value == 9.9
