"""Soak test: random faults for a long time; no leaks and no lost records.

    make soak                        one hour, 8 nodes, a random fault every 20 s, with a recording; during the
                                     first 13 min each kind in turn at its longest
    make soak ARGS="--for 600"       ten minutes
    make soak ARGS="--seed 7"        the same faults at the same times

Exit status 1 if a record was lost or duplicated, memory grew by more than 1 MB per hour after the warm-up, or
descriptors, threads or child processes did not stay constant.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

# Makes `from rig import Rig` and `from tmux import Tmux` work, as in the tests.
sys.path.insert(0, str(Path(__file__).parents[1] / "cluster"))
sys.path.insert(0, str(Path(__file__).parents[1] / "tui"))

import numpy as np
from jobs import start_ring
from rig import Node, Rig

from . import node_faults
from .consoles import Recorder
from .lossy_link import lossy_link
from .measurements import Row, write

NODES, EVERY_S, SAMPLE_S = 8, 20.0, 2.0
GOAL_MB_H = 1.0
#: MB. Growth after the first half of a short soak, in which the bounded buffers still fill: 0.6 MB in 200 s (measured).
FILLS_MB = 3.0
#: By then every bounded buffer is full: clock samples of each node are kept for 12 min (`clockbook`). During the
#: warm-up each fault has its maximum duration: the burst of records afterwards then reaches the peak memory, which
#: CPython keeps. A longer fault later would look like a leak.
WARM_UP_S = 780.0


@dataclass(frozen=True)
class Sample:
    """Resource usage of the console at one instant."""

    at_s: float
    rss_bytes: int
    descriptors: int
    threads: int
    children: int


def warm_up_s(for_s: float) -> float:
    """Duration of the warm-up of a soak of `for_s` seconds."""
    return min(WARM_UP_S, for_s / 2)


class MaximumDraw(random.Random):
    """Draws the maximum of each range."""

    def uniform(self, a: float, b: float) -> float:
        return max(a, b)


class Soak:
    """A recording console, nodes, and the faults; every fault ends within 10 s."""

    def __init__(self, rig: Rig, folder: Path, seed: int) -> None:
        self.rig = rig
        self.draw = self._random = random.Random(seed)
        hosts = rig.write_hosts_toml(folder / "hosts.toml", agent={"linger_s": 600, "simulate_gpus": 4})
        self.recorder = Recorder(hosts, folder, "soak")
        self.names = [node.name for node in rig.nodes]
        self.samples: list[Sample] = []
        self.faults: dict[str, int] = {}
        self._began = time.monotonic()

    def run(self, for_s: float) -> None:
        self.recorder.wait_for_ticks(self.names)
        self._began = time.monotonic()
        for fault in self._faults(warm_up_s(for_s)):
            if (now_s := time.monotonic() - self._began) >= for_s:
                break
            node = self.rig.nodes[-1] if fault is _reboot else self.draw.choice(self.rig.nodes)
            print(f"{now_s:6.0f} s  {fault.__name__.strip('_')} of {node.name}", flush=True)
            self.faults[fault.__name__] = self.faults.get(fault.__name__, 0) + 1
            fault(self, node)
            self._rest(min(for_s, now_s + self.draw.uniform(0.5, 1.5) * EVERY_S))
        self.recorder.wait_for(self.names, deadline_s=120)
        self.recorder.wait_for_ticks(self.names)

    def _faults(self, warm_up_s: float) -> Iterator[Callable[[Soak, Node], None]]:
        """Each fault in turn at its maximum duration, after the warm-up random ones."""
        self.draw = MaximumDraw()
        for fault in itertools.cycle(dict.fromkeys(FAULTS)):
            if time.monotonic() - self._began > warm_up_s:
                break
            yield fault
        self.draw = self._random
        while True:
            yield self.draw.choice(FAULTS)

    def _rest(self, until_s: float) -> None:
        """Sample the console until then."""
        while (now_s := time.monotonic() - self._began) < until_s:
            with contextlib.suppress(FileNotFoundError):
                self.samples.append(_sample(now_s, Path(f"/proc/{self.recorder.process.pid}")))
            time.sleep(SAMPLE_S)


def _sample(at_s: float, process: Path) -> Sample:
    """Raises FileNotFoundError if the process, or one of its threads, ended."""
    pages = int((process / "statm").read_text().split()[1])
    threads = list((process / "task").iterdir())
    children = sum(len((thread / "children").read_text().split()) for thread in threads)
    descriptors = len(list((process / "fd").iterdir()))
    return Sample(at_s, pages * os.sysconf("SC_PAGE_SIZE"), descriptors, len(threads), children)


def _cut(soak: Soak, node: Node) -> None:
    node.down()
    try:
        time.sleep(soak.draw.uniform(0.5, 8))
    finally:
        node.up()


def _restart_sshd(soak: Soak, node: Node) -> None:
    node.stop_sshd(sessions=True)
    time.sleep(soak.draw.uniform(0, 3))
    node.start_sshd()


def _lose_packets(soak: Soak, node: Node) -> None:
    with lossy_link(node, loss=soak.draw.uniform(0.05, 0.3), seed=soak.draw.randrange(1 << 30)):
        time.sleep(8)


def _forget_connections(soak: Soak, node: Node) -> None:
    with lossy_link(node, seed=soak.draw.randrange(1 << 30)) as link:
        time.sleep(2)  # until each connection has been seen
        link.forget_connections()
        time.sleep(6)


def _stop_agent(soak: Soak, node: Node) -> None:
    for pid in _agents(soak, node):
        node.kill(pid, signal.SIGSTOP)
        time.sleep(soak.draw.uniform(1, 6))
        with contextlib.suppress(ProcessLookupError):
            node.kill(pid, signal.SIGCONT)


def _kill_agent(soak: Soak, node: Node) -> None:
    for pid in _agents(soak, node):
        node.kill(pid, signal.SIGKILL)


def _reboot(soak: Soak, node: Node) -> None:
    node_faults.reboot(node)


def _stop_console(soak: Soak, node: Node) -> None:
    soak.recorder.process.send_signal(signal.SIGSTOP)
    time.sleep(soak.draw.uniform(1, 8))
    soak.recorder.process.send_signal(signal.SIGCONT)


FAULTS: Sequence[Callable[[Soak, Node], None]] = (
    _cut, _cut, _restart_sshd, _lose_packets, _forget_connections, _stop_agent, _kill_agent, _reboot, _stop_console,
)  # fmt: skip


def _agents(soak: Soak, node: Node) -> list[int]:
    """The lingering agent; none while it is being deployed."""
    try:
        return [node_faults.lingering(node, soak.recorder.process.pid)]
    except ValueError:
        return []


def growth_mb_h(samples: Sequence[Sample]) -> float:
    """The slope of a linear fit of the console's memory, MB per hour."""
    hours = np.array([sample.at_s / 3600 for sample in samples])
    return float(np.polyfit(hours, np.array([sample.rss_bytes / 1e6 for sample in samples]), 1)[0])


