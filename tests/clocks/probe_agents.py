"""Real probing threads in this process, over the loopback interface, with their records."""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from gconsole_remote.clocks.commands import ProbeService
from gconsole_remote.samplers.base import Context

#: The probe plan of a fleet at default settings, low enough for shared test machines.
PACE = {"cadence_us": 5000, "spacing_us": 100, "bin_ms": 100, "cpu_cap_pct": 60}
DEADLINE_S = 20.0


class Outbox:
    """Collects posted records; returns their size on the wire in bytes."""

    def __init__(self) -> None:
        self.facts: list[tuple[str, dict[str, Any]]] = []

    def post(self, facts: Sequence[tuple[str, dict[str, Any]]]) -> int:
        self.facts += facts
        head = len('{"kind":"clock_bins","seq":123456,"t":1763715000123456789,"mono":123456789012345,')
        return sum(head + len(json.dumps(fields, separators=(",", ":"))) for _, fields in facts)


class Agent:
    """The agent interface that a probe service needs."""

    def __init__(self, service: type = ProbeService) -> None:
        self.outbox, self.context = Outbox(), Context()
        self.probes = service(self)

    def on_end(self, action: Callable[[], object]) -> None:
        """Not needed here: services end with their test."""

    def posted(self, kind: str) -> list[dict[str, Any]]:
        return [fields for posted_kind, fields in self.outbox.facts if posted_kind == kind]

    def total(self, field: str) -> int:
        return sum(cost[field] for cost in self.posted("clock_cost"))

    def ports(self) -> set[int]:
        return open_ports()


@contextmanager
def probe_agents(count: int) -> Iterator[list[Agent]]:
    agents = [Agent() for _ in range(count)]
    try:
        yield agents
    finally:
        for agent in agents:
            agent.probes.stop()


def listen(agent: Agent, interface: str = "127.0.0.1", for_s: float = 60.0) -> dict[str, Any]:
    return agent.probes.listen({"interface": interface, "for_s": for_s})


def probe(agent: Agent, peers: list[dict[str, Any]], for_s: float = 60.0, **pace: int) -> dict[str, Any]:
    session = secrets.token_hex(4)
    return agent.probes.probe({"session": session, "for_s": for_s, "peers": peers, **PACE, **pace})


def peer(port: dict[str, Any], key: str, *, probes: bool, edge: int = 1, name: str = "other") -> dict[str, Any]:
    return {"edge": edge, "name": name, "address": port["address"], "port": port["port"], "key": key, "probes": probes}


def open_ports() -> set[int]:
    """The open UDP ports of this network namespace, from the kernel's list."""
    lines = [line for name in ("udp", "udp6") for line in Path("/proc/net", name).read_text().splitlines()[1:]]
    return {int(line.split()[1].rpartition(":")[2], 16) for line in lines}


def wait_for(condition: Callable[[], Any]) -> Any:
    started = time.monotonic()
    while not (value := condition()):
        assert time.monotonic() - started < DEADLINE_S, "not in time"
        time.sleep(0.01)
    return value
