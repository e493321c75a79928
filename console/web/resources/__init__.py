"""The resources, one file each. `OPERATIONS` is every operation but those that describe the API."""

from __future__ import annotations

from typing import Final

from ..operation import AnyOperation
from . import captures, events, findings, gpus, jobs, logs, metrics, nodes, planning, profiling, status

OPERATIONS: Final[tuple[AnyOperation, ...]] = (
    *status.OPERATIONS, *nodes.OPERATIONS, *gpus.OPERATIONS, *jobs.OPERATIONS, *logs.OPERATIONS, *planning.OPERATIONS,
    *findings.OPERATIONS, *captures.OPERATIONS, *profiling.OPERATIONS, *events.OPERATIONS, *metrics.OPERATIONS,
)  # fmt: skip
