"""Docstrings as Markdown: doctests become code blocks, roles such as ``:class:`` become links."""

from __future__ import annotations

import re
from typing import Any

import griffe

ROLE = re.compile(r":(?:class|func|meth|mod|data|attr|exc):`(~?)([\w.]+)`")


def as_markdown(text: str) -> str:
    """``text`` with its roles as links that may lead nowhere, and every doctest in a fence.

    >>> as_markdown("See :class:`~foveate.look.Gaze`.")
    'See <autoref identifier="foveate.look.Gaze" optional><code>Gaze</code></autoref>.'
    >>> as_markdown("It adds.\\n\\n>>> 1 + 1\\n2").splitlines()
    ['It adds.', '', '```pycon', '>>> 1 + 1', '2', '```']
    """
    return _fenced(ROLE.sub(_link, text))


def _link(found: re.Match[str]) -> str:
    name = found[2].rpartition(".")[2] if found[1] else found[2]
    return f'<autoref identifier="{found[2]}" optional><code>{name}</code></autoref>'


def _fenced(text: str) -> str:
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        starts = line.lstrip().startswith(">>> ")
        if starts and not inside:
            lines += ["", "```pycon"] if lines and lines[-1].strip() else ["```pycon"]
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line)
    return "\n".join([*lines, "```"] if inside else lines)


class Plain(griffe.Extension):
    """Called by the reader of the source for everything that has a docstring."""

    def on_object(self, *, obj: griffe.Object, **options: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = as_markdown(obj.docstring.value)
