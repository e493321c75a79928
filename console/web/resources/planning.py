"""`/jobs/plan` and the start of a job: what is asked for, what would run, and why not."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from ...config.model import Change
from ...config.nodeset import expand
from ...launch.capacity import node_facts
from ...launch.format import plan_text, shell
from ...launch.plan import LaunchPlan, Refusal, make_plan
from ...launch.request import JobRequest, Launcher, new_job
from ...launch.state import job_status
from ...records import Log
from ..operation import Operation, OperationRequest, WebContext
from ..problems import HttpProblem, HttpProblemError, http_problem
from .jobs import JobSeen, one_job
from .nodes import NodeSet

#: After its start a job is told of by each of its nodes; that takes a tick.
_TOLD_S: Final = 15.0
#: Names that gconsole gives to the processes of its jobs itself.
_OURS: Final = ("GCONSOLE_JOB", "GCONSOLE_NODE_RANK")

Word = Annotated[str, msgspec.Meta(min_length=1, max_length=4096, pattern=r"^[^\x00]*$")]
Count = Annotated[int, msgspec.Meta(ge=1, le=16_384)]
Size = Annotated[int, msgspec.Meta(ge=0, le=2**60)]
VariableName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=256)]


class StartJobRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A job as it is wanted. Null: what [run] of hosts.toml says, else whatever fits."""

    command: Annotated[tuple[Word, ...], msgspec.Meta(min_length=1, max_length=4096)]
    nodes: Count | None = None
    gpus_per_node: Annotated[int, msgspec.Meta(ge=0, le=1024)] | None = None  # 0: a job for CPUs
    procs_per_node: Annotated[int, msgspec.Meta(ge=1, le=1024)] | None = None
    min_gpu_mem_bytes: Size = 0
    min_mem_bytes: Size = 0  # available memory of the host
    min_disk_bytes: Size = 0  # free where the job works
    select: NodeSet | None = None  # null: any
    launcher: Launcher | None = None
    workdir: Word | None = None
    interface: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.:-]{1,15}$")] | None = None
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] | None = None
    env: dict[VariableName, Annotated[str, msgspec.Meta(max_length=65536, pattern=r"^[^\x00]*$")]] = {}


class NodePlan(msgspec.Struct):
    """What would run on one node."""

    node: str
    ranks: tuple[int, int]  # the first and the last
    gpus: tuple[int, ...]  # indices
    interface: str | None
    commands: list[str]  # as they could be pasted into a shell there


class JobPlan(msgspec.Struct):
    """A job that could start now. Nothing is promised: another one may be faster."""

    job: str
    world_size: int
    master_addr: str
    master_port: int
    nodes: list[NodePlan]
    left_out: tuple[tuple[str, str], ...]  # node, and why
    warnings: tuple[str, ...]
    text: str  # the same for people


class JobStarted(msgspec.Struct):
    """A job that runs now, the plan that it runs by, and what its nodes say of it so far."""

    job: str
    plan: JobPlan
    seen: JobSeen | None


async def plan_job(context: WebContext, request: OperationRequest[StartJobRequest]) -> JobPlan:
    """Where the job would run, and the exact command on each node; nothing is started."""
    return planned(await _plan(context, request.parameters))


async def start_job(context: WebContext, request: OperationRequest[StartJobRequest]) -> JobStarted:
    """Plan, and start the job on all of its nodes; if one of them cannot, on none."""
    context.permit(Change.START_JOB)
    async with context.starting:  # two that plan at once would be given the same GPUs
        found = await _plan(context, request.parameters)
        failures = await context.control.start_job(found.orders)
        if failures:
            unknown = any(failure.name in ("left", "lost", "timeout") for failure in failures.values())
            left = "it is unknown whether all of it has ended" if unknown else "nothing of it is left"
            raise HttpProblemError(HttpProblem(
                status=409, name="not_started", text=f"{found.job} was not started; {left}",
                try_="GET /jobs" if unknown else "", nodes=dict(failures),
            ))  # fmt: skip
        context.hub.publish_own(Log(source="console", text=f"the job {found.job} was started over HTTP"))
        await context.until(
            lambda: (view := job_status(context.store, found.job)) is not None and not view.unseen, _TOLD_S
        )
    return JobStarted(found.job, planned(found), one_job(context, found.job))


async def _plan(context: WebContext, spec: StartJobRequest) -> LaunchPlan:
    """Raises Refused where there is none."""
    request = _request(context, spec)
    environments = {node.name: node.process_filter for node in context.config.nodes if node.process_filter}
    facts = node_facts(context.store, environments)
    found = await make_plan(context.control, facts, request, new_job(request.command))
    if isinstance(found, Refusal):
        raise HttpProblemError(HttpProblem(
            status=409, name="no_plan", text=found.reason, left_out=found.left_out, change=found.change,
            try_=found.change[0] if found.change else "",
        ))  # fmt: skip
    return found


def _request(context: WebContext, spec: StartJobRequest) -> JobRequest:
    preferred = context.config.run
    reserved = [name for name in spec.env if name.startswith(_OURS)]
    if reserved:
        raise http_problem(400, "reserved", f"{', '.join(reserved)}: gconsole knows its own jobs by that")
    select = spec.select or preferred.select or "auto"
    return JobRequest(
        command=spec.command, nodes=spec.nodes or preferred.nodes,
        gpus_per_node=preferred.gpus_per_node if spec.gpus_per_node is None else spec.gpus_per_node,
        procs_per_node=spec.procs_per_node or preferred.procs_per_node,
        min_gpu_mem_bytes=spec.min_gpu_mem_bytes, min_mem_bytes=spec.min_mem_bytes,
        min_disk_bytes=spec.min_disk_bytes,
        select=None if select == "auto" else tuple(host.name for host in expand(select)),
        launcher=spec.launcher or preferred.launcher, workdir=spec.workdir or preferred.workdir,
        interface=spec.interface, port=spec.port, env=tuple(spec.env.items()),
    )  # fmt: skip


def planned(found: LaunchPlan) -> JobPlan:
    """A plan as it is told."""
    first = found.first
    nodes = [
        NodePlan(
            node=node,
            ranks=(order.index * order.procs_per_node, (order.index + 1) * order.procs_per_node - 1),
            gpus=found.gpu_indices[node], interface=found.interfaces.get(node),
            commands=[shell(command.argv, {**order.env, **command.env}) for command in order.commands],
        )
        for node, order in found.orders.items()
    ]  # fmt: skip
    return JobPlan(found.job, first.world_size, first.master_addr, first.master_port, nodes, found.left_out,
                   found.warnings, plan_text(found))  # fmt: skip


OPERATIONS: Final = (
    Operation("POST", "/jobs/plan", "Which nodes would take a job, and the command on each; nothing is started.",
              plan_job, StartJobRequest, JobPlan, problems=(409,)),
    Operation("POST", "/jobs", "Plan a job, and start it on all of its nodes or on none. Needs --allow-run.",
              start_job, StartJobRequest, JobStarted, status=201, problems=(409,)),
)  # fmt: skip
