"""`/findings` and `/clocks`: findings, and clock offsets between nodes."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from ...report.findings import FindingLine, finding_lines
from ...report.skew import ClocksLine, clocks_line
from ..operation import NoParameters, Operation, OperationRequest, WebContext


class FindingsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Filter."""

    open: Annotated[bool, msgspec.Meta(description="exclude cleared findings")] = False


class FindingsSeen(msgspec.Struct):
    """Open findings first, then by severity."""

    findings: list[FindingLine]


async def get_findings(context: WebContext, request: OperationRequest[FindingsQuery]) -> FindingsSeen:
    """All findings, or the open ones."""
    lines = finding_lines(context.store)
    return FindingsSeen([line for line in lines if line.cleared_at is None or not request.parameters.open])


async def get_clocks(context: WebContext, request: OperationRequest[NoParameters]) -> ClocksLine:
    """Latest clock window of each node and edge."""
    return clocks_line(context.store)


OPERATIONS: Final = (
    Operation(
        "GET",
        "/findings",
        "Findings with culprits and affected nodes.",
        get_findings,
        FindingsQuery,
        FindingsSeen,
    ),
    Operation(
        "GET", "/clocks", "Clock offsets between nodes, with error bounds.", get_clocks, NoParameters, ClocksLine
    ),
)
