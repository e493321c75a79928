"""(h) CPU time and memory of folding one capture of 4,096 ranks with 40 frames each, in six groups."""

from __future__ import annotations

import time

from gconsole.analysis.stacks.fold import fold, jobs_of
from gconsole.core.store import CaptureTable
from gconsole.records import Stack, StackFrame
from tests.bench.process_usage import memory_bytes

from .process import in_new_process
from .result import Outcome, Row, middle

RANKS, DEPTH, PLACES, PER_NODE, RUNS = 4096, 40, 6, 8, 5
SECONDS_GOAL, RSS_GOAL_MB = 1.0, 200.0
_TORCH = "/opt/venv/lib/python3.11/site-packages/torch"
#: Innermost frame of each group: the collective, and what blocks the other groups.
_LEAVES = (
    ("all_reduce", f"{_TORCH}/distributed/distributed_c10d.py"), ("recv", f"{_TORCH}/distributed/distributed_c10d.py"),
    ("_try_get_data", f"{_TORCH}/utils/data/dataloader.py"), ("save", f"{_TORCH}/serialization.py"),
    ("load_batch", "/home/user/train/data.py"), ("evaluate", "/home/user/train/evaluate.py"),
)  # fmt: skip


def measure(quick: bool) -> Outcome:
    ranks, runs = (256, 2) if quick else (RANKS, RUNS)
    timings = [in_new_process(folded, ranks) for _ in range(runs)]
    seconds, highest = [timing[0] for timing in timings], [timing[1] / 1e6 for timing in timings]
    groups = {timing[2] for timing in timings}
    setup = f"{ranks} ranks × {DEPTH} calls × {PLACES} places"
    return Outcome(
        [
            Row(f"fold of {setup}", middle(seconds, "s"), "< 1 s", max(seconds) < SECONDS_GOAL),
            Row("peak RSS of the process", middle(highest, "MB RSS", 0), "< 200 MB", max(highest) < RSS_GOAL_MB),
        ],
        [
            f"synthetic `stack` records, {PER_NODE} ranks a node, frames travel once a node as the agent sends them;"
            " they pass the store's captures, and are folded by a new reader without cached frames",
            f"{sorted(groups)} groups were found; RSS is of a whole process of its own with the records, their frames"
            " and the result, the worst run decides; 1 MB = 1,000,000 bytes",
        ],
    )


def folded(ranks: int) -> tuple[float, int, int]:
    """(seconds of the fold, peak RSS, groups), in a separate process."""
    captures = CaptureTable()
    for record in records(ranks):
        captures.add(record, 1)
    [capture] = captures.values()
    began = time.perf_counter()
    [folded_capture] = [fold(capture.stacks, job) for job in jobs_of(capture.stacks)]
    took_s = time.perf_counter() - began
    assert folded_capture.ranks == tuple(range(ranks))
    return took_s, memory_bytes()[1], len(folded_capture.groups)


def records(ranks: int) -> list[Stack]:
    """One sample of all ranks; on each node the first rank of a group has the frames."""
    made = []
    for rank in range(ranks):
        node, place = rank // PER_NODE, _place(rank, ranks)
        first = all(_place(other_rank, ranks) != place for other_rank in range(node * PER_NODE, rank))
        made.append(
            Stack(
                node=f"node{node:04}", agent=f"agent{node}", capture="c", sample=0, job="j", rank=rank,
                pid=1000 + rank % PER_NODE, start_ticks=1, status="ok", thread_id=1, thread_name="MainThread",
                proc_state="S", syscall="futex", path=place, frames=frames(place) if first else None,
            )
        )  # fmt: skip
    return made


def _place(rank: int, ranks: int) -> int:
    """Nine of ten ranks are in the first group; the others are spread over all groups."""
    return (rank // 10) % PLACES if rank % 10 == 0 else 0


def frames(place: int) -> tuple[StackFrame, ...]:
    """A stack of 40 frames, outermost first; those of two groups diverge half way."""
    shared = [
        StackFrame(f"layer_{depth}", f"/home/user/train/model_{depth % 5}.py", 10 + depth)
        for depth in range(DEPTH // 2)
    ]
    own = [
        StackFrame(f"Block{place}.call_{depth}", f"/home/user/train/block_{place}.py", 100 + depth)
        for depth in range(DEPTH // 2, DEPTH - 1)
    ]
    return (*shared, *own, StackFrame(*_LEAVES[place], 3000 + place))
