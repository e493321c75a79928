"""Processes below a rank: which of them its rank waits for."""

from __future__ import annotations

from .job_view import HELD, JobView
from .rank_state import RankState


def guilty_worker(scene: JobView, one: RankState) -> RankState | None:
    """The worker that a rank in its data loader, or in a child process, is held by; None where none stands out.

    Idle workers wait for their next order; one that is stopped, or in the job's own code, does not.
    """
    if one.cls not in ("dataloader", "subprocess", "compile") or one.rank is None:
        return None
    workers = scene.workers.get(one.rank, ())
    busy = [
        worker for worker in workers
        if worker.cls in HELD or (worker.trace is not None and worker.cls not in ("dataloader", "python_lock"))
    ]  # fmt: skip
    return min(busy, key=lambda worker: (worker.cls not in HELD, -worker.place_s, worker.key), default=None)
