"""Details of one thing in a frame, found by its key; None once it is gone."""

from __future__ import annotations

from ..models.detail import Detail, finding_detail, gpu_detail, job_detail, node_detail, rank_detail
from ..models.heat_map import uuid_of
from ..snapshot import ScreenSnapshot
from .events.model import event_detail


def node_in(frame: ScreenSnapshot, key: object) -> Detail | None:
    """The node of that name."""
    node = frame.fleet.by_name.get(str(key))
    return node_detail(node, frame.nodes.get(node.name)) if node else None


def gpu_in(frame: ScreenSnapshot, name: str, place: int = -1, *, uuid: object = None) -> Detail | None:
    """The GPU of a node at that place, or with that uuid."""
    node, gpus = frame.fleet.by_name.get(name), frame.gpus.of(name)
    if uuid is not None:
        place = next((index for index, gpu in enumerate(gpus) if uuid_of(gpu) == uuid), -1)
    return gpu_detail(node, gpus[place]) if node is not None and 0 <= place < len(gpus) else None


def job_in(frame: ScreenSnapshot, key: object) -> Detail | None:
    """The job that its ranks call so."""
    return next((job_detail(job) for job in frame.jobs.jobs if job.job == key), None)


def rank_in(frame: ScreenSnapshot, key: object) -> Detail | None:
    """The rank whose row has that key, with its command line."""
    for row in (row for job in frame.jobs.jobs for row in job.rows):
        if row.key == key:
            rank = row.rank
            process = frame.processes.get((rank.node, rank.pid, rank.start_ticks)) if rank is not None else None
            return rank_detail(row, process.cmdline if process else None)
    return None


def finding_in(frame: ScreenSnapshot, key: object) -> Detail | None:
    """The open finding with that id and those culprits."""
    findings = (finding for finding in frame.findings if (finding.id, finding.culprits) == key)
    return next(map(finding_detail, findings), None)


def event_in(frame: ScreenSnapshot, number: int) -> Detail | None:
    """The event of that number, while it is kept."""
    record = frame.events.find(number)
    return event_detail(record, frame.now) if record else None
