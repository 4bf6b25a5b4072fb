"""Errors meant for the person who reads them: what was expected, what was found, what to do.

Everything a user can get wrong ends in a :class:`FoveateError`. The command line prints its
sentence and exits with code 2; no traceback.
"""


class FoveateError(Exception):
    """A mistake the user can mend. The message says what was expected, found, and what to do."""


class DataError(FoveateError):
    """Something about a dataset: a missing column, an unknown name, a group that is not there."""


class UnreadableImage(DataError):
    """One image could not be decoded. ``where`` names it (a path or a row)."""

    def __init__(self, where: str, reason: str):
        super().__init__(f"cannot read image {where}: {reason}")
        self.where = where
        self.reason = reason

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        return type(self), (self.where, self.reason)  # so that worker processes can hand it over


class ModelError(FoveateError):
    """Something about a model: an unknown name, a checkpoint of another architecture."""


class StorageError(FoveateError):
    """Writing failed (a full disk, no permission). Nothing half-written was left behind."""


class TrainingStopped(FoveateError):
    """Training cannot go on, for instance because the loss is not finite."""


class MissingExtra(FoveateError):
    """An optional dependency is needed and not installed."""

    def __init__(self, package: str, extra: str, what_for: str):
        super().__init__(
            f"{what_for} needs the package '{package}', which is not installed. "
            f"Install it with: pip install 'foveate[{extra}]'"
        )


def suggest(word: str, known: "list[str] | tuple[str, ...]") -> str:
    """`` Did you mean 'x'?`` when something close to ``word`` is known, else an empty string.

    >>> suggest("resnet81", ["resnet18", "vit"])
    " Did you mean 'resnet18'?"
    """
    import difflib

    close = difflib.get_close_matches(word, known, n=1)
    return f" Did you mean '{close[0]}'?" if close else ""
