"""Work on a Ray cluster: workers that run trials, one a CPU on one storage, and features extracted in parts."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foveate.bench.database import database_url
from foveate.errors import FoveateError, MissingExtra

if TYPE_CHECKING:
    from foveate.bench.run import Job
    from foveate.bench.sweep import Sweep
    from foveate.extract.extraction import Bad, Extraction, Range


def import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise MissingExtra("ray", "ray", "spreading work over a cluster") from error
    return ray


class _OnCluster:
    """Is connected to a Ray cluster within ``with``; a connection that was there before is used and left.

    Args:
        address: what ``ray.init`` takes: ``auto``, ``host:port`` or ``ray://host:port``.
    """

    def __init__(self, address: str):
        self.ray, self.address, self.ours = import_ray(), address, False

    def connect(self) -> None:
        ray = self.ray
        self.ours = not ray.is_initialized()
        if self.ours:
            try:
                _knock(self.address)
                ray.init(address=self.address, log_to_driver=False, configure_logging=False)
            except (OSError, ValueError) as error:
                raise FoveateError(f"there is no Ray cluster at '{self.address}': {error}") from error

    def disconnect(self) -> None:
        if self.ours:
            self.ray.shutdown()
            self.ours = False


def _knock(address: str) -> None:
    """Raise ``OSError`` at once when nothing listens at ``host:port``: Ray itself would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()


class RayTeam(_OnCluster):
    """Ray tasks that run trials until the coordinator ends; a task that dies is started again.

    Args:
        job: the spec and its places; runs folder and SQLite file must be on a disk all nodes see, or the storage a
            PostgreSQL URL.
        address: what ``ray.init`` takes: ``auto``, ``host:port`` or ``ray://host:port``.
        size: how many tasks at once; by default one for every CPU of the cluster.
    """

    def __init__(self, job: Job, address: str, size: int | None = None):
        super().__init__(address)
        self.job, self.wanted = job, size
        self.tasks: list[Any] = []
        self.began: float | None = None

    def __enter__(self) -> RayTeam:
        self.connect()
        ray, job = self.ray, self.job
        if database_url(job.storage).startswith("sqlite"):
            job.storage = str(Path(job.storage).resolve())  # tasks may have another working folder
        job.runs = str(Path(job.runs).resolve())
        self.size = self.wanted or max(int(ray.cluster_resources().get("CPU", 1)), 1)
        self.task = ray.remote(num_cpus=1, max_retries=0)(_ray_worker)
        self.tasks = [self._start() for _ in range(self.size)]
        return self

    def _start(self) -> Any:
        return self.task.remote(self.job, os.getcwd())

    def look_after(self, sweep: Sweep) -> None:
        """Start tasks again that ended, for instance because their node went down."""
        if self.began is None:
            self.began = sweep.now()
        over, self.tasks = self.ray.wait(self.tasks, num_returns=len(self.tasks), timeout=0)
        for task in over:
            try:
                self.ray.get(task)
            except self.ray.exceptions.RayTaskError as error:
                raise FoveateError(f"a worker on the cluster cannot work: {error.cause}") from error
            except self.ray.exceptions.RayError:
                sweep.blames_since = self.began  # which trial it had, Ray does not tell: the one that falls silent
            self.tasks.append(self._start())

    def __exit__(self, *_: Any) -> None:
        for task in self.tasks:
            self.ray.cancel(task, force=True)
        if self.ours:
            time.sleep(0.2)
        self.disconnect()


def _ray_worker(job: Job, folder: str) -> int:
    from foveate.bench.work import work

    _go_to(folder)
    return work(job)


class RaySpread(_OnCluster):
    """Features extracted by Ray tasks, in parts that the caller joins; for :class:`~foveate.extract.FeatureStore`.

    The store must be in a folder that all nodes see under one path, and so must image files. A task that dies is
    started again and goes on with its part; when the caller is killed, the parts that are done are not made again.
    The numbers are those of an extraction here with the same batch size and threads, to the last bit::

        with RaySpread("auto") as cluster:
            FeatureStore("shared/features", spread=cluster).features(backbone, data.train, preprocess)

    Args:
        address: what ``ray.init`` takes: ``auto``, ``host:port`` or ``ray://host:port``.
        rows: about how many images a part has.
        threads: a task computes with, and CPUs it is given; by default as many as PyTorch uses here.
    """

    def __init__(self, address: str = "auto", rows: int = 1024, threads: int | None = None):
        super().__init__(address)
        if rows < 1:
            raise FoveateError(f"a part has at least 1 image, found rows={rows}.")
        self.rows, self.threads = rows, threads

    def __enter__(self) -> RaySpread:
        self.connect()
        return self

    def __exit__(self, *_: Any) -> None:
        self.disconnect()

    def __call__(self, extraction: Extraction, root: Path, ranges: Sequence[Range]) -> Iterator[list[Bad]]:
        """The unreadable images of every range, in order, as soon as its part is in the store at ``root``."""
        import torch

        ray, threads = self.ray, self.threads or torch.get_num_threads()
        gpus = int(extraction.run.device.type == "cuda")
        cpus = min(threads, int(self._largest("CPU")))  # a task that no node has room for would wait for ever
        if not cpus or gpus > self._largest("GPU"):
            raise FoveateError(f"no node of the Ray cluster has a {'CPU' if not cpus else 'GPU'} for the extraction.")
        options = {"num_cpus": cpus, "num_gpus": gpus, "max_retries": 3, "scheduling_strategy": "SPREAD"}
        task = ray.remote(**options)(_ray_part)
        sent = ray.put(extraction)  # once, not with every task
        left, waiting = deque(ranges), deque[Any]()
        # Only so many parts are sent that no node stands still: after an error here the rest is never begun. Nothing is
        # cancelled: Ray ends the caller's process when a task finishes while it is being cancelled.
        while left or waiting:
            while left and len(waiting) < self._at_once(cpus, gpus):
                waiting.append(task.remote(sent, str(root), left.popleft(), os.getcwd(), threads))
            try:
                yield ray.get(waiting.popleft())
            except ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, FoveateError):
                    raise error.cause from None
                raise

    def _at_once(self, cpus: int, gpus: int) -> int:
        """Twice as many parts as the nodes that are there now can compute at a time."""
        nodes = [n["Resources"] for n in self.ray.nodes() if n["Alive"]]
        room = [int(n.get("GPU", 0)) // gpus if gpus else int(n.get("CPU", 0)) // cpus for n in nodes]
        return 2 * max(sum(room), 1)

    def _largest(self, what: str) -> float:
        return max((n["Resources"].get(what, 0.0) for n in self.ray.nodes() if n["Alive"]), default=0.0)


def _ray_part(extraction: Extraction, root: str, chosen: Range, folder: str, threads: int) -> list[Bad]:
    import torch

    _go_to(folder)
    torch.set_num_threads(threads)
    return extraction.part(Path(root), chosen)


def _go_to(folder: str) -> None:
    """Work where the caller does, so that relative paths mean the same."""
    with contextlib.suppress(OSError):
        os.chdir(folder)
