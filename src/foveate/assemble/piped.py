"""What a pipeline of five parts does: opens networks, reads features once, chooses, fits, predicts, looks, is saved."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from foveate.assemble.choosing import Choice, choose, figures_of_logits, has_choice, viewed
from foveate.assemble.graphs import Graph, GraphPlan, pipeline_graphs
from foveate.assemble.needs import NO_LABELS, Needs
from foveate.assemble.network import Network
from foveate.assemble.parts import Parts, built
from foveate.assemble.reading import Reading
from foveate.assemble.system import Callbacks, Images, System, aligned, training_set
from foveate.assemble.worth import Figures, warn_unless_better
from foveate.data.dataset import GroupedDataset
from foveate.data.loading import OnBad
from foveate.data.preprocess import Preprocess
from foveate.decide.decision import Decision, LinearFit
from foveate.decide.gradient import CrossEntropy, PooledHead
from foveate.decide.prompts import TextPrompts
from foveate.engine import TensorFeed, default_device, seed_everything
from foveate.errors import StorageError
from foveate.extract.features import Features
from foveate.extract.frozen_model import Models
from foveate.look import Gaze
from foveate.restrict.restriction import Chosen, Nothing

if TYPE_CHECKING:
    from typing_extensions import Self

log = logging.getLogger("foveate")


class Piped(System):
    """What a pipeline of five parts does. A subclass says which parts (:meth:`parts`) and how images are read
    (:meth:`reading`)."""

    keeps: Literal["nothing", "vectors", "maps"] = "vectors"
    """What is put in the store when a dataset is predicted: ``maps`` (large) also for pools that learn."""
    parts_: Parts
    views_: Chosen
    chosen_: dict[str, Any]
    scores_: list[dict[str, Any]]
    fitted_on_: str
    pool_needs_: tuple[str, str] | None = None
    """What a pool that was trained on its own learned from: ``("target", "labels, …")``."""

    def parts(self) -> Parts:
        """The five choices, not opened and not fitted."""
        raise NotImplementedError

    def reading(self) -> Reading:
        """How images are read."""
        raise NotImplementedError

    # -- fitting --------------------------------------------------------------------------

    def check(self) -> None:
        self.reading().check()
        for _, part in self.parts().items():
            if hasattr(part, "check"):
                part.check()

    def fit(
        self,
        train: GroupedDataset,
        target: GroupedDataset | None = None,
        val: GroupedDataset | None = None,
        *,
        callbacks: Callbacks = (),
    ) -> Self:
        """Open the networks, read features once, choose on ``val`` and fit the decision; nothing else learns.

        A decision fitted on ``target`` reads nothing of ``train`` when there is a target.
        """
        self.check()
        parts = self.parts()
        data, self.fitted_on_ = _data_for(parts.decide, train, target)
        parts.decide.expects(data, type(self).__name__)
        self._open(parts, data)
        self._remember(train)
        data, val = aligned(self, data), None if val is None else aligned(self, val)
        data, val = self._seen(data), None if val is None else self._seen(val)
        self.selection_, self.scores_, self.views_ = None, [], next(iter(parts.restrict.choices().values()))
        figures: Figures | None = None
        self._learn_look(train)
        if isinstance(parts.decide, TextPrompts):
            parts.decide.name_classes(self.class_names_)
            self.chosen_ = {"views": "all", "texts": parts.decide.texts_}
        elif parts.decide.learns_maps:
            seed_everything(self.reading().seed)
            self._train(parts.decide, data, val, callbacks)
            self.selection_, self.chosen_ = parts.decide.history_.selection, {"views": "all"}
            figures = parts.decide.history_.chosen()
        else:
            learned = self._teach_pool(parts, train, target, val, callbacks)
            figures = self._decide(parts.decide, data, val)
            if learned is not None and (self.selection_ is None or learned["uses_groups"]):
                self.selection_ = learned  # the pool's epoch was chosen too, and group labels must not go unsaid
        if val is not None:
            warn_unless_better(type(self).__name__, val, figures, partial(self._before, val))
        return self

    def _open(self, parts: Parts, data: GroupedDataset) -> None:
        """Have the networks ready; settles how images reach them (``preprocess_``)."""
        self.parts_ = parts
        models = Models(self.reading().batch_size)
        parts.extract.open(models)
        if self.whole:
            self.preprocess_ = parts.extract.model_.view
        else:
            parts.look.open(models)
            side = parts.restrict.fit(data, getattr(parts.look, "frame", None), parts.extract.shape)
            # values in [0, 1]: each network normalises for itself
            self.preprocess_ = Preprocess((side, side), mean=(0.0,) * 3, std=(1.0,) * 3, flip=False)
        parts.decide.open(models)

    @property
    def reads_true_masks(self) -> bool:
        """Whether a mask must come with every image: it looks at the truth."""
        return bool(getattr(self.parts_.look, "reads_masks", False))

    @property
    def whole(self) -> bool:
        """Whether the extractor reads whole images: its own preprocessing then is that of the system."""
        return isinstance(self.parts_.restrict, Nothing)

    def _seen(self, data: GroupedDataset) -> GroupedDataset:
        """``data`` with the labels that are learned."""
        return data

    def _before(self, val: GroupedDataset) -> Figures | None:
        """The figures on ``val`` of the fitted system it started from, where there is one."""
        return None

    def _learn_look(self, train: GroupedDataset) -> None:
        """Teach the look, where it learns."""

    def _teach_pool(
        self, parts: Parts, train: GroupedDataset, target: GroupedDataset | None, val: GroupedDataset | None,
        callbacks: Callbacks,
    ) -> dict[str, Any] | None:  # fmt: skip
        """Train a pool with weights by gradient where the decision itself does not; says how its epoch was chosen."""
        self.pool_needs_ = None
        if not parts.pool.learns:
            return None
        how, decide = self.reading(), parts.decide
        usual = CrossEntropy(on=decide.on, select=decide.select).set_params(seed=how.seed, progress=how.progress)
        by = parts.pool.by or usual
        if isinstance(by, Mapping):
            by = built("decide", by["kind"], {k: v for k, v in by.items() if k != "kind"})
        data, where = _data_for(by, train, target)
        self.pool_needs_ = (where, by.uses)
        seed_everything(how.seed)
        self._train(by, self._seen(aligned(self, data)), val, callbacks)
        return by.history_.selection

    def _decide(self, decide: LinearFit, data: GroupedDataset, val: GroupedDataset | None) -> Figures | None:
        """Choose views and strength on ``val`` where there is a choice and fit a linear decision; its figures there."""
        options = self.parts_.restrict.choices()
        chosen = has_choice(type(self).__name__, options, decide, val)
        every = tuple(sorted({view for views in options.values() for view in views}))
        found = self._pooled(self._feed(data, every))
        choice = Choice(next(iter(options)), decide.strengths()[0])
        final, held = decide, None
        if chosen:
            assert val is not None
            held = self._pooled(self._feed(val, every))
            choice = choose(type(self).__name__, options, decide, found, held, self._counts(val))
            self.selection_, self.scores_ = choice.selection, choice.scores
            final = decide.with_strength(choice.C)
        elif len(decide.strengths()) > 1:  # it tunes itself
            self.selection_ = {"metric": "worst_group", "on": data.name, "uses_groups": True}
        self.views_ = options[choice.views]
        self.parts_.decide = final.fit(viewed(found, self.views_))
        self.chosen_ = {"views": choice.views, "C": final.C_}
        if held is None:
            return None
        rows = torch.from_numpy(np.array(viewed(held, self.views_).plain(), dtype=np.float32))
        return figures_of_logits(self.parts_.decide(rows).numpy(), held.dataset)

    def _train(self, how: CrossEntropy, data: GroupedDataset, val: GroupedDataset | None, callbacks: Callbacks) -> None:
        """Train a head by gradient, and with it the pool where it has weights."""
        pool, module = self.parts_.pool, None
        feed = self._feed(data, self.views_, how.copies)
        shape = feed.inputs.shape[2:] if how.copies else feed.inputs.shape[1:]
        width = int(np.prod(shape))
        if pool.learns:
            width = pool.build(int(shape[-3])) * (int(shape[0]) if len(shape) == 4 else 1)
            module = pool.module_
        how.build(width, data.num_classes)
        how.fit(
            feed, None if val is None else self._feed(val, self.views_),
            model=PooledHead(pool if pool.learns else None, module, how.head_), counts=self._counts(val),
            callbacks=callbacks, title=type(self).__name__, record=self._record(),
        )  # fmt: skip

    def _record(self) -> dict[str, Any]:
        """What must agree for a training checkpoint to be resumed."""
        leave = {"checkpoint", "checkpoint_every", "progress", "workers", "devices", "strategy", "store"}
        own = {k: str(v) for k, v in self.settings().items() if k not in leave}
        return {"system": type(self).__name__, **own, "recipe": self.parts_.recipe()}

    def _counts(self, val: GroupedDataset | None) -> NDArray[np.int64] | None:
        return self.train_counts_ if val is not None and val.attribute_names == self.attribute_names_ else None

    def _pooled(self, feed: TensorFeed) -> TensorFeed:
        """Vectors in place of the maps that a learned pool reads."""
        pool = self.parts_.pool
        if not pool.learns:
            return feed
        pool.module_.requires_grad_(False).eval()
        rows = torch.from_numpy(np.array(feed.plain()))
        vectors = torch.cat([pool(part) for part in rows.float().split(256)])
        return TensorFeed(vectors.numpy(), feed.dataset)

    def consumed(self) -> Needs:
        decide = self.parts_.decide
        if isinstance(decide, TextPrompts):
            return NO_LABELS
        used = {"train": "", "target": "", "target" if self.fitted_on_ == "target" else "train": decide.uses}
        if self.pool_needs_ is not None and self.pool_needs_[0] != self.fitted_on_:
            used[self.pool_needs_[0]] = f"{self.pool_needs_[1]} (pool)"
        return Needs(**used)

    # -- features -------------------------------------------------------------------------

    def _features(self, inputs: Tensor, views: Chosen) -> Tensor:
        """Of a batch as it is read: vectors ``[B, V, D]``, or the maps ``[B, (V,) C, h, w]`` a learned pool wants."""
        parts, visible = self.parts_, None
        if self.whole:
            found = parts.extract.ready(inputs, parts.pool.wanted)[:, None]
        else:
            let = parts.restrict(inputs, parts.look(inputs), parts.extract.shape, views)
            found, visible = parts.extract(let, parts.pool.wanted), let.visible
        if parts.pool.wanted == "vectors":
            return found
        if parts.pool.learns:
            return found[:, 0] if found.shape[1] == 1 else found
        masks = [None] * found.shape[1] if visible is None else visible.unbind(1)
        return torch.stack([parts.pool(maps, m) for maps, m in zip(found.unbind(1), masks, strict=True)], dim=1)

    def _to_device(self) -> None:
        device = default_device(self.reading().accelerator)
        for _, part in self.parts_.items():
            if hasattr(part, "model_"):
                part.model_.backbone.to(device)

    def read(
        self, dataset: GroupedDataset, views: Chosen | None = None, *, copies: int = 0, workers: int | None = None,
        on_bad: OnBad | None = None,
    ) -> Features:  # fmt: skip
        """The features of ``dataset`` from the store, ``[N, V, dim]`` (or maps); computed when they are not there."""
        chosen, parts = self.views_ if views is None else views, self.parts_
        self._to_device()
        what: dict[str, Any]
        if self.whole and (parts.pool.learns or parts.pool.wanted == "vectors"):
            # features of whole images are the same for everyone: other systems find them under the same key
            what = {"layer": "pooled" if parts.pool.wanted == "vectors" else "maps"}
        else:
            what = {"readout": lambda images: self._features(images, chosen), "key": parts.recipe(), "views": chosen}
        return self.reading().features(
            parts.extract.model_, dataset, self.preprocess_, copies=copies, workers=workers, on_bad=on_bad, **what
        )

    def _feed(self, dataset: GroupedDataset, views: Chosen, copies: int = 0) -> TensorFeed:
        """The features of the readable images."""
        if self.reads_true_masks:
            return TensorFeed(self._with_masks(dataset, views), dataset)
        found, seed = self.read(dataset, views, copies=copies), self.reading().seed
        array = np.asarray(found.array)
        if found.valid.all():
            return TensorFeed(array, dataset, copies=copies > 0, seed=seed)
        rows = np.flatnonzero(found.valid)
        return TensorFeed(array, dataset.subset(rows), copies=copies > 0, seed=seed, rows=rows)

    def _with_masks(self, dataset: GroupedDataset, views: Chosen) -> NDArray[np.float32]:
        """Features of images that are read together with their true masks; these are not in the store."""
        return self.reading().with_masks(dataset, self.preprocess_, lambda images: self._features(images, views))

    # -- prediction -----------------------------------------------------------------------

    def _vectors(self, features: Tensor) -> Tensor:
        return self.parts_.pool(features) if self.parts_.pool.learns else features.flatten(1)

    @torch.no_grad()
    def _logits(self, inputs: Tensor) -> Tensor:
        self._to_device()
        self._on_device(self.parts_.extract.model_.device)
        features = self._features(inputs.to(self.parts_.extract.model_.device), self.views_)
        return self.parts_.decide(self._vectors(features))

    def _on_device(self, device: torch.device) -> None:
        for name in ("module_", "head_"):
            for part in (self.parts_.pool, self.parts_.decide):
                if isinstance(module := getattr(part, name, None), nn.Module):
                    module.to(device).eval()

    def predict_logits(
        self, data: GroupedDataset | Images, *, batch_size: int | None = None, workers: int = 0, on_bad: OnBad = "raise"
    ) -> NDArray[np.float32]:
        """Logits ``[n, C]``; those of a dataset are made from features kept in the store, where that is cheap."""
        self._require_fit()
        if not isinstance(data, GroupedDataset):
            return super().predict_logits(data, batch_size=batch_size, workers=workers, on_bad=on_bad)
        if self.reads_true_masks:
            rows = torch.from_numpy(self._with_masks(data, self.views_))
            return self._answers(self.parts_.decide(self._vectors(rows)).detach())
        if self.keeps == "maps" or (self.keeps == "vectors" and not self.parts_.pool.learns):
            try:
                found = self.read(data, workers=workers, on_bad=on_bad)
            except StorageError as error:
                log.warning("predicting without the feature store: %s", error)
            else:
                logits = np.full((len(data), len(self.class_names_)), np.nan, dtype=np.float32)
                step, device = (
                    256 if self.parts_.pool.learns else 4096,
                    self.parts_.extract.model_.device,
                )  # maps are large
                self._on_device(device)
                for start in range(0, len(data), step):
                    rows_here = start + np.flatnonzero(found.valid[start : start + step])
                    with torch.no_grad():
                        scores = self.parts_.decide(self._vectors(found.batch(rows_here).to(device)))
                    logits[rows_here] = self._answers(scores)
                return logits
        return super().predict_logits(data, batch_size=batch_size, workers=workers, on_bad=on_bad)

    @property
    def network_(self) -> Network:
        """Backbone, pool and head in one, where whole images are read; else there is none (AttributeError)."""
        parts = self.__dict__.get("parts_")
        if parts is None or not self.whole or (parts.pool.wanted == "maps" and not parts.pool.learns):
            raise AttributeError(f"a {type(self).__name__} does not end as one network")
        pool = parts.pool.module_ if parts.pool.learns else None
        try:
            layer = parts.decide.as_layer()
        except NotImplementedError as error:  # a decision from elsewhere need not have one
            raise AttributeError(f"{type(parts.decide).__name__} is no layer of a network") from error
        return Network(parts.extract.model_.backbone, layer, pool)

    def graphs(self) -> GraphPlan:
        """What can leave Python: one network over whole images, or one that looks and one that reads."""
        self._require_fit()
        if not self.whole:
            return pipeline_graphs(self.parts_, self.views_)
        shape = {"images": (3, *self.preprocess_.size)}
        return GraphPlan([Graph("model", self.network_.cpu().eval(), shape, ("logits",))])

    @property
    def embedder_(self) -> Any:
        """The network that reads."""
        return self.parts_.extract.model_

    @property
    def attention_(self) -> Any:
        """The network that looks."""
        return self.parts_.look.model_

    @property
    def head_(self) -> Any:
        """What the decision learned."""
        return self.parts_.decide.head_

    @property
    def history_(self) -> Any:
        """What happened in training, where the decision was trained by gradient."""
        return getattr(self.parts_.decide, "history_", None)

    @torch.no_grad()
    def look(self, images: Images) -> Gaze:
        """Where it looked and what was let through; for whole images Grad-CAM of the predicted class."""
        inputs = self.inputs(images)
        parts = self.parts_
        if self.whole:
            with torch.enable_grad():
                return self.network_.cpu().eval().gradcam(inputs)
        return parts.restrict.shown(parts.look(inputs), inputs, parts.extract.shape, self.views_)

    # -- saving ---------------------------------------------------------------------------

    def _config(self) -> dict[str, Any]:
        return {
            "parts": self.parts_.config(), "views": list(self.views_), "chosen": self.chosen_, "scores": self.scores_,
            "fitted_on": self.fitted_on_, "pool_needs": self.pool_needs_,
        }  # fmt: skip

    def _tensors(self) -> dict[str, Tensor]:
        return self.parts_.tensors()

    def _restore(self, config: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        if "parts" not in config:
            from foveate.assemble.before_pipelines import as_parts

            config, tensors = as_parts(self, config, tensors)
        self.parts_ = Parts.restored(config["parts"], tensors)
        if self.whole:
            self.preprocess_ = self.parts_.extract.model_.view
        for setting, part in (("embedder", self.parts_.extract), ("attention", self.parts_.look)):
            if not getattr(self, setting, "named"):  # it was given ready made: a new fit starts from what was saved
                setattr(self, setting, part.model_)
        self.views_ = tuple(int(v) for v in config["views"])
        self.chosen_, self.scores_, self.fitted_on_ = config["chosen"], config["scores"], str(config["fitted_on"])
        taught = config.get("pool_needs")
        self.pool_needs_ = None if taught is None else (str(taught[0]), str(taught[1]))


def _data_for(decide: Decision, train: GroupedDataset, target: GroupedDataset | None) -> tuple[GroupedDataset, str]:
    """What a decision is fitted on, and what that is called."""
    if decide.on == "both":
        return training_set(train, target), "train"
    return (target, "target") if decide.on == "target" and target is not None else (train, "train")
