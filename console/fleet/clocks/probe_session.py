"""Which node pairs probe each other: all pairs in small fleets, random rings in larger ones."""

from __future__ import annotations

import asyncio
import random
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from ...config.sections import ClockConfig
from ...core.bus import Hub
from ...records import Failure, Log
from ...text.nodeset_fold import fold
from ...transport.errors import FleetError
from ..node_link import NodeLink
from ..rpc import failure_of

#: Up to this many nodes all pairs are probed: at most six peers per node, as in larger fleets.
COMPLETE: Final = 7

#: Candidate rings per draw: in a small fleet a ring easily repeats another's edges.
_CANDIDATES: Final = 64

#: (probing node, answering node)
Edge = tuple[str, str]


def edges(nodes: Sequence[str], peers: int, seed: int) -> tuple[Edge, ...]:
    """The edges to probe, each from one end, so that every node probes about as many as it answers.

    Above `COMPLETE` nodes: the union of `peers` / 2 random rings over all nodes. It is connected, and each node is on
    as many cycles as it has peers, so that cycle closure exposes a wrong edge (impossible in a star or tree).
    Deterministic for given nodes, `peers` and `seed`.
    """
    ordered = sorted(nodes)
    if len(ordered) <= COMPLETE:
        return _complete(ordered)
    rng = random.Random(seed)
    planned: dict[frozenset[str], Edge] = {}
    for _ in range(peers // 2):
        for here, there in _new_ring(ordered, planned, rng):
            planned.setdefault(frozenset((here, there)), (here, there))
    return tuple(planned.values())


def _new_ring(nodes: Sequence[str], planned: Mapping[frozenset[str], Edge], rng: random.Random) -> list[Edge]:
    """A random ring: of several candidates the one repeating the fewest edges."""
    best: list[Edge] = []
    fewest = len(nodes) + 1
    for _ in range(_CANDIDATES):
        order = list(nodes)
        rng.shuffle(order)
        ring = list(zip(order, [*order[1:], order[0]], strict=True))
        repeated = sum(frozenset(edge) in planned for edge in ring)
        if repeated < fewest:
            best, fewest = ring, repeated
        if fewest == 0:
            break
    return best


def _complete(nodes: Sequence[str]) -> tuple[Edge, ...]:
    """All pairs; each node probes the half of the others that follows it in a circle."""
    count = len(nodes)
    planned = []
    for index, node in enumerate(nodes):
        for step in range(1, count // 2 + 1):
            other = (index + step) % count
            if 2 * step == count and other < index:
                continue  # opposite nodes: the first one probes
            planned.append((node, nodes[other]))
    return tuple(planned)


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


class ProbePace(msgspec.Struct, frozen=True):
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
            return failure_of(error)
