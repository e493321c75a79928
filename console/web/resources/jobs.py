"""`/jobs`: those that gconsole started, node by node, and those that it found; their output; their end."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from ...config.model import Change
from ...core.job_protocol import NodeStop, is_away
from ...launch.state import JobStatus, PendingStops, job_status, job_statuses
from ...monitor.hang import jobs_of
from ...records import Failure, Job, JobNode, JobState, Log
from ...report.nodes import JobLine, is_of_job, job_line, own_name
from ..operation import NoParameters, Operation, OperationRequest, WebContext
from ..problems import http_problem

#: A job that gconsole started has letters, digits, _ and -; what others call theirs may be anything but a slash.
JOB_NAME: Final = r"^[^/\x00-\x1f]{1,253}$"


class JobOnNode(msgspec.Struct):
    """A job on one of its nodes; `now` is null where nobody can say, and `why` tells why."""

    node: str
    index: int
    now: JobNode | None
    why: str


class JobSeen(msgspec.Struct):
    """One job. `ordered` and `nodes` are of one that gconsole started, `ranks` of one whose ranks were found."""

    job: str
    state: JobState | None  # null of one that gconsole did not start
    over: bool | None
    exit_code: int | None  # once it is over; 128 + N for signal N
    ordered: Job | None
    nodes: list[JobOnNode]
    ranks: JobLine | None


class JobsSeen(msgspec.Struct):
    """Jobs that gconsole started, the newest first, and then those that it found."""

    jobs: list[JobSeen]


class StopJobRequest(msgspec.Struct, forbid_unknown_fields=True):
    """How to end it."""

    grace_s: Annotated[float, msgspec.Meta(ge=0, le=600, description="between TERM and KILL, seconds")] = 10.0


class NodeStopped(msgspec.Struct):
    """What ending a job did on one node; `left` empty is the proof that nothing of it runs."""

    node: str
    found: int | None  # processes there were; null where the node could not be asked
    left: list[int]  # pids that are there still
    state: str | None
    failure: Failure | None


class JobStopped(msgspec.Struct):
    """What came of ending a job. `ended`: every node has proved that nothing of it is left.

    `owed`: nodes that were away. The order is kept, and the next `gconsole run` of this account that sees them ends the
    job there; so does another request to stop it.
    """

    job: str
    ended: bool
    nodes: list[NodeStopped]
    owed: list[str]


async def get_jobs(context: WebContext, request: OperationRequest[NoParameters]) -> JobsSeen:
    """Every job."""
    views = job_statuses(context.store)
    started = {view.ordered.job for view in views}
    lines = {own_name(job.job, started): job_line(job) for job in jobs_of(context.store).jobs}
    return JobsSeen([_seen(view, lines.pop(view.ordered.job, None)) for view in views]
                    + [_found(line) for line in lines.values()])  # fmt: skip


async def get_job(context: WebContext, request: OperationRequest[NoParameters]) -> JobSeen:
    """One job."""
    found = one_job(context, request.name)
    if found is None:
        raise http_problem(404, "no_such_job", f"nobody knows a job {request.name!r}", "GET /jobs lists them")
    return found


def one_job(context: WebContext, name: str) -> JobSeen | None:
    """One job, None where nobody knows it."""
    line = next((job_line(job) for job in jobs_of(context.store).jobs if is_of_job(job.job, name)), None)
    view = job_status(context.store, name)
    if view is not None:
        return _seen(view, line)
    return _found(line) if line is not None else None


async def stop_job(context: WebContext, request: OperationRequest[StopJobRequest]) -> JobStopped:
    """End every process of a job on every node: TERM, and KILL after the grace."""
    context.permit(Change.STOP_JOB)
    view = started_job(context, request.name)
    nodes = [line.node for line in view.lines if line.node in context.store.nodes]
    context.hub.publish_own(Log(source="console", text=f"the job {request.name} is being stopped over HTTP"))
    answers = await context.control.stop_job(request.name, nodes, request.parameters.grace_s)
    told = [_stopped(line.node, answers.get(line.node), line.why) for line in view.lines]
    away = tuple(node for node in nodes if is_away(answers.get(node)))
    return JobStopped(
        request.name,
        all(one.failure is None and not one.left for one in told),
        told,
        _kept(context, request.name, away),
    )


def _kept(context: WebContext, job: str, away: tuple[str, ...]) -> list[str]:
    """The nodes for which the order could be kept."""
    try:
        PendingStops.of_cluster(context.config.cluster).set(job, away)
    except OSError as error:
        text = f"the order to stop {job} on {', '.join(away)} is not kept: {error.strerror or error}"
        context.hub.publish_own(
            Log(source="console", severity="warning", text=text, try_="ask again once they are back")
        )
        return []
    return list(away)


def started_job(context: WebContext, name: str) -> JobStatus:
    """A job that gconsole started. Raises Refused for others."""
    view = job_status(context.store, name)
    if view is None:
        raise http_problem(404, "no_such_job", f"gconsole started no job {name!r}", "GET /jobs lists them")
    return view


def _seen(view: JobStatus, line: JobLine | None) -> JobSeen:
    return JobSeen(
        job=view.ordered.job, state=view.state, over=view.is_over, exit_code=view.exit_code if view.is_over else None,
        ordered=view.ordered, nodes=[JobOnNode(one.node, one.index, one.now, one.why) for one in view.lines],
        ranks=line,
    )  # fmt: skip


def _found(line: JobLine) -> JobSeen:
    return JobSeen(line.job, None, None, None, None, [], line)


def _stopped(node: str, answer: NodeStop | Failure | None, why: str) -> NodeStopped:
    if isinstance(answer, NodeStop):
        return NodeStopped(node, answer.found, list(answer.left), answer.state, None)
    return NodeStopped(node, None, [], None, answer or Failure("unknown", why or "not a node of this console"))


OPERATIONS: Final = (
    Operation(
        "GET",
        "/jobs",
        "Jobs that gconsole started, and those that it found on the nodes.",
        get_jobs,
        NoParameters,
        JobsSeen,
    ),
    Operation(
        "GET",
        "/jobs/{id}",
        "One job: what was ordered, its state on each node, its ranks.",
        get_job,
        NoParameters,
        JobSeen,
        name_pattern=JOB_NAME,
    ),
    Operation(
        "POST",
        "/jobs/{id}/stop",
        "End every process of a job, and prove that none is left. Needs --allow-run.",
        stop_job,
        StopJobRequest,
        JobStopped,
        name_pattern=JOB_NAME,
    ),
)
