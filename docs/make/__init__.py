"""What of the documentation is made from the code: command reference, API entries, settings, measured figures.

``docs/make/hooks.py`` is called by MkDocs and puts it into the pages while they are built, so none of it can go stale.
"""
