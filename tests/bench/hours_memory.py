"""Memory of a console after hours: only current state and a bounded history may remain.

The soak test (`make soak`) shows the same for the whole program under faults, slowly; this covers every component
that receives records, in minutes.
"""

from __future__ import annotations

import asyncio
import gc
import tempfile
import time
import tracemalloc
from collections.abc import Sequence
from pathlib import Path

from gconsole.config import load
from gconsole.core.bus import Hub
from gconsole.core.store import Store
from gconsole.monitor import headless as batch
from gconsole.monitor.topology import TopologyFindings, TopologyFold
from gconsole.records import NodeState
from gconsole.records.base import Record
from gconsole.runtime.console import Console
from gconsole.tui.snapshot import SnapshotBuilder

from .process import in_new_process
from .result import Outcome, Row
from .store_memory import arrived
from .stream import GPUS, RANKS, AgentOutput, ReplayedAgent, record_agent

NODES, HOURS = 8, (1.0, 2.0, 4.0)
#: One tick per TICK_S seconds is sent; after its lifetime an agent is replaced by another one.
TICK_S, AGENT_S = 5, 600
GOAL_MB_H = 1.0
DEADLINE_S = 60.0
_SECOND = 1_000_000_000


def measure(quick: bool) -> Outcome:
    hours = [hour / 12 for hour in HOURS] if quick else list(HOURS)
    agent_output = record_agent()
    rows = []
    for command, has_screen in (("gconsole record", False), ("the screen, recording", True)):
        held = in_new_process(_held_bytes, agent_output, hours, has_screen)
        grew = (held[-1] - held[-2]) / 1e6 / (hours[-1] - hours[-2])
        figures = ", ".join(f"{size / 1e6:.2f} MB after {hour:g} h" for size, hour in zip(held, hours, strict=True))
        rows.append(Row(f"what {command} holds of {NODES} nodes", f"{figures}; at last {grew:+.2f} MB/h",
                        f"≤ {GOAL_MB_H:g} MB/h", grew <= GOAL_MB_H))  # fmt: skip
    return Outcome(
        rows,
        [
            f"Python's memory (tracemalloc) of everything that listens to records: {NODES} nodes × {GPUS} GPUs and"
            f" {RANKS} ranks, as a real agent said them, a tick each {TICK_S} s of the told time; each node's agent is"
            f" replaced every {AGENT_S} s, with a node_state for each step",
            "by design there fill up: readings of clocks (720 a node), findings that were cleared (4,096), and with a"
            " screen events (10,000); the rings of its history are there from the beginning",
        ],
    )


class _Console:
    """All components that receive records from the hub of a recording console, or poll its store."""

    def __init__(self, folder: Path, *, has_screen: bool) -> None:
        hosts = folder / "hosts.toml"
        hosts.write_text(f'[sessions]\nfolder = "{folder}/sessions"\n[[nodes]]\nhosts = "node[0-{NODES - 1}]"\n')
        config = load(str(hosts))
        self.second = 0  # simulated time
        console = Console(config, store=None if has_screen else Store(is_kept=batch.is_warning), clock=self._clock)
        self.hub, self.store, self.recorder = console.bus, console.store, console.recorder
        self.findings, self.clockwork = console.findings, console.clock_estimator
        if has_screen:
            self.clockwork.start()
        watch = SnapshotBuilder(
            self.store, config.cluster, [node.name for node in config.nodes], live=True, staging=None,
            now=lambda: self.store.newest_rx,
        )  # fmt: skip
        self._watch = watch if has_screen else None
        topology = watch.topology if has_screen else TopologyFold(self.store)
        self._differing = TopologyFindings(self.store, topology, self.findings, self._clock)

    def _clock(self) -> float:
        return float(self.second)

    async def poll(self) -> None:
        await self.findings.evaluate()
        await self._differing.evaluate()
        if self._watch is not None:
            self._watch.build()

    async def all_written(self, agent: str, seq: int) -> None:
        """Wait until the records up to that one are on the disk."""
        deadline = time.monotonic() + DEADLINE_S
        while self.hub.kept(agent, seq) < seq:
            if time.monotonic() > deadline:
                raise RuntimeError(f"not on the disk within {DEADLINE_S:g} s: {self.recorder.active()}")
            await asyncio.sleep(0.01)


def _held_bytes(agent_output: AgentOutput, hours: Sequence[float], has_screen: bool) -> list[int]:
    """Bytes allocated after each of these hours."""
    with tempfile.TemporaryDirectory() as folder:
        return asyncio.run(_memory_by_hour(agent_output, hours, Path(folder), has_screen))


async def _memory_by_hour(
    agent_output: AgentOutput, hours: Sequence[float], folder: Path, has_screen: bool
) -> list[int]:
    console = _Console(folder, has_screen=has_screen)
    await console.recorder.start("hours")
    tracemalloc.start()
    start_ns = time.time_ns()
    looks, held = [int(hour * 3600 / TICK_S) for hour in hours], []
    replayed_agents: list[ReplayedAgent] = [ReplayedAgent(agent_output, start_ns)] * NODES
    for tick in range(looks[-1]):
        console.second = second = tick * TICK_S
        last: list[Record] = []
        for index in range(NODES):
            data = b""
            if second % AGENT_S == 0:
                replayed_agents[index] = ReplayedAgent(agent_output, start_ns)
                _replaced(console.hub, index)
                data = replayed_agents[index].once()
            agent = (second // AGENT_S) * NODES + index
            last = arrived(
                data + replayed_agents[index].second(second), f"node{index}", agent, start_ns + second * _SECOND
            )
            console.hub.publish(last)
        await console.poll()
        if second % AGENT_S == 0 or tick + 1 in looks:
            await console.all_written(last[-1].agent, last[-1].seq)
        if tick + 1 in looks:
            gc.collect()
            held.append(tracemalloc.get_traced_memory()[0])
    await console.recorder.close()
    await console.clockwork.stop()
    return held


def _replaced(hub: Hub, index: int) -> None:
    """The console's records for a node whose agent was replaced."""
    for state in ("lost", "connecting", "ok"):
        hub.publish_own(NodeState(node=f"node{index}", state=state))
