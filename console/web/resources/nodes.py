"""`/nodes`, `/gpus` and `/ranks`: latest state and metrics; add, remove and examine nodes."""

from __future__ import annotations

import time
from collections import Counter
from typing import Annotated, Final

import msgspec

from ...config import edit
from ...config.model import Change
from ...config.nodeset import NodeAddress, expand
from ...core.store import NodeNow, Store
from ...monitor.coverage import NodeCoverage, coverage_of
from ...monitor.doctor import NodeExam, examine
from ...monitor.hang import jobs_of
from ...monitor.progress import progress_in
from ...report.document import FindingLine, finding_lines
from ...report.nodes import (
    CostLine,
    GpuLine,
    NodeLine,
    RankLine,
    cost_lines,
    gpu_lines,
    is_of_job,
    node_line,
    rank_line,
)
from ...text.format import iso
from ...text.nodeset_fold import natural
from ..operation import NoParameters, OperationRequest, WebContext, operation
from ..problems import http_problem

NODE_NAME: Final = r"^[A-Za-z0-9_@:][A-Za-z0-9_.:@\[\]-]{0,252}$"
#: Characters of a node set; `expand` checks its syntax.
NODE_SET: Final = r"^[A-Za-z0-9_@][A-Za-z0-9_.:@%,\[\]-]*$"
NodeSet = Annotated[str, msgspec.Meta(pattern=NODE_SET, max_length=4096, description="node[01-04,7] or a,b")]


class NodeFigures(msgspec.Struct):
    """Latest host metrics of a node; null while it is not connected."""

    cpu_pct: float | None  # all CPUs together, 0 to 100
    load_1m: float | None
    mem_used_bytes: int | None
    mem_total_bytes: int | None
    cpu_stall_pct: float | None  # PSI
    io_stall_pct: float | None
    net_rx_bytes_s: float | None
    net_tx_bytes_s: float | None


class GpuModel(msgspec.Struct):
    """GPUs of one model."""

    name: str | None
    count: int
    mem_total_bytes: int | None  # of each


class NodeCapabilities(msgspec.Struct):
    """What a job could use; null where it is unknown."""

    cpus: int | None  # logical CPUs that the agent may run on
    gpus: list[GpuModel]
    disk_total_bytes: int | None  # of the largest local file system that can be written to
    disk_free_bytes: int | None
    torch: str | None  # version in the Python of torchrun, else of python3, in PATH


class NodeResource(msgspec.Struct):
    """One node: connection state, host metrics, and cost of the agent."""

    node: str
    about: NodeLine
    figures: NodeFigures
    capabilities: NodeCapabilities
    cost: CostLine | None
    last_record_at: str | None
    heard: str | None  # deprecated: `last_record_at`


class NodeList(msgspec.Struct):
    """All nodes of this console."""

    nodes: list[NodeResource]


class NodeDetail(msgspec.Struct):
    """One node with what is on it."""

    node: NodeResource
    gpus: list[GpuLine]
    ranks: list[RankLine]
    findings: list[FindingLine]  # about it and its devices, also those that have cleared


class Added(msgspec.Struct):
    """Nodes that are being connected, without those that already were in this console."""

    added: list[str]
    kept: bool  # written to hosts.toml


class AddNodesRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Nodes to add. `user` and `port` are for nodes that are not written as user@node:port.

    `keep`: also write them to the hosts.toml of this console.
    """

    nodes: NodeSet
    user: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$")] | None = None
    port: Annotated[int, msgspec.Meta(ge=1, le=65535)] | None = None
    keep: bool = False


class ExamineRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Nodes to examine; null for all that are connected."""

    nodes: NodeSet | None = None


class Health(msgspec.Struct):
    """Result of the doctor's checks on each node."""

    nodes: list[NodeExam]


class Removed(msgspec.Struct):
    """A removed node; its records stay in recordings."""

    removed: str


def capabilities(store: Store, now: NodeNow) -> NodeCapabilities:
    """What a job could use on a node."""
    infos = [gpu.info for key in store.gpus if key[0] == now.name and (gpu := store.gpus[key]).info is not None]
    models = Counter((info.name, info.mem_total_bytes) for info in infos if info and info.parent is None)
    disks = [disk for disk in store.capacities.values()
             if disk.node == now.name and disk.type == "file_system" and disk.is_writable and not disk.is_network
             and disk.total_bytes is not None]  # fmt: skip
    disk = max(disks, key=lambda disk: disk.total_bytes or 0, default=None)
    torch = store.settings.get((now.name, "package", "torch"))
    return NodeCapabilities(
        cpus=now.node.cpus if now.node else None,
        gpus=[GpuModel(name, count, size) for (name, size), count in models.items()],
        disk_total_bytes=disk.total_bytes if disk else None, disk_free_bytes=disk.available_bytes if disk else None,
        torch=torch.value if torch else None,
    )  # fmt: skip


def seen(store: Store, now: NodeNow, coverage: NodeCoverage) -> NodeResource:
    """Current state of one node."""
    is_ok = now.state is not None and now.state.state == "ok"
    figures = {name: getattr(now.host if is_ok else None, name, None) for name in NodeFigures.__struct_fields__}
    figures["mem_total_bytes"] = now.node.mem_total_bytes if now.node else None
    return NodeResource(
        node=now.name, about=node_line(now, coverage), figures=NodeFigures(**figures),
        capabilities=capabilities(store, now),
        cost=next(iter(cost_lines([now])), None),
        last_record_at=iso(now.last_rx),
        heard=iso(now.last_rx),
    )  # fmt: skip


