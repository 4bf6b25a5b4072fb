"""Every sentence of the audit is made here, from types; nobody reads a sentence to learn what was found."""

from foveate.report.sentences.groups import measured, sides
from foveate.report.sentences.numbers import listed, of_100, percent, points
from foveate.report.sentences.verdict import first_words, headline, sentences

__all__ = ["first_words", "headline", "listed", "measured", "of_100", "percent", "points", "sentences", "sides"]
