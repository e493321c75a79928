"""CPU time and memory of folding one capture of 4,096 ranks with 40 frames each, in six groups, and of a verdict on
8,192 ranks, six samples each."""

from __future__ import annotations

import time

from gconsole.analysis.stacks.fold import fold, jobs_of
from gconsole.core.store import CaptureTable, Store
from gconsole.monitor.hang import evaluation
from gconsole.records import NodeState, Rank, RankStat, Stack, StackFrame
from tests.bench.process_usage import memory_bytes

from .process import in_new_process
from .result import Outcome, Row, middle

RANKS, DEPTH, PLACES, PER_NODE, RUNS = 4096, 40, 6, 8, 5
SECONDS_GOAL, RSS_GOAL_MB = 1.0, 200.0
JUDGED_RANKS, SAMPLES, LATE_RANK, VERDICT_GOAL_S, VERDICT_GOAL_MB = 8192, 6, 137, 5.0, 300.0
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
    judged_ranks = 512 if quick else JUDGED_RANKS
    verdicts = [in_new_process(judged, judged_ranks) for _ in range(runs)]
    verdict_s, verdict_mb = [verdict[0] for verdict in verdicts], [verdict[1] / 1e6 for verdict in verdicts]
    setup = f"{ranks} ranks × {DEPTH} calls × {PLACES} places"
    return Outcome(
        [
            Row(f"fold of {setup}", middle(seconds, "s"), "< 1 s", max(seconds) < SECONDS_GOAL),
            Row("peak RSS of the process", middle(highest, "MB RSS", 0), "< 200 MB", max(highest) < RSS_GOAL_MB),
            Row(
                f"verdict on {judged_ranks} ranks, {SAMPLES} samples, from their records",
                middle(verdict_s, "s of CPU"),
                "≤ 5 s",
                max(verdict_s) <= VERDICT_GOAL_S,
            ),
            Row(
                "the same process at its highest",
                middle(verdict_mb, "MB RSS", 0),
                "≤ 300 MB",
                max(verdict_mb) <= VERDICT_GOAL_MB,
            ),
        ],
        [
            f"synthetic `stack` records, {PER_NODE} ranks a node, frames travel once a node as the agent sends them;"
            " they pass the store's captures, and are folded by a new reader without cached frames",
            f"the verdict: rank {LATE_RANK} sleeps in a read and all others wait for it; records pass the store, then"
            " the job is judged; without the way over the wire, which hang_verdict measures",
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


def judged(ranks: int) -> tuple[float, int]:
    """(seconds of CPU from the records to the verdict, peak RSS), in a separate process."""
    store = Store()
    now = time.time_ns()
    for node in range(ranks // PER_NODE):
        own = range(node * PER_NODE, (node + 1) * PER_NODE)
        store.apply([NodeState(node=f"node{node:04}", state="ok", attempt=1), *(
            record for rank in own for record in (
                Rank(node=f"node{node:04}", agent="a", job="j", rank=rank, local_rank=rank % PER_NODE, world_size=ranks,
                     local_world_size=PER_NODE, pid=1000 + rank % PER_NODE, start_ticks=1, uid=1000,
                     launcher="torchrun", source="environ", rx=now, t=now, mono=now),
                RankStat(node=f"node{node:04}", agent="a", job="j", rank=rank, state="moving",
                         pid=1000 + rank % PER_NODE, start_ticks=1, proc_state="S", rx=now, t=now, mono=now),
            )
        )])  # fmt: skip
    began = time.process_time()
    for sample in range(SAMPLES):
        instant = now + sample * 1_000_000_000
        for node in range(ranks // PER_NODE):
            store.apply([_sampled(node, rank, sample, instant) for rank in range(PER_NODE)])
    [judgement] = evaluation(store).judgements()
    took_s = time.process_time() - began
    assert [culprit.rank for culprit in judgement.verdict.culprits] == [LATE_RANK]
    return took_s, memory_bytes()[1]


def _sampled(node: int, local: int, sample: int, instant: int) -> Stack:
    """One rank: the late one in a read, all others in an all-reduce; frames travel once a node."""
    rank = node * PER_NODE + local
    is_late = rank == LATE_RANK
    has_frames = is_late or local == (1 if node * PER_NODE == LATE_RANK else 0)
    place = 4 if is_late else 0
    return Stack(
        node=f"node{node:04}", agent="a", capture="c", sample=sample, job="j", rank=rank, pid=1000 + local,
        start_ticks=1, status="ok", thread_id=1, thread_name="MainThread", proc_state="D" if is_late else "S",
        syscall="read" if is_late else "futex", path=place, frames=frames(place) if has_frames else None,
        rx=instant, t=instant, mono=instant,
    )  # fmt: skip


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
