"""What every system is: scikit-learn's habits, prediction, a gaze, saving without pickle."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveate import notebook, parameters
from foveate.assemble.needs import Needs
from foveate.data.dataset import GroupedDataset
from foveate.data.loading import Loader, OnBad
from foveate.data.preprocess import Preprocess, as_images
from foveate.engine import EpochEnd, TrainSettings
from foveate.engine.batches import as_memory_allows, batch_that_fits
from foveate.errors import DataError, FoveateError, ModelError
from foveate.look.gaze import Gaze
from foveate.measure import UNREADABLE, answered, decided, shares_of

if TYPE_CHECKING:
    from typing_extensions import Self

Images = Tensor | NDArray[np.uint8] | Sequence[Any]
Callbacks = Sequence[Callable[[EpochEnd], None]]


class System:
    """A classifier that follows scikit-learn: settings in the constructor, work in ``fit``, results with ``_``.

    A subclass gives ``fit``, ``_logits`` (logits of prepared, normalised inputs), ``look``, and
    ``_config`` / ``_tensors`` / ``_restore`` for saving. Settings are stored as they are given and looked at in
    :meth:`check`, with which every ``fit`` begins.
    """

    needs: ClassVar[Needs] = Needs()
    """Which labels its steps consume."""
    post_hoc: ClassVar[bool] = False
    """Whether it starts from a fitted ``base`` and adapts it on a small target set."""
    training: TrainSettings
    preprocess_: Preprocess
    class_names_: list[str]
    attribute_names_: list[str] | None = None
    train_counts_: NDArray[np.int64] | None = None
    selection_: dict[str, Any] | None = None

    # -- settings -------------------------------------------------------------------------

    get_params = parameters.get_params
    set_params = parameters.set_params
    __sklearn_clone__ = parameters.unlearned
    __repr__ = parameters.shown

    def _repr_html_(self) -> str:
        rows = [["settings", f"<code>{notebook.text(repr(self))}</code>"]]
        if self.fitted:
            rows += [["classes", notebook.text(", ".join(self.class_names_))]]
            rows += [["labels used", notebook.text(self.supervision())]]
        return notebook.card(type(self).__name__, notebook.table(["", "fitted" if self.fitted else "not fitted"], rows))

    @classmethod
    def setting_names(cls) -> list[str]:
        """Names of the constructor's arguments."""
        return parameters.setting_names(cls)

    @classmethod
    def trains(cls) -> bool:
        """Whether it takes the settings of a training run, whole or by their short words."""
        return parameters.TRAINING in cls.setting_names()

    def usual_training(self) -> TrainSettings:
        """The training settings it has unless told otherwise."""
        return TrainSettings()

    def check(self) -> None:
        """Raise when settings do not fit together; ``fit`` begins with it, and nothing has been read by then."""

    def settings(self) -> dict[str, Any]:
        """The settings as plain values: those of the training by their short words, where they are not the usual."""
        found = {k: v for k, v in self.get_params(deep=False).items() if not isinstance(v, System)}
        training = found.pop(parameters.TRAINING, None)
        return found if training is None else {**found, **training.beside(self.usual_training())}

    # -- fitting --------------------------------------------------------------------------

    def fit(
        self,
        train: GroupedDataset,
        target: GroupedDataset | None = None,
        val: GroupedDataset | None = None,
        *,
        callbacks: Callbacks = (),
    ) -> Self:
        """Learn from ``train`` (and ``target``), with choices made on ``val``; ``callbacks`` hear of every epoch."""
        raise NotImplementedError

    @property
    def fitted(self) -> bool:
        return "class_names_" in self.__dict__

    def _require_fit(self) -> None:
        if not self.fitted:
            raise ModelError(f"this {type(self).__name__} has not been fitted; call fit(train) first.")

    def _remember(self, train: GroupedDataset) -> None:
        """Keep from the training set what later reports need."""
        self.class_names_ = list(train.class_names)
        self.attribute_names_ = None if train.attribute_names is None else list(train.attribute_names)
        self.train_counts_ = None if train.attributes is None else train.group_counts

    def consumed(self) -> Needs:
        """Which labels this fitted system consumed, its selection aside."""
        return self.needs

    def supervision(self) -> str:
        """What labels this fitted system consumed, selection included."""
        chosen = ""
        if self.selection_ is not None:
            groups = "group labels" if self.selection_["uses_groups"] else "labels"
            chosen = f"{groups} ({self.selection_['metric']})"
        used = self.consumed()
        return str(Needs(used.train, used.target, used.select or chosen))

    # -- prediction -----------------------------------------------------------------------

    def _logits(self, inputs: Tensor) -> Tensor:
        raise NotImplementedError

    def look(self, images: Images) -> Gaze:
        """Where the model looked to predict, for a batch of images."""
        raise NotImplementedError

    def inputs(self, images: Images) -> Tensor:
        """Images in any usual form as the normalised batch this model reads."""
        self._require_fit()
        return self.preprocess_.normalise(torch.stack([self.preprocess_.prepare(i) for i in as_images(images)]))

    @property
    def classes_(self) -> NDArray[np.int64]:
        """The values that :meth:`predict` gives, ``[C]``; their names are ``class_names_``."""
        self._require_fit()
        return np.arange(len(self.class_names_))

    @torch.no_grad()
    def predict_logits(
        self, data: GroupedDataset | Images, *, batch_size: int | None = None, workers: int = 0, on_bad: OnBad = "raise"
    ) -> NDArray[np.float32]:
        """Logits ``[n, C]`` for a dataset or a batch of images, by default as many at a time as are quickest.

        A row of NaN stands for an image skipped as unreadable, a row of ``-inf`` for one that the model has no answer
        to (NaN or infinite logits).
        """
        self._require_fit()
        batch_size = batch_size or batch_that_fits(*self.preprocess_.size)
        if not isinstance(data, GroupedDataset):
            prepared = self.inputs(data)
            parts = [
                as_memory_allows(self._logits, prepared[i : i + batch_size])
                for i in range(0, len(prepared), batch_size)
            ]
            return self._answers(torch.cat(parts))
        logits = np.full((len(data), len(self.class_names_)), np.nan, dtype=np.float32)
        loader = Loader(data, self.preprocess_, workers=workers, on_bad=on_bad, cache_bytes=0)
        for batch in loader.in_order(batch_size):
            scores = as_memory_allows(self._logits, self.preprocess_.normalise(batch.inputs))
            logits[batch.indices.numpy()] = self._answers(scores)
        return logits

    def _answers(self, scores: Tensor) -> NDArray[np.float32]:
        """What the model said, one column per class; rows without an answer are ``-inf``."""
        if scores.ndim != 2 or scores.shape[1] != len(self.class_names_):
            raise ModelError(
                f"the model gives scores {tuple(scores.shape)} for {len(self.class_names_)} classes "
                f"({', '.join(self.class_names_[:6])}); its files do not belong together."
            )
        return answered(scores.float().cpu().numpy())

    def predict_proba(self, data: GroupedDataset | Images, **options: Any) -> NDArray[np.float32]:
        """Class probabilities ``[n, C]``; rows of NaN for unreadable images, rows of 0 where there is no answer."""
        return shares_of(self.predict_logits(data, **options))

    def predict(self, data: GroupedDataset | Images, **options: Any) -> NDArray[np.int64]:
        """Class indices ``[n]``; -1 for images skipped as unreadable, -2 where the model has no answer (NaN)."""
        return decided(self.predict_logits(data, **options))

    def score(self, data: GroupedDataset | Images, labels: Any = None, **options: Any) -> float:
        """Accuracy on a dataset, or on images with their ``labels``; unreadable images are left out."""
        if isinstance(data, GroupedDataset):
            data = aligned(self, data)
            labels = data.labels
        elif labels is None:
            raise FoveateError("score needs a dataset, or images and their labels.")
        guesses = self.predict(data, **options)
        return float((guesses == np.asarray(labels))[guesses != UNREADABLE].mean())

    # -- saving ---------------------------------------------------------------------------

    def _config(self) -> dict[str, Any]:
        """What was learned, except tensors, as JSON values."""
        raise NotImplementedError

    def _tensors(self) -> dict[str, Tensor]:
        raise NotImplementedError

    def _restore(self, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        raise NotImplementedError

    def save(self, folder: str | Path) -> Path:
        """Write the fitted system to ``folder``: ``system.json`` and ``weights.safetensors``."""
        from foveate.assemble.saving import save

        return save(self, folder)


def training_set(train: GroupedDataset, target: GroupedDataset | None) -> GroupedDataset:
    """``train``, joined with ``target`` when given; an error when only one class is in it."""
    joined = train if target is None else train + target
    if len(np.unique(joined.labels)) < 2:
        raise DataError(f"{joined.name} has images of one class only; a classifier needs at least two.")
    return joined


def aligned(system: System, dataset: GroupedDataset) -> GroupedDataset:
    """``dataset`` with the classes of ``system`` in its order; a label the system never saw is an error.

    A test set of its own may lack a class or list them in another order: labels are matched by name.
    """
    system._require_fit()
    if dataset.class_names == system.class_names_:
        return dataset
    unknown = [c for c in dataset.class_names if c not in system.class_names_]
    if unknown:
        raise DataError(
            f"{dataset.name} has the label '{unknown[0]}', which never occurs in the training data "
            f"(known: {', '.join(system.class_names_)})."
        )
    place = np.asarray([system.class_names_.index(c) for c in dataset.class_names])
    return dataset.with_labels(place[dataset.labels], system.class_names_)
