"""`/nodes`: who is there, who could not be reached and why; nodes come, go, and are examined."""

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
#: Letters that a node set has; whether they make one is said by whoever expands it.
NODE_SET: Final = r"^[A-Za-z0-9_@][A-Za-z0-9_.:@%,\[\]-]*$"
NodeSet = Annotated[str, msgspec.Meta(pattern=NODE_SET, max_length=4096, description="node[01-04,7] or a,b")]


class NodeFigures(msgspec.Struct):
    """What a node does now, all of it unknown where it cannot be heard."""

    cpu_pct: float | None  # all CPUs together, 0 to 100
    load_1m: float | None
    mem_used_bytes: int | None
    mem_total_bytes: int | None
    cpu_stall_pct: float | None  # PSI
    io_stall_pct: float | None
    net_rx_bytes_s: float | None
    net_tx_bytes_s: float | None


class NodeSeen(msgspec.Struct):
    """One node: reached or not, what it does, and what looking costs it."""

    node: str
    about: NodeLine
    figures: NodeFigures
    cost: CostLine | None
    heard: str | None  # when it last said something


class NodeList(msgspec.Struct):
    """Every node of this console."""

    nodes: list[NodeSeen]


class Added(msgspec.Struct):
    """Nodes that are being connected to now; those that were there before are not among them."""

    added: list[str]


class AddNodesRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Which nodes to add."""

    nodes: NodeSet


class ExamineRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Which nodes to examine; null is all that are connected."""

    nodes: NodeSet | None = None


class Health(msgspec.Struct):
    """What the doctor found on each node."""

    nodes: list[NodeExam]


class Removed(msgspec.Struct):
    """A node that this console has let go of; what it said stays in recordings."""

    removed: str


def seen(now: NodeNow) -> NodeSeen:
    """One node as it is now."""
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
    """Every node."""
    return NodeList([seen(now) for now in sorted(context.store.nodes.values(), key=lambda now: natural(now.name))])


async def add_nodes(context: WebContext, request: OperationRequest[AddNodesRequest]) -> Added:
    """Begin to connect to more nodes."""
    return Added(list(await context.control.add_nodes(request.parameters.nodes)))


async def remove_node(context: WebContext, request: OperationRequest[NoParameters]) -> Removed:
    """Let go of a node."""
    if request.name not in context.store.nodes:
        raise http_problem(
            404, "no_such_node", f"{request.name} is not a node of this console", "GET /nodes lists them"
        )
    try:
        await context.control.remove_node(request.name)
    except KeyError:
        text = f"{request.name} was let go of in this moment"
        raise http_problem(404, "no_such_node", text, "GET /nodes lists those that are left") from None
    return Removed(request.name)


async def examine_nodes(context: WebContext, request: OperationRequest[ExamineRequest]) -> Health:
    """What works on each node, what does not, and what to do."""
    known = context.store.nodes
    if request.parameters.nodes is None:
        names = list(known)
    else:
        names = [host.name for host in expand(request.parameters.nodes)]
        strangers = [name for name in names if name not in known]
        if strangers:
            raise http_problem(404, "no_such_node", f"{', '.join(strangers[:8])}: no node of this console",
                          "GET /nodes lists them")  # fmt: skip
    return Health(examine(await context.control.examine(sorted(names, key=natural))))


OPERATIONS: Final = (
    Operation(
        "GET",
        "/nodes",
        "Every node: reached or not and why, what it does, what looking costs it.",
        get_nodes,
        NoParameters,
        NodeList,
    ),
    Operation(
        "POST",
        "/nodes",
        "Begin to connect to more nodes, for as long as this console runs.",
        add_nodes,
        AddNodesRequest,
        Added,
        status=202,
    ),
    Operation(
        "DELETE",
        "/nodes/{name}",
        "Let go of a node; the next start of the console has it again.",
        remove_node,
        NoParameters,
        Removed,
        name_pattern=NODE_NAME,
    ),
    Operation(
        "POST",
        "/nodes/health",
        "What works on each node, what does not, and what to do.",
        examine_nodes,
        ExamineRequest,
        Health,
        problems=(404,),
    ),
)
