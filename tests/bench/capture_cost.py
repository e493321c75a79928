"""(i) Effect of captures at 1 Hz on the steps of a running job of two gloo ranks that leaves a core idle.

Also the cost of reading the watched variables of a rank once.

On a shared machine, windows with and without captures differ by more than 10 % for other reasons. Therefore each
capture is compared with its own neighbourhood: the job's progress from just before a capture until its effects are
over, and the progress in an equally long interval 0.5 s later, without a capture. The cost is the progress lost per
second; noise longer than a second affects both intervals. The same is computed for seconds without captures: that
result is the error of the method.
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
from live_fleet import LiveFleet, started_fleet
from rig import Rig

from gconsole.core.control import CaptureRequest, new_capture

from .result import Outcome, Row, middle

SCRIPT = Path(__file__).parents[1] / "cluster/jobs/timed_steps.py"
#: Number of blocks and captures per block; captures are 1 s apart, and each block is followed by seconds without any.
BLOCKS, SAMPLES, REST_S = 24, 10, 5.0
#: Interval in which the job is observed: from before the start of a capture until after its last read.
BEFORE_S, AFTER_S = 0.02, 0.1
#: Offset of the interval that a capture is compared with.
LATER_S = 0.5
#: Seconds for which variables are watched; the agent reports its cost over the last minute.
WATCH_S = 65.0
GOAL_PCT = 1.0
RESAMPLES = 4000


@dataclass
class Block:
    """Captures a second apart, and the seconds without captures after them; instants are CLOCK_MONOTONIC."""

    windows: list[tuple[float, float]] = field(default_factory=list)
    quiet: list[tuple[float, float]] = field(default_factory=list)
    stopped: int = 0  # processes found stopped after a read
    traced: int = 0  # samples in which a process was traced
    reads: int = 0
    dumps_pct: float = 0.0  # CPU of the agent and its children with captures, minus that without


def measure(quick: bool) -> Outcome:
    blocks, samples, rest_s = (2, 3, 3.0) if quick else (BLOCKS, SAMPLES, REST_S)
    with Rig(nodes=1, name="bench") as rig, tempfile.TemporaryDirectory() as scratch:
        node = rig.nodes[0]
        times = node.folder / "step-times"
        env = {"STEP_TIMES": f"{node.inside}/{times.name}"}
        with start_torchrun(rig, nproc_per_node=2, script=SCRIPT, env=env) as job:
            job.wait_ready()
            target = rig.write_hosts_toml(Path(scratch, "hosts.toml"))
            measured_blocks = asyncio.run(_blocks(rig, target, blocks, samples, rest_s))
            watch_pct = asyncio.run(_watch_pct(target, 5.0 if quick else WATCH_S))
        ends = array.array("d", times.read_bytes())
    steps = Steps(ends)
    cost = Interval.of([steps.around(*window) for window in block.windows] for block in measured_blocks)
    error = Interval.of([steps.around(*window) for window in block.quiet] for block in measured_blocks)
    reads, stopped = sum(block.reads for block in measured_blocks), sum(block.stopped for block in measured_blocks)
    traced = sum(block.traced for block in measured_blocks)
    length_ms = 1000 * statistics.median(end - begin for block in measured_blocks for begin, end in block.windows)
    return Outcome(
        [
            Row("captures at 1 Hz: cost of a step", cost.text, "< 1 %, also its upper bound", cost.high < GOAL_PCT),
            Row("the same measured without captures", error.text),
            Row("the dumps of two ranks at 1 Hz",
                middle([block.dumps_pct for block in measured_blocks], "% of a core")),
            Row("reads after which a rank was stopped or traced", f"{stopped + traced} of {reads}", "0",
                stopped + traced == 0),
            Row("watched variables of one rank, every 10 s", f"{watch_pct / 2 / 10:.2f} % of a core"),
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
    async with started_fleet(target) as watch:
        await watch.sampled()
        await watch.until(lambda: len(watch.store.ranks) == 2)
        node = watch.store.nodes[rig.nodes[0].name].node
        assert node is not None
        agent = rig.nodes[0].outer_pid(node.pid)
        await watch.fleet.capture(CaptureRequest(new_capture()))  # py-spy is uploaded
        chance = random.Random(7)
        return [await _block(watch, agent, samples, rest_s, chance) for _ in range(blocks)]


async def _watch_pct(target: Path, for_s: float) -> float:
    """CPU of reading variables of both ranks once a second, in % of a core, as reported by the agent."""
    async with started_fleet(target, watch_locals="number", watch_every_s=1, agent_cpu_budget_pct=100) as watch:
        await watch.sampled()
        await watch.until(lambda: sum(bool(now.stat and now.stat.watched) for now in watch.store.ranks.values()) == 2)
        await asyncio.sleep(for_s)
        [now] = watch.store.nodes.values()
        assert now.cost is not None and now.cost.watch_cpu_pct is not None
        return now.cost.watch_cpu_pct


async def _block(watch: LiveFleet, agent: int, samples: int, rest_s: float, chance: random.Random) -> Block:
    block = Block()
    await asyncio.sleep(chance.random())  # random phase relative to the agent's ticks, which are 1 s apart too
    began, spent = time.monotonic(), _cpu_s(agent)
    request = CaptureRequest(new_capture(), samples=samples, every_s=1.0)
    summary = await watch.fleet.capture(request)
    busy_pct = 100 * (_cpu_s(agent) - spent) / (time.monotonic() - began)
    block.stopped = sum(counts.stopped_since for counts in summary.nodes.values())
    _add_windows(block, watch, request)
    length_s = max(end - begin for begin, end in block.windows)
    began, spent = time.monotonic(), _cpu_s(agent)
    await asyncio.sleep(rest_s)
    block.dumps_pct = busy_pct - 100 * (_cpu_s(agent) - spent) / (time.monotonic() - began)
    block.quiet = [(began + 0.5 + second, began + 0.5 + second + length_s) for second in range(int(rest_s) - 1)]
    return block


def _add_windows(block: Block, watch: LiveFleet, request: CaptureRequest) -> None:
    """Sample times from the records of a capture; the node's clock is this machine's."""
    offset = time.time() - time.monotonic()
    capture = watch.store.captures.get(request.id)
    assert capture is not None
    ends: dict[int, float] = {}
    for stack in capture.stacks:
        assert stack.at is not None
        if stack.ended is not None:
            ends[stack.at] = max(stack.ended / 1e9, ends.get(stack.at, 0.0))
            block.reads += 1
            block.traced += bool(stack.tracer_pid) or stack.proc_state in ("T", "t")
    block.windows = [
        (sampled_ns / 1e9 - BEFORE_S - offset, end + AFTER_S - offset) for sampled_ns, end in sorted(ends.items())
    ]


class Steps:
    """The end times of a job's steps."""

    def __init__(self, ends: Sequence[float]) -> None:
        self._ends = ends
        self.median_s = statistics.median(after - before for before, after in itertools.pairwise(ends))

    def done(self, instant_s: float) -> float:
        """Number of steps done at an instant, with the fraction of the current one."""
        after = bisect_left(self._ends, instant_s)
        before, behind = self._ends[after - 1], self._ends[after]
        return after - 1 + (instant_s - before) / (behind - before)

    def around(self, begin: float, end: float) -> StepsAround:
        """Steps from `begin` to `end`, and in an equally long interval later."""
        later = begin + LATER_S, end + LATER_S
        return StepsAround(end - begin, self.done(end) - self.done(begin), self.done(later[1]) - self.done(later[0]))


