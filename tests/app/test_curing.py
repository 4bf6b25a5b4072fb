"""The tab that audits and cures: lines while it works, a verdict, a button where it is needed, before and after."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import foveate as fv
from foveate.app import curing
from foveate.app.curing import BackgroundJob, place_of, shown_audit, shown_cure
from foveate.app.state import Session
from foveate.data.benchmark import Benchmark
from foveate.errors import FoveateError


def failing(error: Exception) -> Callable[..., Any]:
    def work(say: Callable[[str], None]) -> None:
        say("begun")
        raise error

    return work


def test_a_job_says_its_lines_and_hands_on_what_it_ended_with() -> None:
    job = BackgroundJob(failing(FoveateError("no classes")))
    with pytest.raises(FoveateError, match="no classes"):
        list(job.lines())
    with pytest.raises(FoveateError, match="that did not work: never mind"):
        list(BackgroundJob(failing(ValueError("never mind"))).lines())


@pytest.fixture(scope="module")
def session(critters: Benchmark, saved_models: Path) -> Session:
    folder = saved_models / "erm"
    return Session({"erm": fv.load(folder)}, critters, folders={"erm": folder})


def test_an_audit_and_a_cure_become_html_with_names_escaped(
    session: Session, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    job = curing.audit_job(session, "erm")
    assert list(job.lines())
    shown = shown_audit(job.result, "erm")
    assert f'data-level="{job.result.verdicts["erm"].level}"' in shown
    session.folders["erm"] = tmp_path / "<b>erm"
    place = place_of(session, "erm")
    assert place is not None
    assert place.name == "<b>erm-cured"
    job = curing.cure_job(session, "erm", 1)
    assert any(["left]" in line for line in job.lines()])
    shown = shown_cure(job.result, place)
    assert f'data-outcome="{job.result.outcome}"' in shown
    assert "&lt;b&gt;erm-cured" in shown
    assert (place / "report.html").is_file()
    assert place_of(Session({"erm": session.views["erm"].system}, Benchmark("d", session.data)), "erm") is None
