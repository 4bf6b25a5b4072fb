"""Workers on a Ray cluster: one a CPU, wherever Ray puts them, all on one storage."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from foveate.bench.records import database_url
from foveate.errors import FoveateError, MissingExtra

if TYPE_CHECKING:
    from foveate.bench.run import Job
    from foveate.bench.sweep import Sweep


def import_ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise MissingExtra("ray", "bench", "spreading work over a cluster") from error
    return ray


class RayTeam:
    """Ray tasks that run trials until the coordinator ends; a task that dies is started again.

    Args:
        job: the spec and its places; runs folder and SQLite file must be on a disk all nodes see, or the storage a
            PostgreSQL URL.
        address: what ``ray.init`` takes: ``auto``, ``host:port`` or ``ray://host:port``.
        size: how many tasks at once; by default one for every CPU of the cluster.
    """

    def __init__(self, job: Job, address: str, size: int | None = None):
        self.ray, self.job, self.address = import_ray(), job, address
        self.wanted = size
        self.tasks: list[Any] = []

    def __enter__(self) -> RayTeam:
        ray = self.ray
        self.ours = not ray.is_initialized()
        if self.ours:
            try:
                ray.init(address=self.address, log_to_driver=False, configure_logging=False)
            except (ConnectionError, ValueError) as error:
                raise FoveateError(f"there is no Ray cluster at '{self.address}': {error}") from error
        job = self.job
        if database_url(job.storage).startswith("sqlite"):
            job.storage = str(Path(job.storage).resolve())  # tasks have another working folder
        job.runs = str(Path(job.runs).resolve())
        self.size = self.wanted or max(int(ray.cluster_resources().get("CPU", 1)), 1)
        self.task = ray.remote(num_cpus=1, max_retries=0)(_ray_worker)
        self.tasks = [self.task.remote(job) for _ in range(self.size)]
        return self

    def look_after(self, sweep: Sweep) -> None:
        """Start tasks again that ended, for instance because their node went down."""
        over, self.tasks = self.ray.wait(self.tasks, num_returns=len(self.tasks), timeout=0)
        for task in over:
            try:
                self.ray.get(task)
            except self.ray.exceptions.RayTaskError as error:
                raise FoveateError(f"a worker on the cluster cannot work: {error.cause}") from error
            except self.ray.exceptions.RayError:
                pass
            self.tasks.append(self.task.remote(self.job))

    def __exit__(self, *_: Any) -> None:
        for task in self.tasks:
            self.ray.cancel(task, force=True)
        if self.ours:
            time.sleep(0.2)
            self.ray.shutdown()


def _ray_worker(job: Job) -> int:
    from foveate.bench.run import work

    return work(job)
