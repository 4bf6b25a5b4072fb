"""The figures of a trial for MLflow or TensorBoard, when asked for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from foveate.bench.records import Record
from foveate.errors import FoveateError, MissingExtra

LOGGERS = ("mlflow", "tensorboard")


def log_record(kind: str, record: Record, epochs: Sequence[dict[str, float]], runs: Path) -> None:
    """Write one finished trial to ``runs/mlruns`` (MLflow) or ``runs/tensorboard``."""
    if kind not in LOGGERS:
        raise FoveateError(f"cannot log to '{kind}'; known: {', '.join(LOGGERS)}.")
    name = f"{record.dataset}/{record.method}/{record.seed}/{record.key}"
    figures = {"score": record.score or 0.0, **record.metrics}
    curves = [
        (int(row["epoch"]), {k: v for k, v in row.items() if k != "epoch" and math.isfinite(v)}) for row in epochs
    ]
    settings = {**record.point, "seed": record.seed, "system": record.system, "commit": record.commit}
    if kind == "tensorboard":
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingExtra("tensorboard", "tensorboard", "logging to TensorBoard") from error
        with SummaryWriter(str(runs / "tensorboard" / record.spec / name)) as writer:
            for epoch, row in curves:
                for metric, value in row.items():
                    writer.add_scalar(metric, value, epoch)
            for metric, value in figures.items():
                writer.add_scalar(f"test/{metric}", value, 0)
            writer.add_text("settings", "\n".join(f"    {k}: {v}" for k, v in settings.items()))
        return
    try:
        import mlflow  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError as error:
        raise MissingExtra("mlflow", "mlflow", "logging to MLflow") from error
    mlflow.set_tracking_uri((runs / "mlruns").resolve().as_uri())
    mlflow.set_experiment(record.spec)
    with mlflow.start_run(run_name=name):
        mlflow.log_params(settings)
        for epoch, row in curves:
            mlflow.log_metrics(row, step=epoch)
        mlflow.log_metrics(figures)