class StepsAround(NamedTuple):
    """Steps in an interval around a capture, and in an equally long one later."""

    length_s: float
    during: float
    later: float


def _lost_pct(intervals: Sequence[StepsAround]) -> float:
    """The time lost around each capture, in % of a second."""
    during, later = sum(steps.during for steps in intervals), sum(steps.later for steps in intervals)
    return 100 * statistics.fmean(steps.length_s for steps in intervals) * (1 - during / later)


@dataclass(frozen=True)
class Interval:
    """The mean loss and its 95 % confidence interval."""

    mean: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, interval_blocks: Iterable[Sequence[StepsAround]]) -> Interval:
        """Bootstrap over whole blocks, whose values may be correlated."""
        blocks, chance = list(interval_blocks), random.Random(11)
        means = sorted(
            _lost_pct([steps for block in chance.choices(blocks, k=len(blocks)) for steps in block])
            for _ in range(RESAMPLES)
        )
        all_steps = [steps for block in blocks for steps in block]
        return cls(_lost_pct(all_steps), means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES)], len(all_steps))

    @property
    def text(self) -> str:
        return f"{self.mean:.2f} % ({self.low:.2f} to {self.high:.2f} with 95 %, {self.count} captures)"


def _cpu_s(pid: int) -> float:
    """CPU seconds of a process and of the children it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")
