"""`/captures` and `/diagnose`: stacks of all ranks, and which rank blocks a job."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Final

import msgspec

from ...analysis.hang import Verdict
from ...core.control import CaptureRequest, new_capture
from ...monitor.diagnose import Diagnosis, diagnose
from ...monitor.hang import hang_models, verdict_finding
from ...records import Failure
from ...report.captures import CaptureLine, lines_of
from ..operation import Operation, OperationRequest, WebContext
from ..problems import HttpProblemError, http_problem

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


async def capture(context: WebContext, request: OperationRequest[StackCaptureRequest]) -> CaptureResponse:
    """Capture the stacks of all ranks."""
    parameters = request.parameters
    order = CaptureRequest(
        new_capture(),
        jobs=parameters.jobs,
        samples=parameters.samples,
        every_s=parameters.every_s,
        locals=parameters.locals,
    )
    if context.capturing.locked():
        raise _is_busy()
    async with context.capturing:
        done = await context.control.capture(order)
    now = context.store.captures.get(order.id)
    lines = lines_of([now], hang_models(context.store)) if now is not None else []
    return CaptureResponse(done.id, done.began_ns, lines, dict(done.failures))


async def diagnose_jobs(context: WebContext, request: OperationRequest[DiagnosisRequest]) -> DiagnosisResult:
    """Capture until the blocking rank of each job is identified."""
    parameters, captures = request.parameters, list[str]()
    if context.capturing.locked():
        raise _is_busy()

    def begins(order: CaptureRequest) -> None:
        captures.append(order.id)

    async with context.capturing:
        wanted = Diagnosis(parameters.samples, parameters.every_s, parameters.native, parameters.locals)
        diagnosed = await diagnose(context.store, context.control, wanted, begins)
    publish_verdicts(context, (job.verdict for job in diagnosed))
    return DiagnosisResult([job.verdict for job in diagnosed], captures)


def publish_verdicts(context: WebContext, verdicts: Iterable[Verdict]) -> None:
    """Publish verdicts as findings, as the TUI does."""
    context.findings.report("verdict", filter(None, map(verdict_finding, verdicts)))


def _is_busy() -> HttpProblemError:
    return http_problem(
        409, "capturing", "a capture is in progress", "retry after it has ended, in a few seconds", Retry_After="2"
    )


OPERATIONS: Final = (
    Operation(
        "POST",
        "/captures",
        "Capture the stacks of all ranks at one instant, grouped by equal stacks.",
        capture,
        StackCaptureRequest,
        CaptureResponse,
        problems=(409,),
    ),
    Operation(
        "POST",
        "/diagnose",
        "Sample until the blocking rank of each job is identified, and report it.",
        diagnose_jobs,
        DiagnosisRequest,
        DiagnosisResult,
        problems=(409,),
    ),
)
