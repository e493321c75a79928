"""Requests one reply from every node."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from ..records import Failure
from ..transport.errors import FleetError
from .node_link import NodeLink
from .rpc import failure_of

_log = logging.getLogger(__name__)


class NodeReply(msgspec.Struct, frozen=True):
    """The reply of one node, or why there is none."""

    node: str
    value: Any = None
    failure: Failure | None = None
    rtt_ns: int | None = None
    via: str = ""  # the gateway that reaches the node; "" for none


async def request_reply(
    link: NodeLink, verb: str, args: dict[str, Any], deadline_s: float, *, wait: bool = False
) -> NodeReply:
    """Send one request; with `wait`, after the agent's first sample. Failures are returned, not raised."""
    try:
        if wait:
            await link.wait_for_sample()
        value = await link.request(verb, args, deadline_s)
        _log.info("%s on %s: answered", verb, link.node.name)
        return NodeReply(link.node.name, value=value, rtt_ns=link.rtt_ns, via=link.via)
    except FleetError as error:
        _log.warning("%s on %s: %s", verb, link.node.name, link.failure or error)
        return NodeReply(link.node.name, failure=failure_of(link.failure or error))


async def survey(
    links: Sequence[NodeLink],
    verb: str,
    args: dict[str, Any],
    deadline_s: float,
    progress: Callable[[int, int], None] | None = None,
) -> list[NodeReply]:
    """Every node's reply, in the order of `links`, which connect; `progress(done, total)` is called after each."""
    done = 0

    async def request(link: NodeLink) -> NodeReply:
        nonlocal done
        try:
            return await request_reply(link, verb, args, deadline_s, wait=True)
        finally:
            done += 1
            if progress:
                progress(done, len(links))

    return list(await asyncio.gather(*(request(link) for link in links)))
