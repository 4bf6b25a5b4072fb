"""Which parts of an extraction are sent to a cluster, and when: with a stand-in for Ray that does them one by one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from foveate.bench import ray_cluster
from foveate.errors import UnreadableImage


class FakeRay:
    """Computes a part when its result is asked for. It has no ``cancel``: whoever calls it fails."""

    def __init__(self, *cpus: int, fails: int | None = None):
        self.cpus, self.fails = cpus, fails
        self.sent: list[tuple[int, int]] = []
        self.got: list[tuple[int, int]] = []
        self.most = 0
        self.exceptions = SimpleNamespace(RayTaskError=_TaskError)

    def is_initialized(self) -> bool:
        return True

    def nodes(self) -> list[dict[str, Any]]:
        return [{"Alive": True, "Resources": {"CPU": float(n)}} for n in self.cpus] + [
            {"Alive": False, "Resources": {"CPU": 64.0}}
        ]

    def put(self, thing: Any) -> Any:
        return thing

    def remote(self, **options: Any) -> Any:
        def send(extraction: Any, root: str, chosen: tuple[int, int], *_: Any) -> tuple[int, int]:
            self.sent.append(chosen)
            self.most = max(self.most, len(self.sent) - len(self.got))
            return chosen

        return lambda function: SimpleNamespace(remote=send)

    def get(self, chosen: tuple[int, int]) -> list[Any]:
        self.got.append(chosen)
        if chosen[0] == self.fails:
            raise _TaskError(UnreadableImage("13.png", "broken"))
        return [chosen]


class _TaskError(Exception):
    def __init__(self, cause: Exception):
        self.cause = cause


RANGES = [(i, i + 1) for i in range(20)]


def spread(fake: FakeRay, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(ray_cluster, "import_ray", lambda: fake)
    extraction: Any = SimpleNamespace(run=SimpleNamespace(device=SimpleNamespace(type="cpu")))
    with ray_cluster.RaySpread("auto", threads=2) as cluster:
        return cluster(extraction, Path("store"), RANGES)


@pytest.mark.parametrize(("cpus", "at_once"), [((1,), 2), ((2, 2), 4), ((5, 3), 6)])
def test_parts_come_in_order_and_so_many_at_a_time(
    cpus: tuple[int, ...], at_once: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twice what the living nodes hold: of two threads a task, or of one where no node has two."""
    fake = FakeRay(*cpus)
    assert list(spread(fake, monkeypatch)) == [[r] for r in RANGES]
    assert fake.sent == RANGES
    assert fake.most == at_once


def test_after_an_error_nothing_more_is_sent_and_nothing_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeRay(2, 2, fails=7)
    with pytest.raises(UnreadableImage, match="broken"):
        list(spread(fake, monkeypatch))
    assert fake.got == RANGES[:8]
    assert fake.sent == RANGES[:11]  # what was on its way when the eighth failed
