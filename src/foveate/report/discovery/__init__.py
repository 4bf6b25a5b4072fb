"""Shortcut discovery: what a classifier leans on when nobody says what to look for."""

from foveate.report.discovery.discover import Discovery, Groundwork, discover, prepare
from foveate.report.discovery.judgement import Judgement, Suspect

__all__ = ["Discovery", "Groundwork", "Judgement", "Suspect", "discover", "prepare"]
