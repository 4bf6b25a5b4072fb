"""Where the queries of DAR's attention look, one column per query."""

from examples.shared import animals, cured, unusual
from foveate.report import query_maps


def draw(small: bool = False):
    data = animals(small)
    return query_maps(cured(small), data.test, unusual(data, each=1))
