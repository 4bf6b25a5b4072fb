"""What A², Glimpse and their references share: a frozen embedder, a restriction, a linear head."""

from __future__ import annotations

import copy
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from foveate.data.dataset import GroupedDataset
from foveate.data.loading import OnBad
from foveate.data.preprocess import Preprocess
from foveate.decide import DFRHead, LinearHead
from foveate.decide.dfr import C_GRID
from foveate.decide.linear import LinearDecision
from foveate.engine import Selection, TensorFeed, check_metric
from foveate.errors import FoveateError, StorageError
from foveate.extract import FeatureStore
from foveate.extract.features import Features
from foveate.measure import answered
from foveate.systems.frozen_model import FrozenModel, Model
from foveate.systems.network import default_device
from foveate.systems.system import Images, Needs, System, aligned

if TYPE_CHECKING:
    from typing_extensions import Self

log = logging.getLogger("foveate")
Views = tuple[int, ...]


class Probe(System):
    """A linear head on what a frozen embedder makes of some views of an image.

    A subclass says what the views are: ``_features`` gives ``[B, V, dim]``, their embeddings are concatenated in
    order, ``_recipe`` names everything they depend on beside the embedder, and ``_choices`` lists the sets of views
    to choose from on ``val``. Embeddings go through the feature store: another head on the same views starts
    in seconds, a killed extraction goes on where it was, and datasets are predicted through it as well.

    Args:
        embedder: name of a model (see :func:`~foveate.extract.open_backbone`), or a ready backbone; frozen.
        embed_size: side in pixels of what the embedder sees; by default its own.
        head: ``"logistic"``, logistic regression on ``train``; or ``"dfr"``, the DFR head (balanced L1 logistic
            regression, averaged), which needs groups, on ``target`` or, without one, on ``train``.
        C: inverse strength of the regularisation; several are chosen from on ``val`` (DFR without ``val``: on a
            held-out half of its own data). By default 1, and for DFR the grid of its paper.
        refits: balanced subsets averaged by the DFR head.
        standardize: scale every feature to mean 0 and spread 1 first.
        select: metric on ``val`` for every choice; by default ``average`` (no group labels), and
            ``worst_group`` for DFR.
        store: folder of the feature store; by default the user's cache.
        on_bad: ``"raise"`` or ``"skip"`` unreadable images.
        workers: processes that decode images.
        batch_size: images embedded at a time.
        seed: of everything drawn at random.
        accelerator: ``"auto"``, ``"cpu"``, ``"gpu"``.
        progress: show a bar on a terminal.
    """

    MODELS: ClassVar[tuple[str, ...]] = ("embedder",)
    """Settings that name a frozen model; ``x`` is opened as ``x_``."""
    embedder_: FrozenModel
    head_: LinearDecision
    chosen_: dict[str, Any]
    scores_: list[dict[str, Any]]

    def __init__(
        self,
        embedder: Model = "vit-s-focus",
        *,
        embed_size: int | None = None,
        head: Literal["logistic", "dfr"] = "logistic",
        C: float | Sequence[float] | None = None,
        refits: int = 20,
        standardize: bool = True,
        select: str | None = None,
        store: str | Path | None = None,
        on_bad: OnBad = "raise",
        workers: int = 0,
        batch_size: int = 32,
        seed: int = 0,
        accelerator: str = "auto",
        progress: bool = True,
    ):
        self.embedder, self.embed_size = embedder, embed_size
        self.head, self.C, self.refits, self.standardize, self.select = head, C, refits, standardize, select
        self.store = None if store is None else str(store)
        self.on_bad, self.workers, self.batch_size = on_bad, workers, batch_size
        self.seed, self.accelerator, self.progress = seed, accelerator, progress
        if head not in ("logistic", "dfr"):
            raise FoveateError(f"unknown head '{head}'; use 'logistic' or 'dfr'.")
        if batch_size < 1:
            raise FoveateError(f"batch_size={batch_size} does not fit; at least one image is embedded at a time.")
        check_metric(self._metric)

    # -- what a subclass says -------------------------------------------------------------

    def _check(self) -> None:
        """Raise when settings do not fit together; before any work."""

    def _open(self, data: GroupedDataset) -> int:
        """Open further models; returns the side in pixels at which images are read."""
        return self.embedder_.size

    def _choices(self) -> dict[Any, Views]:
        """Sets of views to choose from on ``val``, by what the choice is called; one set is no choice."""
        return {"all": (0,)}

    def _features(self, images: Tensor, views: Views) -> Tensor:
        """Embeddings ``[B, len(views), dim]`` of images ``[B, 3, side, side]`` in ``[0, 1]``."""
        raise NotImplementedError

    def _recipe(self) -> dict[str, Any]:
        """Every setting and further weight that the features depend on, as JSON values."""
        return {}

    # -- fitting --------------------------------------------------------------------------

    def fit(
        self, train: GroupedDataset, target: GroupedDataset | None = None, val: GroupedDataset | None = None
    ) -> Self:
        """Fit the head; nothing else learns.

        The logistic head is fitted on ``train`` alone, also when there is a ``target``. The DFR head is fitted on
        ``target`` (without one: on ``train``) and reads nothing of ``train`` then.
        """
        self._check()
        self.embedder_ = FrozenModel.open(self.embedder, self.embed_size)
        balanced = self.head == "dfr"
        data = target if balanced and target is not None else train
        if balanced:
            data.require_groups(f"{type(self).__name__} with a DFR head")
        side = self._open(data)
        # values in [0, 1]: each model normalises for itself
        self.preprocess_ = Preprocess((side, side), mean=(0.0,) * 3, std=(1.0,) * 3, flip=False)
        self._remember(train)
        self._state_needs("target" if data is not train else "train")
        self._decide(aligned(self, data), None if val is None else aligned(self, val))
        return self

    def _state_needs(self, fitted_on: str) -> None:
        self._fitted_on = fitted_on
        used = "labels, groups" if self.head == "dfr" else "labels"
        stated = Needs(train=used) if fitted_on == "train" else Needs(train="", target=used)
        self.needs = stated  # type: ignore[misc]  # what this one consumed, not what the class usually does

    @property
    def _metric(self) -> str:
        return self.select or ("worst_group" if self.head == "dfr" else "average")

    def _strengths(self) -> tuple[float, ...]:
        if self.C is None:
            return C_GRID if self.head == "dfr" else (1.0,)
        return (float(self.C),) if isinstance(self.C, (int, float)) else tuple(float(c) for c in self.C)

    def _decide(self, data: GroupedDataset, val: GroupedDataset | None) -> None:
        """Choose views and strength on ``val`` where there is a choice, and fit the head."""
        choices, strengths = self._choices(), self._strengths()
        if not strengths:
            raise FoveateError("C is an empty list; give at least one strength.")
        own_tuning = self.head == "dfr" and len(choices) == 1 and val is None
        to_choose = len(choices) * (1 if own_tuning else len(strengths)) > 1
        if to_choose and val is None:
            among = ", ".join(map(str, choices if len(choices) > 1 else strengths))
            raise FoveateError(
                f"{type(self).__name__} is to choose among {among} "
                "on validation images, and there are none: give fit a val, or a single value."
            )
        every = tuple(sorted({view for views in choices.values() for view in views}))
        found, data = self._rows(data, every)
        self.selection_, self.scores_ = None, []
        name, strength = next(iter(choices)), strengths[0]
        if to_choose:
            assert val is not None
            held, val = self._rows(val, every)
            name, strength = self._select(found, data, held, val, choices, strengths)
        elif own_tuning and len(strengths) > 1:
            self.selection_ = {"metric": "worst_group", "on": data.name, "uses_groups": True}
        self.views_ = choices[name]
        C = strengths if own_tuning else strength
        self.head_ = self._fitted(_columns(found, self.views_), data, C, self.refits)
        self.chosen_ = {"views": name, "C": self.head_.C_ if isinstance(self.head_, DFRHead) else strength}

    def _select(
        self,
        found: NDArray[np.float32],
        data: GroupedDataset,
        held: NDArray[np.float32],
        val: GroupedDataset,
        choices: dict[Any, Views],
        strengths: tuple[float, ...],
    ) -> tuple[Any, float]:
        """The best ``(choice, C)`` on ``val``, the first of equals."""
        counts = self.train_counts_ if val.attribute_names == self.attribute_names_ else None
        best: tuple[Any, float] | None = None
        best_score: float | None = None
        for name, views in choices.items():
            select = Selection(self._metric, TensorFeed(_columns(held, views), val), counts)
            for c in strengths:
                head = self._fitted(_columns(found, views), data, c, refits=1)
                score = select.score(head.to_linear(), torch.device("cpu"), 1024)[self._metric]
                self.scores_.append({"views": name, "C": c, self._metric: score})
                if select.better(score, best_score):
                    best, best_score = (name, c), score
            self.selection_ = select.describe()
        assert best is not None
        return best

    def _fitted(
        self, x: NDArray[np.float32], data: GroupedDataset, C: float | tuple[float, ...], refits: int
    ) -> LinearDecision:
        if self.head == "dfr":
            head = DFRHead(C, refits=refits, standardize=self.standardize, seed=self.seed)
            groups = data.require_groups(f"{type(self).__name__} with a DFR head")
            return head.fit(x, data.labels, groups, num_classes=data.num_classes, num_groups=data.num_groups)
        assert isinstance(C, float)
        return LinearHead(C, standardize=self.standardize).fit(x, data.labels, num_classes=data.num_classes)

    # -- embeddings -----------------------------------------------------------------------

    def _models(self) -> dict[str, FrozenModel]:
        return {name: getattr(self, f"{name}_") for name in self.MODELS}

    def _to_device(self) -> None:
        for model in self._models().values():
            model.backbone.to(default_device(self.accelerator))

    def read(
        self, dataset: GroupedDataset, views: Views | None = None, *, workers: int | None = None,
        on_bad: OnBad | None = None,
    ) -> Features:  # fmt: skip
        """The embeddings of ``dataset`` from the feature store, ``[N, V, dim]``; computed when they are not there."""
        views = self.views_ if views is None else views
        self._to_device()
        recipe = {"views": list(views), "embedder": self.embedder_.to_dict(), **self._recipe()}
        return FeatureStore(self.store).read(
            self.embedder_.backbone,
            dataset,
            self.preprocess_,
            readout=lambda _, images: self._features(images, views),
            key=json.dumps(recipe, sort_keys=True),
            batch_size=self._at_once(),
            workers=self.workers if workers is None else workers,
            on_bad=self.on_bad if on_bad is None else on_bad,
            progress=None if self.progress else lambda done, total: None,
        )

    def _at_once(self) -> int:
        """Images read at a time: fewer when they are read larger than the embedder sees them."""
        scale = max(1, self.preprocess_.size[0] // max(self.embedder_.size, 1))
        return max(min(4, self.batch_size), self.batch_size // scale**2)

    def _rows(self, dataset: GroupedDataset, views: Views) -> tuple[NDArray[np.float32], GroupedDataset]:
        """Embeddings of the readable images, and the dataset of these."""
        found = self.read(dataset, views)
        rows = np.asarray(found.array)
        return (rows, dataset) if found.valid.all() else (rows[found.valid], dataset.subset(found.valid))

    # -- prediction -----------------------------------------------------------------------

    @torch.no_grad()
    def _logits(self, inputs: Tensor) -> Tensor:
        self._to_device()
        features = self._features(inputs.to(self.embedder_.device), self.views_)
        return torch.from_numpy(self.head_.decision_function(features.flatten(1).float().cpu().numpy())).float()

    def predict_logits(
        self, data: GroupedDataset | Images, *, batch_size: int = 128, workers: int = 0, on_bad: str = "raise"
    ) -> NDArray[np.float32]:
        """Logits ``[n, C]``; those of a dataset are made from embeddings kept in the feature store."""
        self._require_fit()
        if isinstance(data, GroupedDataset):
            try:
                found = self.read(data, workers=workers, on_bad=on_bad)  # type: ignore[arg-type]
            except StorageError as error:
                log.warning("predicting without the feature store: %s", error)
            else:
                logits = np.full((len(data), len(self.class_names_)), np.nan, dtype=np.float32)
                for start in range(0, len(data), 4096):
                    rows = start + np.flatnonzero(found.valid[start : start + 4096])
                    logits[rows] = answered(self.head_.decision_function(found.batch(rows).flatten(1).numpy()))
                return logits
        return super().predict_logits(data, batch_size=batch_size, workers=workers, on_bad=on_bad)

    # -- saving ---------------------------------------------------------------------------

    def save(self, folder: str | Path) -> Path:
        """Write the head and the weights of every model it uses: the folder is all that :func:`load` needs."""
        self._require_fit()
        described = copy.copy(self)
        for name in self.MODELS:  # a ready backbone has no name to write down; its weights are saved in any case
            if not isinstance(getattr(self, name), str):
                setattr(described, name, "")
        return System.save(described, folder)

    def _config(self) -> dict[str, Any]:
        return {
            "models": {name: self._same(name) or model.to_dict() for name, model in self._models().items()},
            "one_vs_rest": self.head_.one_vs_rest_, "views": list(self.views_), "chosen": self.chosen_,
            "scores": self.scores_, "fitted_on": self._fitted_on,
        }  # fmt: skip

    def _same(self, name: str) -> str | None:
        """An earlier name of the same model: it is saved once."""
        models = self._models()
        return next((n for n in self.MODELS[: self.MODELS.index(name)] if models[n] is models[name]), None)

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {f"head.{k}": torch.from_numpy(getattr(self.head_, f"{k}_").copy()) for k in ("weight", "bias")}
        for name, model in self._models().items():
            if self._same(name) is None:
                state = model.backbone.state_dict()
                tensors |= {f"{name}.{k}": v.detach().cpu().clone() for k, v in state.items()}
        return tensors

    def _restore(self, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        for name, described in config["models"].items():
            if isinstance(described, str):
                model = getattr(self, f"{described}_")
            else:
                start = f"{name}."
                weights = {k[len(start) :]: v for k, v in tensors.items() if k.startswith(start)}
                model = FrozenModel.from_dict(described, weights)
            setattr(self, f"{name}_", model)
            if not getattr(self, name):
                setattr(self, name, model.backbone)
        state = {"weight": tensors["head.weight"].numpy(), "bias": tensors["head.bias"].numpy()}
        self.head_ = LinearDecision().load_state({**state, "one_vs_rest": np.array([config["one_vs_rest"]])})
        self.views_ = tuple(config["views"])
        self.chosen_, self.scores_ = config["chosen"], config["scores"]
        self._state_needs(config["fitted_on"])


def _columns(features: NDArray[np.float32], views: Views) -> NDArray[np.float32]:
    """The embeddings of some views, concatenated: ``[N, V, dim]`` to ``[N, len(views) * dim]``."""
    chosen = features if views == tuple(range(features.shape[1])) else features[:, list(views)]
    return chosen.reshape(len(features), -1)
