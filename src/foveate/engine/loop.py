"""The training loop: Lightning Fabric underneath, one function on top."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from foveate.data.loading import Batch
from foveate.engine.bf16 import require_bf16
from foveate.engine.callbacks import Callback, EpochEnd, StopTraining
from foveate.engine.checkpoint import load_checkpoint, save_checkpoint
from foveate.engine.devices import default_device, part_at_exit
from foveate.engine.ema import RunningMean
from foveate.engine.feed import Feed, Indices
from foveate.engine.plan import Fixed, Piece, Plan, Shuffled, in_parts
from foveate.engine.progress import Progress
from foveate.engine.quick import Compiled, channels_last, chosen_precision
from foveate.engine.schedule import rate_factor
from foveate.engine.seeds import random_state, restore_random_state
from foveate.engine.selection import Selection
from foveate.engine.settings import TrainSettings
from foveate.errors import FoveateError, TrainingStopped

log = logging.getLogger("foveate")

Objective = Callable[[nn.Module, Batch], Tensor]
"""``objective(model, batch) -> scalar loss``. An ``nn.Module`` may keep state; it is checkpointed."""


def cross_entropy(model: nn.Module, batch: Batch) -> Tensor:
    """Mean cross-entropy of a batch: what ERM minimises."""
    return F.cross_entropy(model(batch.inputs), batch.labels)


@dataclass
class History:
    """What happened: one row an epoch, the selected epoch, and how it was selected."""

    epochs: list[dict[str, float]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)
    best_epoch: int | None = None
    best_score: float | None = None
    selection: dict[str, Any] | None = None
    seconds: float = 0.0

    def chosen(self) -> dict[str, float] | None:
        """Every metric of the selected epoch on the validation data, by name; None when there was no selection."""
        row = next((r for r in self.epochs if r["epoch"] == self.best_epoch), {})
        return {k.removeprefix("val_"): v for k, v in row.items() if k.startswith("val_")} or None

    def to_dict(self) -> dict[str, Any]:
        return {
            "epochs": self.epochs, "best_epoch": self.best_epoch, "best_score": self.best_score,
            "selection": self.selection, "seconds": round(self.seconds, 2),
        }  # fmt: skip


def parameter_groups(model: nn.Module, weight_decay: float, lr_scale: float = 1.0) -> list[dict[str, Any]]:
    """Trainable parameters in two groups: matrices with weight decay, biases and norms without."""
    matrices = [p for p in model.parameters() if p.requires_grad and p.ndim > 1]
    vectors = [p for p in model.parameters() if p.requires_grad and p.ndim <= 1]
    groups = [
        {"params": matrices, "weight_decay": weight_decay, "lr_scale": lr_scale},
        {"params": vectors, "weight_decay": 0.0, "lr_scale": lr_scale},
    ]
    return [g for g in groups if g["params"]]


def _optimizer(settings: TrainSettings, groups: list[dict[str, Any]]) -> torch.optim.Optimizer:
    if not groups:
        raise TrainingStopped("there is nothing to train: every parameter of the model is frozen.")
    # foreach takes the same steps to the last bit with fewer calls; fused ones round differently and gain nothing here
    if settings.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=settings.lr, momentum=settings.momentum, foreach=True)
    kind = torch.optim.AdamW if settings.optimizer == "adamw" else torch.optim.Adam
    return kind(groups, lr=settings.lr, foreach=True)


def train(
    model: nn.Module,
    feed: Feed,
    settings: TrainSettings,
    *,
    objective: Objective = cross_entropy,
    plan: Plan | None = None,
    select: Selection | None = None,
    groups: list[dict[str, Any]] | None = None,
    on_epoch: Callable[[int, nn.Module], None] | None = None,
    title: str = "training",
    record: Mapping[str, Any] | None = None,
    callbacks: Sequence[Callback] = (),
) -> History:
    """Train ``model`` in place and leave it with the selected weights.

    Modules that are frozen (no parameter requires a gradient) are kept in evaluation mode, so that the
    BatchNorm statistics of a frozen backbone do not move.

    Args:
        model: maps ``batch.inputs`` to logits. Methods named in its ``forward_methods`` may be called by the
            objective too.
        feed: training data.
        settings: how to train.
        objective: the loss of a batch.
        plan: which items make up each batch; by default every item once an epoch, shuffled.
        select: keep the best epoch by this (the latest of equally good ones); without it the last epoch stays.
        groups: parameter groups with an optional ``lr_scale`` each; by default all trainable parameters.
        on_epoch: called after every epoch with its number and the model.
        title: what the progress bar says.
        record: whatever else must agree (the method and its settings) for a checkpoint to be resumed; plain values.
        callbacks: called in turn with an :class:`~foveate.engine.EpochEnd` after every epoch, validation included and
            before the checkpoint is written; :class:`~foveate.engine.StopTraining` ends the training.

    Features instead of images, and a linear layer to train on them:

    >>> import foveate as fv
    >>> from foveate.engine import TensorFeed
    >>> data = fv.data.critters(train=40, target=16, val=16, test=16, size=32).train
    >>> features = F.one_hot(torch.from_numpy(data.labels), 2).float()  # [N, 2]
    >>> model = nn.Linear(2, 2)
    >>> history = train(model, TensorFeed(features, data), TrainSettings(epochs=30, lr=0.1, progress=False))
    >>> len(history.epochs), history.losses[-1] < history.losses[0]
    (30, True)
    """
    from lightning_fabric import Fabric

    if settings.accumulate > 1 and isinstance(plan, Fixed):
        raise FoveateError(
            f"accumulate={settings.accumulate} cuts batches into parts, but this method compares the images of a batch "
            "with each other. Leave accumulate at 1."
        )
    precision = chosen_precision(settings.precision, default_device(settings.accelerator))
    try:
        fabric = Fabric(
            accelerator=settings.accelerator, devices=settings.devices, strategy=settings.strategy,
            precision=precision,  # type: ignore[arg-type]
        )  # fmt: skip
    except (ValueError, RuntimeError, TypeError) as error:
        raise FoveateError(f"accelerator, devices, strategy or precision do not fit this machine: {error}") from error
    if fabric.device.type == "cpu":
        require_bf16(precision)
    fabric.launch()
    part_at_exit()
    plan = plan or Shuffled(len(feed.dataset), settings.seed)
    with channels_last(model), Compiled(model, settings.compile) as compiled:
        optimizer = _optimizer(settings, groups or parameter_groups(model, settings.weight_decay))
        wrapped, optimizer = fabric.setup(model, optimizer)
        for method in getattr(model, "forward_methods", ()):
            wrapped.mark_forward_method(method)
        if isinstance(objective, nn.Module):
            objective.to(fabric.device)
        run = _Run(
            fabric, model, wrapped, optimizer, objective, plan, feed, settings, select, dict(record or {}), compiled
        )  # fmt: skip
        run.resume()
        run.go(title, on_epoch, callbacks)
        model.cpu()
    return run.history


class _Run:
    """The state of one call of :func:`train`."""

    def __init__(
        self, fabric: Any, model: nn.Module, wrapped: nn.Module, optimizer: torch.optim.Optimizer,
        objective: Objective, plan: Plan, feed: Feed, settings: TrainSettings, select: Selection | None,
        record: dict[str, Any], compiled: Compiled,
    ):  # fmt: skip
        self.record, self.compiled = record, compiled
        self.fabric, self.model, self.wrapped, self.optimizer = fabric, model, wrapped, optimizer
        self.objective, self.plan, self.feed, self.settings, self.select = (
            objective,
            plan,
            feed,
            settings,
            select,
        )
        self.history = History(selection=None if select is None else select.describe())
        self.best: dict[str, Tensor] | None = None
        self.epoch = 0
        self.improved = 0
        self.stopped = False
        self.steps = [len(self._batches(e)) for e in range(settings.epochs)]
        self.mean = None if settings.ema is None else RunningMean(model, settings.ema)
        self.rate = settings.lr
        if settings.reference_batch is not None:
            whole = settings.batch_size * settings.accumulate * fabric.world_size
            self.rate *= math.sqrt(whole / settings.reference_batch)
        if settings.normalise_decay:
            for group in optimizer.param_groups:
                group["weight_decay"] /= math.sqrt(max(sum(self.steps), 1))

    # -- resuming -------------------------------------------------------------------------

    def _identity(self) -> dict[str, Any]:
        """What must agree for a checkpoint to belong to this run."""
        keep = self.settings.model_dump(exclude={"checkpoint", "checkpoint_every", "progress", "devices", "strategy"})
        shapes = {k: list(v.shape) for k, v in self.model.state_dict().items()}
        method = json.loads(json.dumps({**self.record, "select": self.history.selection}, default=str, sort_keys=True))
        return {"settings": keep, "shapes": shapes, "data": self.feed.dataset.fingerprint, "method": method}

    def resume(self) -> None:
        if self.settings.checkpoint is None or not Path(self.settings.checkpoint).exists():
            return
        state = load_checkpoint(self.settings.checkpoint, self._identity())
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        if isinstance(self.objective, nn.Module):
            self.objective.load_state_dict(state["objective"])
        if self.mean is not None:
            self.mean.state, self.mean.steps = state["mean"]["state"], state["mean"]["steps"]
        self.best = state["best"]
        self.epoch = state["epoch"]
        self.improved = state["improved"]
        self.stopped = state.get("stopped", False)
        self.history = History(**state["history"])
        restore_random_state(state["random"])
        log.info("resumed %s at epoch %d", self.settings.checkpoint, self.epoch)

    def _save(self) -> None:
        if self.settings.checkpoint is None or not self.fabric.is_global_zero:
            return
        history = self.history
        save_checkpoint(
            self.settings.checkpoint,
            {
                "identity": self._identity(),
                "model": self.model.state_dict(),
                "optimizer": self.optimizer.state_dict(),
                "objective": self.objective.state_dict() if isinstance(self.objective, nn.Module) else {},
                "mean": None if self.mean is None else {"state": self.mean.state, "steps": self.mean.steps},
                "best": self.best,
                "epoch": self.epoch,
                "improved": self.improved,
                "stopped": self.stopped,
                "history": {**history.to_dict(), "losses": history.losses, "seconds": history.seconds},
                "random": random_state(),
            },
        )

    # -- one epoch ------------------------------------------------------------------------

    def _batches(self, epoch: int) -> Sequence[Indices]:
        size = self.settings.batch_size * self.settings.accumulate * self.fabric.world_size
        batches = list(self.plan.batches(epoch, size))
        short = len(batches) > 1 and len(batches[-1]) < size
        # one image alone has no batch statistics: BatchNorm refuses it on a 1x1 map and learns noise otherwise
        if short and (self.settings.drop_last or len(batches[-1]) == 1):
            batches = batches[:-1]
        return batches

    def _mine(self, batches: Sequence[Indices]) -> tuple[list[Indices], list[float]]:
        """This process's share of every batch, and what its mean loss counts in the mean over processes."""
        rank, world = self.fabric.global_rank, self.fabric.world_size
        if world == 1:
            return list(batches), [1.0] * len(batches)
        shares, weights = [], []
        for batch in batches:
            share = batch[rank::world]
            weights.append(len(share) * world / len(batch))
            shares.append(share if len(share) else batch[:1])  # every process must take part in every step
        return shares, weights

    def _set_rate(self, step: int) -> float:
        factor = rate_factor(self.settings.schedule, step, sum(self.steps), self.settings.warmup)
        for group in self.optimizer.param_groups:
            group["lr"] = self.rate * group.get("lr_scale", 1.0) * factor
        return self.rate * factor

    def _fed(self, parts: Sequence[Piece]) -> Iterator[tuple[Piece, Batch]]:
        """The parts with what is read of them; one whose images are all unreadable is left out."""
        waiting = iter(parts)
        for batch in self.feed([part.positions for part in parts], self.epoch):
            first = int(batch.indices[0])
            yield next(part for part in waiting if first in part.positions), batch.to(self.fabric.device)

    def _backward(self, part: Piece, batch: Batch, total: int, rate: float) -> float:
        """Add a part's share of a step's gradient; gives its share of the loss."""
        # Fabric sees to the precision of ``forward`` alone; an objective may call other methods of the model
        with self.fabric.autocast():
            loss = self.compiled(lambda: self.objective(self.wrapped, batch)) * part.weight
        value = float(self.fabric.all_reduce(loss.detach(), reduce_op="mean"))
        if not math.isfinite(value):
            raise TrainingStopped(
                f"the loss is {value} at epoch {self.epoch + 1}, step {part.step + 1} of {total} "
                f"(learning rate {rate:.2g}, first image {self.feed.dataset.where(int(batch.indices[0]))}). "
                "Lower the learning rate, set a gradient clip, or look at the images of that batch."
            )
        self.fabric.backward(loss)
        return value

    def _train_epoch(self, bar: Progress) -> float:
        _training_mode(self.wrapped)
        batches, weights = self._mine(self._batches(self.epoch))
        before = sum(self.steps[: self.epoch])
        total, seen = 0.0, 0
        parts = in_parts(batches, weights, self.settings.accumulate)
        for step, fed in itertools.groupby(self._fed(parts), key=lambda pair: pair[0].step):
            rate = self._set_rate(before + step)
            self.optimizer.zero_grad()
            loss, images = 0.0, 0
            for part, batch in fed:
                loss += self._backward(part, batch, len(batches), rate)
                images += len(batch)
            if self.settings.clip is not None:
                self.fabric.clip_gradients(self.wrapped, self.optimizer, max_norm=self.settings.clip)
            self.optimizer.step()
            if self.mean is not None:
                self.mean.update(self.model)
            self.history.losses.append(loss)
            total += loss * images
            seen += images
            bar.advance(images * self.fabric.world_size, loss)
        return total / max(seen, 1)

    def go(
        self, title: str, on_epoch: Callable[[int, nn.Module], None] | None, callbacks: Sequence[Callback] = ()
    ) -> None:
        settings, select = self.settings, self.select
        items = sum(len(b) for b in self._batches(self.epoch)) if settings.epochs > self.epoch else 0
        shown = settings.progress and self.fabric.is_global_zero
        with Progress(title, items * (settings.epochs - self.epoch), shown) as bar:
            while self.epoch < settings.epochs and not self.stopped and not self._patience_over():
                start, score = time.perf_counter(), None
                row: dict[str, float] = {"epoch": self.epoch + 1, "loss": self._train_epoch(bar)}
                if select is not None:
                    with self._kept_weights():
                        scores = select.score(self.model, self.fabric.device, max(settings.batch_size, 128))
                    row.update({f"val_{k}": v for k, v in scores.items()})
                    score, best = scores[select.metric], self.history.best_score
                    if select.better(score, best):
                        self.improved = self.epoch + 1
                    # of equally good epochs the later one is trained longer: an accuracy that stands still on a
                    # small validation set must not hand out the first epoch's weights
                    if select.better(score, best) or score == best:
                        self.history.best_score = score
                        self.history.best_epoch = self.epoch + 1
                        kept = self.model.state_dict() if self.mean is None else self.mean.state
                        self.best = {k: v.detach().cpu().clone() for k, v in kept.items()}
                    bar.note(f"{select.metric} {scores[select.metric]:.3f}")
                self.history.seconds += time.perf_counter() - start
                self.history.epochs.append(row)
                log.info("%s %s", title, _readable(row))
                self.epoch += 1
                if on_epoch is not None:
                    on_epoch(self.epoch, self.model)
                self._tell(callbacks, row, score)
                if self.epoch % settings.checkpoint_every == 0 or self.epoch == settings.epochs or self.stopped:
                    self._save()
        if self.best is not None:
            self.model.load_state_dict(self.best)
        elif self.mean is not None:
            self.model.load_state_dict(self.mean.state)
        self.model.eval()

    def _tell(self, callbacks: Sequence[Callback], row: dict[str, float], score: float | None) -> None:
        """Call every callback with the epoch that is over; note when one of them wants no further one."""
        if not callbacks:
            return
        if score is not None and self.select is not None and self.select.metric == "loss":
            score = -score
        metrics = {name: value for name, value in row.items() if name != "epoch"}
        for callback in callbacks:
            try:
                callback(EpochEnd(self.epoch, self.settings.epochs, dict(metrics), score))
            except StopTraining:
                self.stopped = True
        if self.fabric.world_size > 1:  # a callback may stop one process alone, and the others would wait for it
            asked = torch.tensor(float(self.stopped), device=self.fabric.device)
            self.stopped = bool(self.fabric.all_reduce(asked, reduce_op="sum") > 0)

    def _kept_weights(self) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext() if self.mean is None else self.mean.applied(self.model)

    def _patience_over(self) -> bool:
        patience = self.settings.patience
        return patience is not None and self.improved > 0 and self.epoch - self.improved >= patience


def _training_mode(model: nn.Module) -> None:
    """Training mode for what is trained; evaluation mode for what is frozen."""
    model.train()
    for module in model.modules():
        parameters = list(module.parameters())
        if parameters and not any(p.requires_grad for p in parameters):
            module.eval()


def _readable(row: Mapping[str, float]) -> str:
    return "  ".join(f"{k} {v:.4g}" for k, v in row.items())
