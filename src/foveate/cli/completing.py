"""What the shell is told when the tabulator key is pressed; it answers from lists, without loading what they list."""

from __future__ import annotations

from foveate.registries import DATASETS, METRICS, SYSTEMS


def _starting(names: list[str], typed: str) -> list[str]:
    return [name for name in names if name.startswith(typed)]


def datasets(incomplete: str) -> list[str]:
    """Names of datasets; files and folders the shell completes itself."""
    return _starting(DATASETS.names(), incomplete)


def systems(incomplete: str) -> list[str]:
    """Names of systems.

    >>> systems("Gro")
    ['GroupDRO']
    """
    return _starting(SYSTEMS.names(), incomplete)


def metrics(incomplete: str) -> list[str]:
    """Names of metrics."""
    return _starting(METRICS.names(), incomplete)
