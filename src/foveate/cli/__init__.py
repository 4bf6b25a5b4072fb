"""The command line: ``foveate demo | data | list | fit | eval | predict | look | audit | assets``."""

from foveate.cli.main import app, main

__all__ = ["app", "main"]
