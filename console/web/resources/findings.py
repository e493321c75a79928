"""`/findings` and `/clocks`: what is wrong, and how far the nodes' clocks are apart."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from ...report.findings import FindingLine, finding_lines
from ...report.skew import ClocksLine, clocks_line
from ..operation import NoParameters, Operation, OperationRequest, WebContext


class FindingsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which of them."""

    open: Annotated[bool, msgspec.Meta(description="exclude cleared findings")] = False


class FindingsSeen(msgspec.Struct):
    """The worst first, open ones before those that were cleared."""

    findings: list[FindingLine]


async def get_findings(context: WebContext, request: OperationRequest[FindingsQuery]) -> FindingsSeen:
    """What is wrong, and what was."""
    lines = finding_lines(context.store)
    return FindingsSeen([line for line in lines if line.cleared_at is None or not request.parameters.open])


async def get_clocks(context: WebContext, request: OperationRequest[NoParameters]) -> ClocksLine:
    """The last window of each node and edge."""
    return clocks_line(context.store)


OPERATIONS: Final = (
    Operation(
        "GET", "/findings", "What is wrong, who is to blame and who suffers.", get_findings, FindingsQuery, FindingsSeen
    ),
    Operation(
        "GET", "/clocks", "How far the nodes' clocks are apart, with bounds.", get_clocks, NoParameters, ClocksLine
    ),
)
