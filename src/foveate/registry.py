"""Things by name, each listed once; other packages add theirs by entry points.

The lists themselves stand in :mod:`foveate.registries`.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, cast

from foveate.errors import FoveateError, suggest

T = TypeVar("T")

_ADDRESS = re.compile(r"^[A-Za-z_][\w.]*:[A-Za-z_][\w.]*$")
_NOT_LOADED = object()


class BrokenEntryPoint(UserWarning):
    """Another package offers something that cannot be used; it is left out."""


@dataclass
class _Line(Generic[T]):
    """One line of a registry: ``address`` where the thing is loaded from when asked for, ``thing`` once it is here."""

    name: str
    address: str
    summary: str
    thing: T | object = _NOT_LOADED
    package: str | None = None
    """The package whose entry point this is; None for what was added in Python."""
    refused: bool = False

    def at(self) -> str:
        """Where it comes from, for messages."""
        return f"{self.address} (package {self.package})" if self.package else self.address


class Registry(Generic[T]):
    """Things of one kind by name; case does not matter.

    A line is the thing itself, or its address ``"package.module:attribute"``, which is imported when the thing is
    asked for and not before: listing names costs no import. What other installed packages declare as entry points
    of the group ``foveate.PLURAL`` is read once, on first use.

    Args:
        kind: what one of them is called, for messages.
        plural: what several are called; the entry-point group is ``foveate.`` and this.
        error: what an unknown name raises.
        hint: a sentence after the known names, when the name is unknown.
        instance_of: address of the class that every thing must be an instance of; such a thing must also call itself
            (``.name``) as it is listed.

    >>> shapes = Registry("shape", "shapes")
    >>> shapes.add("Counter", "collections:Counter", "counts what it is given")
    >>> shapes.names(), shapes.get("counter")
    (['Counter'], <class 'collections.Counter'>)
    >>> shapes.get("countr")
    Traceback (most recent call last):
    foveate.errors.FoveateError: unknown shape 'countr'. Did you mean 'Counter'? Known: Counter.
    """

    def __init__(
        self,
        kind: str,
        plural: str,
        *,
        error: type[FoveateError] = FoveateError,
        hint: str = "",
        instance_of: str | None = None,
    ) -> None:
        self.kind = kind
        self.plural = plural
        self.error = error
        self.hint = hint
        self.instance_of = instance_of
        self._lines: dict[str, _Line[T]] = {}
        self._entry_points_read = False
        self._lock = threading.RLock()

    @property
    def group(self) -> str:
        """The entry-point group other packages use, for instance ``foveate.pools``."""
        return f"foveate.{self.plural}"

    # -- adding ---------------------------------------------------------------------------

    def add(self, name: str, target: T | str, summary: str = "") -> None:
        """List ``target`` under ``name``.

        Args:
            name: what :meth:`get` is asked for.
            target: the thing, or ``"package.module:attribute"``, loaded when it is asked for.
            summary: one line about it; by default the first line of a loaded thing's docstring.

        The same target again is no mistake (a module is reloaded, a notebook cell runs twice); another target
        under a name that is taken is.
        """
        if isinstance(target, str):
            if not _ADDRESS.match(target):
                raise FoveateError(
                    f"the {self.kind} '{name}' is given as '{target}'; expected the thing itself, or where it is: "
                    "'package.module:attribute'."
                )
            self._put(_Line(name, target, summary))
        else:
            self._check(name, target)
            self._put(_Line(name, _address_of(target), summary, thing=target))

    def remove(self, name: str) -> None:
        """Take ``name`` out again."""
        self._line(name)
        with self._lock:
            del self._lines[name.lower()]

    @contextmanager
    def temporarily(self, name: str, target: T | str, summary: str = "") -> Iterator[None]:
        """List ``target`` for the length of a ``with`` block, in place of what stood under ``name``; for tests.

        >>> shapes = Registry("shape", "shapes")
        >>> with shapes.temporarily("round", dict):
        ...     shapes.names()
        ['round']
        >>> shapes.names()
        []
        """
        self._read_entry_points()
        before = self._lines.pop(name.lower(), None)
        try:
            self.add(name, target, summary)
            yield
        finally:
            self._lines.pop(name.lower(), None)
            if before is not None:
                self._lines[name.lower()] = before

    def _put(self, line: _Line[T]) -> None:
        with self._lock:
            there = self._lines.get(line.name.lower())
            if there is not None and not _same(there, line):
                raise FoveateError(
                    f"there is a {self.kind} '{there.name}' already, {there.at()}; {line.at()} needs another name."
                )
            if there is not None:
                line.summary = line.summary or there.summary
                line.package = line.package or there.package
                if line.thing is _NOT_LOADED:
                    line.thing = there.thing
            self._lines[line.name.lower()] = line

    def _read_entry_points(self) -> None:
        with self._lock:
            if self._entry_points_read:
                return
            self._entry_points_read = True
            for point in importlib.metadata.entry_points(group=self.group):
                package = point.dist.name if point.dist is not None else "unknown"
                version = f" {point.dist.version}" if point.dist is not None else ""
                try:
                    if not _ADDRESS.match(point.value.replace(" ", "")):
                        raise FoveateError(f"'{point.value}' is not of the form 'package.module:attribute'.")
                    self._put(
                        _Line(point.name, point.value.replace(" ", ""), f"from {package}{version}", package=package)
                    )
                except FoveateError as error:
                    self._warn(package, point.name, error)

    def _warn(self, package: str, name: str, why: Exception) -> None:
        warnings.warn(
            f"the {self.kind} '{name}' of the package {package} (entry points '{self.group}') is left out: {why}",
            BrokenEntryPoint,
            stacklevel=4,
        )

    # -- asking ---------------------------------------------------------------------------

    def get(self, name: str) -> T:
        """The thing called ``name``, loaded now if it was not; an error with a suggestion when it is unknown."""
        return self._load(self._line(name))

    def names(self) -> list[str]:
        """All names, sorted; nothing is loaded."""
        self._read_entry_points()
        return sorted(line.name for line in self._lines.values())

    def summaries(self) -> dict[str, str]:
        """Name to one line about it, in the order of :meth:`names`; nothing is loaded."""
        return {name: self._lines[name.lower()].summary or self._first_words(name) for name in self.names()}

    def things(self) -> dict[str, T]:
        """Name to thing, in the order they were listed, all loaded; what another package broke is a warning."""
        self._read_entry_points()
        found: dict[str, T] = {}
        for line in list(self._lines.values()):
            try:
                found[line.name] = self._load(line)
            except FoveateError as error:
                if line.package is None:
                    raise
                if not line.refused:
                    line.refused = True  # said once
                    self._warn(line.package, line.name, error)
        return found

    def name_of(self, thing: T) -> str | None:
        """The name under which ``thing`` stands, or None; nothing is loaded for it.

        >>> import collections
        >>> shapes = Registry("shape", "shapes")
        >>> shapes.add("counter", "collections:Counter")
        >>> shapes.name_of(collections.Counter), shapes.name_of(dict)
        ('counter', None)
        """
        self._read_entry_points()
        for line in self._lines.values():
            here = line.thing if line.thing is not _NOT_LOADED else _if_imported(line.address)
            if here is thing:
                return line.name
        return None

    def __contains__(self, name: object) -> bool:
        self._read_entry_points()
        return isinstance(name, str) and name.lower() in self._lines

    def __iter__(self) -> Iterator[str]:
        return iter(self.names())

    def __len__(self) -> int:
        return len(self.names())

    def __repr__(self) -> str:
        return f"Registry({self.kind}: {', '.join(self.names())})"

    def _line(self, name: str) -> _Line[T]:
        self._read_entry_points()
        if name.lower() not in self._lines:
            known = self.names()
            said = f"unknown {self.kind} '{name}'.{suggest(name, known)} Known: {', '.join(known) or 'none'}."
            raise self.error(f"{said} {self.hint}".strip())
        return self._lines[name.lower()]

    def _load(self, line: _Line[T]) -> T:
        if line.thing is _NOT_LOADED:
            try:
                thing = _resolve(line.address)
                self._check(line.name, thing)
                line.thing = thing
            except Exception as error:  # another package's import may fail in any way
                if line.package is None and not isinstance(error, (ImportError, AttributeError)):
                    raise
                raise self.error(
                    f"the {self.kind} '{line.name}' cannot be loaded from {line.at()}: {type(error).__name__}: {error}"
                ) from error
        return cast(T, line.thing)

    def _check(self, name: str, thing: Any) -> None:
        if self.instance_of is None:
            return
        wanted = _resolve(self.instance_of)
        if not isinstance(thing, wanted):
            raise FoveateError(f"expected a {wanted.__name__}, found {type(thing).__name__}.")
        if thing.name != name:
            raise FoveateError(f"the {self.kind} listed as '{name}' calls itself '{thing.name}'.")

    def _first_words(self, name: str) -> str:
        thing = self._lines[name.lower()].thing
        if thing is _NOT_LOADED:
            return ""
        # the docstring of an instance is that of its class
        named = hasattr(thing, "__qualname__")
        said = (thing.__doc__ if named else getattr(thing, "title", None)) or ""
        return said.strip().splitlines()[0] if said.strip() else ""


def _same(one: _Line[T], two: _Line[T]) -> bool:
    """Whether two lines mean one thing, without loading either."""
    if one.thing is two.thing and one.thing is not _NOT_LOADED:
        return True
    # By address as well: a class that lists itself while its module runs is not yet an attribute of the module, and
    # an entry point may name the package that shows the class instead of the module that holds it.
    (module, attribute), (other, name) = (line.address.split(":", 1) for line in (one, two))
    shown = one.thing is _NOT_LOADED or two.thing is _NOT_LOADED
    return attribute == name and (
        module == other or (shown and (module.startswith(f"{other}.") or other.startswith(f"{module}.")))
    )


def _resolve(address: str) -> Any:
    module, _, attribute = address.partition(":")
    return _walk(importlib.import_module(module), attribute)


def _if_imported(address: str) -> Any:
    """The thing at ``address`` when its module is imported already; otherwise something nothing is identical to."""
    module, _, attribute = address.partition(":")
    try:
        return _walk(sys.modules[module], attribute)
    except (KeyError, AttributeError):
        return _NOT_LOADED


def _walk(thing: Any, path: str) -> Any:
    for part in path.split("."):
        thing = getattr(thing, part)
    return thing


def _address_of(thing: object) -> str:
    """``module:name`` of a class or function; for other objects something that tells two of them apart."""
    module, name = getattr(thing, "__module__", None), getattr(thing, "__qualname__", None)
    if isinstance(module, str) and isinstance(name, str) and "<" not in name:  # lambdas all share one name
        return f"{module}:{name}"
    return f"{type(thing).__module__}:{type(thing).__qualname__} object at {id(thing):#x}"
