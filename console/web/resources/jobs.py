"""`/jobs`: jobs that gconsole started and jobs that it detected; stop a job, read its output."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from ...config.model import Change
from ...core.job_protocol import NodeStop, is_away
from ...launch.output_fold import JobOutput, LineFold, OutputLine
from ...launch.state import JobStatus, PendingStops, job_status, job_statuses
from ...monitor.hang import jobs_of
from ...monitor.step_length import step_lengths
from ...records import Failure, Job, JobNode, JobState, Log
from ...report.nodes import JobLine, is_of_job, job_line, own_name
from ...text.sanitize import printable
from ..operation import NoParameters, OperationRequest, WebContext, operation
from ..problems import http_problem

#: Names of jobs that gconsole started have letters, digits, _ and -; detected jobs may have any name without a slash.
JOB_NAME: Final = r"^[^/\x00-\x1f]{1,253}$"


class JobOnNode(msgspec.Struct):
    """A job on one of its nodes; `now` is null where its state is unknown, `why` has the reason."""

    node: str
    index: int
    now: JobNode | None
    why: str


class JobResource(msgspec.Struct):
    """One job. `ordered` and `nodes` are set if gconsole started it, `ranks` if its ranks were detected."""

    job: str
    state: JobState | None  # null if gconsole did not start it
    over: bool | None
    exit_code: int | None  # once it is over; 128 + N for signal N
    ordered: Job | None
    nodes: list[JobOnNode]
    ranks: JobLine | None


class JobList(msgspec.Struct):
    """Jobs that gconsole started, newest first, then detected jobs."""

    jobs: list[JobResource]


class StopJobRequest(msgspec.Struct, forbid_unknown_fields=True):
    """How to stop a job."""

    grace_s: Annotated[float, msgspec.Meta(ge=0, le=600, description="seconds between SIGTERM and SIGKILL")] = 10.0


class NodeStopped(msgspec.Struct):
    """Result of stopping a job on one node; an empty `left` proves that no process is left."""

    node: str
    found: int | None  # processes before the stop; null if the node did not respond
    left: list[int]  # pids of processes that still run
    state: str | None
    failure: Failure | None


class JobStopped(msgspec.Struct):
    """Result of stopping a job. `ended`: every node has proved that no process is left.

    `pending`: nodes that were not connected. The stop is pending: the next `gconsole run` of this user that connects to
    them stops the job there; so does another request.
    """

    job: str
    ended: bool
    nodes: list[NodeStopped]
    pending: list[str]
    owed: list[str]  # deprecated: `pending`


@operation("GET", "/jobs")
async def get_jobs(context: WebContext, request: OperationRequest[NoParameters]) -> JobList:
    """Jobs that gconsole started, and jobs detected on the nodes."""
    views = job_statuses(context.store)
    started = {view.ordered.job for view in views}
    steps = step_lengths(context.store)
    lines = {own_name(job.job, started): job_line(job, steps) for job in jobs_of(context.store).jobs}
    return JobList([_seen(view, lines.pop(view.ordered.job, None)) for view in views]
                    + [_detected(line) for line in lines.values()])  # fmt: skip


@operation("GET", "/jobs/{id}", name_pattern=JOB_NAME)
async def get_job(context: WebContext, request: OperationRequest[NoParameters]) -> JobResource:
    """One job: its start request, its state on each node, its ranks."""
    job = one_job(context, request.name)
    if job is None:
        raise http_problem(404, "no_such_job", f"no job {request.name!r}", "GET /jobs lists them")
    return job


def one_job(context: WebContext, name: str) -> JobResource | None:
    """One job; None if it was neither started nor detected."""
    steps = step_lengths(context.store)
    line = next((job_line(job, steps) for job in jobs_of(context.store).jobs if is_of_job(job.job, name)), None)
    view = job_status(context.store, name)
    if view is not None:
        return _seen(view, line)
    return _detected(line) if line is not None else None


@operation("POST", "/jobs/{id}/stop", name_pattern=JOB_NAME)
async def stop_job(context: WebContext, request: OperationRequest[StopJobRequest]) -> JobStopped:
    """Stop a job on all nodes and verify that no process is left. Needs --allow-run."""
    context.permit(Change.STOP_JOB)
    view = started_job(context, request.name)
    nodes = [line.node for line in view.lines if line.node in context.store.nodes]
    context.hub.publish_own(Log(source="console", text=f"job {request.name} is being stopped over HTTP"))
    results = await context.control.stop_job(request.name, nodes, request.parameters.grace_s)
    stopped = [_stopped(line.node, results.get(line.node), line.why) for line in view.lines]
    away = tuple(node for node in nodes if is_away(results.get(node)))
    pending = _kept(context, request.name, away)
    return JobStopped(
        request.name,
        all(node.failure is None and not node.left for node in stopped),
        stopped,
        pending,
        owed=pending,
    )


def _kept(context: WebContext, job: str, away: tuple[str, ...]) -> list[str]:
    """Nodes whose pending stop could be stored."""
    try:
        PendingStops.of_cluster(context.config.cluster).set(job, away)
    except OSError as error:
        text = f"pending stop of {job} on {', '.join(away)} was not stored: {error.strerror or error}"
        context.hub.publish_own(
            Log(source="console", severity="warning", text=text, try_="stop the job again once they are connected")
        )
        return []
    return list(away)


def started_job(context: WebContext, name: str) -> JobStatus:
    """A job that gconsole started. Raises HttpProblemError for others."""
    view = job_status(context.store, name)
    if view is None:
        raise http_problem(404, "no_such_job", f"gconsole did not start a job {name!r}", "GET /jobs lists them")
    return view


def _seen(view: JobStatus, line: JobLine | None) -> JobResource:
    return JobResource(
        job=view.ordered.job, state=view.state, over=view.is_over, exit_code=view.exit_code if view.is_over else None,
        ordered=view.ordered, nodes=[JobOnNode(line.node, line.index, line.now, line.why) for line in view.lines],
        ranks=line,
    )  # fmt: skip


def _detected(line: JobLine) -> JobResource:
    return JobResource(line.job, None, None, None, None, [], line)


def _stopped(node: str, result: NodeStop | Failure | None, why: str) -> NodeStopped:
    if isinstance(result, NodeStop):
        return NodeStopped(node, result.found, list(result.left), result.state, None)
    return NodeStopped(node, None, [], None, result or Failure("unknown", why or "not a node of this console"))


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


@operation("GET", "/jobs/{id}/logs", name_pattern=JOB_NAME)
async def get_logs(context: WebContext, request: OperationRequest[LogsRequest]) -> Logs:
    """Last lines of all ranks in the order written, equal lines once."""
    view = started_job(context, request.name)
    wanted = request.parameters
    output = JobOutput(view, None if wanted.rank is None else (wanted.rank,))
    nodes = [line.node for line in view.lines if line.now is not None]
    async with context.reading:  # output is published on the bus: two readers would get each other's lines
        unsubscribe = context.hub.subscribe(output.collect)
        try:
            failures = await context.control.follow_job(request.name, nodes, wanted.tail, follow=False)
        finally:
            unsubscribe()
    missing = {line.node: line.why for line in view.lines if line.now is None}
    missing |= {node: failure.text for node, failure in failures.items()}
    lines = _formatted(output.pop_lines(), view.ordered.world_size, wanted)
    return Logs(request.name, lines[-MAX_LINES:], max(0, len(lines) - MAX_LINES), missing)


def _formatted(output: list[OutputLine], world_size: int, wanted: LogsRequest) -> list[str]:
    """The lines of all writers with `contains`, each after its writers."""
    lines = [line for line in output if wanted.contains in line.text]
    fold = LineFold(world_size if wanted.fold else 1, 0.0)
    formatted = []
    for line in lines:
        fold.add(line.writer, printable(line.text), 0.0, stream=line.stream)
        if not wanted.fold:
            formatted += fold.format_due(0.0, everything=True)
    return formatted + fold.format_due(0.0, everything=True)
