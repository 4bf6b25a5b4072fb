"""How a network is trained: plain validated numbers, saved with every model."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from foveate.errors import FoveateError, suggest
from foveate.parameters import MAX_SEED


class TrainSettings(BaseModel):
    """Settings of one training run.

    Attributes:
        epochs: passes over the training plan.
        batch_size: images that go through the network at once, per device.
        accumulate: batches that make up one step, for steps over more images than memory holds at once. The loss and
            the statistics of BatchNorm are those of each batch; the gradient is the mean over all.
        lr: peak learning rate.
        weight_decay: decoupled for adamw, classic L2 otherwise; not applied to biases and norms.
        optimizer: ``"adam"``, ``"adamw"`` or ``"sgd"``.
        momentum: for sgd.
        schedule: ``"constant"``, ``"cosine"`` (to zero) or ``"onecycle"`` (up for 30 %, down to zero).
        warmup: share of the steps with a linearly rising rate (constant and cosine).
        clip: largest gradient norm, or None.
        precision: what Lightning Fabric takes (``"32-true"``, ``"bf16-mixed"``, ``"16-mixed"``), or ``"auto"`` for the
            quickest that this machine can do with little loss (:func:`~foveate.engine.quick.chosen_precision`). The
            default gives the same numbers everywhere. On a CPU bf16 is tried first, in a process of its own
            (:mod:`foveate.engine.bf16`).
        compile: have ``torch.compile`` write code for the network first. It takes about a minute, needs a C++ compiler
            on a CPU, and where it fails the training goes on without it and says so.
        accelerator, devices, strategy: what Lightning Fabric takes; ``devices=2, strategy="ddp"`` works.
        patience: stop after this many epochs without a better selection metric, or None.
        drop_last: leave out an incomplete last batch.
        reference_batch: ``lr`` is meant for batches of this size and grows with the square root of the whole batch
            (Krizhevsky 2014); None takes ``lr`` as it is.
        normalise_decay: divide ``weight_decay`` by the square root of the number of steps (Loshchilov & Hutter 2019,
            appendix B.1).
        ema: decay of a running mean of the weights, which is what is validated and kept; None keeps the weights.
        seed: one seed for weights, order, augmentation and dropout; from 0 to 2**32 - 1, what NumPy takes.
        checkpoint: file for resumable training, or None.
        checkpoint_every: epochs between checkpoints.
        progress: show a progress bar, or where the output is no terminal a line now and then.

    >>> TrainSettings(epochs=3, lr=0.01).schedule
    'cosine'
    """

    model_config = ConfigDict(extra="forbid", validate_assignment=True)

    epochs: int = Field(default=10, ge=0)
    batch_size: int = Field(default=64, ge=1)
    accumulate: int = Field(default=1, ge=1)
    lr: float = Field(default=1e-3, gt=0, le=1e4)
    weight_decay: float = Field(default=1e-4, ge=0, le=1e4)
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    momentum: float = Field(default=0.9, ge=0, lt=1)
    schedule: Literal["constant", "cosine", "onecycle"] = "cosine"
    warmup: float = Field(default=0.0, ge=0, lt=1)
    clip: float | None = Field(default=None, gt=0)
    precision: str = "32-true"
    compile: bool = False
    accelerator: str = "auto"
    devices: int | str = 1
    strategy: str = "auto"
    patience: int | None = Field(default=None, ge=1)
    drop_last: bool = False
    reference_batch: int | None = Field(default=None, ge=1)
    normalise_decay: bool = False
    ema: float | None = Field(default=None, gt=0, lt=1)
    seed: int = Field(default=0, ge=0, le=MAX_SEED)
    checkpoint: str | None = None
    checkpoint_every: int = Field(default=1, ge=1)
    progress: bool = True

    def changed(self, **values: Any) -> TrainSettings:
        """The same settings but for these.

        >>> TrainSettings(lr=0.01).changed(epochs=3)
        TrainSettings(epochs=3, lr=0.01)
        """
        return TrainSettings.of(**{**self.model_dump(), **values})

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """All settings by name, as scikit-learn asks for them."""
        return self.model_dump()

    def beside(self, usual: TrainSettings) -> dict[str, Any]:
        """What differs from ``usual``, by name."""
        return {k: v for k, v in self.model_dump().items() if v != getattr(usual, k)}

    def __repr__(self) -> str:
        told = ", ".join(f"{k}={v!r}" for k, v in self.beside(TrainSettings()).items())
        return f"TrainSettings({told})"

    @classmethod
    def of(cls, **values: Any) -> TrainSettings:
        """Build settings; a wrong name or value is explained in one sentence."""
        try:
            return cls(**values)
        except ValidationError as error:
            first = error.errors()[0]
            name = str(first["loc"][0])
            if first["type"] == "extra_forbidden":
                known = list(cls.model_fields)
                raise FoveateError(
                    f"unknown training setting '{name}'.{suggest(name, known)} Known: {', '.join(known)}."
                ) from None
            raise FoveateError(f"training setting {name}={first['input']!r}: {first['msg']}.") from None
