"""What one node answers to one question."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..records import Failure
from ..transport.errors import FleetError
from .link import NodeLink


@dataclass(frozen=True)
class NodeReply:
    """What one node said, or why it said nothing."""

    node: str
    value: Any = None
    failure: Failure | None = None
    rtt_ns: int | None = None


async def request_reply(
    link: NodeLink, verb: str, args: dict[str, Any], deadline_s: float, *, wait: bool = False
) -> NodeReply:
    """Ask one node; with `wait`, once its agent has had its first word. Never raises for what a node does."""
    try:
        if wait:
            await link.first_word()
        value = await link.request(verb, args, deadline_s)
        return NodeReply(link.node.name, value=value, rtt_ns=link.rtt_ns)
    except FleetError as error:
        return NodeReply(link.node.name, failure=(link.failure or error).as_failure())
