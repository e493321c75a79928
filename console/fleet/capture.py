"""One capture over all nodes: the same future instant on every node's own clock, and an end whatever happens."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

import msgspec

from ..config.sections import HangConfig
from ..core.control import CaptureRequest, CaptureResult, NodeCaptureCounts
from ..records import Failure
from ..transport.errors import AgentRefused, FleetError, Lost, Timeout
from .deploy.staging import Staging
from .link import NodeLink

#: So long a node that is still receiving py-spy is waited for; after that it captures without.
TOOL_S = 15.0
#: The orders must have reached every node before the instant: so much time, and this many of the longest round trips.
AHEAD_S, AHEAD_RTTS, AHEAD_MOST_S = 0.2, 3, 5.0
#: After its last sample a node has this long: a process 3 s, and one that hangs must not take the others' turn.
READ_S = 6.0
#: Native calls of one process: its libraries' symbols are read first, which takes seconds where they are large.
NATIVE_S = 6.0
#: The answer and the last records travel this long at most.
ANSWER_S = 3.0
_DEFAULTS = HangConfig()


async def capture(
    links: Iterable[NodeLink], staging: Staging, order: CaptureRequest, hang: HangConfig = _DEFAULTS
) -> CaptureResult:
    """Capture on every connected node; nodes that fail are in the answer with their reason."""
    links = list(links)
    ready = [link for link in links if link.state == "ok" and link.offset_ns is not None]
    failures = {link.node.name: _absence(link) for link in links if link not in ready}
    await asyncio.gather(*(staging.settle(link, TOOL_S) for link in ready))
    ahead_s = min(AHEAD_MOST_S, max(AHEAD_S, AHEAD_RTTS * max((link.rtt_ns or 0 for link in ready), default=0) / 1e9))
    at = time.time_ns() + int(ahead_s * 1e9)
    nodes: dict[str, NodeCaptureCounts] = {}

    async def one(link: NodeLink) -> None:
        try:
            nodes[link.node.name] = await _on_node(link, order, hang, at, ahead_s)
        except FleetError as error:
            failures[link.node.name] = error.as_failure()

    await asyncio.gather(*(one(link) for link in ready))
    return CaptureResult(order.id, at, nodes, failures)


async def _on_node(
    link: NodeLink, order: CaptureRequest, hang: HangConfig, at: int, ahead_s: float
) -> NodeCaptureCounts:
    """The counts of one node, once all its records are here. Raises FleetError."""
    if link.offset_ns is None:
        raise Lost(f"{link.node.name} has not answered a ping")
    link.expect(order.id)
    native = [pid for node, pid in order.native if node == link.node.name]
    long_s = (order.samples - 1) * order.every_s + READ_S + NATIVE_S * len(native)
    at_there = at + link.offset_ns
    args: dict[str, Any] = {
        "id": order.id, "at": at_there, "jobs": list(order.jobs) if order.jobs is not None else None,
        "samples": order.samples, "every_ms": round(order.every_s * 1000), "deadline": at_there + int(long_s * 1e9),
        "only": None if order.only is None else [pid for node, pid in order.only if node == link.node.name],
        "locals": list(order.locals), "native": native,
    }  # fmt: skip
    if order.flight and order.only is None:  # a part of the ranks tells of no group
        args["flight"] = {
            "pipe": order.flight_pipe, "nccl_logs": list(hang.nccl_logs), "inspector": list(hang.inspector_logs),
        }  # fmt: skip
    agent = link.agent_id
    answer = await link.request("capture", args, deadline_s=ahead_s + long_s + ANSWER_S)
    try:
        counts = msgspec.convert(answer, NodeCaptureCounts)
    except msgspec.ValidationError as error:
        raise AgentRefused("no_answer", f"what came back for capture is no answer: {error}") from error
    # an answer overtakes the records that were queued before it
    deadline = time.monotonic() + ANSWER_S
    while link.agent_id == agent and link.last_seq < counts.last_seq:
        if time.monotonic() > deadline:
            raise Timeout("its last records did not arrive in time")
        await asyncio.sleep(0.005)
    return counts


def _absence(link: NodeLink) -> Failure:
    return Failure("lost" if link.state == "lost" else "not_connected", f"{link.node.name} is {link.state}")