@operation("GET", "/nodes")
async def get_nodes(context: WebContext, request: OperationRequest[NoParameters]) -> NodeList:
    """All nodes: connection state, host metrics, cost of the agent."""
    coverage = coverage_of(context.store)
    return NodeList(
        [
            seen(context.store, now, coverage[now.name])
            for now in sorted(context.store.nodes.values(), key=lambda now: natural(now.name))
        ]
    )


@operation("GET", "/nodes/{name}", name_pattern=NODE_NAME, problems=(404,))
async def get_node(context: WebContext, request: OperationRequest[NoParameters]) -> NodeDetail:
    """One node with its GPUs, ranks and findings. Figures that no longer arrive are null; `stale_s` is their age."""
    store, name = context.store, request.name
    now = store.nodes.get(name)
    if now is None:
        raise http_problem(404, "no_such_node", f"{name} is not a node of this console", "GET /nodes lists them")
    progress = progress_in(store)
    return NodeDetail(
        node=seen(store, now, coverage_of(store)[name]),
        gpus=[line for line in gpu_lines(store, time.time_ns()) if line.node == name],
        ranks=[rank_line(row, progress) for row in jobs_of(store).rows if row.node == name],
        findings=[
            line for line in finding_lines(store)
            if any(who == name or who.startswith(f"{name}:") for who in (*line.culprits, *line.victims))
        ],
    )  # fmt: skip


@operation("POST", "/nodes", status=202)
async def add_nodes(context: WebContext, request: OperationRequest[AddNodesRequest]) -> Added:
    """Connect to more nodes until this console ends; with `keep` also later ones, from hosts.toml."""
    context.permit(Change.ADD_NODE)
    wanted = request.parameters
    path = context.config.path
    if wanted.keep and path is None:
        raise http_problem(409, "no_hosts_file", "this console was started without a hosts.toml",
                           "start gconsole api with a file, or leave keep out")  # fmt: skip
    names = [_with_login(host, wanted.user, wanted.port) for host in expand(wanted.nodes)]
    added = list(await context.control.add_nodes(",".join(names)))
    if wanted.keep and added and path is not None:
        texts = {host.name: host.text for host in expand(",".join(names))}
        edit.add(str(path), ",".join(texts[name] for name in added), {})
    return Added(added, wanted.keep and bool(added))


def _with_login(host: NodeAddress, user: str | None, port: int | None) -> str:
    """A node with the login that it lacks, as a node set."""
    login = f"{user}@" if user is not None and host.user is None else ""
    return login + host.text + (f":{port}" if port is not None and host.port is None else "")


@operation("DELETE", "/nodes/{name}", name_pattern=NODE_NAME)
async def remove_node(context: WebContext, request: OperationRequest[NoParameters]) -> Removed:
    """Disconnect a node and remove it until the console is restarted."""
    context.permit(Change.REMOVE_NODE)
    if request.name not in context.store.nodes:
        raise http_problem(
            404, "no_such_node", f"{request.name} is not a node of this console", "GET /nodes lists them"
        )
    try:
        await context.control.remove_node(request.name)
    except KeyError:
        text = f"{request.name} was removed by another request"
        raise http_problem(404, "no_such_node", text, "GET /nodes lists the nodes") from None
    return Removed(request.name)


@operation("POST", "/nodes/health", problems=(404,), scope="read")
async def examine_nodes(context: WebContext, request: OperationRequest[ExamineRequest]) -> Health:
    """Run the doctor's checks on nodes: what fails and what to do."""
    nodes = context.store.nodes
    if request.parameters.nodes is None:
        names = list(nodes)
    else:
        names = [host.name for host in expand(request.parameters.nodes)]
        strangers = [name for name in names if name not in nodes]
        if strangers:
            raise http_problem(404, "no_such_node", f"not a node of this console: {', '.join(strangers[:8])}",
                          "GET /nodes lists them")  # fmt: skip
    return Health(examine(await context.control.examine(sorted(names, key=natural))))


Name = Annotated[str, msgspec.Meta(max_length=253)]


class GpusQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Filter."""

    node: Annotated[Name | None, msgspec.Meta(description="only on this node")] = None


class RanksQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Filter."""

    node: Annotated[Name | None, msgspec.Meta(description="only on this node")] = None
    job: Annotated[Name | None, msgspec.Meta(description="only of this job")] = None


class GpuList(msgspec.Struct):
    """GPUs by node and index, MIG devices after their GPU."""

    gpus: list[GpuLine]


class RankList(msgspec.Struct):
    """Detected ranks."""

    ranks: list[RankLine]


@operation("GET", "/gpus")
async def get_gpus(context: WebContext, request: OperationRequest[GpusQuery]) -> GpuList:
    """All GPUs with their latest metrics and ranks; null with an age (`stale_s`) if they no longer arrive."""
    node = request.parameters.node
    return GpuList([line for line in gpu_lines(context.store, time.time_ns()) if node in (None, line.node)])


@operation("GET", "/ranks")
async def get_ranks(context: WebContext, request: OperationRequest[RanksQuery]) -> RankList:
    """All ranks of all jobs: node, process, state and metrics."""
    node, job = request.parameters.node, request.parameters.job
    rows = [row for row in jobs_of(context.store).rows if node in (None, row.node)]
    progress = progress_in(context.store)
    return RankList([rank_line(row, progress) for row in rows if job is None or is_of_job(row.job, job)])
