"""(g) Time to the verdict: 16 ranks on 4 nodes, compared with `py-spy dump` over ssh and clush.

From the key press on connections that stand, and of `gconsole batch --diagnose` on nodes with and without caches.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from jobs import start_torchrun
from live_fleet import LiveFleet, started_fleet
from rig import Rig
from rig.detect import tool

from gconsole.analysis.hang.diagnosis import Judgement
from gconsole.analysis.stacks.fold import fold, jobs_of
from gconsole.core.control import CaptureRequest, new_capture
from gconsole.monitor.hang import FIRST_EVERY_S, FIRST_SAMPLES, Diagnosis, diagnose, evaluation
from gconsole.records import Stack
from tests.bench import peer_captures
from tests.bench.peer_captures import PeerCapture

from .result import Outcome, Row, middle

NODES, PER_NODE, RUNS = 4, 4, 5
#: Before the first one the job has been watched for longer than min_frozen_s.
WATCHED_S = 8.0
BEHIND_CLUSH_S, SPREAD_MS, SPREAD_RATIO = 0.9, 20.0, 10.0
COLD_S = 6.0
SCRIPT = Path(__file__).parents[1] / "hangs/jobs/sleeps_in_step.py"
CULPRIT = 1


@dataclass(frozen=True)
class DiagnosisTiming:
    """One diagnosis: seconds to the verdict, and to its end; the spread of the reads of /proc and of the stacks."""

    verdict_s: float  # all ranks are read three times and analysed
    surer_s: float  # including the additional reads that confirm the verdict: variables, native frames
    proc_spread_ms: float
    stack_spread_ms: float


def measure(quick: bool) -> Outcome:
    tool("ssh")
    nodes, per_node, runs = (2, 2, 2) if quick else (NODES, PER_NODE, RUNS)
    with (
        Rig(nodes=nodes, name="bench") as rig,
        tempfile.TemporaryDirectory() as scratch,
        start_torchrun(rig, nproc_per_node=per_node, script=SCRIPT) as job,
    ):
        job.wait_ready()
        target = rig.write_hosts_toml(Path(scratch, "hosts.toml"))
        ssh_config = Path(scratch, "ssh_config")
        ssh_config.write_text(rig.ssh_config_text())
        ours, loops, clushes = asyncio.run(_rounds(rig, target, ssh_config, runs))
        colds, warms = zip(*(_starts(target) for _ in range(runs)), strict=True)
    ranks = nodes * per_node
    assert all(timing.dumps == ranks for timing in (*loops, *clushes)), "they only dump the ranks"
    return _outcome(ranks, nodes, ours, loops, clushes, colds, warms)


async def _rounds(
    rig: Rig, target: Path, config: Path, runs: int
) -> tuple[list[DiagnosisTiming], list[PeerCapture], list[PeerCapture]]:
    """Alternates gconsole, the loop and clush; the agents run all the time, as they do in the field."""
    names = [node.name for node in rig.nodes]
    ours, loops, clushes = [], [], []
    async with started_fleet(target) as watch:
        await watch.sampled()
        await watch.fleet.capture(CaptureRequest(new_capture()))  # py-spy is uploaded
        for _ in range(runs):
            await asyncio.sleep(WATCHED_S)  # after the peers too, whose py-spy stops the ranks: counts as progress
            ours.append(await _press(watch))
            loops.append(await asyncio.to_thread(peer_captures.one_by_one, rig, names, SCRIPT.name))
            clushes.append(await asyncio.to_thread(peer_captures.with_clush, config, names, SCRIPT.name))
    return ours, loops, clushes


async def _press(watch: LiveFleet) -> DiagnosisTiming:
    began = time.perf_counter()
    requests: list[str] = []
    named_s: list[float] = []

    def asks(request: CaptureRequest) -> None:
        """Each order after the first has a verdict already."""
        if requests and not named_s and _is_right(evaluation(watch.store).judgements()):
            named_s.append(time.perf_counter() - began)
        requests.append(request.id)

    judgements = await diagnose(watch.store, watch.fleet, Diagnosis(), asks)
    ended_s = time.perf_counter() - began
    if not _is_right(judgements):
        raise RuntimeError(f"the verdict does not blame rank {CULPRIT}: {judgements}")
    capture = watch.store.captures.get(requests[0])
    assert capture is not None
    return DiagnosisTiming(named_s[0] if named_s else ended_s, ended_s, *_spreads_ms(capture.stacks))


def _starts(target: Path) -> tuple[float, float]:
    """Seconds of `batch --diagnose` from start to exit: on nodes without caches, and once more."""
    gconsole = str(Path(sys.executable).parent / "gconsole")
    subprocess.run([gconsole, "clean", str(target), "--quiet"], check=True, stdout=subprocess.DEVNULL)
    took_s = []
    for _ in range(2):
        report, began = target.with_name("report.json"), time.perf_counter()
        argv = [gconsole, "batch", str(target), "--diagnose", "--quiet", "-o", str(report)]
        subprocess.run(argv, check=False, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)  # 1: it hangs
        took_s.append(time.perf_counter() - began)
        [verdict] = msgspec.json.decode(report.read_bytes())["verdicts"]
        if [culprit["rank"] for culprit in verdict["culprits"]] != [CULPRIT]:
            raise RuntimeError(f"the report does not blame rank {CULPRIT}: {verdict}")
    return took_s[0], took_s[1]


def _is_right(judgements: Sequence[Judgement]) -> bool:
    [verdict] = [judgement.verdict for judgement in judgements]
    return verdict.state == "hung" and [culprit.rank for culprit in verdict.culprits] == [CULPRIT]


def _spreads_ms(stacks: list[Stack]) -> tuple[float, float]:
    """Largest spread within a sample of the times at which /proc was read, and at which py-spy began."""
    folded = fold(stacks, jobs_of(stacks)[0])
    spreads_ms = []
    for sample in range(FIRST_SAMPLES):
        begins = [
            stack.began for stack in stacks if stack.sample == sample and stack.began is not None and not stack.native
        ]
        spreads_ms.append((max(begins) - min(begins)) / 1e6)
    return (folded.spread_ns or 0) / 1e6, max(spreads_ms)


def _outcome(
    ranks: int, nodes: int, ours: list[DiagnosisTiming], loops: list[PeerCapture], clushes: list[PeerCapture],
    colds: Sequence[float], warms: Sequence[float],
) -> Outcome:  # fmt: skip
    verdict, clush = [timing.verdict_s for timing in ours], [timing.wall_s for timing in clushes]
    spread, loop_spread = [timing.proc_spread_ms for timing in ours], [timing.spread_s * 1e3 for timing in loops]
    loop = [timing.wall_s for timing in loops]
    mid, peer = statistics.median(verdict), statistics.median(clush)
    ratio = statistics.median(spread) / statistics.median(loop_spread)
    return Outcome(
        [
            Row(f"key to verdict, {ranks} ranks on {nodes} nodes, {FIRST_SAMPLES} samples", middle(verdict, "s"),
                f"≤ clush's one sample + {BEHIND_CLUSH_S} s", mid <= peer + BEHIND_CLUSH_S,
                f"clush {middle(clush, 's')}", mid / peer),
            Row("the same, peer: a loop with ssh", middle(verdict, "s"), peer=f"loop {middle(loop, 's')}",
                ratio=mid / statistics.median(loop)),
            Row("key to the verdict with variables and native frames",
                middle([timing.surer_s for timing in ours], "s")),
            Row(f"`batch --diagnose` on {nodes} nodes, all of it, without caches there", middle(colds, "s"),
                f"≤ {COLD_S:g} s", statistics.median(colds) <= COLD_S),
            Row("the same with the caches of the run before", middle(warms, "s")),
            Row("spread of the reads of /proc", middle(spread, "ms", 1), f"≤ {SPREAD_MS:g} ms",
                statistics.median(spread) <= SPREAD_MS),
            Row("the same, peer: the loop's dumps", middle(spread, "ms", 1), "≤ 1/10 of the loop's",
                ratio <= 1 / SPREAD_RATIO, f"loop {middle(loop_spread, 'ms', 0)}", ratio),
            Row("spread of the starts of the stack reads",
                middle([timing.stack_spread_ms for timing in ours], "ms", 0),
                peer=f"clush {middle([timing.spread_s * 1e3 for timing in clushes], 'ms', 0)}"),
        ],
        [
            f"a real torchrun job of {ranks} gloo ranks, one of which sleeps, watched for more than {WATCHED_S:g} s;"
            f" the key is the order of a diagnosis ({FIRST_SAMPLES} samples each {FIRST_EVERY_S:g} s) on connections"
            f" that stand, the end a verdict that names rank {CULPRIT}",
            "peers: `py-spy dump --pid` of each rank, rank after rank on a node; through ssh node after node, and"
            " through clush on all nodes at once; a connection each, one sample, nothing is merged or judged; they"
            f" stop each rank, so that after them the job is watched for {WATCHED_S:g} s again",
            "without caches: after `gconsole clean`, so that each node receives the agent and py-spy; from the start"
            " of the program to its exit",
            "all nodes share the cores of this machine, which the ranks leave idle",
        ],
    )  # fmt: skip
