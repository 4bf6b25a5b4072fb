"""The search of every cell as an Optuna study, made so that a kill at any moment loses and doubles nothing.

A cell (dataset, method, seed) is one Optuna study with a fixed number of *slots*, each a trial that waits in Optuna's
queue: for a grid the points are known when it is queued, otherwise the sampler fills them in when a worker takes the
slot. What can happen, and why it does no harm:

- killed while running: the trial is found RUNNING without a living worker; it is closed and its slot queued again
  with the same point.
- killed after the record was written and before Optuna was told: the record is there under the trial's key, so the
  trial is told complete from it and is not run again.
- killed while slots were queued, or closed and not yet queued again: every slot without a trial that counts is
  queued, so doing it again does nothing.
- the same trial run twice (a machine that was thought dead comes back): both give the same key; the second record is
  not taken.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from foveate.bench.records import Record, Records, database_url, engine_options, record_key, tune
from foveate.bench.spec import Method, Spec
from foveate.bench.trial import Cell, cells
from foveate.bench.workers import Liveness
from foveate.engine import derived_seed
from foveate.errors import MissingExtra, StorageError

UNCLAIMED = 15.0
"""Seconds a trial may be RUNNING without a worker's name on it."""
ATTEMPTS = 3
"""So many times a slot is tried when its workers die on it (for instance for want of memory)."""


def import_optuna() -> Any:
    try:
        import optuna
    except ImportError as error:
        raise MissingExtra("optuna", "bench", "a sweep") from error
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna


