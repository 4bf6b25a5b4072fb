"""What happens when something on the page is clicked: handlers that take values and give values.

They know the session and the page's components, and nothing about where those stand.
"""

from __future__ import annotations

import functools
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from foveate.app import render
from foveate.app.curing import audit_job, cure_job, place_of, shown_audit, shown_cure
from foveate.app.guard import UPLOAD_BYTES
from foveate.app.pictures import Picture, PictureFiles
from foveate.app.state import Session, Shown, Which
from foveate.app.views import Change
from foveate.errors import FoveateError
from foveate.measure import name_of

log = logging.getLogger("foveate")
THUMBS = 24
CANVAS = 448  # pixels of the longer side of what is painted on
WHICH: dict[str, Which] = {
    "all images": "all",
    "errors": "errors",
    "right": "right",
    "where the models differ": "differ",
}
EVERY = "every group"


class Actions:
    """The handlers of a :class:`~foveate.app.page.Page`, which sets the components they answer to.

    A handler returns a dictionary from component to new value; components that are not in it stay as they are.
    """

    gr: Any
    session: Session
    store: PictureFiles
    built_with: dict[str, Change]
    message: Any
    changes: Any
    current: Any
    listing: Any
    group: Any
    gallery: Any
    place: Any
    detail: Any
    parts: Any
    limit: Any
    q: Any
    nothing: Any
    saving: Any
    sure: Any
    figures: Any
    editor: Any
    answer: Any
    verdict: Any
    minutes: Any
    cure: Any
    cured: Any

    # -- what is shown --------------------------------------------------------------------

    def _without_parts(self, model: str) -> str:
        kind = type(self.session.views[model].system).__name__
        return render.message(
            f"{kind} has no parts to switch off. It can be browsed, painted on and compared; IFAM and PDiscoFormer "
            "have parts."
        )

    def _thumbs(self, split: str, rows: list[int], page: int, changes: dict[str, Change]) -> list[tuple[str, str]]:
        session, first = self.session, self.session.models[0]
        told = session.predictions(first, split, changes[first])
        found = []
        for row in rows[page * THUMBS : (page + 1) * THUMBS]:
            guess = name_of(int(told[row]), session.class_names)
            mark = "✓" if guess == session.label(split, row) else f"✗ {guess}:"
            try:
                image = _fit(session.image(split, row), 112)
            except FoveateError:
                image = np.full((112, 112, 3), 128, np.uint8)
            found.append((self.store.path(image), f"{mark} {session.group(split, row)}"))
        return found

    def _place(self, rows: list[int], page: int) -> str:
        if not rows:
            return '<p class="fv-place">no such image</p>'
        low, high = page * THUMBS + 1, min((page + 1) * THUMBS, len(rows))
        return f'<p class="fv-place">{low}–{high} of {len(rows):,}</p>'

    def _picture(self, current: dict[str, Any]) -> tuple[Picture, str, str | None, str | None]:
        """Image, title, class and group of what is selected."""
        if "upload" in current:
            return current["upload"], current["name"], None, None
        split, row, session = current["split"], current["row"], self.session
        image = session.image(split, row)
        return image, session.title(split, row), session.label(split, row), session.group(split, row)

    def _detail(self, current: dict[str, Any], changes: dict[str, Change]) -> str:
        image, title, label, group = self._picture(current)
        pairs = [(m, self.session.show(m, image, changes[m], label)) for m in self.session.models]
        return render.detail(pairs, title, group)

    def _canvas(self, current: dict[str, Any]) -> dict[str, Any]:
        background = self.store.path(_fit(self._picture(current)[0], CANVAS))
        return {"background": background, "layers": [], "composite": None}

    # -- what happens ---------------------------------------------------------------------

    def _told(self, handler: Callable[..., dict[Any, Any]], clears: bool = True) -> Callable[..., dict[Any, Any]]:
        """A mistake becomes a sentence on the page; everything else on it stays as it was.

        An answer to a click takes the last sentence away (``clears``); what the page does by itself leaves it.
        """

        @functools.wraps(handler)
        def told(*given: Any) -> dict[Any, Any]:
            try:
                found = {**({self.message: ""} if clears else {}), **handler(*given)}
                return found or {self.message: self.gr.skip()}  # Gradio takes an empty answer for a missing one
            except FoveateError as error:
                return {self.message: render.message(str(error), "bad")}
            except Exception as error:  # a request that no button makes, or a mistake of ours: the page goes on
                log.info("%s: %s", getattr(handler, "__name__", "handler"), error, exc_info=True)
                told = f"That did not work ({type(error).__name__}). Load the page again."
                return {self.message: render.message(told, "bad")}

        # Gradio finds out from the annotations that a handler wants to know what was selected
        wanted = getattr(handler, "__annotations__", {})
        told.__annotations__ = {k: self.gr.SelectData if k == "event" else v for k, v in wanted.items()}
        return told

    def on_load(self, model: str, current: dict[str, Any]) -> dict[Any, Any]:
        """A page opened or loaded again starts from what is saved with the models by now.

        What was clicked before this answer came stays: the images are listed by another call after it, which the
        browser makes with the choices of that moment.
        """
        saved = {m: self.session.saved(m) for m in self.session.models}
        if saved == self.built_with:
            return {}
        return {
            self.changes: saved,
            self.detail: self._detail(current, saved),
            self.figures: render.figures(self.session, model, saved[model]),
            **self._knobs(model, saved[model]),
        }

    def on_split(self, split: str, group: str, which: str, model: str, changes: dict[str, Change]) -> dict[Any, Any]:
        groups = self.gr.Dropdown([EVERY, *self.session.groups(split)], value=EVERY)
        return {**self.on_filter(split, EVERY, which, model, changes), self.group: groups}

    def on_filter(self, split: str, group: str, which: str, model: str, changes: dict[str, Change]) -> dict[Any, Any]:
        chosen = None if group == EVERY or group not in self.session.groups(split) else group
        rows = self.session.rows(model, split, chosen, WHICH[which], changes)
        return self._list(split, rows, 0, changes)

    def on_turn(self, by: int, split: str, listing: dict[str, Any], changes: dict[str, Change]) -> dict[Any, Any]:
        last = max((len(listing["rows"]) - 1) // THUMBS, 0)
        return self._list(split, listing["rows"], min(max(listing["page"] + by, 0), last), changes)

    def _list(self, split: str, rows: list[int], page: int, changes: dict[str, Change]) -> dict[Any, Any]:
        return {
            self.gallery: self.gr.Gallery(self._thumbs(split, rows, page, changes), selected_index=None),
            self.place: self._place(rows, page),
            self.listing: {"rows": rows, "page": page, "split": split},
        }

    def _select(self, current: dict[str, Any], changes: dict[str, Change]) -> dict[Any, Any]:
        return {
            self.detail: self._detail(current, changes),
            self.current: current,
            self.editor: self._canvas(current),
            self.answer: "",
        }

    def on_select(self, split: str, listing: dict[str, Any], changes: dict[str, Change], event: Any) -> dict[Any, Any]:
        place = listing["page"] * THUMBS + int(event.index)
        split = listing.get("split", split)
        if not 0 <= place < len(listing["rows"]):
            raise FoveateError("that image is no longer in the list; choose another.")
        return self._select({"split": split, "row": listing["rows"][place]}, changes)

    def on_find(self, split: str, name: str, changes: dict[str, Change]) -> dict[Any, Any]:
        return self._select({"split": split, "row": self.session.find(split, name)}, changes)

    def on_upload(self, path: str | None, changes: dict[str, Change]) -> dict[Any, Any]:
        if path is None:
            raise FoveateError("no file arrived; choose an image again.")
        file = Path(path).resolve()
        if not file.is_relative_to(Path(os.environ["GRADIO_TEMP_DIR"]).resolve()):  # Gradio checks this as well
            raise FoveateError("that file was not uploaded here; choose an image again.")
        size = file.stat().st_size
        if size > UPLOAD_BYTES:
            raise FoveateError(f"{file.name} has {size / 2**20:.0f} MB; up to {UPLOAD_BYTES // 2**20} MB are taken.")
        try:
            image = self.session.upload(file.read_bytes(), file.name)
        finally:
            file.unlink(missing_ok=True)
        strange = self.session.unlike_training(image)
        told = {} if strange is None else {self.message: render.message(strange)}
        return {**self._select({"upload": image, "name": file.name}, changes), **told}

    def on_change(
        self, model: str, parts: list[int], limit: bool, q: float, changes: dict[str, Change], current: dict[str, Any],
        split: str, listing: dict[str, Any],
    ) -> dict[Any, Any]:  # fmt: skip
        off = [k for k in range(self.session.parts(model)) if k not in set(parts)]
        changes = {**changes, model: Change(tuple(off), round(float(q), 4) if limit else None)}
        return {**self._changed(model, changes, current, split, listing), self.q: self.gr.Slider(visible=limit)}

    def _changed(
        self, model: str, changes: dict[str, Change], current: dict[str, Any], split: str, listing: dict[str, Any]
    ) -> dict[Any, Any]:
        split = listing.get("split", split)
        return {
            self.changes: changes,
            self.detail: self._detail(current, changes),
            self.figures: render.figures(self.session, model, changes[model]),
            self.gallery: self._thumbs(split, listing["rows"], listing["page"], changes),
            self.sure: self.gr.Button(visible=False),  # what was asked about is no longer what would be saved
        }

    def on_reset(
        self, model: str, changes: dict[str, Change], current: dict[str, Any], split: str, listing: dict[str, Any]
    ) -> dict[Any, Any]:
        changes = {**changes, model: Change()}
        return {**self._changed(model, changes, current, split, listing), **self._knobs(model, Change())}

    def _knobs(self, model: str, change: Change) -> dict[Any, Any]:
        gr, count = self.gr, self.session.parts(model)
        on = [k for k in range(count) if k not in change.parts]
        return {
            self.parts: gr.CheckboxGroup(choices(count), value=on, visible=count > 0),
            self.limit: gr.Checkbox(change.q is not None, visible=count > 0),
            self.q: gr.Slider(value=change.q or 0.99, visible=count > 0 and change.q is not None),
        }

    def on_model(self, model: str, changes: dict[str, Change]) -> dict[Any, Any]:
        return {
            **self._knobs(model, changes[model]),
            self.figures: render.figures(self.session, model, changes[model]),
            self.nothing: self.gr.HTML(self._without_parts(model), visible=self.session.parts(model) == 0),
            self.saving: self.gr.Row(visible=self.session.parts(model) > 0),
            self.sure: self.gr.Button(visible=False),
        }

    def on_save(self, model: str, changes: dict[str, Change]) -> dict[Any, Any]:
        """Save at once what does no harm; ask first about what lowers the figure that matters."""
        lost = self.session.lost(model, changes[model])
        if lost is None:
            return self.on_sure(model, changes)
        name, before, after = lost
        asked = (
            f"Not saved yet: the {name} on {self.session.split} falls from {100 * before:.1f} to {100 * after:.1f} %. "
            "Press “Save anyway” if that is meant."
        )
        return {self.message: render.message(asked, "bad"), self.sure: self.gr.Button(visible=True)}

    def on_sure(self, model: str, changes: dict[str, Change]) -> dict[Any, Any]:
        change = changes[model]
        self.session.save(model, change)
        told = []
        if change.parts:
            told.append(f"without part{'s' if len(change.parts) > 1 else ''} {', '.join(map(str, change.parts))}")
        if change.q is not None:
            told.append(f"with the {100 * change.q:.0f} % most usual patches")
        said = f"Saved: {model} now predicts {' and '.join(told) or 'as trained'}."
        return {self.message: render.message(said, "good"), self.sure: self.gr.Button(visible=False)}

    def on_ask(self, drawn: dict[str, Any] | None, mode: str, current: dict[str, Any]) -> dict[Any, Any]:
        image, _, label, _ = self._picture(current)
        mask = _painted(drawn)
        pairs = [
            (m, self.session.paint(m, image, mask, hide=mode == "hide this", label=label)) for m in self.session.models
        ]
        return {self.answer: self._answer(pairs)}

    def _answer(self, pairs: list[tuple[str, Shown]]) -> str:
        told = []
        for model, shown in pairs:
            assert shown.seen is not None
            assert shown.coverage is not None
            hides = self.session.views[model].hides
            how = "cannot see the rest" if hides else "sees the mean colour in place of the rest"
            seen = render.figure(shown.seen, f"what it was asked about: {100 * shown.coverage:.0f} %; it {how}")
            told.append(f'<div class="fv-figures">{seen}</div>' + render.verdict(model, shown, name=len(pairs) > 1))
        return f'<div class="fv-detail">{"".join(told)}</div>'

    def on_audit(self, model: str) -> Iterator[dict[Any, Any]]:
        """Audit a model; the button that cures appears with a verdict that asks for it."""
        job = audit_job(self.session, model)
        asking = self.gr.Button(visible=False)
        for line in job.lines():
            yield {self.verdict: render.message(line), self.cure: asking, self.cured: ""}
        found = job.result
        wanted = found.verdicts[model].level.accuses
        yield {
            self.verdict: shown_audit(found, model),
            self.cure: self.gr.Button(f"Cure {model}", visible=wanted),
            self.minutes: self.gr.Slider(visible=wanted),
        }

    def on_cure(self, model: str, minutes: float) -> Iterator[dict[Any, Any]]:
        """Cure a model, with a line on how far it is; then before and after."""
        job = cure_job(self.session, model, float(minutes))
        for line in job.lines():
            yield {self.cured: render.message(line)}
        yield {self.cured: shown_cure(job.result, place_of(self.session, model))}

    def _telling(self, handler: Callable[..., Iterator[dict[Any, Any]]]) -> Callable[..., Iterator[dict[Any, Any]]]:
        """As :meth:`_told`, for what says more than one thing."""

        @functools.wraps(handler)
        def told(*given: Any) -> Iterator[dict[Any, Any]]:
            try:
                yield from handler(*given)
            except FoveateError as error:
                yield {self.message: render.message(str(error), "bad")}

        return told

    def on_tab(self, current: dict[str, Any]) -> dict[Any, Any]:
        return {self.editor: self._canvas(current)}


def choices(count: int) -> list[tuple[str, int]]:
    return [(f"part {k}", k) for k in range(count)]


def _fit(image: Picture, side: int) -> Picture:
    """The image with ``side`` pixels on its longer side; small ones are enlarged unsmoothed."""
    height, width = image.shape[:2]
    by = side / max(height, width)
    how = Image.Resampling.NEAREST if by > 1 else Image.Resampling.BILINEAR
    size = max(round(width * by), 1), max(round(height * by), 1)
    return np.asarray(Image.fromarray(image).resize(size, how))


def _painted(drawn: dict[str, Any] | None) -> Any:
    """Where the brush has been: any layer that is not transparent."""
    layers = [layer for layer in (drawn or {}).get("layers") or [] if layer is not None]
    if not layers:
        raise FoveateError("nothing is painted yet: paint over the image first, then ask.")
    mask = np.zeros(layers[0].shape[:2], dtype=bool)
    for layer in layers:
        mask |= layer[..., 3] > 0 if layer.shape[-1] == 4 else layer.any(-1)
    return mask
