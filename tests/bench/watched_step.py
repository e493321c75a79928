"""Step time of a running torch job, watched against unwatched, interleaved.

Windows in which the job is watched with its default settings, light stack samples and the traffic of a rank among them,
and windows in which every process of the agent is stopped (SIGSTOP) follow each other in the order ABBA, so that a
drift of the machine cancels within each block. The windows are short, so that slow changes of the machine cancel, too;
two watched ones in a row contain the light sample that is due every 10 s.
"""

from __future__ import annotations

import array
import asyncio
import contextlib
import os
import signal
import statistics
import tempfile
from pathlib import Path

from jobs import start_torchrun
from live_fleet import started_fleet
from rig import Node, Rig
from rig.processes import descendants

from tests.faults import node_faults

from .result import Outcome, Row
from .step_windows import Window, cost_of, step_ms, window

SCRIPT = Path(__file__).parents[1] / "cluster/jobs/timed_steps.py"
#: Blocks of four windows, the length of a window, and the pause after the agent was stopped, in seconds.
BLOCKS, WINDOW_S, STOPPING_S = 48, 5.0, 0.3
#: Percent. Difference, and its upper bound.
GOAL_PCT, LIMIT_PCT = 0.5, 1.0


def measure(quick: bool) -> Outcome:
    blocks = 2 if quick else BLOCKS
    with Rig(nodes=1, name="bench") as rig, tempfile.TemporaryDirectory() as scratch:
        node = rig.nodes[0]
        times = node.folder / "step-times"
        with start_torchrun(
            rig, nproc_per_node=2, script=SCRIPT, env={"STEP_TIMES": f"{node.inside}/{times.name}"}
        ) as job:
            job.wait_ready()
            target = rig.write_hosts_toml(Path(scratch, "hosts.toml"))
            windows, places = asyncio.run(_windows(node, target, blocks))
        ends = array.array("d", times.read_bytes())
    cost = cost_of(ends, windows)
    return Outcome(
        [
            Row(
                "a watched step against an unwatched one",
                cost.text,
                f"≤ {GOAL_PCT} %, its upper bound ≤ {LIMIT_PCT:g} %",
                cost.median_pct <= GOAL_PCT and cost.high_pct <= LIMIT_PCT,
            ),
            Row("the same by the mean step of each window", cost_of(ends, windows, statistics.fmean).text),
        ],
        [
            f"two gloo ranks on one node, a step of {step_ms(ends, windows):.1f} ms; {blocks} blocks of four windows of"
            f" {WINDOW_S:g} s, unwatched (the agent is stopped), watched, watched, unwatched; of each window the median"
            f" step; of each block the difference of the means; median of the blocks, 95 % by resampling them;"
            f" {places} light stack samples",
            "console, SSH, agent and job share one machine; the console runs in the unwatched windows, too, so that the"
            f" agent alone is measured; load average {os.getloadavg()[0]:.1f} at the end",
        ],
    )  # fmt: skip


async def _windows(node: Node, target: Path, blocks: int) -> tuple[list[Window], int]:
    """All windows, and the number of light stack samples."""
    windows: list[Window] = []
    async with started_fleet(target) as watch:
        await watch.sampled()
        await watch.until(lambda: len(watch.store.ranks) == 2)
        key, _ = min(watch.store.ranks.items(), key=lambda item: item[1].rank.rank)
        watch.fleet.measure_traffic({key[0]: (key[1:],)})  # as the console orders it of one rank of each job
        await watch.until(lambda: watch.store.traffic.get(key) is not None)
        [agent] = {node.outer_pid(fact["pid"]) for fact in node_faults.agents(node)}
        for _ in range(blocks):
            for is_watched in (False, True, True, False):
                _signal(agent, signal.SIGCONT if is_watched else signal.SIGSTOP)
                windows.append(await window(is_watched, WINDOW_S, 0.0 if is_watched else STOPPING_S))
            _signal(agent, signal.SIGCONT)
            assert watch.store.traffic.get(key) is not None
        places = sum(now.places for now in watch.store.ranks.values())
    return windows, places


def _signal(agent: int, number: signal.Signals) -> None:
    for pid in (agent, *descendants(agent)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
