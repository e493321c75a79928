"""Tells each agent which kinds to send as digests: those of which no requester needs every sample."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from ..config.model import Config
from ..core.wants import DIGESTED, DigestRules, Wants
from ..records import GpuInfo, Rank
from ..records.kinds import is_gone
from ..transport import errors

if TYPE_CHECKING:
    from .node_link import NodeLink

_log = logging.getLogger(__name__)

#: Seconds. What a view wants changes with each row that is scrolled; the changes of this long are one order.
DEBOUNCE_S: Final = 0.1
#: Seconds until a reply, and until an order that failed is sent again.
REPLY_S, AGAIN_S = 10.0, 10.0
#: Seconds. Period of digests of a cluster in the background, if `digest_s` has none.
BACKGROUND_S: Final = 5.0
#: Seconds. The same of its nodes without ranks, which hold their figures back for as long.
IDLE_S: Final = 10.0
#: Seconds. Shortest period that agents accept.
_LEAST_S: Final = 2.0
#: Milliseconds. Nodes that are sampled more often have statistics of their own, `gpu_digest`.
_LEAST_INTERVAL_MS: Final = 1000
#: Thresholds of a figure that an agent accepts; a node has GPUs of one model, or of a few.
MOST_VALUES: Final = 32
#: Ranks of a node that are remembered: nodes are not trusted.
_MOST_RANKS: Final = 1_024
#: Name of the reply of agents of releases without digests.
_UNKNOWN: Final = "unknown_request"

_Order = dict[str, Any]


class _Sent(msgspec.Struct):
    """The last order of one connection."""

    agent: str
    order: _Order | None = None  # None: every sample is sent, as by a new agent
    can_digest: bool = True
    is_unsure: bool = False  # the agent may have an order of before: of this console, or of another one


class _Ranks(msgspec.Struct):
    """The ranks of one node, as its present agent has reported them."""

    agent: str
    present: set[tuple[int, int]] = msgspec.field(default_factory=set)  # (pid, start_ticks)


class DigestOrders:
    """Keeps every agent's order equal to the rates requested of its node, on one event loop."""

    def __init__(
        self, config: Config, links: Callable[[], Mapping[str, NodeLink]], rules_of: Callable[[Config], DigestRules],
    ) -> None:  # fmt: skip
        """`links`: nodes past their first tick, by name. `rules_of`: what the health checks require."""
        self.wants = Wants(self.soon)
        self._rules_of, self._rules = rules_of, rules_of(config)
        self._links = links
        self._infos: dict[str, dict[str, GpuInfo]] = {}  # by node and uuid
        self._ranks: dict[str, _Ranks] = {}  # by node
        self._sent: dict[str, _Sent] = {}  # by node
        self._ordered: set[str] = set()  # nodes that were sent an order
        self._timer: asyncio.TimerHandle | None = None
        self._sending: dict[str, asyncio.Task[None]] = {}  # by node
        self._is_hidden = self._is_closed = False

    def in_background(self, is_hidden: bool) -> None:
        """Whether the screen shows another cluster: digests of figures that nothing wants, also without `digest_s`."""
        self._is_hidden = is_hidden
        self.soon()

    def follow(self, config: Config) -> None:
        """Use a newer configuration."""
        self._rules = self._rules_of(config)
        self.soon()

    def add_info(self, info: GpuInfo) -> None:
        """Note the limits of a GPU."""
        infos = self._infos.setdefault(info.node, {})
        before, infos[info.uuid] = infos.get(info.uuid), info
        if self._timer is not None:
            return  # it will be considered
        if before is None or self._rules.thresholds([before]) != self._rules.thresholds([info]):
            self.soon()

    def add_rank(self, rank: Rank) -> None:
        """Note that a rank runs, or that it has ended."""
        of = self._ranks.get(rank.node)
        if of is None or of.agent != rank.agent:
            of = self._ranks[rank.node] = _Ranks(rank.agent)
        had_ranks, key = bool(of.present), (rank.pid, rank.start_ticks)
        if is_gone(rank):
            of.present.discard(key)
        elif len(of.present) < _MOST_RANKS:
            of.present.add(key)
        if self._is_hidden and bool(of.present) != had_ranks:
            self.soon()

    def forget(self, node: str) -> None:
        """The connection of a node is over: its next agent, or the same one, is sent an order again."""
        self._sent.pop(node, None)

    def soon(self, after_s: float = DEBOUNCE_S) -> None:
        """Send changed orders within `DEBOUNCE_S`."""
        if self._timer is None and not self._is_closed and (loop := _loop()) is not None:
            self._timer = loop.call_later(after_s, self._send)

    async def stop(self) -> None:
        """Send nothing any more."""
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        for task in self._sending.values():
            task.cancel()
        await asyncio.gather(*self._sending.values(), return_exceptions=True)

    def order(self, link: NodeLink) -> _Order | None:
        """What a node is to send as digests; None for nothing."""
        agent, rules = link.node.agent, self._rules
        digest_s, is_idle = agent.digest_s, self._is_hidden and not self._has_ranks(link)
        if self._is_hidden:
            digest_s = max(digest_s or BACKGROUND_S, IDLE_S if is_idle else 0.0)
        period_s = min(max(_LEAST_S, digest_s), rules.longest_s)
        if not digest_s or period_s < _LEAST_S or agent.sample_interval_ms < _LEAST_INTERVAL_MS:
            return None
        kinds = DIGESTED - self.wants.kinds_of(link.node.name, period_s)
        limits = rules.thresholds(self._infos.get(link.node.name, {}).values()) if "gpu" in kinds else {}
        if any(len(values) > MOST_VALUES for values in limits.values()):
            kinds, limits = kinds - {"gpu"}, {}
        if not kinds:
            return None
        return {
            "kinds": sorted(kinds), "period_s": period_s, "reasons": list(rules.reasons),
            "thresholds": {field: list(values) for field, values in limits.items()},
            "hold_s": IDLE_S if is_idle and kinds == DIGESTED else 0.0,
        }  # fmt: skip

    def _has_ranks(self, link: NodeLink) -> bool:
        of = self._ranks.get(link.node.name)
        return of is not None and of.agent == link.agent_id and bool(of.present)

    def _send(self) -> None:
        self._timer = None
        for name, link in self._links().items():
            sent = self._sent.get(name)
            if sent is None or sent.agent != link.agent_id:
                is_unsure = name in self._ordered or link.node.agent.linger_s > 0
                sent = self._sent[name] = _Sent(link.agent_id, is_unsure=is_unsure)
            order = self.order(link)
            if name not in self._sending and sent.can_digest and (sent.is_unsure or order != sent.order):
                task = asyncio.create_task(self._request(link, sent, order), name=f"digest order {name}")
                self._sending[name] = task
                task.add_done_callback(lambda _, name=name: self._sending.pop(name, None))  # type: ignore[misc]

    async def _request(self, link: NodeLink, sent: _Sent, order: _Order | None) -> None:
        self._ordered.add(link.node.name)
        before_s, hold_s = link.hold_s, order["hold_s"] if order else 0.0
        link.hold_s = max(before_s, hold_s)  # until the agent has replied, either may be in force
        try:
            await link.request("digest", order or {"kinds": [], "period_s": 5}, REPLY_S)
        except errors.AgentRefused as error:
            link.hold_s = before_s
            sent.can_digest = False  # until another agent runs there
            why = "agent of an earlier release without digests" if error.reason == _UNKNOWN else error.text
            _log.log(logging.INFO if error.reason == _UNKNOWN else logging.WARNING, "%s: %s", link.node.name, why)
            return
        except errors.FleetError as error:
            _log.warning("%s: order of digests failed: %s", link.node.name, error.text)
            self.soon(AGAIN_S)
            return
        sent.order, sent.is_unsure, link.hold_s = order, False, hold_s
        self.soon()  # what was wanted meanwhile


def _loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:  # before the console runs
        return None
