"""The command line: ``foveate demo | audit | fit | eval | predict | …``."""

from foveate.cli.interrupts import answer_version, guard_imports

guard_imports()  # before the imports that take a moment
answer_version()

from foveate.cli.main import app, main  # noqa: E402

__all__ = ["app", "main"]
