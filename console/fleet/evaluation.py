"""One expression in the process of one rank, over the link of its node, and the records of it."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import msgspec

from ..core.bus import Hub
from ..core.evaluation import Evaluated, RankProcess, is_statement
from ..records import Failure, Log
from ..text.sanitize import printable
from ..text.secrets import excerpt_without_secrets
from ..transport.errors import FleetError
from .node_link import NodeLink
from .rpc import failure_of

_log = logging.getLogger(__name__)

#: Seconds that a node may take beyond the time limit: its debugger has 20.
ANSWER_S = 30.0
#: Characters of an expression in its record.
_MOST_SHOWN = 500


class FleetEvaluator:
    """`Evaluator` over the links of a fleet."""

    def __init__(self, links: Mapping[str, NodeLink], hub: Hub) -> None:
        self._links, self._hub = links, hub

    def allows(self, node: str) -> bool:
        """Whether `[agent] allow_eval` is set for this node."""
        link = self._links.get(node)
        return link is not None and link.node.agent.allow_eval

    async def evaluate(self, rank: RankProcess, expression: str, timeout_s: float) -> Evaluated | Failure:
        """Evaluate an expression in a rank, and publish what was done."""
        if is_statement(expression):  # the process is not paused for it
            return Failure("no_expression", "this is a statement, not an expression", "evaluate an expression")
        return await evaluate(self._links, self._hub, rank, expression, timeout_s)


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
