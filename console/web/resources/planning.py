"""`/jobs/plan` and `POST /jobs`: plan and start a job."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Annotated, Final

import msgspec

from ...config.model import Change
from ...config.nodeset import expand
from ...core.job_protocol import SyncFolder, may_be_left
from ...launch.format import plan_text, shell
from ...launch.node_capacity import node_facts
from ...launch.plan import LaunchPlan, Refusal, make_plan
from ...launch.request import RESERVED, JobRequest, Launcher, new_job
from ...launch.scale import Batch, ScaleConfig
from ...launch.state import job_status
from ...records import Failure, Log
from ...text.format import plural
from ..operation import OperationRequest, WebContext, operation
from ..problems import HttpProblem, HttpProblemError, http_problem
from .folders import FOLDER_ID
from .jobs import JOB_NAME, JobResource, one_job, started_job
from .nodes import NodeSet

#: Seconds. After the start, until every node has reported the job.
_REPORTED_S: Final = 15.0

Word = Annotated[str, msgspec.Meta(min_length=1, max_length=4096, pattern=r"^[^\x00]*$")]
Count = Annotated[int, msgspec.Meta(ge=1, le=16_384)]
Size = Annotated[int, msgspec.Meta(ge=0, le=2**60)]
JobName = Annotated[str, msgspec.Meta(pattern=JOB_NAME)]
VariableName = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$", max_length=256)]


class ScaleRequest(msgspec.Struct, forbid_unknown_fields=True):
    """A training configuration whose copy is scaled to the job's ranks, as `--scale-config`."""

    path: Annotated[str, msgspec.Meta(pattern=r"^[^\x00]{1,4096}$")]  # as the command names it
    text: Annotated[str, msgspec.Meta(max_length=1 << 20)]  # JSON, TOML or YAML, by the ending of `path`
    batch: Batch = "auto"


class StartJobRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Job request. Null: the default in [run] of hosts.toml, else whatever fits."""

    command: Annotated[tuple[Word, ...], msgspec.Meta(min_length=1, max_length=4096)]
    nodes: Count | None = None
    gpus_per_node: Annotated[int, msgspec.Meta(ge=0, le=1024)] | None = None  # 0: a CPU job
    procs_per_node: Annotated[int, msgspec.Meta(ge=1, le=1024)] | None = None
    min_gpu_mem_bytes: Size = 0
    min_mem_bytes: Size = 0  # available memory of the host
    min_disk_bytes: Size = 0  # free in the working directory
    select: NodeSet | None = None  # null: any
    launcher: Launcher | None = None
    workdir: Word | None = None
    interface: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.:-]{1,15}$")] | None = None
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] | None = None
    env: dict[VariableName, Annotated[str, msgspec.Meta(max_length=65536, pattern=r"^[^\x00]*$")]] = {}
    scale: ScaleRequest | None = None
    check_imports: bool = False  # also look up the modules that the script imports
    # id of a folder of POST /folders: copied to all nodes first, to workdir or ~/gconsole-sync/NAME
    sync: Annotated[str, msgspec.Meta(pattern=FOLDER_ID)] | None = None
    # jobs that must have completed, else the start is refused with 409; a plan only checks that they exist
    after: Annotated[tuple[JobName, ...], msgspec.Meta(max_length=64)] = ()


class NodePlan(msgspec.Struct):
    """What would run on one node."""

    node: str
    ranks: tuple[int, int]  # the first and the last
    gpus: tuple[int, ...]  # indices
    interface: str | None
    commands: list[str]  # quoted for a shell


class JobPlan(msgspec.Struct):
    """A job that could start now. Resources are not reserved: another job may take them."""

    job: str
    world_size: int
    master_addr: str
    master_port: int
    nodes: list[NodePlan]
    left_out: tuple[tuple[str, str], ...]  # node and reason
    warnings: tuple[str, ...]
    text: str  # the plan as text


class JobStarted(msgspec.Struct):
    """A started job, its plan, and its state on its nodes so far."""

    job: str
    plan: JobPlan
    seen: JobResource | None


@operation("POST", "/jobs/plan", problems=(404, 409), scope="read")
async def plan_job(context: WebContext, request: OperationRequest[StartJobRequest]) -> JobPlan:
    """Plan a job without starting it: its nodes, and the command on each."""
    for name in request.parameters.after:
        started_job(context, name)
    with context.uploads.using(request.parameters.sync) as folder:
        return planned(await _plan(context, _request(context, request.parameters, folder)))


@operation("POST", "/jobs", status=201, problems=(404, 409))
async def start_job(context: WebContext, request: OperationRequest[StartJobRequest]) -> JobStarted:
    """Plan a job and start it on all of its nodes, or on none. Needs --allow-run."""
    context.permit(Change.START_JOB)
    _require_completed(context, request.parameters.after)
    with context.uploads.using(request.parameters.sync) as folder:
        plan = await _started(context, _request(context, request.parameters, folder))
    return JobStarted(plan.job, planned(plan), one_job(context, plan.job))


async def _started(context: WebContext, job: JobRequest) -> LaunchPlan:
    """Start a job on all of its nodes; its plan. Raises HttpProblemError if it runs on none."""
    async with context.starting:  # two concurrent plans would get the same GPUs
        plan = await _plan(context, job)
        if job.sync is not None and job.workdir is not None:
            await _copy(context, plan, job.sync, job.workdir)
        failures = await context.control.start_job(plan.orders)
        if failures:
            unknown = may_be_left(failures.values())
            left = "it is unknown whether all processes have ended" if unknown else "no process is left"
            raise HttpProblemError(HttpProblem(
                status=409, name="not_started", text=f"{plan.job} was not started; {left}",
                try_="GET /jobs" if unknown else "", nodes=dict(failures),
            ))  # fmt: skip
        context.hub.publish_own(Log(source="console", text=f"job {plan.job} was started over HTTP"))
        await context.until(
            lambda: (view := job_status(context.store, plan.job)) is not None and not view.unseen, _REPORTED_S
        )
    return plan


async def _copy(context: WebContext, plan: LaunchPlan, folder: SyncFolder, workdir: str) -> None:
    """Copy the folder of a job to its nodes. Raises HttpProblemError unless all of them have it."""
    answers = await context.control.sync_folder(list(plan.orders), folder, workdir)
    failures = {node: answer for node, answer in answers.items() if isinstance(answer, Failure)}
    if failures:
        raise HttpProblemError(HttpProblem(
            status=409, name="not_copied", nodes=failures,
            text=f"{plan.job} was not started: the folder was not copied to {plural(len(failures), 'node')}",
        ))  # fmt: skip


def _require_completed(context: WebContext, jobs: Sequence[str]) -> None:
    """Raises HttpProblemError for the first job that has not completed, or that gconsole did not start."""
    for job in jobs:
        view = started_job(context, job)
        if not view.is_over:
            raise http_problem(409, "after_running", f"{job} has not completed yet: {view.state}",
                               f"repeat the request once GET /jobs/{job} has the state completed")  # fmt: skip
        if view.state != "completed":
            raise http_problem(409, "after_failed", f"{job}: {view.state}", "start that job again, or leave it out")


async def _plan(context: WebContext, request: JobRequest) -> LaunchPlan:
    """Raises HttpProblemError if the job does not fit."""
    facts = node_facts(context.store, context.config.nodes)
    plan = await make_plan(context.control, facts, request, new_job(request.command))
    if isinstance(plan, Refusal):
        raise HttpProblemError(HttpProblem(
            status=409, name="no_plan", text=plan.reason, left_out=plan.left_out, change=plan.change,
            try_=plan.change[0] if plan.change else "",
        ))  # fmt: skip
    if plan.brings is None:
        return plan
    name = PurePosixPath(plan.brings.local).name  # not where the server keeps it
    return msgspec.structs.replace(plan, brings=msgspec.structs.replace(plan.brings, local=name))


def _request(context: WebContext, spec: StartJobRequest, folder: SyncFolder | None) -> JobRequest:
    preferred = context.config.run
    reserved = [name for name in spec.env if name.startswith(RESERVED)]
    if reserved:
        raise http_problem(400, "reserved", f"{', '.join(reserved)}: reserved for gconsole", "use another name")
    workdir = spec.workdir or preferred.workdir
    if folder is not None and workdir is None:
        workdir = f"~/gconsole-sync/{PurePosixPath(folder.local).name}"
    select = spec.select or preferred.select or "auto"
    return JobRequest(
        command=spec.command, nodes=spec.nodes or preferred.nodes,
        gpus_per_node=preferred.gpus_per_node if spec.gpus_per_node is None else spec.gpus_per_node,
        procs_per_node=spec.procs_per_node or preferred.procs_per_node,
        min_gpu_mem_bytes=spec.min_gpu_mem_bytes, min_mem_bytes=spec.min_mem_bytes,
        min_disk_bytes=spec.min_disk_bytes,
        select=None if select == "auto" else tuple(host.name for host in expand(select)),
        launcher=spec.launcher or preferred.launcher, workdir=workdir,
        interface=spec.interface, port=spec.port, env=tuple(spec.env.items()),
        scale=ScaleConfig(spec.scale.path, spec.scale.text, spec.scale.batch) if spec.scale is not None else None,
        sync=folder, check_imports=spec.check_imports,
    )  # fmt: skip


def planned(plan: LaunchPlan) -> JobPlan:
    """The response for a plan."""
    first = plan.first
    nodes = [
        NodePlan(
            node=node,
            ranks=(order.index * order.procs_per_node, (order.index + 1) * order.procs_per_node - 1),
            gpus=plan.gpu_indices[node], interface=plan.interfaces.get(node),
            commands=[shell(command.argv, {**order.env, **command.env}) for command in order.commands],
        )
        for node, order in plan.orders.items()
    ]  # fmt: skip
    return JobPlan(plan.job, first.world_size, first.master_addr, first.master_port, nodes, plan.left_out,
                   plan.warnings, plan_text(plan))  # fmt: skip
