"""The plan of a job: which nodes, which ranks, which command on each. Pure.

`plan` selects nodes; nodes without a preflight answer are returned as `PreflightNeeded`. The caller asks them
(`preflight_request`) and plans again with their answers, which may select others (`planner.make_plan`).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import msgspec

from ..core.control import Control
from ..core.job_protocol import NodeOrder, PythonFacts, Readiness, ReadinessRequest
from ..text.format import plural
from ..text.nodeset_fold import fold
from .code_folder import has_program
from .node_capacity import NodeCapacity
from .rendezvous import NoRendezvous, Rendezvous, choose_rendezvous
from .request import BadCommand, JobRequest, NodePosition, commands, python_check
from .scale import BadConfigFile, CannotScale, JobSize, Scaled, scale
from .select_nodes import NodeChoice, free_gpus, select_nodes

#: Rendezvous ports: from torch's default upwards, below the ephemeral ports of the kernel.
FIRST_PORT, PORTS = 29500, 500
#: Warnings shown per node.
_MAX_WARNINGS = 3
#: Ports that one preflight request tries.
_PORTS_TRIED = 32


class SyncSummary(msgspec.Struct, frozen=True):
    """The folder that is copied to every node before the job starts."""

    local: str
    files: int
    bytes: int


class LaunchPlan(msgspec.Struct, frozen=True):
    """A job that can start: an order for each node, in the order of node ranks."""

    job: str
    orders: dict[str, NodeOrder]
    interfaces: dict[str, str | None]
    gpu_indices: dict[str, tuple[int, ...]]
    left_out: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    brings: SyncSummary | None = None
    scaled: Scaled | None = None
    pythons: dict[str, PythonFacts | None] = {}  # by node; None: not a Python job, or unknown

    @property
    def first(self) -> NodeOrder:
        """The order of the node with rank 0."""
        return next(iter(self.orders.values()))


class Refusal(msgspec.Struct, frozen=True):
    """Why a job cannot start now, and which request could."""

    reason: str
    left_out: tuple[tuple[str, str], ...] = ()
    change: tuple[str, ...] = ()


class PreflightNeeded(msgspec.Struct, frozen=True):
    """Nodes whose preflight answers the plan needs."""

    nodes: tuple[str, ...]


def preflight_request(request: JobRequest, job: str) -> ReadinessRequest:
    """The preflight request of this job. Raises BadCommand."""
    place = NodePosition(job, 0, 1, 1, "", 0, False)
    programs = {command.argv[0] for command in commands(request.launcher, request.command, place)}
    folder = request.sync
    if folder is not None:
        programs = {program for program in programs if not has_program(folder, program)}
    ports = (request.port,) if request.port else _ports(job)
    return ReadinessRequest(
        request.workdir, tuple(sorted(programs)), ports, folder.bytes if folder is not None else None,
        python_check(request),
    )  # fmt: skip


def plan(
    request: JobRequest, job: str, nodes: Sequence[NodeCapacity], ready: Mapping[str, Readiness | str], created: int
) -> LaunchPlan | Refusal | PreflightNeeded:
    """The plan, a refusal, or the nodes to ask first. `ready` has the answers so far, or why one is missing."""
    try:
        preflight_request(request, job)
    except BadCommand as error:
        return Refusal(str(error))
    unknown = sorted(set(request.select or ()) - {node.name for node in nodes})
    if unknown:
        return Refusal(f"not a node of this cluster: {', '.join(unknown[:8])}")
    if request.nodes is not None and request.select is not None and request.nodes > len(request.select):
        return Refusal(f"--nodes {request.nodes} is more than the {len(request.select)} nodes of --select")
    choice = select_nodes(request, nodes, ready)
    if not choice.is_met:
        available = f"only {choice.usable} available" if choice.usable else "none available"
        return Refusal(f"{plural(choice.wanted, 'node')} needed, {available}", choice.left_out, choice.change)
    open_ = tuple(node.name for node in choice.chosen if node.name not in ready)
    if open_:
        return PreflightNeeded(open_)
    answers = {node.name: answer for node in choice.chosen if isinstance(answer := ready[node.name], Readiness)}
    return _arranged(request, job, choice, answers, created)


def _arranged(
    request: JobRequest, job: str, choice: NodeChoice, ready: Mapping[str, Readiness], created: int
) -> LaunchPlan | Refusal:
    names = [node.name for node in choice.chosen]
    try:
        rendezvous = choose_rendezvous(names, ready, request.interface)
    except NoRendezvous as error:
        return Refusal(str(error), choice.left_out)
    port = ready[names[0]].port
    if port is None:
        tried = f"port {request.port} is" if request.port else "all tried ports are"
        return Refusal(f"{tried} in use on {names[0]}", choice.left_out, ("choose another one with --port",))
    procs = request.procs_per_node or choice.gpus_per_node or 1
    try:
        size = JobSize(job, len(names), procs, rendezvous.address, port)
        scaled = scale(request.scale, size) if request.scale is not None else None
    except (BadConfigFile, CannotScale) as error:
        return Refusal(f"--scale-config: {error}", choice.left_out)
    orders, indices = {}, {}
    for index, node in enumerate(choice.chosen):
        given = free_gpus(request, node)[: choice.gpus_per_node]
        order = _order(request, job, names, index, node, [g.uuid for g in given], rendezvous, port, created)
        orders[node.name] = order if scaled is None else _with_config(order, scaled, index)
        indices[node.name] = tuple(gpu.index for gpu in given)
    warnings = tuple(filter(None, (rendezvous.warning, _skew(choice.chosen), *_words(choice.chosen))))
    pythons = {node: ready[node].python for node in names}
    warnings = (*warnings, *_python_warnings(pythons))
    folder = request.sync
    brings = SyncSummary(folder.local, len(folder.files), folder.bytes) if folder is not None else None
    if request.scale is not None and request.scale.within(request.command) == request.command:
        warnings = (*warnings, f"the command does not name {request.scale.path}: the copy is at $GCONSOLE_CONFIG")
    return LaunchPlan(job, orders, dict(rendezvous.interfaces), indices, choice.left_out, warnings, brings, scaled,
                      pythons)  # fmt: skip


def _with_config(order: NodeOrder, scaled: Scaled, index: int) -> NodeOrder:
    text = scaled.others if index else scaled.first
    return msgspec.structs.replace(order, files=((scaled.name, text),))


def _order(
    request: JobRequest, job: str, names: Sequence[str], index: int, node: NodeCapacity, gpus: Sequence[str],
    rendezvous: Rendezvous, port: int, created: int,
) -> NodeOrder:  # fmt: skip
    procs = request.procs_per_node or len(gpus) or 1
    place = NodePosition(job, index, len(names), procs, rendezvous.address, port, bool(gpus))
    return NodeOrder(
        job=job, index=index, nodes=tuple(names), command=request.command, launcher=request.launcher,
        procs_per_node=procs, gpus_per_node=len(gpus), world_size=place.world_size, master_addr=rendezvous.address,
        master_port=port, workdir=request.workdir, created=created,
        env=_environment(request, node, gpus, rendezvous.interfaces[node.name], job, index),
        commands=commands(request.launcher, _command(request), place), gpus=tuple(gpus),
    )  # fmt: skip


def _command(request: JobRequest) -> tuple[str, ...]:
    return request.scale.within(request.command) if request.scale is not None else request.command


def _environment(
    request: JobRequest, node: NodeCapacity, gpus: Sequence[str], interface: str | None, job: str, index: int
) -> dict[str, str]:
    """What the commands get beyond the node's own environment; the user's values override defaults."""
    env = {"PYTHONUNBUFFERED": "1"}  # else lines come in blocks of 8 KiB, and the last of a rank that is killed never
    if gpus or node.gpus:  # a job for CPUs gets none, where there are some
        env["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)  # uuids: indices mean another order to CUDA than to the driver
    if interface is not None:
        env |= {"NCCL_SOCKET_IFNAME": interface, "GLOO_SOCKET_IFNAME": interface}
    if request.scale is not None:
        env["GCONSOLE_CONFIG"] = request.scale.place
    env |= dict(request.env)
    env |= dict(node.environment)
    return env | {"GCONSOLE_JOB": job, "GCONSOLE_NODE_RANK": str(index)}


def _skew(nodes: Sequence[NodeCapacity]) -> str:
    versions = {node.versions for node in nodes}
    if len(versions) < 2:
        return ""
    texts = sorted(" ".join(part or "?" for part in parts) for parts in versions)
    return f"the nodes differ in driver, CUDA or architecture: {' · '.join(texts)}"


def _python_warnings(pythons: Mapping[str, PythonFacts | None]) -> list[str]:
    """Versions in which the Pythons of the nodes differ."""
    facts = {node: python for node, python in pythons.items() if python is not None}
    warnings = []
    for name in ("Python", "torch", "accelerate"):
        nodes: dict[str, list[str]] = {}
        for node, python in facts.items():
            version = python.version if name == "Python" else python.versions.get(name) or "not installed"
            nodes.setdefault(version, []).append(node)
        if len(nodes) > 1:
            texts = [f"{version} on {fold(names)}" for version, names in sorted(nodes.items())]
            warnings.append(f"the nodes differ in {name}: {' · '.join(texts)}")
    return warnings


def _words(nodes: Sequence[NodeCapacity]) -> list[str]:
    """Warnings about nodes that were chosen all the same."""
    return [f"{node.name}: {'; '.join(node.warnings[:_MAX_WARNINGS])}" for node in nodes if node.warnings]


def _ports(job: str) -> tuple[int, ...]:
    """Ports to try: where they begin depends on the job, so that two that start together do not meet at one."""
    begin = sum(job.encode()) * 37 % PORTS
    return tuple(FIRST_PORT + (begin + step) % PORTS for step in range(_PORTS_TRIED))


async def make_plan(
    control: Control, nodes: Sequence[NodeCapacity], request: JobRequest, job: str
) -> LaunchPlan | Refusal:
    """The plan, or why there is none. Every round probes only nodes that were not probed before, so it ends."""
    ready: dict[str, Readiness | str] = {}
    created = time.time_ns()
    while True:
        outcome = plan(request, job, nodes, ready, created)
        if not isinstance(outcome, PreflightNeeded):
            return outcome
        answers = await control.probe_job(outcome.nodes, preflight_request(request, job))
        for node in outcome.nodes:
            answer = answers[node]
            ready[node] = answer if isinstance(answer, Readiness) else f"{answer.name}: {answer.text}"
