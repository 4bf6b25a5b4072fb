"""YAML with places: plain values, and the line every field stands on, so that a mistake can be pointed at."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from foveate.errors import FoveateError, MissingExtra, first_line

FieldPath = tuple[str | int, ...]
"""The way to a field through names and numbers, for instance ``("methods", "DAR", "grid", "lr", 1)``."""
DEEPEST, MOST = 50, 100_000
"""Levels and fields of a YAML text at most; aliases can make a short text an endless one."""


class Places:
    """Where the fields of a YAML text stand.

    >>> values, places = read_yaml("name: x\\nseeds:\\n  - 1\\n  - 2\\n")
    >>> values, places.line(("seeds", 1)), places.line(("seeds", 7))
    ({'name': 'x', 'seeds': [1, 2]}, 4, 2)
    """

    def __init__(self, lines: dict[FieldPath, int]):
        self.lines = lines

    def line(self, path: Sequence[str | int]) -> int:
        """The line (from 1) of the field ``path``, or of the closest thing around it that is written down."""
        place = tuple(path)
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)


def read_yaml(text: str) -> tuple[Any, Places]:
    """The plain values of a YAML text and their places; no tags, no objects, no name twice in a mapping."""
    yaml = _yaml()

    class Loader(yaml.SafeLoader):  # type: ignore[name-defined,misc]
        """YAML 1.1 takes 1e-3 for a word; here it is a number."""

    Loader.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"^[-+]?\d+(\.\d*)?[eE][-+]?\d+$"), list("-+0123456789")
    )
    try:
        loader = Loader(text)
        node = loader.get_single_node()
        lines: dict[FieldPath, int] = {}
        _walk(yaml, node, (), lines, [])
        values = None if node is None else loader.construct_document(node)
    except RecursionError as error:
        raise FoveateError("this is nested too deeply to be a spec.") from error
    except (ValueError, TypeError, OverflowError, AttributeError, KeyError) as error:  # a date that is none, say
        raise FoveateError(f"this is not YAML: {first_line(error)}.") from error
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f"line {mark.line + 1}: "
        what = getattr(error, "problem", None) or " ".join(str(error).split())
        raise FoveateError(f"{where}this is not YAML: {what}.") from error
    return values, Places(lines)


def _yaml() -> Any:
    try:
        import yaml  # type: ignore[import-untyped,unused-ignore]
    except ImportError as error:
        raise MissingExtra("pyyaml", "bench", "reading a spec file") from error
    return yaml


def _walk(yaml: Any, node: Any, path: FieldPath, lines: dict[FieldPath, int], above: list[Any]) -> None:
    if node is None:
        return
    here = node.start_mark.line + 1
    if any(node is one for one in above):
        raise FoveateError(f"line {here}: this contains itself; a spec is plain values.")
    if len(above) > DEEPEST or len(lines) > MOST:
        raise FoveateError(f"line {here}: this is nested too deeply, or repeats itself too often, to be a spec.")
    lines.setdefault(path, here)
    above = [*above, node]
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode):
                raise FoveateError(f"line {key.start_mark.line + 1}: the name of a field is plain text.")
            place = (*path, key.value)
            if place in lines:
                raise FoveateError(
                    f"line {key.start_mark.line + 1}: '{key.value}' is here a second time (first on line "
                    f"{lines[place]}); remove one."
                )
            lines[place] = key.start_mark.line + 1
            _walk(yaml, value, place, lines, above)
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            _walk(yaml, value, (*path, number), lines, above)
