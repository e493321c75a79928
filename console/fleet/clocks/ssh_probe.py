"""Where UDP gets no answer: pings over both nodes' SSH channels, as probes of the edge between them.

A ping of A says that its clock read `a` between two instants of ours, one of B the same of `b`. So B is ahead of A by
b - a, less the time from the one reading to the other, which lies between (B sent - A back) and (B back - A sent). That
is an exchange whose round trip is the sum of both: the bound is honest, and wide.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from ...core.bus import Hub
from ...records import ClockBin, ClockBins, Exchange, Point
from ...transport.errors import FleetError
from ..link import NodeLink
from ..rpc import Ping
from .edge_plan import Edge

#: All nodes of blocked edges are pinged this often, and no more than so many pings a second are sent in all.
PERIOD_S: Final = 0.025
MOST_PER_S: Final = 2000.0
#: A ping that is not back after this is lost.
_DEADLINE_S: Final = 1.0
#: Bins are said this often.
_SAY_S: Final = 1.0
#: Our own clock may be slewed by 500 ppm while a ping is under way.
_SLEW: Final = 2000
_BEST: Final = 4


@dataclass(frozen=True, slots=True)
class SshPingPair:
    """An exchange between the two ends of an edge, made of two pings; all on the near node's clock but t2."""

    t1: int
    t2: int  # also t3: the far clock is read once
    t4: int

    @property
    def rtt(self) -> int:
        return self.t4 - self.t1


def both(near: Ping, far: Ping) -> SshPingPair:
    """The exchange of two pings: t2 - t1 is the most the far clock may be ahead, t3 - t4 the least."""
    spare = (near.back - near.sent + far.back - far.sent) // _SLEW
    latest, earliest = far.back - near.sent + spare, far.sent - near.back - spare
    t2 = far.mono - earliest
    return SshPingPair(near.mono, t2, t2 - (far.mono - near.mono) + latest)


@dataclass
class _Filling:
    """The bins of one edge since they were last said."""

    base: int
    base_real: int
    exchanges: list[SshPingPair] = field(default_factory=list)
    lost: int = 0

    def said(self, edge: Edge, bin_ms: int, cadence_us: int) -> ClockBins:
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
    best = sorted(sorted(exchanges, key=lambda exchange: exchange.rtt)[:_BEST], key=lambda exchange: exchange.t1)
    return ClockBin(
        Point(first.t1 - base, first.t2 - first.t1 - ahead), Point(last.t4 - base, last.t2 - last.t4 - ahead),
        tuple(Exchange(one.t1 - base, one.t2 - one.t1 - ahead, 0, one.rtt) for one in best),
        len(exchanges), len(exchanges), 0, None,
    )  # fmt: skip


class SshProbe:
    """Pings the ends of some edges until cancelled, and says what comes of it as their bins."""

    def __init__(self, hub: Hub, links: Mapping[str, NodeLink], bin_ms: int) -> None:
        self.edges: set[Edge] = set()  # may grow and shrink meanwhile
        self._hub, self._links, self._bin_ms = hub, links, bin_ms
        self._filling: dict[Edge, _Filling] = {}

    async def run(self) -> None:
        said = time.monotonic()
        while True:
            nodes = sorted({node for edge in self.edges for node in edge if node in self._links})
            period_s = max(PERIOD_S, len(nodes) / MOST_PER_S)
            began = time.monotonic()
            self._take(await self._round(nodes))
            if time.monotonic() - said >= _SAY_S:
                said = time.monotonic()
                self._say(int(period_s * 1e6))
            await asyncio.sleep(max(0.0, period_s - (time.monotonic() - began)))

    async def _round(self, nodes: Iterable[str]) -> dict[str, Ping]:
        found: dict[str, Ping] = {}

        async def one(node: str) -> None:
            try:
                found[node] = await self._links[node].ping(_DEADLINE_S)
            except (FleetError, KeyError):  # gone meanwhile: said elsewhere
                return

        await asyncio.gather(*(one(node) for node in nodes))
        return found

    def _take(self, pings: Mapping[str, Ping]) -> None:
        for edge in self.edges:
            near, far = (pings.get(node) for node in edge)
            filling = self._filling.get(edge)
            if near is None or far is None:
                if filling is not None:
                    filling.lost += 1
                continue
            if filling is None:
                filling = self._filling[edge] = _Filling(near.mono, near.real)
            filling.exchanges.append(both(near, far))

    def _say(self, cadence_us: int) -> None:
        filled, self._filling = self._filling, {}
        self._hub.publish_own(
            *(one.said(edge, self._bin_ms, cadence_us) for edge, one in filled.items() if one.exchanges)
        )
