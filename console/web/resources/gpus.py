"""`/gpus` and `/ranks`."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from ...monitor.hang import jobs_of
from ...report.nodes import GpuLine, RankLine, gpu_lines, is_of_job, rank_line
from ..operation import Operation, OperationRequest, WebContext

Name = Annotated[str, msgspec.Meta(max_length=253)]


class GpusQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Filter."""

    node: Annotated[Name | None, msgspec.Meta(description="only on this node")] = None


class RanksQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Filter."""

    node: Annotated[Name | None, msgspec.Meta(description="only on this node")] = None
    job: Annotated[Name | None, msgspec.Meta(description="only of this job")] = None


class GpuList(msgspec.Struct):
    """GPUs by node and index, MIG devices after their GPU."""

    gpus: list[GpuLine]


class RankList(msgspec.Struct):
    """Detected ranks."""

    ranks: list[RankLine]


async def get_gpus(context: WebContext, request: OperationRequest[GpusQuery]) -> GpuList:
    """All GPUs, or those of one node."""
    node = request.parameters.node
    return GpuList([line for line in gpu_lines(context.store) if node in (None, line.node)])


async def get_ranks(context: WebContext, request: OperationRequest[RanksQuery]) -> RankList:
    """All ranks, or those of one node, one job, or both."""
    node, job = request.parameters.node, request.parameters.job
    rows = [row for row in jobs_of(context.store).rows if node in (None, row.node)]
    return RankList([rank_line(row) for row in rows if job is None or is_of_job(row.job, job)])


OPERATIONS: Final = (
    Operation("GET", "/gpus", "All GPUs with their latest metrics and ranks.", get_gpus, GpusQuery, GpuList),
    Operation(
        "GET", "/ranks", "All ranks of all jobs: node, process, state and metrics.", get_ranks, RanksQuery, RankList
    ),
)