@dataclass(frozen=True)
class ResourceTrend:
    """Number of descriptors, threads or children: after the warm-up, the maximum since, and at the end."""

    name: str
    before: int
    most: int
    at_last: int

    @property
    def is_flat(self) -> bool:
        """A reconnecting node has a second connection for a moment, and a task for a thread of the pool.

        A leak of one per fault would be far larger after an hour.
        """
        return self.most <= self.before + NODES and self.at_last <= self.before + 2


def _trend(samples: Sequence[Sample], name: str) -> ResourceTrend:
    counts = [getattr(sample, name) for sample in samples]
    return ResourceTrend(name, counts[0], max(counts), counts[-1])


def main() -> int:
    parser = argparse.ArgumentParser("soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--for", dest="for_s", type=float, default=3600.0, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1 << 30))
    options = parser.parse_args()
    print(f"seed {options.seed}", flush=True)
    with (
        tempfile.TemporaryDirectory() as scratch,
        Rig(nodes=NODES, name="gcfsoak") as rig,
        start_ring(rig, rig.nodes[:-1], 1) as job,
    ):
        job.wait_ready()
        soak = Soak(rig, Path(scratch), options.seed)
        try:
            soak.run(options.for_s)
            count = soak.recorder.stop().count()
        finally:
            soak.recorder.close()
    steady = [sample for sample in soak.samples if sample.at_s > warm_up_s(options.for_s)]
    grows = growth_mb_h(steady)
    flat = [_trend(steady, name) for name in ("descriptors", "threads", "children")]
    rss = [sample.rss_bytes / 1e6 for sample in steady]
    write(
        Row(
            fault=f"soak {options.for_s / 60:.0f} min, {NODES} nodes, {sum(soak.faults.values())} faults at random",
            lost=count.lost, doubled=count.doubled, gap=count.gap,
            note=f"seed {options.seed}; {count.records:,} records of {count.agents} agents; RSS {min(rss):.1f} to"
            f" {max(rss):.1f} MB, slope {grows:+.1f} MB/h after {steady[0].at_s:.0f} s"
            f"{'' if warm_up_s(options.for_s) >= WARM_UP_S else ' (buffers still fill)'}; "
            + "; ".join(f"{trend.name} {trend.before} then, {trend.most} at most, {trend.at_last} at the end"
                        for trend in flat),
        )
    )  # fmt: skip
    is_warm = warm_up_s(options.for_s) >= WARM_UP_S  # until then the bounded buffers fill, which is no leak
    is_well = (count.lost, count.doubled) == (0, 0) and all(trend.is_flat for trend in flat)
    is_well = is_well and (grows <= GOAL_MB_H if is_warm else max(rss) - min(rss) <= FILLS_MB)
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
