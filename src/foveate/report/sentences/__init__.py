"""Every sentence of the audit is made here, from types; nobody reads a sentence to learn what was found."""

from foveate.report.sentences.groups import measured, sides
from foveate.report.sentences.numbers import listed, of_100, percent, points
from foveate.report.sentences.plain import example_of, overall, plain, two_numbers
from foveate.report.sentences.verdict import first_words, headline, sentences

__all__ = [
    "example_of", "first_words", "headline", "listed", "measured", "of_100", "overall", "percent", "plain", "points",
    "sentences", "sides", "two_numbers",
]  # fmt: skip
