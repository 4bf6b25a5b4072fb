"""YAML with places: plain values, and the line every field stands on, so that a mistake can be pointed at."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from foveate.errors import FoveateError, MissingExtra

FieldPath = tuple[str | int, ...]
"""The way to a field through names and numbers, for instance ``("methods", "DAR", "grid", "lr", 1)``."""


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
        _walk(yaml, node, (), lines)
        values = None if node is None else loader.construct_document(node)
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


def _walk(yaml: Any, node: Any, path: FieldPath, lines: dict[FieldPath, int]) -> None:
    if node is None:
        return
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            place = (*path, key.value)
            if place in lines:
                raise FoveateError(
                    f"line {key.start_mark.line + 1}: '{key.value}' is here a second time (first on line "
                    f"{lines[place]}); remove one."
                )
            lines[place] = key.start_mark.line + 1
            _walk(yaml, value, place, lines)
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            _walk(yaml, value, (*path, number), lines)
