"""What it takes to fold the output of a job: records as they come over the wire, to lines as they are printed."""

from __future__ import annotations

import time

from gconsole.cli.runlogs import FOLD_S, Output, Wanted
from gconsole.jobs.state import job_view
from gconsole.records import Job, Log, NodeState, decode, encode
from gconsole.store import Store

from .result import Outcome, Row, middle

RANKS, LINES, RUNS, GOAL = 64, 2000, 5, 50_000
#: A rank's lines come in records of so many: what it writes in a fifth of a second at this rate.
TOGETHER = 150


def measure(quick: bool) -> Outcome:
    ranks, runs = (8, 2) if quick else (RANKS, RUNS)
    rates = {equal: [rate(ranks, equal) for _ in range(runs)] for equal in (True, False)}
    return Outcome(
        [
            Row(f"output of {ranks} ranks, {words}", middle(rates[equal], "lines/s", 0), "≥ 50,000 lines/s",
                min(rates[equal]) >= GOAL)
            for equal, words in ((True, "all ranks the same"), (False, "no two lines alike"))
        ],
        [
            f"{LINES} lines of each rank in records of {TOGETHER}: decoded, kept in the store, folded, made printable;"
            " without SSH, one core, the worst run decides; the screen has no part in it",
        ],
    )  # fmt: skip


def rate(ranks: int, equal: bool) -> float:
    """Lines a second, from bytes of the wire to text."""
    store = Store()
    ordered = Job(
        node="n", job="j", command=("t.py",), launcher="env", nodes=("n",), procs_per_node=ranks, gpus_per_node=0,
        world_size=ranks, master_addr="", master_port=1, created=1,
    )  # fmt: skip
    store.apply([NodeState(node="n", state="ok"), ordered])
    view = job_view(store, "j")
    assert view is not None
    told: list[str] = []
    output = Output(view, Wanted(), told.append)
    batches = [
        [encode(Log(node="n", source="job", job="j", rank=rank, text="\n".join(
            f"step {step} loss 2.31 lr 0.0001" + ("" if equal else f" rank {rank}")
            for step in range(first, min(first + TOGETHER, LINES))))) for rank in range(ranks)]
        for first in range(0, LINES, TOGETHER)
    ]  # fmt: skip
    began = time.perf_counter()
    for batch in batches:
        records = [decode(line) for line in batch]
        store.apply(records)
        output.take(records)
        output.tell()
    output.tell(everything=True)
    took_s = time.perf_counter() - began
    assert FOLD_S > 0 and sum(text.count("\n") + 1 for text in told) == LINES * (1 if equal else ranks)
    return LINES * ranks / took_s
