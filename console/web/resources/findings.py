"""Findings, crashes, clock offsets, stack captures, and the diagnosis of what blocks a job."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec

from ...core.control import CaptureRequest, new_capture
from ...monitor.captures import CaptureLine, lines_of
from ...monitor.crash import prepare_verdicts
from ...monitor.hang import Diagnosis, diagnose, hang_models, verdict_finding
from ...records import Failure
from ...report import CrashVerdict, Verdict
from ...report.document import FindingLine, finding_lines
from ...report.skew import ClocksLine, clocks_line
from ..operation import NoParameters, OperationRequest, WebContext, operation
from ..problems import http_problem


class FindingsQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Filter."""

    open: Annotated[bool, msgspec.Meta(description="exclude cleared findings")] = False


class FindingList(msgspec.Struct):
    """Open findings first, then by severity."""

    findings: list[FindingLine]


@operation("GET", "/findings")
async def get_findings(context: WebContext, request: OperationRequest[FindingsQuery]) -> FindingList:
    """Findings with culprits and affected nodes."""
    lines = finding_lines(context.store)
    return FindingList([line for line in lines if line.cleared_at is None or not request.parameters.open])


class CrashList(msgspec.Struct):
    """Jobs that died, by name."""

    crashes: list[CrashVerdict]


@operation("GET", "/crashes")
async def get_crashes(context: WebContext, request: OperationRequest[NoParameters]) -> CrashList:
    """First cause, cascade and teardown of every job that died and was not restarted successfully."""
    return CrashList(await asyncio.to_thread(prepare_verdicts(context.store)))


@operation("GET", "/clocks")
async def get_clocks(context: WebContext, request: OperationRequest[NoParameters]) -> ClocksLine:
    """Clock offsets between nodes, with error bounds."""
    return clocks_line(context.store)


Samples = Annotated[int, msgspec.Meta(ge=1, le=20, description="samples per rank")]
EveryS = Annotated[float, msgspec.Meta(ge=0.05, le=1.0, description="seconds between samples")]
Variable = Annotated[str, msgspec.Meta(pattern=r"^([A-Za-z_]\w*:)?([A-Za-z_]\w*|\*)$", max_length=128)]
Variables = Annotated[
    tuple[Variable, ...], msgspec.Meta(max_length=32, description="variables to read: NAME, FUNCTION:NAME or *")
]
JobName = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]


class StackCaptureRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What to capture."""

    samples: Samples = 3
    every_s: EveryS = 0.3
    jobs: Annotated[tuple[JobName, ...], msgspec.Meta(max_length=64)] | None = None  # null: all
    locals: Variables = ()


class CaptureResponse(msgspec.Struct):
    """A capture; ranks with equal stacks are one group."""

    capture: str
    at: int  # instant of the first sample, CLOCK_REALTIME of the console, ns
    jobs: list[CaptureLine]
    failures: dict[str, Failure]  # by node that did not respond


class DiagnosisRequest(msgspec.Struct, forbid_unknown_fields=True):
    """How to sample; null for as long as needed."""

    samples: Samples | None = None
    every_s: EveryS | None = None
    native: bool | None = None  # null: only of blocked ranks; reading native frames pauses the process
    locals: Variables = ()


class DiagnosisResult(msgspec.Struct):
    """A verdict on each job; culprits are also reported as findings."""

    verdicts: list[Verdict]
    captures: list[str]  # captures taken for it


@operation("POST", "/captures", problems=(409,), scope="capture")
async def capture(context: WebContext, request: OperationRequest[StackCaptureRequest]) -> CaptureResponse:
    """Capture the stacks of all ranks at one instant, grouped by equal stacks."""
    wanted = request.parameters
    order = CaptureRequest(
        new_capture(), jobs=wanted.jobs, samples=wanted.samples, every_s=wanted.every_s, locals=wanted.locals
    )
    async with _capturing(context):
        done = await context.control.capture(order)
    now = context.store.captures.get(order.id)
    lines = lines_of([now], hang_models(context.store)) if now is not None else []
    return CaptureResponse(done.id, done.began_ns, lines, dict(done.failures))


@operation("POST", "/diagnose", problems=(409,), scope="capture")
async def diagnose_jobs(context: WebContext, request: OperationRequest[DiagnosisRequest]) -> DiagnosisResult:
    """Sample until the blocking rank of each job is identified, and report it."""
    parameters, captures = request.parameters, list[str]()
    wanted = Diagnosis(parameters.samples, parameters.every_s, parameters.native, parameters.locals)
    async with _capturing(context):
        diagnosed = await diagnose(context.store, context.control, wanted, lambda order: captures.append(order.id))
    verdicts = [job.verdict for job in diagnosed]
    context.findings.report("verdict", filter(None, map(verdict_finding, verdicts)))  # as the TUI does
    return DiagnosisResult(verdicts, captures)


def _capturing(context: WebContext) -> asyncio.Lock:
    """The lock of captures, free. Raises HttpProblemError while another request holds it."""
    if context.capturing.locked():
        try_ = "retry after it has ended, in a few seconds"
        raise http_problem(409, "capturing", "a capture is in progress", try_, Retry_After="2")
    return context.capturing
