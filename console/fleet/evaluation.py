"""`gconsole eval`: one expression in the process of one rank, and the record of it.

`Control` does not have it: neither HTTP nor MCP can reach it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Annotated, Literal, NamedTuple

import msgspec

from ..core.bus import Hub
from ..records import Failure, Log
from ..text.sanitize import printable
from ..text.secrets import excerpt_without_secrets
from ..transport.errors import FleetError
from .node_link import NodeLink
from .rpc import failure_of

_log = logging.getLogger(__name__)

#: Seconds that a node may take beyond the time limit: its debugger has 20.
ANSWER_S = 30.0
#: Characters of an expression in its record, and of a result.
_MOST_SHOWN, _MOST_TEXT = 500, 32_768


class RankProcess(NamedTuple):
    """The process of a rank."""

    node: str
    job: str
    rank: int
    pid: int
    start_ticks: int


class Evaluated(msgspec.Struct, frozen=True):
    """The result as the rank wrote it; nothing of it is verified."""

    outcome: Literal["value", "error"]
    type: Annotated[str, msgspec.Meta(max_length=100)]  # of the value, or of the exception
    text: Annotated[str, msgspec.Meta(max_length=_MOST_TEXT)]  # repr of the value, or message of the exception
    place: Annotated[str, msgspec.Meta(max_length=300)] | None  # file, line and function whose variables were used
    paused_s: float  # for which the process was paused by the debugger, at most


async def evaluate(
    links: Mapping[str, NodeLink], hub: Hub, rank: RankProcess, expression: str, timeout_s: float
) -> Evaluated | Failure:
    """Evaluate an expression in a rank, and publish what was done as a `log` record with source `eval`."""
    args = {"pid": rank.pid, "start_ticks": rank.start_ticks, "expression": expression, "timeout_s": timeout_s}
    shown = printable(excerpt_without_secrets(expression, _MOST_SHOWN))
    _audit(hub, rank, f"expression sent to rank {rank.rank} on {rank.node}, pid {rank.pid}: {shown}")
    answer: Evaluated | Failure
    try:
        answer = msgspec.convert(await links[rank.node].request("eval", args, timeout_s + ANSWER_S), Evaluated)
    except FleetError as error:
        answer = failure_of(error)
    except msgspec.ValidationError as error:
        answer = Failure("no_answer", f"invalid response: {error}")
    ended = f"{answer.outcome} of type {answer.type}" if isinstance(answer, Evaluated) else answer.text
    _audit(hub, rank, f"expression in rank {rank.rank} on {rank.node}, pid {rank.pid}: {printable(ended)}")
    return answer


def _audit(hub: Hub, rank: RankProcess, text: str) -> None:
    _log.warning("%s", text)
    hub.publish_own(Log(source="eval", severity="warning", text=text, job=rank.job, rank=rank.rank, pid=rank.pid))
