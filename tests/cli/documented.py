"""The blocks and command lines of a page, run as they stand there, with small things in place of large ones."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.cli.conftest import Call

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class Ran:
    """A line that was run, and what came of it."""

    line: str
    code: int
    out: str
    err: str

    @property
    def words(self) -> list[str]:
        return shlex.split(self.line)[1:]


def fences(page: str) -> list[tuple[str, str]]:
    """``(language, text)`` of every block of a page, in order."""
    return re.findall(r"^```(\w*)\n(.*?)^```", (ROOT / page).read_text(encoding="utf-8"), flags=re.M | re.S)


def block(page: str, kind: str, word: str) -> str:
    """The one block of a page in a language that has ``word`` in it."""
    (found,) = [body for language, body in fences(page) if language == kind and word in body]
    return found


def lines(page: str) -> list[str]:
    """The ``foveate`` lines in the blocks of a page that are no program, without their comments."""
    text = "\n".join(body for kind, body in fences(page) if kind != "python").replace("\\\n", " ")
    found = re.findall(r"^(foveate .*)$", text, flags=re.M)
    return [shlex.join(shlex.split(line, comments=True)) for line in found]


def shrunk(text: str, small: Mapping[str, str]) -> str:
    """A page's text with what ``small`` puts in place of what would be large; what is no longer there is an error."""
    for usual, tiny in small.items():
        assert usual in text, f"'{usual}' is not on the page any more"
        text = text.replace(usual, tiny)
    return text


def walk(
    page: str,
    call: Call,
    small: Mapping[str, str],
    *,
    left_out: Mapping[str, str] | None = None,
    codes: Mapping[str, int] | None = None,
) -> list[Ran]:
    """Run the lines of a page in order.

    Args:
        page: its path in the project.
        call: runs a command.
        small: what is put in place of what would be large, see :func:`shrunk`.
        left_out: lines that are not run, as they stand on the page, and why.
        codes: exit codes other than 0, by line as it is run.
    """
    left_out, codes = left_out or {}, codes or {}
    found = lines(page)
    assert [line for line in left_out if line not in found] == [], "no longer on the page"
    ran: list[Ran] = []
    for line in shrunk("\n".join(line for line in found if line not in left_out), small).splitlines():
        code, out, err = call(*shlex.split(line)[1:])
        assert code == codes.get(line, 0), (line, out[-800:], err[-800:])
        ran.append(Ran(line, code, out, err))
    return ran
