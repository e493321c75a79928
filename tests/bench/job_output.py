"""Cost of folding a job's output: from records on the wire to printed lines, or to the screen."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import statistics
import sys
import time
from pathlib import Path

from gconsole.cli.run_live import FOLD_S, FoldedOutput, LineFilter
from gconsole.core.store import Store
from gconsole.launch.state import job_status
from gconsole.records import Job, Log, NodeState, decode, encode
from gconsole.tui.app import ConsoleApp
from gconsole.tui.controllers.frames import RATE_HZ
from gconsole.tui.views.jobs.view import JobsView

# Makes `from fake_cluster import FakeCluster` work, as in the tests of the screen.
sys.path.insert(0, str(Path(__file__).parents[1] / "tui"))

from fake_cluster import FakeCluster
from waiting import settle

from tests.bench.headless_screen import STYLES, PaintCounter, frame

from .result import Outcome, Row, middle

RANKS, LINES, RUNS, GOAL = 64, 2000, 5, 50_000
#: Lines per record of a rank: its output in 0.2 s at this rate.
TOGETHER = 150
SIZE, FRAMES = (200, 60), 160


class Console(PaintCounter, ConsoleApp):
    """The console, with its paints rendered as text."""

    CSS_PATH = STYLES

    def _tick(self) -> None:
        """Frames are painted only by the benchmark, so that all are measured."""


def measure(quick: bool) -> Outcome:
    ranks, runs = (8, 2) if quick else (RANKS, RUNS)
    rates = {equal: [rate(ranks, equal) for _ in range(runs)] for equal in (True, False)}
    budget_ms = 1000 / RATE_HZ
    shown = {equal: asyncio.run(frames(ranks, equal, FRAMES // 8 if quick else FRAMES)) for equal in (True, False)}
    return Outcome(
        [
            *(
                Row(f"CPU of a frame of the Jobs view at {GOAL:,} lines/s of {ranks} ranks, {variety}",
                    f"{statistics.median(shown[equal]):.0f} ms (p95 {p95(shown[equal]):.0f})", f"≤ {budget_ms:g} ms",
                    p95(shown[equal]) <= budget_ms)
                for equal, variety in ((True, "all ranks the same"), (False, "no two lines alike"))
            ),
            *(
                Row(f"output of {ranks} ranks, {variety}", middle(rates[equal], "lines/s", 0), "≥ 50,000 lines/s",
                    min(rates[equal]) >= GOAL)
                for equal, variety in ((True, "all ranks the same"), (False, "no two lines alike"))
            ),
        ],
        [
            f"{LINES} lines of each rank in records of {TOGETHER}: decoded, kept in the store, folded, made printable;"
            " without SSH, by the CPU of the process, the worst run decides; the screen has no part in it",
            "a frame: CPU of the process, from the bytes of an eighth of a second's lines to the painted text of the"
            f" job's page at {SIZE[0]}x{SIZE[1]}, headless, {FRAMES} frames after the first {FRAMES // 8}; its p95"
            " decides",
        ],
    )  # fmt: skip


def rate(ranks: int, equal: bool) -> float:
    """Lines per second of CPU, from bytes of the wire to text."""
    store = Store()
    ordered = Job(
        node="n", job="j", command=("t.py",), launcher="env", nodes=("n",), procs_per_node=ranks, gpus_per_node=0,
        world_size=ranks, master_addr="", master_port=1, created=1,
    )  # fmt: skip
    store.apply([NodeState(node="n", state="ok"), ordered])
    view = job_status(store, "j")
    assert view is not None
    texts: list[str] = []
    output = FoldedOutput(view, LineFilter(), texts.append)
    batches = [
        [encode(Log(node="n", source="job", job="j", rank=rank, text="\n".join(
            f"step {step} loss 2.31 lr 0.0001" + ("" if equal else f" rank {rank}")
            for step in range(first, min(first + TOGETHER, LINES))))) for rank in range(ranks)]
        for first in range(0, LINES, TOGETHER)
    ]  # fmt: skip
    began = time.process_time()
    for batch in batches:
        records = [decode(line) for line in batch]
        store.apply(records)
        output.collect(records)
        output.write_due()
    output.write_due(everything=True)
    took_s = time.process_time() - began
    assert FOLD_S > 0 and sum(text.count("\n") + 1 for text in texts) == LINES * (1 if equal else ranks)
    return LINES * ranks / took_s


async def frames(ranks: int, equal: bool, count: int) -> list[float]:
    """CPU time of each frame in ms, from the bytes since the last one to its paint."""
    cluster = FakeCluster("node1")
    cluster.up()
    cluster.order_job("t", "node1", procs=ranks)
    cluster.job("t@10.1.0.1:29517", ranks, per_node=ranks, step=1)
    each = GOAL // RATE_HZ // ranks
    gc.freeze()  # as the console does at its start
    app = Console(cluster.store, cluster, cluster="bench", expected_nodes=cluster.names)  # type: ignore[arg-type]
    took = []
    async with app.run_test(size=SIZE) as pilot:
        await settle(pilot)
        await pilot.press("0", "g", "enter")
        await settle(pilot)
        assert isinstance(app.view, JobsView)
        assert app.view.watched_job == "t"
        for number in range(count + count // 8):
            lines = [
                encode(Log(node="node1", source="job", job="t", rank=rank, text="\n".join(
                    f"step {number * each + index} loss 2.31 lr 0.0001" + ("" if equal else f" rank {rank}")
                    for index in range(each)))) for rank in range(ranks)
            ]  # fmt: skip
            now_s = number / RATE_HZ
            app.view._page.clock = lambda now_s=now_s: now_s
            began = time.process_time()
            cluster.publish(*(decode(line) for line in lines))  # type: ignore[arg-type]
            app.frames.draw()
            with contextlib.suppress(RuntimeError):  # incomplete groups are held back: may be empty
                await frame(app)
            took.append(1000 * (time.process_time() - began))
    return took[count // 8 :]


def p95(values: list[float]) -> float:
    return sorted(values)[int(len(values) * 0.95)]
