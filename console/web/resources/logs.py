"""`/jobs/{id}/logs`: output of all ranks of a job, interleaved: `[0-63] loss 2.31`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from ...core.bus import Published
from ...launch.output_fold import LineFold, Writer, interleave
from ...launch.state import JobStatus
from ...records import Log
from ...text.sanitize import printable
from ..operation import Operation, OperationRequest, WebContext
from .jobs import JOB_NAME, started_job

#: Lines in a response; the newest are kept.
MAX_LINES: Final = 20_000


class LogsRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Which lines."""

    tail: Annotated[int, msgspec.Meta(ge=1, le=10_000, description="number of last lines of each rank")] = 200
    rank: Annotated[
        Annotated[int, msgspec.Meta(ge=0, le=1_000_000)] | None, msgspec.Meta(description="only this rank")
    ] = None
    contains: Annotated[str, msgspec.Meta(max_length=256, description="only lines with this text")] = ""
    fold: Annotated[bool, msgspec.Meta(description="print equal lines of several ranks once")] = True


class Logs(msgspec.Struct):
    """Lines, each after its ranks. `missing`: nodes whose output could not be read, with the reason."""

    job: str
    lines: list[str]
    dropped: int  # older lines beyond the limit of a response
    missing: dict[str, str]


async def get_logs(context: WebContext, request: OperationRequest[LogsRequest]) -> Logs:
    """Output of a job, as stored on its nodes."""
    view = started_job(context, request.name)
    collected = _Collected(view, request.parameters)
    nodes = [line.node for line in view.lines if line.now is not None]
    async with context.reading:  # output is published on the bus: two readers would get each other's lines
        unsubscribe = context.hub.subscribe(collected.append)
        try:
            failures = await context.control.follow_job(request.name, nodes, request.parameters.tail, follow=False)
        finally:
            unsubscribe()
    missing = {line.node: line.why for line in view.lines if line.now is None}
    missing |= {node: failure.text for node, failure in failures.items()}
    lines = collected.folded()
    return Logs(request.name, lines[-MAX_LINES:], max(0, len(lines) - MAX_LINES), missing)


class _Collected:
    """Subscriber of the bus that collects the output of one job."""

    def __init__(self, view: JobStatus, wanted: LogsRequest) -> None:
        self._job, self._world_size, self._wanted = view.ordered.job, view.ordered.world_size, wanted
        self._lines: dict[Writer, list[str]] = {}

    def append(self, records: Sequence[Published]) -> None:
        rank = self._wanted.rank
        for record in records:
            if isinstance(record, Log) and record.source == "job" and record.job == self._job:
                writer: Writer = record.rank if record.rank is not None else record.node
                if rank in (None, writer):
                    self._lines.setdefault(writer, []).extend(record.text.split("\n"))

    def folded(self) -> list[str]:
        lines = [(writer, printable(line)) for writer, line in interleave(self._lines) if self._wanted.contains in line]
        if not self._wanted.fold:
            return [f"[{writer}] {line}" for writer, line in lines]
        fold = LineFold(self._world_size, 0.0)
        for writer, line in lines:
            fold.add(writer, line, 0.0)
        return fold.format_due(0.0, everything=True)


OPERATIONS: Final = (
    Operation("GET", "/jobs/{id}/logs", "Last lines of all ranks, interleaved, equal lines once.", get_logs,
              LogsRequest, Logs, name_pattern=JOB_NAME),
)  # fmt: skip
