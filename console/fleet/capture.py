"""One synchronised capture over all nodes: the same future instant on each node's clock, with a deadline."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Any

import msgspec

from ..config.sections import HangConfig
from ..core.control import CaptureRequest, CaptureResult, NodeCaptureCounts
from ..records import Failure
from ..transport.errors import AgentRefused, FleetError, Lost
from .deploy.send_binaries import Staging
from .node_link import NodeLink
from .rpc import failure_of

_log = logging.getLogger(__name__)

#: Seconds to wait for a silent node whose connection is open, and for the first reply of a new one: a busy one is late,
#: a dead one delays no capture longer.
SILENT_GRACE_S = 3.0
#: Seconds to wait for a node that is still receiving py-spy; then it captures without.
STAGING_S = 15.0
#: Lead time so that the request reaches every node first: s, and more per node, since nodes get it one after the other;
#: or a multiple of the longest round trip, if that is longer; maximum s.
AHEAD_S, AHEAD_NODE_S, AHEAD_RTTS, MAX_AHEAD_S = 0.1, 0.0002, 3, 5.0
#: Seconds after the last sample: one process takes 3 s; a hung one must not delay the others.
READ_S = 6.0
#: Extra seconds per process with native frames: reading large symbol tables takes seconds.
NATIVE_S = 6.0
#: Seconds for the reply and the last records to arrive.
ANSWER_S = 3.0
_DEFAULTS = HangConfig()


async def capture(
    links: Iterable[NodeLink], staging: Staging, request: CaptureRequest, hang: HangConfig = _DEFAULTS
) -> CaptureResult:
    """Capture on every connected node; the result contains a failure for each other node."""
    links = list(links)
    await asyncio.gather(*(link.wait_for_reply(SILENT_GRACE_S) for link in links))
    ready = [link for link in links if link.state == "ok" and link.offset_ns is not None]
    failures = {link.node.name: _not_connected(link) for link in links if link not in ready}
    await asyncio.gather(*(staging.settle(link, STAGING_S) for link in ready))
    longest_s = max((link.rtt_ns or 0 for link in ready), default=0) / 1e9
    ahead_s = min(MAX_AHEAD_S, max(AHEAD_S + AHEAD_NODE_S * len(ready), AHEAD_RTTS * longest_s))
    instant = time.time_ns() + int(ahead_s * 1e9)
    _log.info("capture %s begins on %d of %d nodes, %d samples, lead time %.3f s", request.id, len(ready), len(links),
              request.samples, ahead_s)  # fmt: skip
    nodes: dict[str, NodeCaptureCounts] = {}

    async def capture_node(link: NodeLink) -> None:
        try:
            nodes[link.node.name] = await _capture_node(link, request, hang, instant, ahead_s)
        except FleetError as error:
            failures[link.node.name] = failure_of(error)

    await asyncio.gather(*(capture_node(link) for link in ready))
    _log.info("capture %s ended: %d nodes complete, %d failed", request.id, len(nodes), len(failures))
    return CaptureResult(request.id, instant, nodes, failures)


async def _capture_node(
    link: NodeLink, request: CaptureRequest, hang: HangConfig, instant: int, ahead_s: float
) -> NodeCaptureCounts:
    """The counts of one node, once all its records have arrived. Raises FleetError."""
    if link.offset_ns is None:
        raise Lost(f"{link.node.name} has not replied to a ping")
    link.expect(request.id)
    native = [pid for node, pid in request.native if node == link.node.name]
    duration_s = (request.samples - 1) * request.every_s + READ_S + NATIVE_S * len(native)
    node_instant = instant + link.offset_ns
    args: dict[str, Any] = {
        "id": request.id, "at": node_instant, "jobs": list(request.jobs) if request.jobs is not None else None,
        "samples": request.samples, "every_ms": round(request.every_s * 1000),
        "deadline": node_instant + int(duration_s * 1e9),
        "only": None if request.only is None else [pid for node, pid in request.only if node == link.node.name],
        "locals": list(request.locals), "native": native, "sockets": [list(end) for end in request.sockets],
        "outputs": list(request.outputs), "tasks": request.tasks,
        "peers": [[peer.pid, peer.job, peer.attempt] for peer in request.peers if peer.node == link.node.name],
    }  # fmt: skip
    if request.flight and request.only is None:  # a subset of ranks has no complete group
        args["flight"] = {
            "pipe": request.flight_pipe, "nccl_logs": list(hang.nccl_logs), "inspector": list(hang.inspector_logs),
        }  # fmt: skip
    agent = link.agent_id
    answer = await link.request("capture", args, deadline_s=ahead_s + duration_s + ANSWER_S)
    try:
        counts = msgspec.convert(answer, NodeCaptureCounts)
    except msgspec.ValidationError as error:
        raise AgentRefused("no_answer", f"invalid response to capture: {error}") from error
    await link.wait_for_record(agent, counts.last_seq, ANSWER_S)
    return counts


def _not_connected(link: NodeLink) -> Failure:
    if link.state == "ok":
        return Failure("not_connected", f"{link.node.name} has not replied to a ping")
    return Failure(
        "lost" if link.state == "lost" else "not_connected", f"{link.node.name} is not connected: {link.state}"
    )
