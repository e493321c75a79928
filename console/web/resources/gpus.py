"""`/gpus` and `/ranks`: what runs, and on what."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from ...monitor.hang import jobs_of
from ...report.jobs import RankLine, rank_line
from ...report.nodes import GpuLine, gpu_lines
from ..context import Served
from ..job_names import is_of
from ..operation import Asked, Operation

Name = Annotated[str, msgspec.Meta(max_length=253)]


class OfNode(msgspec.Struct, forbid_unknown_fields=True):
    """Which of them."""

    node: Annotated[Name | None, msgspec.Meta(description="only those of this node")] = None


class OfJob(msgspec.Struct, forbid_unknown_fields=True):
    """Which of them."""

    node: Annotated[Name | None, msgspec.Meta(description="only those of this node")] = None
    job: Annotated[Name | None, msgspec.Meta(description="only those of this job")] = None


class Gpus(msgspec.Struct):
    """GPUs in the order of nodes and indices, MIG devices behind their GPU."""

    gpus: list[GpuLine]


class Ranks(msgspec.Struct):
    """Processes that are ranks, as far as anybody can tell."""

    ranks: list[RankLine]


async def get_gpus(served: Served, asked: Asked[OfNode]) -> Gpus:
    """Every GPU, or those of a node."""
    node = asked.what.node
    return Gpus([line for line in gpu_lines(served.store) if node in (None, line.node)])


async def get_ranks(served: Served, asked: Asked[OfJob]) -> Ranks:
    """Every rank, or those of a node, a job, or both."""
    node, job = asked.what.node, asked.what.job
    rows = [row for row in jobs_of(served.store).rows if node in (None, row.node)]
    return Ranks([rank_line(row) for row in rows if job is None or is_of(row.job, job)])


OPERATIONS: Final = (
    Operation("GET", "/gpus", "Every GPU, what its driver said last, and the ranks on it.", get_gpus, OfNode, Gpus),
    Operation("GET", "/ranks", "Every rank of every job, where it runs and what it does.", get_ranks, OfJob, Ranks),
)
