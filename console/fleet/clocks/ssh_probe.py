"""Clock comparison over SSH for edges without UDP: pings to both nodes combined into exchanges.

A ping of A shows that its clock read `a` between two instants of ours; one of B the same of `b`. So B is ahead of A by
b - a, less the time between the two readings, which lies between (B sent - A back) and (B back - A sent). That is an
exchange whose round trip is the sum of both: a valid but wide bound.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from ...config.clock_presets import PINGS_PER_WINDOW
from ...core.bus import Hub
from ...records import ClockBin, ClockBins, Exchange, Point
from ...transport.errors import FleetError
from ..node_link import NodeLink
from ..rpc import Ping
from .probe_session import Edge

#: Seconds between pings per node, and maximum pings per second in all: 2,000 a second took 27 % of a core.
PERIOD_S: Final = 0.025
MAX_PER_S: Final = 500.0
#: Seconds between two checks for edges while there is none.
IDLE_S: Final = 0.5
#: Seconds until a ping counts as lost.
_DEADLINE_S: Final = 1.0
#: Seconds between published records.
_PUBLISH_S: Final = 1.0
#: Our clock may be slewed by up to 500 ppm during a ping.
_SLEW: Final = 2000
_KEPT_EXCHANGES: Final = 4


class SshPingPair(msgspec.Struct, frozen=True):
    """An exchange between the two ends of an edge, made of two pings; all on the source's clock but t2."""

    t1: int
    t2: int  # also t3: the far clock is read once
    t4: int

    @property
    def rtt(self) -> int:
        """Round trip, ns."""
        return self.t4 - self.t1


def combine(source: Ping, target: Ping) -> SshPingPair:
    """The exchange of two pings: t2 - t1 is the upper bound of the target clock's lead, t3 - t4 the lower."""
    spare = (source.back - source.sent + target.back - target.sent) // _SLEW
    latest, earliest = target.back - source.sent + spare, target.sent - source.back - spare
    t2 = target.mono - earliest
    return SshPingPair(source.mono, t2, t2 - (target.mono - source.mono) + latest)


class _EdgeBins(msgspec.Struct):
    """The exchanges of one edge since it was last published."""

    base: int
    base_real: int
    exchanges: list[SshPingPair] = msgspec.field(default_factory=list)
    lost: int = 0

    def to_record(self, edge: Edge, bin_ms: int, cadence_us: int) -> ClockBins:
        bin_ns = bin_ms * 1_000_000
        ahead = (self.exchanges[0].t2 - self.exchanges[0].t1) // 1_000_000 * 1_000_000
        by_bin: dict[int, list[SshPingPair]] = {}
        for exchange in self.exchanges:
            by_bin.setdefault((exchange.t1 - self.base) // bin_ns, []).append(exchange)
        bins = [_bin(by_bin.get(index, ()), self.base, ahead) for index in range(max(by_bin) + 1)]
        bins[0] = msgspec.structs.replace(bins[0], sent=bins[0].sent + self.lost)
        return ClockBins(
            node=edge[0], dst=edge[1], method="ssh", stamps="ssh", base=self.base, base_real=self.base_real,
            ahead=ahead, bin_ms=bin_ms, bins=tuple(bins), cadence_us=cadence_us,
            ticks=len(self.exchanges) + self.lost, missed=self.lost,
        )  # fmt: skip


def _bin(exchanges: Sequence[SshPingPair], base: int, ahead: int) -> ClockBin:
    if not exchanges:
        return ClockBin(None, None, (), 0, 0, 0, None)
    first = min(exchanges, key=lambda exchange: exchange.t2 - exchange.t1)
    last = max(exchanges, key=lambda exchange: exchange.t2 - exchange.t4)
    best = sorted(
        sorted(exchanges, key=lambda exchange: exchange.rtt)[:_KEPT_EXCHANGES], key=lambda exchange: exchange.t1
    )
    return ClockBin(
        Point(first.t1 - base, first.t2 - first.t1 - ahead), Point(last.t4 - base, last.t2 - last.t4 - ahead),
        tuple(Exchange(pair.t1 - base, pair.t2 - pair.t1 - ahead, 0, pair.rtt) for pair in best),
        len(exchanges), len(exchanges), 0, None,
    )  # fmt: skip


class SshProbe:
    """Pings the ends of edges until cancelled and publishes the results as clock bins."""

    def __init__(self, hub: Hub, links: Mapping[str, NodeLink], bin_ms: int) -> None:
        self.edges: set[Edge] = set()  # may change while running
        self._hub, self._links, self._bin_ms = hub, links, bin_ms
        self._edge_bins: dict[Edge, _EdgeBins] = {}
        self._rounds = 0

    @property
    def period_s(self) -> float:
        """Seconds between two pings of each node."""
        return max(PERIOD_S, len(self._nodes()) / MAX_PER_S)

    @property
    def left_of_window_s(self) -> float:
        """Seconds until there are enough pings for a window; 0 if no edge is compared over SSH."""
        return max(0, PINGS_PER_WINDOW - self._rounds) * self.period_s if self.edges else 0.0

    def _nodes(self) -> list[str]:
        return sorted({node for edge in self.edges for node in edge if node in self._links})

    async def run(self) -> None:
        """Ping and publish until cancelled."""
        published = time.monotonic()
        try:
            while True:
                began = time.monotonic()
                pause_s = self.period_s if self.edges else IDLE_S
                if self.edges:
                    self._add(await self._ping_all(self._nodes()))
                    self._rounds += 1
                if time.monotonic() - published >= _PUBLISH_S:  # also what is left of an edge that is pinged no longer
                    published = time.monotonic()
                    self._publish()
                await asyncio.sleep(max(0.0, pause_s - (time.monotonic() - began)))
        finally:
            self._publish()

    async def _ping_all(self, nodes: Iterable[str]) -> dict[str, Ping]:
        pings: dict[str, Ping] = {}

        async def ping(node: str) -> None:
            try:
                pings[node] = await self._links[node].ping(_DEADLINE_S)
            except (FleetError, KeyError):  # disconnected: reported by its link
                return

        await asyncio.gather(*(ping(node) for node in nodes))
        return pings

    def _add(self, pings: Mapping[str, Ping]) -> None:
        for edge in self.edges:
            source, target = (pings.get(node) for node in edge)
            edge_bins = self._edge_bins.get(edge)
            if source is None or target is None:
                if edge_bins is not None:
                    edge_bins.lost += 1
                continue
            if edge_bins is None:
                edge_bins = self._edge_bins[edge] = _EdgeBins(source.mono, source.real)
            edge_bins.exchanges.append(combine(source, target))

    def _publish(self) -> None:
        cadence_us = int(self.period_s * 1e6)
        by_edge, self._edge_bins = self._edge_bins, {}
        self._hub.publish_own(
            *(
                edge_bins.to_record(edge, self._bin_ms, cadence_us)
                for edge, edge_bins in by_edge.items()
                if edge_bins.exchanges
            )
        )
