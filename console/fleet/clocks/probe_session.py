"""One probe session: nodes open UDP ports, receive their peers, and probe until the lease expires."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from ...config.sections import ClockConfig
from ...core.bus import Hub
from ...records import Failure, Log
from ...text.nodeset_fold import fold
from ...transport.errors import FleetError
from ..link import NodeLink
from .edge_plan import Edge, edges

#: Seconds. A node stops probing this long after the last renewal; renewed every RENEW_S.
LEASE_S: Final = 20.0
RENEW_S: Final = 5.0
_DEADLINE_S: Final = 5.0
_KEY_BYTES: Final = 16


class ProbePort(msgspec.Struct, frozen=True):
    """Where a node listens."""

    address: str
    port: int
    family: str
    stamps: str


@dataclass(frozen=True)
class ProbePace:
    """Interval and duration of probe triples."""

    cadence_us: int
    spacing_us: int
    bin_ms: int
    cpu_cap_pct: int

    @classmethod
    def of(cls, config: ClockConfig, least_cadence_us: int = 0) -> ProbePace:
        """The pace of a configuration, with a minimum cadence."""
        return cls(
            max(config.probe_cadence_us, least_cadence_us), config.packet_spacing_us, config.snapshot_period_ms,
            config.cpu_cap_pct,
        )  # fmt: skip


class ProbeSession:
    """Ports, peers and keys of one mesh. `edges` is the plan; `without_udp` the edges that cannot be probed."""

    def __init__(self, hub: Hub, links: Mapping[str, NodeLink], config: ClockConfig, seed: int) -> None:
        self.id = secrets.token_hex(8)
        self.edges: tuple[Edge, ...] = edges(list(links), config.peers, seed)
        self.without_udp: set[Edge] = set()
        self._hub, self._links, self._config = hub, links, config
        self._peers: dict[str, list[dict[str, Any]]] = {}
        self._pace = ProbePace.of(config)

    async def begin(self, pace: ProbePace) -> None:
        """Open ports on every node, distribute the peers and start probing."""
        self._pace = pace
        ports = await self._listen()
        self._assign_peers(ports)
        await self.renew()

    async def renew(self) -> bool:
        """Renew the lease; False if a node lost its session (its agent was restarted)."""
        renewed = await asyncio.gather(*(self._probe(node, peers) for node, peers in self._peers.items()))
        return all(renewed)

    async def end(self) -> None:
        """Close all ports now."""
        await asyncio.gather(*(self._request(self._links[node], "clock_stop", {}) for node in self._peers))
        self._peers = {}

    async def _listen(self) -> dict[str, ProbePort]:
        args = {"interface": self._config.interface, "for_s": LEASE_S}
        answers = await asyncio.gather(*(self._request(link, "clock_listen", args) for link in self._links.values()))
        ports: dict[str, ProbePort] = {}
        refusals: dict[tuple[str, str], list[str]] = {}
        for node, answer in zip(self._links, answers, strict=True):
            if isinstance(answer, Failure):
                refusals.setdefault((answer.text, answer.try_), []).append(node)
                continue
            try:
                ports[node] = msgspec.convert(answer, ProbePort)
            except msgspec.ValidationError as error:
                refusals.setdefault((f"invalid response: {error}", ""), []).append(node)
        for (text, try_), nodes in refusals.items():
            text = f"{fold(nodes)} cannot take part in UDP clock probes: {text}"
            self._hub.publish_own(Log(source="console", severity="warning", text=text, try_=try_))
        return ports

    def _assign_peers(self, ports: Mapping[str, ProbePort]) -> None:
        """One key per edge: a node can neither answer for another nor probe unassigned edges."""
        self._peers = {node: [] for node in ports}
        for number, (source, target) in enumerate(self.edges):
            if source not in ports or target not in ports or ports[source].family != ports[target].family:
                self.without_udp.add((source, target))
                continue
            key = secrets.token_hex(_KEY_BYTES)
            for node, other, probes in ((source, target, True), (target, source, False)):
                port = ports[other]
                self._peers[node].append(
                    {"edge": number, "name": other, "address": port.address, "port": port.port, "key": key,
                     "probes": probes}
                )  # fmt: skip

    async def _probe(self, node: str, peers: Sequence[dict[str, Any]]) -> bool:
        args = {
            "session": self.id, "for_s": LEASE_S, "peers": peers, "cadence_us": self._pace.cadence_us,
            "spacing_us": self._pace.spacing_us, "bin_ms": self._pace.bin_ms, "cpu_cap_pct": self._pace.cpu_cap_pct,
        }  # fmt: skip
        answer = await self._request(self._links[node], "clock_probe", args)
        return isinstance(answer, dict) and answer.get("probing") is True

    async def _request(self, link: NodeLink, verb: str, args: dict[str, Any]) -> Any:
        """The response, or a Failure."""
        try:
            return await link.request(verb, args, _DEADLINE_S)
        except FleetError as error:
            return error.as_failure()
