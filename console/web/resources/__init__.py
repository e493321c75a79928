"""The resources, one file each; `OPERATIONS` is all that the API can do but describe itself."""

from __future__ import annotations

from typing import Final

from ..metrics.resource import OPERATIONS as METRICS
from ..operation import AnyOperation
from . import captures, events, findings, gpus, jobs, logs, nodes, planning, profiling, status

OPERATIONS: Final[tuple[AnyOperation, ...]] = (
    *status.OPERATIONS, *nodes.OPERATIONS, *gpus.OPERATIONS, *jobs.OPERATIONS, *logs.OPERATIONS, *planning.OPERATIONS,
    *findings.OPERATIONS, *captures.OPERATIONS, *profiling.OPERATIONS, *events.OPERATIONS, *METRICS,
)  # fmt: skip
