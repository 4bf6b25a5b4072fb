"""Rules of the house that a machine can check: functions that fit a screen, sentences that nobody reads back."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "foveate"
FILES = sorted(SRC.rglob("*.py"))
MOST_LINES = 80
TOO_LONG: set[str] = set()
"""Functions that may still be longer, as ``file:name``, until they are taken apart; none at present."""
_NOT_CODE = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip


def code_lines(text: str) -> tuple[ast.Module, set[int]]:
    """The lines of ``text`` that hold code: no blank ones, no comments, no docstrings."""
    tree = ast.parse(text)
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _NOT_CODE:
            lines |= set(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.body:
            first = node.body[0]
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                lines -= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return tree, lines


def lengths(text: str) -> dict[str, int]:
    """Code lines of every function, decorators not counted; of several with one name, the longest."""
    tree, lines = code_lines(text)
    found: dict[str, int] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            mine = len(lines & set(range(node.lineno, (node.end_lineno or node.lineno) + 1)))
            found[node.name] = max(mine, found.get(node.name, 0))
    return found


def test_code_lines_are_counted_as_one_would() -> None:
    said = '    """Words.\n\n    More."""\n'
    text = f'def f(a):\n{said}\n    # why\n    x = (\n        a,\n    )\n    return """two\n    lines"""\n'
    assert lengths(text) == {"f": 6}
    assert lengths(f"class A:\n    def f(self): pass\n{text}class B:\n    def f(self): pass\n") == {"f": 6}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SRC)))
def test_no_function_is_longer_than_a_screen(path: Path) -> None:
    where = path.relative_to(SRC).as_posix()
    found = {f"{where}:{name}": n for name, n in lengths(path.read_text(encoding="utf-8")).items() if n > MOST_LINES}
    assert {name: n for name, n in found.items() if name not in TOO_LONG} == {}
    assert {name for name in TOO_LONG if name.startswith(f"{where}:")} <= set(found), "taken apart: strike it off"


def test_nobody_reads_a_sentence_to_learn_what_was_found() -> None:
    """What a verdict is, is a field; no file of the report looks at how a text begins or ends."""
    looks = ("startswith", "endswith")
    for path in (SRC / "report").rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        assert not [n.lineno for n in ast.walk(tree) if isinstance(n, ast.Attribute) and n.attr in looks], path


def test_no_class_is_deeper_than_four() -> None:
    """Project classes above a class, itself counted; the longest way up."""
    parents: dict[str, list[str]] = {}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                names = [b.attr if isinstance(b, ast.Attribute) else getattr(b, "id", "") for b in node.bases]
                parents[node.name] = [n for n in names if n != node.name]

    def depth(name: str) -> int:
        return 1 + max((depth(p) for p in parents[name] if p in parents), default=0)

    assert {name: depth(name) for name in parents if depth(name) > 4} == {}


def test_a_class_or_type_means_one_thing() -> None:
    """A name that starts with a capital and is no constant is defined in one module."""
    homes: dict[str, set[str]] = {}
    for path in FILES:
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            targets: list[str] = [node.name] if isinstance(node, ast.ClassDef) else []
            if isinstance(node, ast.Assign):
                targets = [t.id for t in node.targets if isinstance(t, ast.Name)]
            for name in targets:
                if re.fullmatch(r"[A-Z]\w*[a-z]\w*", name):
                    homes.setdefault(name, set()).add(path.relative_to(SRC).as_posix())
    assert {name: sorted(where) for name, where in homes.items() if len(where) > 1} == {}


def test_few_type_ignores() -> None:
    found = sum(path.read_text(encoding="utf-8").count("type: ignore") for path in FILES)
    assert found <= 40
