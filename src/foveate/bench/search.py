"""What Optuna is asked: to draw a point, and whether a trial lags behind. It keeps nothing.

Its studies live in memory and are made from the rows of the table when a question comes up, so the answer depends on
the seed and the rows alone, and there is no second state that could disagree with the table.
"""

from __future__ import annotations

import json
import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from foveate.bench.spec import Method
from foveate.bench.standing import TrialRow
from foveate.engine import derived_seed
from foveate.errors import MissingExtra

REDRAWS = 20
"""So often another point is drawn when the first one is there already."""


def import_optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise MissingExtra("optuna", "bench", "a random or TPE search, or pruning,") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


def draws(method: Method, name: str, seed: int, slot: int, rows: Iterable[TrialRow]) -> Iterator[dict[str, Any]]:
    """Points for a slot of a ``random`` or ``tpe`` search, one after the other until one is taken.

    Args:
        method: whose search it is.
        name: of the cell; ``hyperband`` sorts trials by it.
        seed: of the cell.
        slot: which of its trials.
        rows: those of the same search; TPE learns from the slots before this one.

    >>> method = Method(system="ERM", search="random", trials=2, space={"lr": {"low": 0.1, "high": 0.2}})
    >>> first, second, again = (next(draws(method, "x", 0, slot, ()))["lr"] for slot in (0, 1, 0))
    >>> 0.1 <= first <= 0.2, first == second, first == again
    (True, False, True)
    """
    optuna = import_optuna()
    study, distributions = _study(optuna, method, name), _distributions(optuna, method)
    if method.search == "tpe":
        before = {row.slot: row for row in rows if row.point is not None and row.state != "same"}
        for number in range(slot):  # trials are numbered as the slots are, gaps included
            row = before.get(number)
            if row is None or row.point is None:
                study.ask()
                continue
            study.enqueue_trial({n: _encode(v) for n, v in row.point.items()})
            with warnings.catch_warnings():  # a range may have been narrowed since
                warnings.simplefilter("ignore")
                trial = study.ask(distributions)
            for step, score in enumerate(row.reports, 1):
                trial.report(score, step)
            _tell(study, trial, row)
    for turn in range(REDRAWS):
        chosen = derived_seed(seed, slot, turn) if turn else derived_seed(seed, slot)
        kinds = {"tpe": optuna.samplers.TPESampler, "random": optuna.samplers.RandomSampler}
        study.sampler = kinds[method.search](seed=chosen)
        yield _decoded(method, study.ask(distributions).params)


class Race:
    """The trials of a cell that are pruned: each is compared with the others at the same epoch.

    Args:
        method: whose search it is, with ``prune``.
        name: of the cell.
        size: how many slots it has.
    """

    def __init__(self, method: Method, name: str, size: int):
        self.optuna = import_optuna()
        self.study = _study(self.optuna, method, name)
        self.trials = [self.study.ask() for _ in range(size)]
        self._known = [0] * size
        self._told = [False] * size

    def follow(self, others: Mapping[int, TrialRow]) -> None:
        """Bring the other slots up to date: what they have reported, and which of them are over."""
        for slot, row in sorted(others.items(), key=lambda item: (not item[1].over, item[0])):
            if slot >= len(self.trials) or self._told[slot]:
                continue
            trial = self.trials[slot]
            for step in range(self._known[slot], len(row.reports)):
                trial.report(row.reports[step], step + 1)
                trial.should_prune()  # pruners by halves take note of every trial when it is asked about
            self._known[slot] = max(self._known[slot], len(row.reports))  # a trial begun anew has fewer for a while
            if row.over:
                _tell(self.study, trial, row)
                self._told[slot] = True

    def lags(self, slot: int, epoch: int, score: float) -> bool:
        """Report a score of one's own trial (larger is better); True when it should be ended."""
        self.trials[slot].report(score, epoch)
        return bool(self.trials[slot].should_prune())


def _study(optuna: Any, method: Method, name: str) -> Any:
    pruners = optuna.pruners
    kinds = {
        None: pruners.NopPruner, "median": pruners.MedianPruner, "halving": pruners.SuccessiveHalvingPruner,
        "hyperband": pruners.HyperbandPruner,
    }  # fmt: skip
    sampler = optuna.samplers.RandomSampler(seed=0)
    return optuna.create_study(direction="maximize", study_name=name, sampler=sampler, pruner=kinds[method.prune]())


def _tell(study: Any, trial: Any, row: TrialRow) -> None:
    states = import_optuna().trial.TrialState
    if row.state == "pruned":
        study.tell(trial, state=states.PRUNED)
    elif row.state == "done" and row.score is not None and math.isfinite(row.score):
        study.tell(trial, row.score)
    elif row.over:
        study.tell(trial, state=states.FAIL)


def _distributions(optuna: Any, method: Method) -> dict[str, Any]:
    kinds = optuna.distributions
    found: dict[str, Any] = {}
    for name, values in method.grid.items():
        found[name] = kinds.CategoricalDistribution([_encode(v) for v in values])
    for name, limits in method.space.items():
        if isinstance(limits.low, int) and isinstance(limits.high, int):
            step = int(limits.step or 1)
            found[name] = kinds.IntDistribution(limits.low, limits.high, log=limits.log, step=step)
        else:
            found[name] = kinds.FloatDistribution(limits.low, limits.high, log=limits.log, step=limits.step)
    return found


def _encode(value: Any) -> Any:
    """Optuna keeps plain values; a list or a mapping goes as JSON."""
    return value if value is None or isinstance(value, (bool, int, float, str)) else json.dumps(value, sort_keys=True)


def _decoded(method: Method, drawn: dict[str, Any]) -> dict[str, Any]:
    plain = {name: next(v for v in values if _encode(v) == drawn[name]) for name, values in method.grid.items()}
    return {**plain, **{name: drawn[name] for name in method.space}}
