"""Step time of a running torch job while `gconsole why` samples its ranks, against the same job unwatched, interleaved.

The windows of a block follow each other in the order ABBA, as in `watched_step`.
"""

from __future__ import annotations

import array
import asyncio
import os
import tempfile
import time
from pathlib import Path

from jobs import start_torchrun
from live_fleet import LiveFleet, started_fleet
from rig import Rig

from gconsole.monitor.why import FOR_S, sample_ranks

from .result import Outcome, Row
from .step_windows import SETTLE_S, Window, cost_of, step_ms, window
from .watched_step import SCRIPT

#: Blocks of four windows, each as long as a profile.
BLOCKS = 12
#: Percent. Upper bound of the interval.
LIMIT_PCT = 1.0
RANKS = 2


def measure(quick: bool) -> Outcome:
    blocks, for_s = (1, 4.0) if quick else (BLOCKS, FOR_S)
    with Rig(nodes=1, name="bench") as rig, tempfile.TemporaryDirectory() as scratch:
        node = rig.nodes[0]
        times = node.folder / "step-times"
        env = {"STEP_TIMES": f"{node.inside}/{times.name}"}
        with start_torchrun(rig, nproc_per_node=RANKS, script=SCRIPT, env=env) as job:
            job.wait_ready()
            target = rig.write_hosts_toml(Path(scratch, "hosts.toml"))
            windows, samples = asyncio.run(_windows(target, blocks, for_s))
        ends = array.array("d", times.read_bytes())
    cost = cost_of(ends, windows)
    return Outcome(
        [
            Row(
                "a step while `gconsole why` samples, against an unwatched one",
                cost.text,
                f"upper bound ≤ {LIMIT_PCT:g} %",
                cost.high_pct <= LIMIT_PCT,
            ),
            Row("samples of a rank in a profile", f"{samples:.0f} in {for_s:g} s", "10 to 50 Hz",
                10 * for_s <= samples <= 50 * for_s),
        ],
        [
            f"two gloo ranks on one node, a step of {step_ms(ends, windows):.1f} ms; {blocks} blocks of four windows of"
            f" {for_s:g} s: unwatched, sampled, sampled, unwatched; of each window the median step; of each block the"
            " difference of the means; median of the blocks, 95 % by resampling them",
            f"console, SSH, agent, py-spy and job share one machine; load average {os.getloadavg()[0]:.1f} at the end",
        ],
    )  # fmt: skip


async def _windows(target: Path, blocks: int, for_s: float) -> tuple[list[Window], float]:
    """All windows, and the mean number of samples of a rank in a profile."""
    windows: list[Window] = []
    counts: list[int] = []
    for _ in range(blocks):
        windows.append(await window(False, for_s))
        async with started_fleet(target) as watch:
            await watch.sampled()
            await watch.until(lambda: len(watch.store.ranks) == RANKS)
            for _ in range(2):
                windows.append(await _sampled(watch, for_s, counts))
        windows.append(await window(False, for_s))
    return windows, sum(counts) / len(counts)


async def _sampled(watch: LiveFleet, for_s: float, counts: list[int]) -> Window:
    """The window in which all ranks are sampled. Raises RuntimeError if one could not be."""
    await asyncio.sleep(SETTLE_S)
    begin = time.monotonic()
    profiles, problems = await sample_ranks(watch.fleet, watch.store, for_s)
    end = time.monotonic()
    if problems or len(profiles) != RANKS:
        raise RuntimeError(f"{len(profiles)} of {RANKS} ranks were sampled: {problems}")
    counts += [profile.samples for profile in profiles]
    return Window(True, begin, end)
