"""Audit and cure from the page: work that takes minutes runs beside it, and says how far it is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from typing import Any

from foveate.app.state import Session
from foveate.data.benchmark import Benchmark
from foveate.errors import FoveateError, first_line
from foveate.remedy import Cure, cure
from foveate.remedy.page import Pair, Said, pictures, rows
from foveate.report import Audit, audit
from foveate.report.sentences import percent
from foveate.report.sentences.plain import LEVEL_NAMES

Work = Callable[[Callable[[str], None]], Any]


class BackgroundJob:
    """Something that takes minutes, in a thread of its own.

    >>> job = BackgroundJob(lambda say: (say("half"), 42)[1])
    >>> list(job.lines())[-1:], job.result
    (['half'], 42)
    """

    def __init__(self, work: Work):
        self.result: Any = None
        self.error: Exception | None = None
        self._line, self._moved = "", threading.Condition()
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def _run(self, work: Work) -> None:
        try:
            self.result = work(self._say)
        except Exception as error:  # told on the page by whoever asked
            self.error = error
        with self._moved:
            self._moved.notify_all()

    def _say(self, line: str) -> None:
        with self._moved:
            self._line = line
            self._moved.notify_all()

    def lines(self) -> Iterator[str]:
        """What it says, each line once, until it is done; raises what it ended with."""
        told = ""
        while True:
            with self._moved:
                if self._thread.is_alive() and self._line == told:
                    self._moved.wait(0.5)
                line = self._line
            if line != told:
                told = line
                yield line
            elif not self._thread.is_alive():
                break
        if self.error is not None:
            if isinstance(self.error, FoveateError):
                raise self.error
            raise FoveateError(f"that did not work: {first_line(self.error)}") from self.error


def audit_job(session: Session, model: str) -> BackgroundJob:
    """Audit ``model`` on the images that interventions are judged on."""
    system, images = session.views[model].system, session.data[session.split]
    return BackgroundJob(lambda say: audit({model: system}, images, examples=0, progress=say))


def cure_job(session: Session, model: str, minutes: float) -> BackgroundJob:
    """Cure ``model`` with the images of the session; the result goes beside the folder it was loaded from."""
    system = session.views[model].system
    data = Benchmark(session.name, dict(session.data))
    return BackgroundJob(lambda say: cure(system, data, out=place_of(session, model), minutes=minutes, progress=say))


def place_of(session: Session, model: str) -> Path | None:
    """Where a cured model goes: beside the original; None for a model that came from no folder."""
    folder = session.folders.get(model)
    return None if folder is None else folder.parent / f"{folder.name}-cured"


def shown_audit(found: Audit, model: str) -> str:
    """The verdict as HTML."""
    level = found.verdicts[model].level
    return (
        f'<div class="fv-cure"><p><span class="fv-level fv-{escape(str(level))}" data-level="{escape(str(level))}">'
        f"{escape(LEVEL_NAMES[level])}</span> {escape(found.verdict)}</p></div>"
    )


def shown_cure(found: Cure, place: Path | None) -> str:
    """Before and after as HTML: figures, pictures, and what was tried."""
    record = found.record()
    told = "".join(f"<p>{escape(sentence)}</p>" for sentence in record.sentences)
    cards = ""
    if record.before is not None and record.after is not None:
        for name, before, after in (
            ("worst case", record.before.worst, record.after.worst),
            ("average, all counted alike", record.before.average, record.after.average),
            ("images as they come", record.before.real, record.after.real),
        ):
            cards += (
                f'<div class="fv-card"><span>{name}</span><strong>{percent(after)}</strong>'
                f"<small>{percent(before)} before</small></div>"
            )
    saved = ""
    if place is not None:
        what = "The cured model, its export and the report are" if found.chosen is not None else "The report is"
        saved = f'<p class="fv-small">{what} in the folder <b>{escape(place.name)}</b> beside the model.</p>'
    return (
        f'<div class="fv-cure" data-outcome="{escape(found.outcome)}"><h3>{escape(record.headline)}</h3>'
        f'<div class="fv-cards">{cards}</div>{told}{_shots(pictures(found))}{_tried(found)}{saved}</div>'
    )


def _shots(pairs: list[Pair]) -> str:
    shown = "".join(
        f'<div class="fv-figures">{_shot(p.picture, f"{p.label}, edited")}{_said(p.before, "before")}'
        f"{_said(p.after, 'after')}</div>"
        for p in pairs[:2]
    )
    return f"<p>The same pictures before and after, and where each model looked:</p>{shown}" if shown else ""


def _shot(picture: str, caption: str) -> str:
    told = escape(caption)
    return f'<figure><img src="{picture}" alt="{told}"><figcaption>{told}</figcaption></figure>'


def _said(said: Said, when: str) -> str:
    told = f"{when}: {said.answer}, {'right' if said.right else 'wrong'}"
    return _shot(said.looked, told) if said.looked else f"<figure><figcaption>{escape(told)}</figcaption></figure>"


def _tried(found: Cure) -> str:
    lines = "".join(
        f'<tr><th scope="row">{escape(row.title)}</th><td>{"–" if row.worst is None else percent(row.worst)}</td>'
        f"<td>{'–' if row.average is None else percent(row.average)}</td><td>{row.seconds:.0f} s</td>"
        f"<td>{escape(row.outcome)}</td></tr>"
        for row in rows(found)
    )
    head = "<tr><th>remedy</th><th>worst case</th><th>average</th><th>took</th><th></th></tr>"
    table = f"<table><thead>{head}</thead><tbody>{lines}</tbody></table>"
    return f"<details><summary>What was tried</summary>{table}</details>"
