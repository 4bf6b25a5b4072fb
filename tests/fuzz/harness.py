"""Runs the command line on bad input, in this process, and judges what came back.

A case is fine when it ends in time, prints no traceback, sends no control character to the screen, and exits with a
code it may exit with: 2 for an input at fault, 0 where the input turned out to be usable, and 1 for verbs that mean
something by it (``data check`` found a problem, ``verify`` found a leak). The code of an internal error (70) is never
fine: it is a bug of ours, however politely it is worded.

A fuzzer for another kind of input is one generator of :class:`Case` and one line in ``tests/fuzz/suite.py``.
"""

from __future__ import annotations

import contextlib
import faulthandler
import io
import random
import re
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from foveate.errors import FoveateError

SECONDS = 30.0
"""How long one case may take before it counts as a hang; the slowest honest ones train for two seconds."""
BAD = frozenset({2})
MAYBE = frozenset({0, 2})
CHECKED = frozenset({0, 1, 2})
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


@dataclass(frozen=True)
class Case:
    """One bad input.

    Attributes:
        group: what it is counted under, for instance ``line:fit`` or ``file:csv``.
        name: tells it apart from the others of the group.
        build: writes its files into an empty folder and gives the words after ``foveate``, or a call to make instead.
        allowed: codes it may exit with.
        after: looks at the folder afterwards; a sentence about what was damaged, or None.
    """

    group: str
    name: str
    build: Callable[[Path], list[str] | Callable[[], object]]
    allowed: frozenset[int] = MAYBE
    after: Callable[[Path], str | None] | None = None

    def __str__(self) -> str:
        return f"{self.group}: {self.name}"


@dataclass
class Outcome:
    """What a case did; ``faults`` names what is wrong with that (empty: nothing)."""

    case: Case
    code: int | None
    told: str
    faults: list[str] = field(default_factory=list)


class TooLong(BaseException):
    """The time of a case is over. No Exception, so that nothing but the harness catches it."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise :class:`TooLong` in the main thread; what cannot even be interrupted ends the process, with a stack."""

    def ring(number: int, frame: FrameType | None) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    with contextlib.suppress(ValueError, OSError, io.UnsupportedOperation):
        faulthandler.dump_traceback_later(4 * seconds, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        faulthandler.cancel_dump_traceback_later()


def run(case: Case, seconds: float = SECONDS) -> Outcome:
    """Build the case in a folder of its own, run it, judge it."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-"))
    try:
        made = case.build(folder)
        code, told, ended = _called(made, seconds) if callable(made) else _command(made, seconds)
        faults = []
        if ended == "hang":
            faults.append("hang")
        elif ended or "Traceback (most recent call last)" in told:
            faults.append("traceback")
            told += ended
        elif code not in case.allowed:
            faults.append("exit code")
        if sent := CONTROL.search(told.replace("\r\n", "\n")):
            faults.append("control character")
            told += f"\n[sent {sent[0]!a}]"
        if case.after is not None and (damage := case.after(folder)) is not None:
            faults.append("damage")
            told += f"\n[{damage}]"
        return Outcome(case, code, told, faults)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _command(words: list[str], seconds: float) -> tuple[int | None, str, str]:
    """Exit code, what was printed, and how it ended badly: "", "hang" or a traceback."""
    from foveate.cli.inputs import console
    from foveate.cli.main import main

    console._buffer.clear()  # what a case could not print must not be printed by the next
    # streams as strict as real ones: a name that is no UTF-8 must not stop the printing
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors=e) for e in ("strict", "backslashreplace"))
    before = sys.argv
    sys.argv = ["foveate", *words]
    code: int | None = None
    ended = ""
    try:
        with (
            contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings(),
            time_limit(seconds),
        ):  # fmt: skip
            try:
                main()
                code = 0
            except SystemExit as stop:
                code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
            out.flush()
    except TooLong:
        ended = "hang"
    except BaseException:
        ended = traceback.format_exc()
    finally:
        sys.argv = before
    told = ""
    for stream in (out, err):
        with contextlib.suppress(UnicodeError, ValueError):
            stream.flush()
        told += stream.buffer.getvalue().decode("utf-8", "surrogateescape")  # type: ignore[attr-defined]
    return code, told, ended


def _called(call: Callable[[], object], seconds: float) -> tuple[int | None, str, str]:
    """The same for a call of the library: a :class:`FoveateError` is what the command line turns into 2."""
    try:
        with warnings.catch_warnings(), time_limit(seconds):
            warnings.simplefilter("ignore")
            call()
    except FoveateError:
        return 2, "", ""
    except TooLong:
        return None, "", "hang"
    except BaseException:
        return None, "", traceback.format_exc()
    return 0, "", ""


def sample(cases: Iterable[Case], size: int, seed: int) -> list[Case]:
    """About ``size`` cases, every group the same share (at least one), always the same ones for a seed."""
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.group, []).append(case)
    total = sum(map(len, groups.values()))
    rng = random.Random(seed)
    chosen: list[Case] = []
    for of in groups.values():
        chosen += rng.sample(of, min(len(of), max(1, round(size * len(of) / total))))
    return chosen


def summary(outcomes: list[Outcome]) -> str:
    """One line a group: cases, and each kind of fault."""
    kinds = ("traceback", "hang", "exit code", "control character", "damage")
    rows = []
    for group in sorted({o.case.group for o in outcomes}):
        of = [o for o in outcomes if o.case.group == group]
        found = Counter(fault for o in of for fault in o.faults)
        rows.append((group, len(of), *(found[kind] for kind in kinds)))
    rows.append(("all", *(sum(row[i] for row in rows) for i in range(1, 2 + len(kinds)))))  # type: ignore[misc,index]
    width = max(len(row[0]) for row in rows)
    lines = [f"{'group':<{width}}  cases  " + "  ".join(kinds)]
    for name, *counts in rows:
        cells = [f"{counts[0]:>5}", *(f"{n:>{len(k)}}" for n, k in zip(counts[1:], kinds, strict=True))]
        lines.append(f"{name:<{width}}  " + "  ".join(cells))
    return "\n".join(lines)
