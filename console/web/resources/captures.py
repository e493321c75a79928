"""`/captures` and `/diagnose`: the stacks of all ranks at one instant, and who holds a job."""

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

Samples = Annotated[int, msgspec.Meta(ge=1, le=20, description="how often each rank is read")]
EveryS = Annotated[float, msgspec.Meta(ge=0.05, le=1.0, description="between samples, seconds")]
Variable = Annotated[str, msgspec.Meta(pattern=r"^([A-Za-z_]\w*:)?([A-Za-z_]\w*|\*)$", max_length=128)]
Variables = Annotated[
    tuple[Variable, ...], msgspec.Meta(max_length=32, description="variables to read: NAME, FUNCTION:NAME or *")
]
JobName = Annotated[str, msgspec.Meta(min_length=1, max_length=253)]


class StackCaptureRequest(msgspec.Struct, forbid_unknown_fields=True):
    """What to read."""

    samples: Samples = 3
    every_s: EveryS = 0.3
    jobs: Annotated[tuple[JobName, ...], msgspec.Meta(max_length=64)] | None = None  # null: all
    locals: Variables = ()


class CaptureResponse(msgspec.Struct):
    """A capture, folded: ranks that stand at the same place are one group."""

    capture: str
    at: int  # instant of the first sample, CLOCK_REALTIME of the console, ns
    jobs: list[CaptureLine]
    failures: dict[str, Failure]  # nodes that could not be asked


class DiagnosisRequest(msgspec.Struct, forbid_unknown_fields=True):
    """How to look; null is as long as it takes."""

    samples: Samples | None = None
    every_s: EveryS | None = None
    native: bool | None = None  # null: the native calls of what stands still are read, which stops a process shortly
    locals: Variables = ()


class DiagnosisResult(msgspec.Struct):
    """A verdict on every job; who is blamed is also a finding from now on."""

    verdicts: list[Verdict]
    captures: list[str]  # those that were taken for it


async def capture(context: WebContext, request: OperationRequest[StackCaptureRequest]) -> CaptureResponse:
    """Read the stacks of all ranks."""
    what = request.parameters
    order = CaptureRequest(
        new_capture(), jobs=what.jobs, samples=what.samples, every_s=what.every_s, locals=what.locals
    )
    if context.capturing.locked():
        raise _is_busy()
    async with context.capturing:
        done = await context.control.capture(order)
    now = context.store.captures.get(order.id)
    lines = lines_of([now], hang_models(context.store)) if now is not None else []
    return CaptureResponse(done.id, done.began_ns, lines, dict(done.failures))


async def diagnose_jobs(context: WebContext, request: OperationRequest[DiagnosisRequest]) -> DiagnosisResult:
    """Capture until it can be said who holds each job."""
    what, taken = request.parameters, list[str]()
    if context.capturing.locked():
        raise _is_busy()

    def begins(order: CaptureRequest) -> None:
        taken.append(order.id)

    async with context.capturing:
        wanted = Diagnosis(what.samples, what.every_s, what.native, what.locals)
        judged = await diagnose(context.store, context.control, wanted, begins)
    publish_verdicts(context, (one.verdict for one in judged))
    return DiagnosisResult([one.verdict for one in judged], taken)


def publish_verdicts(context: WebContext, verdicts: Iterable[Verdict]) -> None:
    """Publish verdicts as findings, as the TUI does."""
    context.findings.report("verdict", filter(None, map(verdict_finding, verdicts)))


def _is_busy() -> HttpProblemError:
    return http_problem(
        409, "capturing", "a capture is under way", "wait for its end: it takes seconds", Retry_After="2"
    )


OPERATIONS: Final = (
    Operation(
        "POST",
        "/captures",
        "Read the stacks of all ranks at one instant, and fold them.",
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