class Sweep:
    """The Optuna studies of a spec in one storage, and the records beside them.

    Args:
        spec: what to run.
        storage: a file (SQLite) or a PostgreSQL URL.
        unclaimed: see :data:`UNCLAIMED`.
    """

    def __init__(self, spec: Spec, storage: str | Path, unclaimed: float = UNCLAIMED):
        import sqlalchemy as sa

        self.optuna = import_optuna()
        self.spec = spec
        self.records = Records(storage)  # makes the folder and explains a storage that cannot be opened
        self.url = database_url(storage)
        self.unclaimed = unclaimed
        self.cells = cells(spec)
        self.digests = {(d, m): spec.digest(d, m) for d in spec.sets() for m in spec.methods}
        self.finished: set[Cell] = set()
        self.crashed: set[str] = set()
        """Workers (``host:number``) that died while their coordinator lived: what they ran may be to blame."""
        self._counted: dict[Cell, dict[str, int]] = {}
        self._studies: dict[Cell, Any] = {}
        table = sa.Table(
            "foveate_workers", sa.MetaData(),
            sa.Column("name", sa.String(128), primary_key=True), sa.Column("seen", sa.Float),
        )  # fmt: skip
        self.workers = table
        with self.mutex():  # two processes that make the tables at once get in each other's way
            self.store = self.optuna.storages.RDBStorage(self.url, engine_kwargs=engine_options(self.url))
            tune(self.store.engine, immediate=True)
            table.create(self.records.engine, checkfirst=True)

    # -- studies and slots ----------------------------------------------------------------

    def study(self, cell: Cell) -> Any:
        """The Optuna study of a cell, made when it is first asked for."""
        if cell not in self._studies:
            method = self.spec.methods[cell.method]
            self._studies[cell] = self.optuna.create_study(
                storage=self.store,
                study_name=self.name(cell),
                direction="maximize",
                load_if_exists=True,
                pruner=self._pruner(method),
            )
        return self._studies[cell]

    def _pruner(self, method: Method) -> Any:
        pruners = self.optuna.pruners
        kinds = {"median": pruners.MedianPruner, "halving": pruners.SuccessiveHalvingPruner}
        if method.prune == "hyperband":
            return pruners.HyperbandPruner()
        return kinds[method.prune]() if method.prune else pruners.NopPruner()

    def name(self, cell: Cell) -> str:
        """What a cell's study is called."""
        # Optuna does not let a study's search change: another grid is another study, and done points are in the records
        method = self.spec.methods[cell.method]
        search = json.dumps(method.model_dump(include={"grid", "space", "search", "prune"}), default=str)
        mark = hashlib.blake2b(search.encode(), digest_size=4).hexdigest()
        return f"{self.spec.name}/{cell}/{self.digests[cell.dataset, cell.method]}/{mark}"

    def counts(self) -> dict[str, dict[str, int]]:
        """Trials by study and state, in one query: Optuna's own way reads every trial of every study."""
        query = (
            "SELECT s.study_name, t.state, count(*) FROM studies s JOIN trials t ON t.study_id = s.study_id "
            "GROUP BY s.study_name, t.state"
        )
        found: dict[str, dict[str, int]] = {}
        with self.records.engine.connect() as connection:
            for name, state, count in connection.exec_driver_sql(query):
                found.setdefault(name, {})[state] = count
        return found

    def trials(self, cell: Cell) -> list[Any]:
        return self.study(cell).get_trials(deepcopy=False)

    def waits_for(self, cell: Cell) -> list[Cell]:
        """The cells whose results this one needs."""
        method, first = self.spec.methods[cell.method], self.spec.seeds_of(cell.dataset)[0]
        found = [Cell(cell.dataset, "base", cell.seed)] if method.post_hoc else []
        if method.searches_once and cell.seed != first:
            found.append(Cell(cell.dataset, cell.method, first))
        return found

    def slots(self, cell: Cell, rows: list[Record] | None = None) -> list[dict[str, Any]]:
        """What each slot of a cell has fixed: grid points whole, what a sampler draws empty."""
        method = self.spec.methods[cell.method]
        if method.searches_once and cell.seed != (first := self.spec.seeds_of(cell.dataset)[0]):
            best = self.best(Cell(cell.dataset, cell.method, first), rows)
            return [] if best is None else [{"point": best.point}]
        if method.search == "grid":
            return [{"point": point} for point in method.points()]
        return [{} for _ in range(method.trials or 0)]

    def best(self, cell: Cell, rows: list[Record] | None = None) -> Record | None:
        """The record the selection metric chose among a cell's trials, or None when none was finished."""
        rows = self.records.all(self.spec.name) if rows is None else rows
        asked = [r for r in rows if r.method == cell.method and self.spec.methods[cell.method].asks(dict(r.point))]
        return choose(asked, cell, self.digests[cell.dataset, cell.method])

    # -- looking after the queue (one process at a time) ------------------------------------

    def maintain(self) -> bool:
        """Queue what is ready, take back what dead workers held; True when nothing is left to do."""
        with self.mutex():
            left = [c for c in self.cells if c not in self.finished]
            dead, rows, counts = Liveness(self), self.records.all(self.spec.name), self.counts()
            for cell in left:
                needed = self.waits_for(cell)
                if any(n not in self.finished for n in needed):
                    continue
                if needed and any(self.best(n, rows) is None for n in needed):
                    self.finished.add(cell)  # what it needs has failed: it cannot be run
                    continue
                now = counts.get(self.name(cell), {})
                if "RUNNING" in now or not now or now != self._counted.get(cell):
                    self._maintain(cell, dead, rows)
                    self._counted[cell] = now
        return len(self.finished) == len(self.cells)

    def _maintain(self, cell: Cell, dead: Liveness, rows: list[Record]) -> None:
        states = self.optuna.trial.TrialState
        study, slots = self.study(cell), self.slots(cell, rows)
        held: dict[int, list[Any]] = {n: [] for n in range(len(slots))}
        lost: dict[int, Any] = {}
        for trial in self.trials(cell):
            slot = trial.user_attrs.get("slot", -1)
            if trial.state == states.RUNNING and dead(trial):
                self._close(trial)
                trial = self.store.get_trial(trial._trial_id)
            if trial.state == states.FAIL and "error" not in trial.user_attrs:
                lost[slot] = trial
            elif slot in held:
                held[slot].append(trial)
        for number, fixed in enumerate(slots):
            if held[number]:
                continue
            before = lost.get(number)
            attrs = {"slot": number, "attempt": 1, **fixed}
            if before is not None:
                attrs |= {k: before.user_attrs[k] for k in ("point",) if k in before.user_attrs}
                blamed = before.user_attrs.get("worker", "").rpartition(":")[0] in self.crashed
                attrs["attempt"] = before.user_attrs.get("attempt", 1) + blamed
            study.enqueue_trial({}, user_attrs=attrs)
        over = (states.COMPLETE, states.PRUNED, states.FAIL)
        if slots and all(any(t.state in over for t in held[n]) for n in held):
            self.finished.add(cell)

    def _close(self, trial: Any) -> None:
        """End a trial whose worker is gone: complete when its record is there, else lost (its slot is queued again)."""
        states = self.optuna.trial.TrialState
        key = trial.user_attrs.get("key")
        record = self.records.get(key) if key else None
        with contextlib.suppress(self.optuna.exceptions.UpdateFinishedTrialError):
            if record is not None:
                self._tell(trial._trial_id, record)
            else:
                self.store.set_trial_state_values(trial._trial_id, state=states.FAIL)

    def retry_failed(self) -> int:
        """Forget failed trials, so that they are run again; how many there were."""
        states = self.optuna.trial.TrialState
        failed = [r for r in self.current() if r.state == "failed"]
        self.records.remove(failed)
        keys = {r.key for r in failed}
        for cell in {Cell(*r.cell) for r in failed}:
            again = [t for t in self.trials(cell) if t.state == states.FAIL and t.user_attrs.get("key") in keys]
            name = self.study(cell).study_name
            kept = [t for t in self.trials(cell) if t not in again]
            # finished trials cannot be taken back in Optuna, so the study is made anew with the others
            self.optuna.delete_study(study_name=name, storage=self.store)
            self._studies.pop(cell)
            self.study(cell).add_trials(kept)
        return len(failed)

    def current(self) -> list[Record]:
        """The records that belong to the spec as it is now."""
        wanted = {(c.dataset, c.method, c.seed): self.digests[c.dataset, c.method] for c in self.cells}
        return [
            r for r in self.records.all(self.spec.name)
            if wanted.get(r.cell) == r.digest and self.spec.methods[r.method].asks(dict(r.point))
        ]  # fmt: skip

    # -- taking and finishing trials (any number of workers) --------------------------------

    def claim(self, worker: str) -> tuple[Cell, Any] | None:
        """Take a waiting trial of any cell, or None when none waits now."""
        states = self.optuna.trial.TrialState
        counts = self.counts()
        for cell in self.cells:
            if "WAITING" not in counts.get(self.name(cell), {}):
                continue
            trials = self.trials(cell)
            for trial in (t for t in trials if t.state == states.WAITING):
                try:
                    # nobody who looks after the queue may find it running without a name, however slow this process is:
                    # it would be taken for one that died here, and be run a second time beside this one
                    with self.mutex():
                        if not self.store.set_trial_state_values(trial._trial_id, state=states.RUNNING):
                            continue  # another worker was quicker
                        self.store.set_trial_user_attr(trial._trial_id, "worker", worker)
                    return cell, self._sampled(cell, trial)
                except self.optuna.exceptions.UpdateFinishedTrialError:
                    continue  # taken back meanwhile; its slot waits again
        return None

    def _sampled(self, cell: Cell, frozen: Any) -> Any:
        """The Optuna trial of a slot with its point drawn and written down together with the record's key."""
        method, study = self.spec.methods[cell.method], self.study(cell)
        point = frozen.user_attrs.get("point")
        slot = frozen.user_attrs["slot"]
        samplers = self.optuna.samplers
        seed = derived_seed(cell.seed, slot)
        study.sampler = samplers.TPESampler(seed=seed) if method.search == "tpe" else samplers.RandomSampler(seed=seed)
        if point is not None:  # Optuna takes a fixed value where there is one
            self.store.set_trial_system_attr(
                frozen._trial_id, "fixed_params", {n: _encode(v) for n, v in point.items()}
            )
        trial = self.optuna.trial.Trial(study, frozen._trial_id)
        drawn = _suggest(trial, method, point)
        self.store.set_trial_user_attr(frozen._trial_id, "point", drawn)
        key = record_key(self.digests[cell.dataset, cell.method], cell.dataset, cell.method, drawn, cell.seed)
        self.store.set_trial_user_attr(frozen._trial_id, "key", key)
        return trial

    def finish(self, trial: Any, record: Record) -> None:
        """Write the record (one transaction, taken once) and tell Optuna; in this order, so that a kill in between
        leaves a trial that is completed from its record.

        A failure of a worker that was thought dead, and whose trial another one has now, is not written: it may have
        failed because the other one cleared its files away."""
        if record.state == "failed" and self.store.get_trial(trial._trial_id).state.is_finished():
            return
        self.records.add(record)
        with contextlib.suppress(self.optuna.exceptions.UpdateFinishedTrialError):
            self._tell(trial._trial_id, record)

    def _tell(self, number: int, record: Record) -> None:
        states = self.optuna.trial.TrialState
        if record.state == "failed":
            self.store.set_trial_user_attr(number, "error", record.error[-1500:] or "failed")
            self.store.set_trial_state_values(number, state=states.FAIL)
        elif record.state == "pruned":
            self.store.set_trial_state_values(number, state=states.PRUNED)
        else:
            self.store.set_trial_state_values(number, state=states.COMPLETE, values=[record.score or 0.0])

    # -- who is alive ---------------------------------------------------------------------

    @contextlib.contextmanager
    def mutex(self) -> Iterator[None]:
        """One process at a time, on this machine (SQLite) or everywhere (PostgreSQL); let go when its holder dies."""
        if self.url.startswith("sqlite"):
            import fcntl

            path = self.url.removeprefix("sqlite:///") + ".lock"
            try:
                handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except OSError as error:
                raise StorageError(f"cannot write beside {path}: {error.strerror}.") from error
            try:
                fcntl.flock(handle, fcntl.LOCK_EX)
                yield
            finally:
                os.close(handle)
            return
        with self.records.engine.connect() as connection:
            connection.exec_driver_sql("SELECT pg_advisory_lock(7065)")
            try:
                yield
            finally:
                connection.exec_driver_sql("SELECT pg_advisory_unlock(7065)")

    def now(self) -> float:
        """The database's clock: machines need not agree on the time."""
        sqlite = self.url.startswith("sqlite")
        query = "SELECT (julianday('now') - 2440587.5) * 86400.0" if sqlite else "SELECT extract(epoch FROM now())"
        with self.records.engine.connect() as connection:
            return float(connection.exec_driver_sql(query).scalar())

    def sign_of_life(self, worker: str) -> None:
        """Write down that ``worker`` is alive."""
        with self.records.engine.begin() as connection:
            connection.execute(self.workers.delete().where(self.workers.c.name == worker))
            connection.execute(self.workers.insert().values(name=worker, seen=self.now()))

    def seen(self) -> dict[str, float]:
        with self.records.engine.connect() as connection:
            return {name: seen for name, seen in connection.execute(self.workers.select())}


