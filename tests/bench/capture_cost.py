"""(i) What captures at 1 Hz cost the steps of a running job of two gloo ranks that leaves a core idle.

And what it costs to read the watched variables of a rank once.

Whole windows with and without captures differ by more than 10 % on a machine that others load, whatever is measured. So
each capture is compared with its own neighbourhood: the progress of the job from just before a capture until all its
effects are over, and its progress over an equal time half a second later, in which no capture is. What is lost, of one
second, is the cost; noise that lasts longer than that second falls on both. The same is done for seconds without any
capture: what is found there is the error of the method.
"""

from __future__ import annotations

import array
import asyncio
import itertools
import os
import random
import statistics
import tempfile
import time
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from jobs import start_torchrun
from live_fleet import Watched, watched
from rig import Rig

from gconsole.core.control import CaptureRequest, new_capture

from .result import Outcome, Row, middle

SCRIPT = Path(__file__).parents[1] / "cluster/jobs/timed_steps.py"
#: So many blocks of so many captures, a second apart, each followed by seconds without.
BLOCKS, SAMPLES, REST_S = 24, 10, 5.0
#: From so long before the instant of a capture until so long after its last read the job is looked at.
BEFORE_S, AFTER_S = 0.02, 0.1
#: The time a capture is compared with is so much later.
LATER_S = 0.5
#: So long variables are watched; the agent tells what they cost over the last minute.
WATCH_S = 65.0
GOAL_PCT = 1.0
RESAMPLES = 4000


@dataclass
class Block:
    """Captures a second apart, and the seconds without any behind them; instants are of CLOCK_MONOTONIC."""

    windows: list[tuple[float, float]] = field(default_factory=list)
    quiet: list[tuple[float, float]] = field(default_factory=list)
    stopped: int = 0  # processes found stopped after a read
    traced: int = 0  # looks at which somebody traced a process
    reads: int = 0
    dumps_pct: float = 0.0  # CPU of the agent and its children, with captures less without


def measure(quick: bool) -> Outcome:
    blocks, samples, rest_s = (2, 3, 3.0) if quick else (BLOCKS, SAMPLES, REST_S)
    with Rig(nodes=1, name="bench") as rig, tempfile.TemporaryDirectory() as scratch:
        node = rig.nodes[0]
        times = node.folder / "step-times"
        env = {"STEP_TIMES": f"{node.inside}/{times.name}"}
        with start_torchrun(rig, nproc_per_node=2, script=SCRIPT, env=env) as job:
            job.wait_ready()
            target = rig.write_hosts_toml(Path(scratch, "hosts.toml"))
            found = asyncio.run(_blocks(rig, target, blocks, samples, rest_s))
            watch_pct = asyncio.run(_watch_pct(target, 5.0 if quick else WATCH_S))
        ends = array.array("d", times.read_bytes())
    steps = Steps(ends)
    cost = Interval.of([steps.around(*window) for window in block.windows] for block in found)
    error = Interval.of([steps.around(*window) for window in block.quiet] for block in found)
    reads, stopped = sum(block.reads for block in found), sum(block.stopped for block in found)
    traced = sum(block.traced for block in found)
    length_ms = 1000 * statistics.median(end - begin for block in found for begin, end in block.windows)
    return Outcome(
        [
            Row("captures at 1 Hz: cost of a step", cost.text, "< 1 %, also its upper bound", cost.high < GOAL_PCT),
            Row("the same measured where no capture is", error.text),
            Row("the dumps of two ranks at 1 Hz", middle([block.dumps_pct for block in found], "% of a core")),
            Row("reads that left or found a rank stopped or traced", f"{stopped + traced} of {reads}", "0",
                stopped + traced == 0),
            Row("watched variables of one rank, once each 10 s", f"{watch_pct / 2 / 10:.2f} % of a core"),
        ],
        [
            f"two gloo ranks on one node, a step of {1000 * steps.median_s:.1f} ms of which 15 ms are rest; {blocks}"
            f" blocks of {samples} captures a second apart and {rest_s:g} s without, watched at 1 Hz in all of them",
            f"steps done around each capture ({length_ms:.0f} ms, until {1000 * AFTER_S:.0f} ms after its last read)"
            f" against those done {LATER_S:g} s later, in time lost of each second; mean of all captures, 95 % by"
            " resampling whole blocks. Console, SSH and job share one machine: what the console does counts, too",
            f"watched variables: two ranks read once a second for {WATCH_S:g} s cost {watch_pct:.2f} % of a core",
            f"load average {os.getloadavg()[0]:.1f} at the end; CPU: of the agent and the py-spy processes it has"
            " waited for, with captures less without",
        ],
    )  # fmt: skip


