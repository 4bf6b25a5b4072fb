"""The page itself: Gradio components on top of a :class:`~foveate.app.state.Session`, and nothing else."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
import time
import webbrowser
from collections.abc import Callable
from importlib import resources
from typing import Any

from foveate.app import render
from foveate.app.actions import EVERY, WHICH, Actions, choices
from foveate.app.gate import Gate, Gatekeeper
from foveate.app.guard import UPLOAD_BYTES
from foveate.app.pictures import PictureFiles
from foveate.app.serving import check_place, quiet_gradio
from foveate.app.state import Session
from foveate.errors import FoveateError, MissingExtra

Handler = Callable[..., Any]
_BLUE, _GREY, _LIGHT_BLUE, _LIGHT_GREY = "#0369a1", "#566273", "#38bdf8", "#a8b3c2"
_COLOURS = {
    "color_accent": _BLUE, "button_primary_background_fill": _BLUE, "button_primary_background_fill_dark": _BLUE,
    "button_primary_background_fill_hover": "#075985", "button_primary_background_fill_hover_dark": "#075985",
    "body_text_color_subdued": _GREY, "body_text_color_subdued_dark": _LIGHT_GREY,
    "block_info_text_color": _GREY, "block_info_text_color_dark": _LIGHT_GREY,
    "block_label_text_color": _GREY, "block_label_text_color_dark": _LIGHT_GREY,
    "block_title_text_color": _GREY, "block_title_text_color_dark": _LIGHT_GREY,
    "input_placeholder_color": _GREY, "input_placeholder_color_dark": _LIGHT_GREY,
}  # fmt: skip
"""What the theme paints too pale to be read (under 4.5 to 1)."""


def _gradio() -> Any:
    """Gradio with everything that calls home switched off before it is imported."""
    for name, value in (
        ("GRADIO_ANALYTICS_ENABLED", "False"),
        ("HF_HUB_DISABLE_TELEMETRY", "1"),
        ("GRADIO_SSR_MODE", "False"),
    ):
        os.environ[name] = value
    if "GRADIO_TEMP_DIR" not in os.environ:  # pictures on their way to the browser; gone when we are
        place = tempfile.mkdtemp(prefix="foveate-app-")
        os.environ["GRADIO_TEMP_DIR"] = place
        atexit.register(shutil.rmtree, place, ignore_errors=True)
    try:
        import gradio
    except ImportError as error:
        raise MissingExtra("gradio", "app", "the interactive page") from error
    return gradio


class Page(Actions):
    """Builds the page for ``session`` and serves it."""

    def __init__(self, session: Session):
        self.gr = _gradio()
        self.session = session
        self.store = PictureFiles(os.environ["GRADIO_TEMP_DIR"])
        self.blocks = self._build()

    # -- layout ---------------------------------------------------------------------------

    def _build(self) -> Any:
        gr, session = self.gr, self.session
        first, split = session.models[0], session.split
        which = list(WHICH) if len(session.models) > 1 else list(WHICH)[:-1]
        rows = session.rows(first, split)
        start = {"split": split, "row": rows[0]}
        self.built_with = saved = {m: session.saved(m) for m in session.models}
        with gr.Blocks(analytics_enabled=False, title="foveate", delete_cache=(600, 3600)) as blocks:
            gr.HTML(self._head())
            self.changes = gr.State(saved)
            self.current = gr.State(start)
            self.listing = gr.State({"rows": rows, "page": 0})
            self.message = gr.HTML("", elem_id="message")
            with gr.Row(equal_height=False):
                with gr.Column(scale=4, min_width=340):
                    with gr.Row():
                        self.split = gr.Dropdown(list(session.data), value=split, label="Split", min_width=90)
                        groups = [EVERY, *session.groups(split)]
                        self.group = gr.Dropdown(groups, value=EVERY, label="Group", min_width=130, elem_id="group")
                    self.which = gr.Radio(which, value=which[0], label="Show", elem_id="which")
                    self.gallery = gr.Gallery(
                        self._thumbs(split, rows, 0, saved), columns=3, height=430, allow_preview=False,
                        object_fit="contain", show_label=False, elem_id="gallery", buttons=[], interactive=False,
                        label="Images",
                    )  # fmt: skip
                    with gr.Row():
                        self.back = gr.Button("←", size="sm", min_width=40)
                        self.place = gr.HTML(self._place(rows, 0), padding=False)
                        self.forth = gr.Button("→", size="sm", min_width=40)
                    with gr.Row(equal_height=True):
                        self.find = gr.Textbox(
                            label="Find",
                            placeholder="name or number",
                            elem_id="find",
                            scale=3,
                            max_length=200,
                        )
                        self.upload = gr.UploadButton("Try an image of your own", size="sm", elem_id="upload", scale=2)
                with gr.Column(scale=7, min_width=420), gr.Tabs():
                    with gr.Tab("Look and intervene"):
                        self.detail = gr.HTML(self._detail(start, saved), elem_id="detail")
                        self._intervention()
                    with gr.Tab("Paint a mask") as tab:
                        self._painting(start)
                    with gr.Tab("Audit and cure"):
                        self._curing()
            self._wire(tab, blocks)
        return blocks

    def _head(self) -> str:
        from html import escape

        session = self.session
        named = " and ".join(escape(f"{m} ({type(v.system).__name__})") for m, v in session.views.items())
        images = ", ".join(f"{escape(s)} {n:,}" for s, n in session.whole.items())
        return f'<div class="fv-head"><h1>foveate</h1><p>{named} on {escape(session.name)}: {images} images</p></div>'

    def _intervention(self) -> None:
        gr, session = self.gr, self.session
        first = session.models[0]
        change, count = session.saved(first), session.parts(first)
        with gr.Row(equal_height=False):
            with gr.Column(scale=3, min_width=240):
                self.model = gr.Radio(
                    session.models,
                    value=first,
                    label="Model to change",
                    visible=len(session.models) > 1,
                    elem_id="model",
                )
                self.parts = gr.CheckboxGroup(
                    choices(count), value=[k for k in range(count) if k not in change.parts], visible=count > 0,
                    label="Parts it may see", info="Click a part off and watch.", elem_id="parts",
                )  # fmt: skip
                self.limit = gr.Checkbox(
                    change.q is not None, label="Hide unusual patches", visible=count > 0, elem_id="limit",
                    info="Patches unlike their part, by training images.",
                )  # fmt: skip
                self.q = gr.Slider(
                    0.5, 1.0, value=change.q or 0.99, step=0.01, label="Share of usual patches to keep",
                    visible=count > 0 and change.q is not None, elem_id="q",
                )  # fmt: skip
                with gr.Row(visible=count > 0) as self.saving:
                    self.reset = gr.Button("Undo all", size="sm", min_width=80)
                    self.save = gr.Button(
                        "Save to the model", variant="primary", size="sm", elem_id="save", min_width=110
                    )
                self.sure = gr.Button("Save anyway", variant="stop", size="sm", elem_id="sure", visible=False)
                self.nothing = gr.HTML(self._without_parts(first), visible=count == 0)
            with gr.Column(scale=4, min_width=280):
                self.figures = gr.HTML(render.figures(session, first, change), elem_id="figures")

    def _painting(self, start: dict[str, Any]) -> None:
        gr = self.gr
        gr.HTML(
            '<p class="fv-small">Paint over the image. The model is then asked about what you painted alone, or about '
            "all the rest.</p>"
        )
        with gr.Row(equal_height=False):
            with gr.Column(scale=4, min_width=300):
                self.editor = gr.ImageEditor(
                    value=self._canvas(start), type="numpy", sources=(), transforms=(), layers=False, show_label=False,
                    brush=gr.Brush(default_size=28, colors=["#e69f00"], color_mode="fixed"), eraser=gr.Eraser(),
                    elem_id="editor", height=480, format="png", buttons=[], label="Paint",
                )  # fmt: skip
                with gr.Row(equal_height=False):
                    self.mode = gr.Radio(
                        ["show only this", "hide this"], value="show only this", show_label=False, elem_id="mode",
                        container=False, scale=3,
                    )  # fmt: skip
                    self.ask = gr.Button("Ask the model", variant="primary", elem_id="ask", min_width=110, scale=2)
            with gr.Column(scale=3, min_width=240):
                self.answer = gr.HTML("", elem_id="answer")

    def _curing(self) -> None:
        gr, session = self.gr, self.session
        gr.HTML(
            '<p class="fv-small">Does the model lean on a shortcut? The audit exchanges properties between images and '
            "watches the answers. Where it finds something, a cure can be tried: it makes images in which that says "
            "nothing about the class, tries remedies on them and keeps the best. Your model stays as it is.</p>"
        )
        self.patient = gr.Radio(
            session.models, value=session.models[0], label="Model", visible=len(session.models) > 1, elem_id="patient"
        )
        self.examine = gr.Button("Audit", variant="primary", size="sm", elem_id="audit", min_width=110)
        self.verdict = gr.HTML("", elem_id="verdict")
        self.minutes = gr.Slider(1, 60, value=10, step=1, label="Minutes", visible=False, elem_id="minutes")
        self.cure = gr.Button("Cure", variant="primary", size="sm", elem_id="cure", visible=False, min_width=110)
        self.cured = gr.HTML("", elem_id="cured")

    # -- what happens ---------------------------------------------------------------------

    def _wire(self, tab: Any, blocks: Any) -> None:
        gallery = [self.gallery, self.place, self.listing]
        seen = [self.message, self.detail, self.current, self.editor, self.answer]
        browse = [self.split, self.group, self.which, self.model, self.changes]

        def on(
            event: Callable[..., Any],
            fn: Callable[..., Any],
            inputs: list[Any],
            outputs: list[Any],
            clears: bool = True,
        ) -> Any:
            # one line for all handlers, first come first served: an answer never arrives after that to a later click
            return event(
                self._told(fn, clears), inputs, list(dict.fromkeys([*outputs, self.message])), api_visibility="private",
                show_progress="hidden", concurrency_id="page", concurrency_limit=1,
            )  # fmt: skip

        on(self.split.change, self.on_split, browse, [*gallery, self.group])
        for component in (self.group, self.which):
            on(component.change, self.on_filter, browse, gallery)
        turn = [self.split, self.listing, self.changes]
        on(self.back.click, functools.partial(self.on_turn, -1), turn, gallery)
        on(self.forth.click, functools.partial(self.on_turn, 1), turn, gallery)
        on(self.gallery.select, self.on_select, [self.split, self.listing, self.changes], seen)
        on(self.find.submit, self.on_find, [self.split, self.find, self.changes], seen)
        on(self.upload.upload, self.on_upload, [self.upload, self.changes], seen)
        knobs = [self.model, self.parts, self.limit, self.q]
        state = [self.changes, self.current, self.split, self.listing]
        shown = [self.changes, self.detail, self.figures, self.gallery, self.q, self.sure]
        for component in (self.parts, self.limit):
            on(component.input, self.on_change, [*knobs, *state], shown)
        on(self.q.release, self.on_change, [*knobs, *state], shown)
        switched = [self.parts, self.limit, self.q, self.figures, self.nothing, self.saving, self.sure]
        on(self.model.change, self.on_model, [self.model, self.changes], switched)
        on(self.reset.click, self.on_reset, [self.model, *state], [*shown, self.parts, self.limit])
        on(self.save.click, self.on_save, [self.model, self.changes], [self.sure])
        on(self.sure.click, self.on_sure, [self.model, self.changes], [self.sure])
        on(self.ask.click, self.on_ask, [self.editor, self.mode, self.current], [self.answer])
        begun = [self.changes, self.detail, self.figures, self.q, self.parts, self.limit]
        loaded = on(blocks.load, self.on_load, [self.model, self.current], begun, clears=False)
        on(loaded.then, self.on_filter, browse, gallery, clears=False)
        on(tab.select, self.on_tab, [self.current], [self.editor])
        # minutes of work: in a line of their own, so that the rest of the page goes on answering
        long: dict[str, Any] = {
            "api_visibility": "private", "show_progress": "hidden", "concurrency_id": "cure", "concurrency_limit": 1
        }  # fmt: skip
        seen = [self.verdict, self.cure, self.minutes, self.cured, self.message]
        self.examine.click(self._telling(self.on_audit), [self.patient], seen, **long)
        self.cure.click(self._telling(self.on_cure), [self.patient, self.minutes], [self.cured, self.message], **long)

    # -- serving --------------------------------------------------------------------------

    def launch(
        self, *, host: str = "127.0.0.1", port: int | None = None, share: bool = False, browser: bool = False,
        block: bool = True,
    ) -> str:  # fmt: skip
        """Serve the page and give the address that opens it (with a secret in it); a public one only with ``share``."""
        from starlette.middleware import Middleware

        check_place(host, port)
        keeper = Gatekeeper(host)
        quiet_gradio()
        gr = self.gr
        plain = ("system-ui", "-apple-system", "Segoe UI", "sans-serif")  # nothing is fetched from elsewhere
        theme = gr.themes.Base(
            primary_hue="sky", neutral_hue="slate", font=plain, font_mono=("ui-monospace", "monospace")
        ).set(**_COLOURS)
        style = resources.files("foveate.app").joinpath("style.css").read_text(encoding="utf-8")
        try:
            _, local, public = self.blocks.launch(
                server_name=host, server_port=port, share=share, inbrowser=False, prevent_thread_lock=True, quiet=True,
                max_file_size=UPLOAD_BYTES, allowed_paths=[], footer_links=[], ssr_mode=False, mcp_server=False,
                pwa=False, enable_monitoring=False, theme=theme, css=f"{style}\n{render.part_css()}",
                blocked_paths=[str(p.resolve()) for p in self.session.folders.values()],
                app_kwargs={"middleware": [Middleware(Gate, keeper=keeper)]},
            )  # fmt: skip
        except (OSError, gr.exceptions.ServerFailedToStartError) as error:
            raise FoveateError(
                f"the page cannot be served on {host}: {error}. Choose another --host or --port."
            ) from error
        if public:
            keeper.share(str(public))
        keeper.started = True
        address = keeper.open_at(str(public or local))
        if browser:
            webbrowser.open(address)
        if block:
            print(f"foveate app: {address}   (Ctrl+C ends it)", flush=True)
            try:
                while self.blocks.is_running:
                    time.sleep(0.1)
            finally:
                self.close()
        return address

    def close(self) -> None:
        """Stop serving."""
        self.blocks.close(verbose=False)
        self.store.close()
