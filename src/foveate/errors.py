"""Errors meant for the person who reads them: what was expected, what was found, what to do.

Everything a user can get wrong ends in a :class:`FoveateError`. The command line prints its
sentence with its number and exits with code 2; no traceback.
"""

import re


class FoveateError(Exception):
    """A mistake the user can mend. The message says what was expected, found, and what to do.

    ``number`` is the same for every error of a kind, whatever the sentence: something to search for.
    """

    number = "F100"


class DataError(FoveateError):
    """Something about a dataset: a missing column, an unknown name, a group that is not there."""

    number = "F200"


class UnreadableImage(DataError):
    """One image could not be decoded. ``where`` names it (a path or a row)."""

    number = "F210"

    def __init__(self, where: str, reason: str):
        super().__init__(f"cannot read image {where}: {reason}")
        self.where = where
        self.reason = reason

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.where, self.reason)  # so that worker processes can hand it over


class ModelError(FoveateError):
    """Something about a model: an unknown name, a checkpoint of another architecture."""

    number = "F300"


class StorageError(FoveateError):
    """Writing failed (a full disk, no permission). Nothing half-written was left behind."""

    number = "F400"


class TrainingStopped(FoveateError):
    """Training cannot go on, for instance because the loss is not finite."""

    number = "F500"


class MissingExtra(FoveateError):
    """An optional dependency is needed and not installed."""

    number = "F600"

    def __init__(self, package: str, extra: str, what_for: str):
        super().__init__(
            f"{what_for} needs the package '{package}', which is not installed. "
            f"Install it with: pip install 'foveate[{extra}]'"
        )


def warn_caller(sentence: str, category: type[Warning]) -> None:
    """Warn, pointing at the line outside foveate that led here: the call that somebody wrote."""
    import sys
    import warnings

    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("foveate."):
        level, frame = level + 1, frame.f_back
    warnings.warn(sentence, category, stacklevel=level)


def suggest(word: str, known: "list[str] | tuple[str, ...]") -> str:
    """`` Did you mean 'x'?`` when something close to ``word`` is known, else an empty string.

    >>> suggest("resnet81", ["resnet18", "vit"])
    " Did you mean 'resnet18'?"
    """
    import difflib

    close = difflib.get_close_matches(word, known, n=1)
    return f" Did you mean '{close[0]}'?" if close else ""


def first_line(error: BaseException) -> str:
    """What an exception of a library says, cut to its first line; its kind when it says nothing.

    >>> first_line(EOFError()), first_line(ValueError("this\\nthat"))
    ('EOFError', 'this')
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


# Control characters (a terminal obeys them), marks that turn the reading direction, and halves of characters, which
# stand for bytes of a file name that are no UTF-8. Tabs and line ends are left alone.
_UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")


def visible(text: object) -> str:
    r"""``text`` as it may be shown on a screen: what a terminal would obey, or could not show, is written out.

    The notation is JSON's, so that printed JSON stays JSON.

    >>> print(visible("cat\x1b[2J"), visible("caf\udce9"))
    cat\u001b[2J caf\udce9
    """
    return _UNSEEN.sub(lambda found: f"\\u{ord(found[0]):04x}", str(text))
