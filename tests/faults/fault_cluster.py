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
    """One injected fault: `strike` and `mend` record its start and end; its effect can be queried afterwards."""

    world: World
    node: str
    began: Count
    struck_ns: int = 0
    mended_ns: int = 0
    notes: list[str] = field(default_factory=list)

    def strike(self) -> None:
        self.struck_ns = time.time_ns()

    def mend(self) -> None:
        self.mended_ns = time.time_ns()

    def said(self, state: str, since_ns: int) -> int | None:
        """When the recording console first reported that node state since then."""
        states = self.world.recorder.read().states
        return next((one.rx for one in states if one.node == self.node and one.state == state and one.rx >= since_ns),
                    None)  # fmt: skip

    def wait_until_lost(self) -> float:
        """Seconds from the strike until the console reported the node as lost."""
        until(lambda: self.said("lost", self.struck_ns), f"{self.node} lost", DEADLINE_S)
        at = self.said("lost", self.struck_ns)
        assert at is not None
        return (at - self.struck_ns) / 1e9

    def wait_until_well(self) -> float:
        """Seconds from the mend until the node was ok; then waits for one more tick."""
        lost = self.said("lost", self.struck_ns) or self.struck_ns
        until(lambda: self.world.recorder.read().state(self.node) == "ok", f"{self.node} ok", DEADLINE_S)
        at = self.said("ok", lost)
        self.world.recorder.wait_for_ticks([self.node], deadline_s=DEADLINE_S)
        return max(0.0, (at - self.mended_ns) / 1e9) if at is not None else 0.0

    def silence_began(self, lost_ns: int) -> int:
        """Start of the node's silence: the fault, or the last tick received before the node was lost."""
        ticks = (rx for rx, _ in self.world.recorder.latency.ticks[self.node] if rx < lost_ns)
        return max([self.struck_ns, *ticks])

    @property
    def count(self) -> Count:
        """Counts of the node's records since the fault began."""
        return self.world.recorder.read().count(self.node).since(self.began)


class World:
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

    def wait_until_well(self) -> None:
        self.recorder.wait_for(self.names)
        self.recorder.wait_for_ticks(self.names, 1)
        self.screen.terminal.until(f"{len(self.names)}/{len(self.names)} nodes")

    @contextlib.contextmanager
    def fault(
        self, what: str, node: Node, words: str = "", *, loses: bool = False, is_brief: bool = False
    ) -> Iterator[Fault]:
        """Inject a fault on a node; at the end, record its figures and assert that other nodes were unaffected.

        `words`: a regular expression that the screen has to match meanwhile; `is_brief`: a busy machine may miss it.
        `loses`: records may be lost, because the agent itself ends.
        """
        self.wait_until_well()
        fault = Fault(self, node.name, self.recorder.read().count(node.name))
        calm_ns = time.time_ns()
        self.screen.watch()
        others = [name for name in self.names if name != node.name]
        try:
            self._wait_calm(others)
            any_instant()
            yield fault
            if words and not is_brief:
                until(lambda: self.screen.first(words, fault.struck_ns), f"{words!r} on the screen:\n"
                      f"{self.screen.terminal.screen()}")  # fmt: skip
            well_s = fault.wait_until_well()
            self._wait_calm(others)
        finally:
            self.screen.rest()
        count = fault.count
        lost_ns, seen = fault.said("lost", fault.struck_ns), self.screen.first(words, fault.struck_ns)
        write(
            Row(
                fault=what, lost=count.lost, doubled=count.doubled, gap=count.gap,
                unhealthy_s=(lost_ns - fault.silence_began(lost_ns)) / 1e9 if lost_ns else None,
                healthy_s=well_s if lost_ns else None,
                shown_s=(seen.at - fault.struck_ns) / 1e9 if words and seen else None,
                screen=_line(seen.text, words) if words and seen else "",
                others_ratio=self._others(others, calm_ns, fault.struck_ns),
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

    def _others(self, others: Sequence[str], calm_ns: int, struck_ns: int) -> float | None:
        """Ratio of the other nodes' tick latency since the fault began to that before it."""
        before = self.recorder.latency.of(others, calm_ns, struck_ns)
        during = self.recorder.latency.of(others, struck_ns, time.time_ns())
        return statistics.median(during) / statistics.median(before) if before and during else None

    def close(self) -> None:
        self.screen.close()
        self.recorder.close()


def _line(picture: str, words: str) -> str:
    """The line of a screen content that matches."""
    found = next((line for line in picture.splitlines() if re.search(words, line)), "")
    return " ".join(found.split())


@contextlib.contextmanager
def made(folder: Path, nodes: int = 4) -> Iterator[World]:
    """A new cluster; removed afterwards."""
    with Rig(nodes=nodes, name="gcf") as rig, start_ring(rig, rig.nodes[:RINGED], 1) as job:
        job.wait_ready()
        world = World(rig, folder)
        try:
            world.wait_until_well()
            yield world
        finally:
            world.close()
