"""Figures for TensorBoard and MLflow: what was measured arrives under the right names."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from foveate.bench.logging_to import log_record
from foveate.bench.records import Record
from foveate.errors import FoveateError, MissingExtra

RECORD = Record(
    "study", "d", "critters", "DAR", 1, {"lr": 0.1}, system="DAR", score=0.75, metrics={"average": 0.5}, commit="c0"
)
EPOCHS = [{"epoch": 0.0, "loss": 1.5}, {"epoch": 1.0, "loss": float("nan"), "minority": 0.25}]
NAME = f"critters/DAR/1/{RECORD.key}"


def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="logging to TensorBoard needs the extra [tensorboard]")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log_record("tensorboard", RECORD, EPOCHS, tmp_path)
    found = EventAccumulator(str(tmp_path / "tensorboard" / "study" / NAME))
    found.Reload()
    scalars = {tag: [(e.step, e.value) for e in found.Scalars(tag)] for tag in found.Tags()["scalars"]}
    assert scalars == {
        "loss": [(0, 1.5)],  # what is not a number is left out
        "minority": [(1, 0.25)],
        "test/score": [(0, 0.75)],
        "test/average": [(0, 0.5)],
    }
    (text,) = found.Tensors("settings/text_summary")
    assert b"lr: 0.1" in text.tensor_proto.string_val[0]


def test_mlflow_by_a_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    module: Any = ModuleType("mlflow")

    @contextlib.contextmanager
    def start_run(run_name: str) -> Iterator[None]:
        calls.append(("start", run_name))
        yield
        calls.append("end")

    module.start_run = start_run
    for name in ("set_tracking_uri", "set_experiment", "log_params"):
        setattr(module, name, lambda value, name=name: calls.append((name, value)))
    module.log_metrics = lambda values, step=None: calls.append(("log_metrics", values, step))
    monkeypatch.setitem(sys.modules, "mlflow", module)
    log_record("mlflow", RECORD, EPOCHS, tmp_path)
    assert calls == [
        ("set_tracking_uri", (tmp_path / "mlruns").resolve().as_uri()),
        ("set_experiment", "study"),
        ("start", NAME),
        ("log_params", {"lr": 0.1, "seed": 1, "system": "DAR", "commit": "c0"}),
        ("log_metrics", {"loss": 1.5}, 0),
        ("log_metrics", {"minority": 0.25}, 1),
        ("log_metrics", {"score": 0.75, "average": 0.5}, None),
        "end",
    ]


@pytest.mark.parametrize(("kind", "package"), [("mlflow", "mlflow"), ("tensorboard", "torch.utils.tensorboard")])
def test_what_is_missing_is_named(kind: str, package: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"'{kind}', which is not installed.*pip install 'foveate\[{kind}\]'"):
        log_record(kind, RECORD, EPOCHS, tmp_path)


def test_unknown(tmp_path: Path) -> None:
    with pytest.raises(FoveateError, match="known: mlflow, tensorboard"):
        log_record("paper", RECORD, EPOCHS, tmp_path)
