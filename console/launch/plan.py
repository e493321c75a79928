"""From what is wanted and what is known to a plan: which nodes, which ranks, which command on each. Pure.

A plan is made in turns: `choose` names nodes, whoever has a connection asks them (`question`), and with their answers
`plan` says what will run, or that one of them cannot, which chooses others in the next turn (see `making`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from ..core.job_protocol import JobQuestion, NodeOrder, Readiness
from .capacity import NodeFacts
from .commands import BadCommand, Place, commands
from .config_file import BadConfigFile
from .rendezvous import Meeting, NoMeeting, meet
from .request import JobRequest
from .scale import CannotScale, Scaled, Size, scale
from .select_nodes import Choice, choose, free_gpus
from .sync_manifest import has_program

#: Ports at which ranks meet: from torch's own default on, below those that the kernel gives to clients.
FIRST_PORT, PORTS = 29500, 500
#: So many warnings of one node are told.
_TOLD = 3
#: So many are asked for at once.
_PORTS_ASKED = 32


class Brings(msgspec.Struct, frozen=True):
    """What is copied to every node of the job before it starts."""

    local: str
    files: int
    bytes: int


class Plan(msgspec.Struct, frozen=True):
    """A job that can start: an order for each node, in the order of node ranks."""

    job: str
    orders: dict[str, NodeOrder]
    interfaces: dict[str, str | None]
    gpu_indices: dict[str, tuple[int, ...]]
    left_out: tuple[tuple[str, str], ...]
    warnings: tuple[str, ...]
    brings: Brings | None = None
    scaled: Scaled | None = None

    @property
    def first(self) -> NodeOrder:
        return next(iter(self.orders.values()))


class Refusal(msgspec.Struct, frozen=True):
    """Why a job cannot start now, and what to ask for instead."""

    reason: str
    left_out: tuple[tuple[str, str], ...] = ()
    change: tuple[str, ...] = ()


class Asks(msgspec.Struct, frozen=True):
    """Nodes that have to be asked before the plan can be made."""

    nodes: tuple[str, ...]


def question(request: JobRequest, job: str) -> JobQuestion:
    """What to ask a node about this job. Raises BadCommand."""
    place = Place(job, 0, 1, 1, "", 0, False)
    programs = {command.argv[0] for command in commands(request.launcher, request.command, place)}
    folder = request.sync
    if folder is not None:
        programs = {program for program in programs if not has_program(folder, program)}
    ports = (request.port,) if request.port else _ports(job)
    return JobQuestion(request.workdir, tuple(sorted(programs)), ports, folder.bytes if folder is not None else None)


def plan(
    request: JobRequest, job: str, nodes: Sequence[NodeFacts], ready: Mapping[str, Readiness | str], created: int
) -> Plan | Refusal | Asks:
    """The plan, a refusal, or whom to ask first. `ready` has the answers so far, or why there is none."""
    try:
        question(request, job)
    except BadCommand as error:
        return Refusal(str(error))
    unknown = sorted(set(request.select or ()) - {node.name for node in nodes})
    if unknown:
        return Refusal(f"no such node here: {', '.join(unknown[:8])}")
    if request.nodes is not None and request.select is not None and request.nodes > len(request.select):
        return Refusal(f"{request.nodes} nodes of {len(request.select)} that --select names")
    choice = choose(request, nodes, ready)
    if not choice.is_met:
        can = "no node can" if not choice.usable else f"only {choice.usable} can"
        return Refusal(f"{choice.wanted} node(s) wanted, {can}", choice.left_out, choice.change)
    open_ = tuple(node.name for node in choice.chosen if node.name not in ready)
    if open_:
        return Asks(open_)
    answers = {node.name: answer for node in choice.chosen if isinstance(answer := ready[node.name], Readiness)}
    return _arranged(request, job, choice, answers, created)


def _arranged(
    request: JobRequest, job: str, choice: Choice, ready: Mapping[str, Readiness], created: int
) -> Plan | Refusal:
    names = [node.name for node in choice.chosen]
    try:
        meeting = meet(names, ready, request.interface)
    except NoMeeting as error:
        return Refusal(str(error), choice.left_out)
    port = ready[names[0]].port
    if port is None:
        wanted = f"port {request.port} is" if request.port else "the ports tried are all"
        return Refusal(f"{wanted} taken on {names[0]}", choice.left_out, ("--port with another one",))
    procs = request.procs_per_node or choice.gpus_per_node or 1
    try:
        size = Size(job, len(names), procs, meeting.address, port)
        scaled = scale(request.scale, size) if request.scale is not None else None
    except (BadConfigFile, CannotScale) as error:
        return Refusal(f"--scale-config: {error}", choice.left_out)
    orders, indices = {}, {}
    for index, node in enumerate(choice.chosen):
        given = free_gpus(request, node)[: choice.gpus_per_node]
        order = _order(request, job, names, index, node, [g.uuid for g in given], meeting, port, created)
        orders[node.name] = order if scaled is None else _with_config(order, scaled, index)
        indices[node.name] = tuple(gpu.index for gpu in given)
    warnings = tuple(filter(None, (meeting.warning, _skew(choice.chosen), *_words(choice.chosen))))
    folder = request.sync
    brings = Brings(folder.local, len(folder.files), folder.bytes) if folder is not None else None
    if request.scale is not None and request.scale.within(request.command) == request.command:
        warnings = (*warnings, f"the command does not name {request.scale.path}: the copy is at $GCONSOLE_CONFIG")
    return Plan(job, orders, dict(meeting.interfaces), indices, choice.left_out, warnings, brings, scaled)


def _with_config(order: NodeOrder, scaled: Scaled, index: int) -> NodeOrder:
    text = scaled.others if index else scaled.first
    return msgspec.structs.replace(order, files=((scaled.name, text),))


def _order(
    request: JobRequest, job: str, names: Sequence[str], index: int, node: NodeFacts, gpus: Sequence[str],
    meeting: Meeting, port: int, created: int,
) -> NodeOrder:  # fmt: skip
    procs = request.procs_per_node or len(gpus) or 1
    place = Place(job, index, len(names), procs, meeting.address, port, bool(gpus))
    return NodeOrder(
        job=job, index=index, nodes=tuple(names), command=request.command, launcher=request.launcher,
        procs_per_node=procs, gpus_per_node=len(gpus), world_size=place.world_size, master_addr=meeting.address,
        master_port=port, workdir=request.workdir, created=created,
        env=_environment(request, node, gpus, meeting.interfaces[node.name], job, index),
        commands=commands(request.launcher, _command(request), place), gpus=tuple(gpus),
    )  # fmt: skip


def _command(request: JobRequest) -> tuple[str, ...]:
    return request.scale.within(request.command) if request.scale is not None else request.command


def _environment(
    request: JobRequest, node: NodeFacts, gpus: Sequence[str], interface: str | None, job: str, index: int
) -> dict[str, str]:
    """What the commands get beyond the node's own environment; what the person gave wins over our guesses."""
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


def _skew(nodes: Sequence[NodeFacts]) -> str:
    versions = {node.versions for node in nodes}
    if len(versions) < 2:
        return ""
    said = sorted(" ".join(part or "?" for part in found) for found in versions)
    return f"the nodes differ in driver, CUDA or architecture: {' · '.join(said)}"


def _words(nodes: Sequence[NodeFacts]) -> list[str]:
    """Warnings about nodes that were chosen all the same."""
    return [f"{node.name}: {'; '.join(node.warnings[:_TOLD])}" for node in nodes if node.warnings]


def _ports(job: str) -> tuple[int, ...]:
    """Ports to try: where they begin depends on the job, so that two that start together do not meet at one."""
    begin = sum(job.encode()) * 37 % PORTS
    return tuple(FIRST_PORT + (begin + step) % PORTS for step in range(_PORTS_ASKED))
