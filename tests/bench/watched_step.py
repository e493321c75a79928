"""Step time of a running torch job, watched against unwatched, interleaved.

Windows in which the job is watched with its default settings, light stack samples and the traffic of a rank among them,
and windows without any agent on its node follow each other in the order ABBA, so that a drift of the machine cancels
within each block.
"""

from __future__ import annotations

import array
import asyncio
import os
import tempfile
from pathlib import Path

from jobs import start_torchrun
from live_fleet import started_fleet
from rig import Rig

from .result import Outcome, Row
from .step_windows import Window, cost_of, step_ms, window

SCRIPT = Path(__file__).parents[1] / "cluster/jobs/timed_steps.py"
#: Blocks of four windows, and the length of a window.
BLOCKS, WINDOW_S = 12, 20.0
#: Percent. Difference, and its upper bound.
GOAL_PCT, LIMIT_PCT = 0.5, 1.0


def measure(quick: bool) -> Outcome:
    blocks, window_s = (1, 4.0) if quick else (BLOCKS, WINDOW_S)
    with Rig(nodes=1, name="bench") as rig, tempfile.TemporaryDirectory() as scratch:
        node = rig.nodes[0]
        times = node.folder / "step-times"
        with start_torchrun(
            rig, nproc_per_node=2, script=SCRIPT, env={"STEP_TIMES": f"{node.inside}/{times.name}"}
        ) as job:
            job.wait_ready()
            target = rig.write_hosts_toml(Path(scratch, "hosts.toml"))
            windows, places = asyncio.run(_windows(target, blocks, window_s))
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
        ],
        [
            f"two gloo ranks on one node, a step of {step_ms(ends, windows):.1f} ms; {blocks} blocks of four windows of"
            f" {window_s:g} s, unwatched, watched, watched, unwatched; of each window the median step; of"
            f" each block the difference of the means; median of the blocks, 95 % by resampling them;"
            f" {places} light stack samples",
            f"console, SSH, agent and job share one machine; load average {os.getloadavg()[0]:.1f} at the end",
        ],
    )  # fmt: skip


async def _windows(target: Path, blocks: int, window_s: float) -> tuple[list[Window], int]:
    """All windows, and the number of samples of places."""
    windows: list[Window] = []
    places = 0
    for _ in range(blocks):
        windows.append(await window(False, window_s))
        async with started_fleet(target) as watch:
            await watch.sampled()
            await watch.until(lambda: len(watch.store.ranks) == 2)
            key, _ = min(watch.store.ranks.items(), key=lambda item: item[1].rank.rank)
            watch.fleet.measure_traffic({key[0]: (key[1:],)})  # as the console orders it of one rank of each job
            windows.append(await window(True, window_s))
            windows.append(await window(True, window_s))
            assert watch.store.traffic.get(key) is not None
            places += sum(now.places for now in watch.store.ranks.values())
        windows.append(await window(False, window_s))
    return windows, places
