"""`/nodes`: state of all nodes; add, remove and examine nodes."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from ...config.nodeset import expand
from ...core.store import NodeNow
from ...monitor.node_exam import NodeExam, examine
from ...report.nodes import CostLine, NodeLine, cost_lines, node_line
from ...text.format import iso
from ...text.nodeset_fold import natural
from ..operation import NoParameters, Operation, OperationRequest, WebContext
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


class NodeSeen(msgspec.Struct):
    """One node: connection state, host metrics, and cost of the agent."""

    node: str
    about: NodeLine
    figures: NodeFigures
    cost: CostLine | None
    heard: str | None  # time of the last record


class NodeList(msgspec.Struct):
    """All nodes of this console."""

    nodes: list[NodeSeen]


class Added(msgspec.Struct):
    """Nodes that are being connected, without those that already were in this console."""

    added: list[str]


class AddNodesRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Nodes to add."""

    nodes: NodeSet


class ExamineRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Nodes to examine; null for all that are connected."""

    nodes: NodeSet | None = None


class Health(msgspec.Struct):
    """Result of the doctor's checks on each node."""

    nodes: list[NodeExam]


class Removed(msgspec.Struct):
    """A removed node; its records stay in recordings."""

    removed: str


def seen(now: NodeNow) -> NodeSeen:
    """Current state of one node."""
    is_ok = now.state is not None and now.state.state == "ok"
    host = now.host if is_ok else None
    return NodeSeen(
        node=now.name, about=node_line(now),
        figures=NodeFigures(
            cpu_pct=host.cpu_pct if host else None,
            load_1m=host.load_1m if host else None,
            mem_used_bytes=host.mem_used_bytes if host else None,
            mem_total_bytes=now.node.mem_total_bytes if now.node else None,
            cpu_stall_pct=host.cpu_stall_pct if host else None,
            io_stall_pct=host.io_stall_pct if host else None,
            net_rx_bytes_s=host.net_rx_bytes_s if host else None,
            net_tx_bytes_s=host.net_tx_bytes_s if host else None,
        ),
        cost=next(iter(cost_lines([now])), None),
        heard=iso(now.last_rx),
    )  # fmt: skip


async def get_nodes(context: WebContext, request: OperationRequest[NoParameters]) -> NodeList:
    """All nodes."""
    return NodeList([seen(now) for now in sorted(context.store.nodes.values(), key=lambda now: natural(now.name))])


async def add_nodes(context: WebContext, request: OperationRequest[AddNodesRequest]) -> Added:
    """Start to connect to more nodes."""
    return Added(list(await context.control.add_nodes(request.parameters.nodes)))


async def remove_node(context: WebContext, request: OperationRequest[NoParameters]) -> Removed:
    """Remove a node."""
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


async def examine_nodes(context: WebContext, request: OperationRequest[ExamineRequest]) -> Health:
    """Run the doctor's checks on nodes."""
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


OPERATIONS: Final = (
    Operation(
        "GET",
        "/nodes",
        "All nodes: connection state, host metrics, cost of the agent.",
        get_nodes,
        NoParameters,
        NodeList,
    ),
    Operation(
        "POST",
        "/nodes",
        "Connect to more nodes until this console ends.",
        add_nodes,
        AddNodesRequest,
        Added,
        status=202,
    ),
    Operation(
        "DELETE",
        "/nodes/{name}",
        "Disconnect a node and remove it until the console is restarted.",
        remove_node,
        NoParameters,
        Removed,
        name_pattern=NODE_NAME,
    ),
    Operation(
        "POST",
        "/nodes/health",
        "Run the doctor's checks on nodes: what fails and what to do.",
        examine_nodes,
        ExamineRequest,
        Health,
        problems=(404,),
    ),
)
