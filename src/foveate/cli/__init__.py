"""The command line: ``foveate demo | data | list | fit | eval | predict | look | audit | assets``."""

from foveate.cli.interrupts import guard_imports

guard_imports()  # before the imports that take a second

from foveate.cli.main import app, main  # noqa: E402

__all__ = ["app", "main"]