async def _blocks(rig: Rig, target: Path, blocks: int, samples: int, rest_s: float) -> list[Block]:
    async with watched(target) as watch:
        await watch.sampled()
        await watch.until(lambda: len(watch.store.ranks) == 2)
        node = watch.store.nodes[rig.nodes[0].name].node
        assert node is not None
        agent = rig.nodes[0].outer_pid(node.pid)
        await watch.fleet.capture(CaptureRequest(new_capture()))  # py-spy has arrived
        chance = random.Random(7)
        return [await _block(watch, agent, samples, rest_s, chance) for _ in range(blocks)]


async def _watch_pct(target: Path, for_s: float) -> float:
    """What reading variables of both ranks once a second costs, in % of a core, by the agent's own word."""
    async with watched(target, watch_locals="number", watch_every_s=1, agent_cpu_budget_pct=100) as watch:
        await watch.sampled()
        await watch.until(lambda: sum(bool(now.stat and now.stat.watched) for now in watch.store.ranks.values()) == 2)
        await asyncio.sleep(for_s)
        [now] = watch.store.nodes.values()
        assert now.cost is not None and now.cost.watch_cpu_pct is not None
        return now.cost.watch_cpu_pct


async def _block(watch: Watched, agent: int, samples: int, rest_s: float, chance: random.Random) -> Block:
    block = Block()
    await asyncio.sleep(chance.random())  # the agent's own ticks, a second apart too, fall anywhere
    began, spent = time.monotonic(), _cpu_s(agent)
    order = CaptureRequest(new_capture(), samples=samples, every_s=1.0)
    done = await watch.fleet.capture(order)
    busy_pct = 100 * (_cpu_s(agent) - spent) / (time.monotonic() - began)
    block.stopped = sum(counts.stopped_since for counts in done.nodes.values())
    _take_windows(block, watch, order)
    length_s = max(end - begin for begin, end in block.windows)
    began, spent = time.monotonic(), _cpu_s(agent)
    await asyncio.sleep(rest_s)
    block.dumps_pct = busy_pct - 100 * (_cpu_s(agent) - spent) / (time.monotonic() - began)
    block.quiet = [(began + 0.5 + at, began + 0.5 + at + length_s) for at in range(int(rest_s) - 1)]
    return block


def _take_windows(block: Block, watch: Watched, order: CaptureRequest) -> None:
    """From the records of a capture when each of its samples was; the node's clock is this machine's."""
    offset = time.time() - time.monotonic()
    capture = watch.store.captures.get(order.id)
    assert capture is not None
    ends: dict[int, float] = {}
    for stack in capture.stacks:
        assert stack.at is not None
        if stack.ended is not None:
            ends[stack.at] = max(stack.ended / 1e9, ends.get(stack.at, 0.0))
            block.reads += 1
            block.traced += bool(stack.tracer_pid) or stack.proc_state in ("T", "t")
    block.windows = [(at / 1e9 - BEFORE_S - offset, end + AFTER_S - offset) for at, end in sorted(ends.items())]


class Steps:
    """The steps of a job, by the instants at which they ended."""

    def __init__(self, ends: Sequence[float]) -> None:
        self._ends = ends
        self.median_s = statistics.median(after - before for before, after in itertools.pairwise(ends))

    def done(self, at: float) -> float:
        """How many steps were done at an instant; the one under way counts by its share."""
        after = bisect_left(self._ends, at)
        before, behind = self._ends[after - 1], self._ends[after]
        return after - 1 + (at - before) / (behind - before)

    def around(self, begin: float, end: float) -> Around:
        """What was done from `begin` to `end`, and in an equal time a little later."""
        later = begin + LATER_S, end + LATER_S
        return Around(end - begin, self.done(end) - self.done(begin), self.done(later[1]) - self.done(later[0]))


class Around(NamedTuple):
    """The steps done in some seconds around a capture, and in as many a little later."""

    length_s: float
    here: float
    there: float


def _lost_pct(found: Sequence[Around]) -> float:
    """The time lost around each, in % of a second."""
    here, there = sum(one.here for one in found), sum(one.there for one in found)
    return 100 * statistics.fmean(one.length_s for one in found) * (1 - here / there)


@dataclass(frozen=True)
class Interval:
    """What is lost in all, and where that lies with 95 %."""

    mean: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, found: Iterable[Sequence[Around]]) -> Interval:
        """By resampling whole blocks, within which values may hang together."""
        blocks, chance = list(found), random.Random(11)
        means = sorted(
            _lost_pct([one for block in chance.choices(blocks, k=len(blocks)) for one in block])
            for _ in range(RESAMPLES)
        )
        every = [one for block in blocks for one in block]
        return cls(_lost_pct(every), means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES)], len(every))

    @property
    def text(self) -> str:
        return f"{self.mean:.2f} % ({self.low:.2f} to {self.high:.2f} with 95 %, {self.count} captures)"


def _cpu_s(pid: int) -> float:
    """CPU seconds of a process and of the children it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")
