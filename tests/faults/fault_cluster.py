"""The cluster for most faults: a job on real nodes, a console that records, a console with a screen."""

from __future__ import annotations

import contextlib
import re
import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fixtures import FEW_PROBES
from jobs import start_ring
from rig import Node, Rig

from .consoles import Recorder, Screen, any_instant, until
from .measurements import Row, is_kept, write
from .record_counts import Count

#: The agent of the recording console lingers longer than any connection loss.
LINGER_S = 600
#: Deadline for the recovery of a node. Not a goal; the goals are in the table.
DEADLINE_S = 120.0
#: Number of ticks of each other node, before and after a fault, in which latency is measured.
CALM_TICKS = 5
#: Nodes with one rank of the job each; faults that end a node's processes are injected on the last one.
RINGED = 3


@dataclass
class Fault:
    """One injected fault: `mark_injected` and `mark_repaired` record its start and end; its effect can be queried."""

    cluster: FaultCluster
    node: str
    began: Count
    injected_ns: int = 0
    repaired_ns: int = 0
    notes: list[str] = field(default_factory=list)

    def mark_injected(self) -> None:
        self.injected_ns = time.time_ns()

    def mark_repaired(self) -> None:
        self.repaired_ns = time.time_ns()

    def first_state_ns(self, state: str, since_ns: int) -> int | None:
        """When the recording console first reported that node state since then."""
        states = self.cluster.recorder.read().states
        return next(
            (record.rx for record in states
             if record.node == self.node and record.state == state and record.rx >= since_ns),
            None,
        )  # fmt: skip

    def wait_until_lost(self) -> float:
        """Seconds from the injection until the console reported the node as lost."""
        until(lambda: self.first_state_ns("lost", self.injected_ns), f"{self.node} lost", DEADLINE_S)
        lost_ns = self.first_state_ns("lost", self.injected_ns)
        assert lost_ns is not None
        return (lost_ns - self.injected_ns) / 1e9

    def wait_until_healthy(self) -> float:
        """Seconds from the repair until the node was ok; then waits for one more tick."""
        lost_ns = self.first_state_ns("lost", self.injected_ns) or self.injected_ns
        until(lambda: self.cluster.recorder.read().state(self.node) == "ok", f"{self.node} ok", DEADLINE_S)
        healthy_ns = self.first_state_ns("ok", lost_ns)
        self.cluster.recorder.wait_for_ticks([self.node], deadline_s=DEADLINE_S)
        return max(0.0, (healthy_ns - self.repaired_ns) / 1e9) if healthy_ns is not None else 0.0

    def silence_began(self, lost_ns: int) -> int:
        """Start of the node's silence: the fault, or the last tick received before the node was lost."""
        ticks = (rx for rx, _ in self.cluster.recorder.latency.ticks[self.node] if rx < lost_ns)
        return max([self.injected_ns, *ticks])

    @property
    def count(self) -> Count:
        """Counts of the node's records since the fault began."""
        return self.cluster.recorder.read().count(self.node).since(self.began)


class FaultCluster:
    """`nodes` are real, with a rank each; `recorder` lingers, `screen` does not."""

    def __init__(self, rig: Rig, folder: Path) -> None:
        self.rig, self.folder = rig, folder
        self.agent = {"linger_s": LINGER_S, "simulate_gpus": 4}
        self.hosts = rig.write_hosts_toml(folder / "hosts.toml", agent=self.agent, clock=FEW_PROBES)
        self.plain_hosts = rig.write_hosts_toml(folder / "plain.toml", agent={"simulate_gpus": 4}, clock=FEW_PROBES)
        self.recorder = Recorder(self.hosts, folder)
        self.screen = Screen(self.plain_hosts, folder)

    @property
    def names(self) -> list[str]:
        return [node.name for node in self.rig.nodes]

    def wait_until_healthy(self) -> None:
        self.recorder.wait_for(self.names)
        self.recorder.wait_for_ticks(self.names, 1)
        self.screen.terminal.until(f"{len(self.names)}/{len(self.names)} nodes")

    @contextlib.contextmanager
    def fault(
        self, fault_name: str, node: Node, pattern: str = "", *, loses: bool = False, is_brief: bool = False
    ) -> Iterator[Fault]:
        """Inject a fault on a node; at the end, record its figures and assert that other nodes were unaffected.

        `pattern`: a regular expression that the screen has to match meanwhile; `is_brief`: a busy machine may miss it.
        `loses`: records may be lost, because the agent itself ends.
        """
        self.wait_until_healthy()
        fault = Fault(self, node.name, self.recorder.read().count(node.name))
        calm_ns = time.time_ns()
        self.screen.watch()
        others = [name for name in self.names if name != node.name]
        try:
            self._wait_calm(others)
            any_instant()
            yield fault
            if pattern and not is_brief:
                until(lambda: self.screen.first_match(pattern, fault.injected_ns), f"{pattern!r} on the screen:\n"
                      f"{self.screen.terminal.screen()}")  # fmt: skip
            healthy_s = fault.wait_until_healthy()
            self._wait_calm(others)
        finally:
            self.screen.stop_watching()
        count = fault.count
        lost_ns = fault.first_state_ns("lost", fault.injected_ns)
        content = self.screen.first_match(pattern, fault.injected_ns)
        write(
            Row(
                fault=fault_name, lost=count.lost, doubled=count.doubled, gap=count.gap,
                unhealthy_s=(lost_ns - fault.silence_began(lost_ns)) / 1e9 if lost_ns else None,
                healthy_s=healthy_s if lost_ns else None,
                shown_s=(content.at - fault.injected_ns) / 1e9 if pattern and content else None,
                screen=_line(content.text, pattern) if pattern and content else "",
                others_ratio=self._others(others, calm_ns, fault.injected_ns),
                note="; ".join(fault.notes),
            )
        )  # fmt: skip
        assert count.doubled == 0
        assert loses or count.lost == 0
        assert self.recorder.tally.dropped(calm_ns) <= {node.name}, "no other node is affected"

    def _wait_calm(self, others: Sequence[str]) -> None:
        """Wait for some ticks without faults, before and after: latency ratios need samples."""
        if is_kept():
            self.recorder.wait_for_ticks(others, CALM_TICKS)

    def _others(self, others: Sequence[str], calm_ns: int, injected_ns: int) -> float | None:
        """Ratio of the other nodes' tick latency since the fault began to that before it."""
        before = self.recorder.latency.of(others, calm_ns, injected_ns)
        during = self.recorder.latency.of(others, injected_ns, time.time_ns())
        return statistics.median(during) / statistics.median(before) if before and during else None

    def close(self) -> None:
        self.screen.close()
        self.recorder.close()


def _line(content: str, pattern: str) -> str:
    """The line of a screen content that matches."""
    line = next((line for line in content.splitlines() if re.search(pattern, line)), "")
    return " ".join(line.split())


@contextlib.contextmanager
def running_cluster(folder: Path, nodes: int = 4) -> Iterator[FaultCluster]:
    """A new cluster; removed afterwards."""
    with Rig(nodes=nodes, name="gcf") as rig, start_ring(rig, rig.nodes[:RINGED], 1) as job:
        job.wait_ready()
        cluster = FaultCluster(rig, folder)
        try:
            cluster.wait_until_healthy()
            yield cluster
        finally:
            cluster.close()