def choose(rows: list[Record], cell: Cell, digest: str | None = None) -> Record | None:
    """The best finished record of a cell by its validation score (the first point of equally good ones)."""
    mine = [
        r for r in rows if r.cell == (cell.dataset, cell.method, cell.seed) and r.state == "done"
        and (digest is None or r.digest == digest)
    ]  # fmt: skip
    mine.sort(key=lambda r: json.dumps(r.point, sort_keys=True, default=str))
    return max(mine, key=lambda r: -float("inf") if r.score is None else r.score, default=None)


def _encode(value: Any) -> Any:
    """Optuna keeps plain values; a list or a mapping goes as JSON."""
    return value if value is None or isinstance(value, (bool, int, float, str)) else json.dumps(value, sort_keys=True)


def _suggest(trial: Any, method: Method, point: dict[str, Any] | None) -> dict[str, Any]:
    """The point of a trial: as fixed, or drawn by the study's sampler."""
    drawn: dict[str, Any] = {}
    for name, values in method.grid.items():
        if point is not None and name in point and point[name] not in values:
            continue
        encoded = trial.suggest_categorical(name, [_encode(v) for v in values])
        drawn[name] = next(v for v in values if _encode(v) == encoded)
    for name, limits in method.space.items():
        if isinstance(limits.low, int) and isinstance(limits.high, int):
            drawn[name] = trial.suggest_int(name, limits.low, limits.high, step=int(limits.step or 1), log=limits.log)
        else:
            drawn[name] = trial.suggest_float(name, limits.low, limits.high, step=limits.step, log=limits.log)
    return drawn if point is None else point
