"""What a biased training set looks like: nearly all cats on meadows, nearly all ducks on the sea."""

from examples.shared import animals


def draw(small: bool = False):
    return animals(small).plot("train", each=6)
