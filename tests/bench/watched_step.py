"""Step time of a running torch job, watched against unwatched, interleaved.

Windows in which the job is watched with its default settings, light stack samples among them, and windows without any
agent on its node follow each other in the order ABBA, so that a drift of the machine cancels within each block.
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
from pathlib import Path

from jobs import start_torchrun
from live_fleet import started_fleet
from rig import Rig

from .result import Outcome, Row

SCRIPT = Path(__file__).parents[1] / "cluster/jobs/timed_steps.py"
#: Blocks of four windows, and the length of a window.
BLOCKS, WINDOW_S = 12, 20.0
#: Seconds of a change between two windows that count for neither.
SETTLE_S = 2.0
#: Percent. Difference, and its upper bound.
GOAL_PCT, LIMIT_PCT = 0.5, 1.0
RESAMPLES = 4000


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
    medians = [(watched, _step_s(ends, begin, end)) for watched, begin, end in windows]
    costs = [_cost_pct(medians[index : index + 4]) for index in range(0, len(medians), 4)]
    chance = random.Random(11)
    means = sorted(statistics.median(chance.choices(costs, k=len(costs))) for _ in range(RESAMPLES))
    middle, low, high = statistics.median(costs), means[int(0.025 * RESAMPLES)], means[int(0.975 * RESAMPLES) - 1]
    step_ms = 1000 * statistics.median(step for _, step in medians)
    return Outcome(
        [
            Row(
                "a watched step against an unwatched one",
                f"{middle:+.2f} % ({low:+.2f} to {high:+.2f} with 95 %, {len(costs)} blocks)",
                f"≤ {GOAL_PCT} %, its upper bound ≤ {LIMIT_PCT:g} %",
                middle <= GOAL_PCT and high <= LIMIT_PCT,
            ),
        ],
        [
            f"two gloo ranks on one node, a step of {step_ms:.1f} ms; {blocks} blocks of four windows of"
            f" {window_s:g} s, unwatched, watched, watched, unwatched; of each window the median step; of"
            f" each block the difference of the means; median of the blocks, 95 % by resampling them;"
            f" {places} light stack samples",
            f"console, SSH, agent and job share one machine; load average {os.getloadavg()[0]:.1f} at the end",
        ],
    )  # fmt: skip


async def _windows(target: Path, blocks: int, window_s: float) -> tuple[list[tuple[bool, float, float]], int]:
    """(watched, begin, end) of each window on CLOCK_MONOTONIC, and the number of samples of places."""
    windows: list[tuple[bool, float, float]] = []
    places = 0
    for _ in range(blocks):
        windows.append(await _window(False, window_s))
        async with started_fleet(target) as watch:
            await watch.sampled()
            await watch.until(lambda: len(watch.store.ranks) == 2)
            windows.append(await _window(True, window_s))
            windows.append(await _window(True, window_s))
            places += sum(now.places for now in watch.store.ranks.values())
        windows.append(await _window(False, window_s))
    return windows, places


async def _window(is_watched: bool, window_s: float) -> tuple[bool, float, float]:
    await asyncio.sleep(SETTLE_S)
    begin = time.monotonic()
    await asyncio.sleep(window_s)
    return is_watched, begin, time.monotonic()


def _step_s(ends: array.array[float], begin: float, end: float) -> float:
    inside = [instant for instant in ends if begin <= instant <= end]
    return statistics.median(after - before for before, after in itertools.pairwise(inside))


def _cost_pct(block: list[tuple[bool, float]]) -> float:
    watched = statistics.fmean(step for is_watched, step in block if is_watched)
    unwatched = statistics.fmean(step for is_watched, step in block if not is_watched)
    return 100 * (watched / unwatched - 1)
