"""(i) What captures at 1 Hz cost the steps of a running job of two gloo ranks that leaves a core idle."""

from __future__ import annotations

import array
import asyncio
import itertools
import os
import statistics
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

from jobs import start_torchrun
from live import watched
from rig import Rig

from gconsole.hub import CaptureOrder, new_capture

from .result import Outcome, Row, middle

SCRIPT = Path(__file__).parents[1] / "cluster/jobs/timed_steps.py"
#: Windows without and with captures take turns, so that whatever else the machine does falls on both.
PAIRS, WINDOW_S = 6, 20.0
GOAL_PCT = 1.0
ATTEMPTS = (
    "six pairs of 20 s on two cores that others loaded (load average 9 to 13): neighbours differ by -7 to +17 % either"
    " way, which is more than what is to be measured; to be repeated on a quiet machine",
)


@dataclass
class Window:
    """One stretch of time: when it was (CLOCK_MONOTONIC), and what the agent with its children spent in it."""

    began: float = field(default_factory=time.monotonic)
    ended: float = 0.0
    cpu_s: float = 0.0

    @property
    def cpu_pct(self) -> float:
        return 100 * self.cpu_s / (self.ended - self.began)


def measure(quick: bool) -> Outcome:
    pairs, window_s = (1, 4.0) if quick else (PAIRS, WINDOW_S)
    with Rig(nodes=1, name="bench") as rig, tempfile.TemporaryDirectory() as scratch:
        node = rig.nodes[0]
        times = node.folder / "step-times"
        env = {"STEP_TIMES": f"{node.inside}/{times.name}"}
        with start_torchrun(rig, nproc_per_node=2, script=SCRIPT, env=env) as job:
            job.wait_ready()
            target = rig.write_hosts_toml(Path(scratch, "hosts.toml"))
            plain, captured = asyncio.run(_windows(rig, target, pairs, window_s))
        ends = array.array("d", times.read_bytes())
    costs, means = [], []
    for quiet, busy in zip(plain, captured, strict=True):
        before, during = _steps_ms(ends, quiet), _steps_ms(ends, busy)
        costs.append(100 * (statistics.median(during) / statistics.median(before) - 1))
        means.append(100 * (statistics.fmean(during) / statistics.fmean(before) - 1))
    step_ms = statistics.median(_steps_ms(ends, plain[0]))
    dumps = [busy.cpu_pct - quiet.cpu_pct for quiet, busy in zip(plain, captured, strict=True)]
    met = max(statistics.median(costs), statistics.median(means)) < GOAL_PCT
    return Outcome(
        [
            Row("captures at 1 Hz: cost of a step, median", middle(costs, "%"), "< 1 %, also of the mean", met),
            Row("the same, mean of all steps", middle(means, "%")),
            Row("the dumps of two ranks at 1 Hz", middle(dumps, "% of a core")),
        ],
        [
            f"two gloo ranks on one node, a step of {step_ms:.1f} ms of which 15 ms are rest; {pairs} windows of"
            f" {window_s:g} s without captures and {pairs} with them, in turns, the node is watched at 1 Hz in all of"
            " them; each figure is of one pair of neighbours",
            "CPU: of the agent and the py-spy processes it has waited for, with captures less without",
        ],
        ATTEMPTS,
    )


async def _windows(rig: Rig, target: Path, pairs: int, window_s: float) -> tuple[list[Window], list[Window]]:
    plain, captured = [], []
    async with watched(target) as watch:
        await watch.sampled()
        await watch.until(lambda: len(watch.store.ranks) == 2)
        node = watch.store.nodes[rig.nodes[0].name].node
        assert node is not None
        agent = rig.nodes[0].outer_pid(node.pid)
        await watch.fleet.capture(CaptureOrder(new_capture()))  # py-spy has arrived
        for _ in range(pairs):
            plain.append(window := Window())
            spent = _cpu_s(agent)
            await asyncio.sleep(window_s)
            window.cpu_s, window.ended = _cpu_s(agent) - spent, time.monotonic()
            captured.append(window := Window())
            spent = _cpu_s(agent)
            await watch.fleet.capture(CaptureOrder(new_capture(), samples=int(window_s), every_s=1.0))
            window.cpu_s, window.ended = _cpu_s(agent) - spent, time.monotonic()
    return plain, captured


def _cpu_s(pid: int) -> float:
    """CPU seconds of a process and of the children it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def _steps_ms(ends: array.array[float], window: Window) -> list[float]:
    inside = [end for end in ends if window.began <= end <= window.ended]
    return [1000 * (after - before) for before, after in itertools.pairwise(inside)]
