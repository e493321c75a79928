"""The ranks of one job, classified: waiting, late, opaque, dead, unreadable, not found."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median_low
from typing import Final

import msgspec
from msgspec.structs import replace

from ...records import Place, Rank, Stack, StackFrame
from ..jobs import MissingRank
from ..stacks.frame_models import FrameClass
from ..stacks.frames import Reader, is_library, native_classes
from ..stacks.training_threads import training_role
from .await_chains import executor_thread, with_tasks
from .gpu_activity import GpuState, gpu_states
from .handlers import background_thread, handler_thread, waits_for_pool
from .polling import step_loops
from .rank_state import WAITING, RankState, rank_state_of
from .samples import StackSample, samples_by_process
from .verdict import Evidence, ProcessKey
from .wait_for import PeerWait, Processes, is_waiting_for_clients

#: Classes whose cause may be the rank itself or others: neither a culprit nor evidence.
OPAQUE: Final[frozenset[FrameClass]] = frozenset({"device_wait", "unknown"})
#: Status of ranks whose process is there.
_THERE: Final = ("present", "no_permission")
#: Classes of waits that may be for a child process.
_MAY_BE_FOR_A_CHILD: Final[frozenset[FrameClass]] = frozenset(
    {"python_lock", "network_io", "file_io", "sleep", "unknown"}
)
#: Classes of a process that the kernel does not run, whatever its stack shows.
HELD: Final[frozenset[FrameClass]] = frozenset({"stopped", "uninterruptible", "debugger"})
#: Role of a process outside of the job that ranks wait for.
PEER: Final = "peer"
#: A stall counts from this many times the longest pause from which the job has recovered.
PAUSES: Final = 1.5
#: Bytes (one page). A rank that writes this much while it is sampled makes progress; requests to a server do not count.
WRITES_BYTES: Final = 4096
#: Seconds between the newest light sample and a capture that may continue it; light samples come every 10 s.
LIGHT_GAP_S: Final = 15.0
#: Innermost calls by which a place in the job's own code is recognised: a light sample has only the inner frames.
MOST_OWN_CALLS: Final = 3
#: Arguments of torch's collective wrapper that contain a process group other than the default one.
_GROUP_GIVEN: Final = re.compile(r"'group': <")


@dataclass(frozen=True)
class JobView:
    """One job. Ranks without a number are in no group."""

    evidence: Evidence
    states: tuple[RankState, ...]  # of live ranks, by number
    workers: Mapping[int, tuple[RankState, ...]]  # processes below a rank
    peers: tuple[RankState, ...] = ()  # processes outside of the job that ranks wait for

    @cached_property
    def waiting(self) -> tuple[RankState, ...]:
        """Live ranks that wait for other ranks."""
        return tuple(state for state in self.states if self._waits(state))

    @cached_property
    def communicating(self) -> tuple[RankState, ...]:
        """Live ranks that wait in communication of the framework: a collective, a message, the store, a group."""
        return tuple(state for state in self.states if state.cls in WAITING)

    @cached_property
    def behind(self) -> tuple[RankState, ...]:
        """Live ranks that do not wait for others."""
        return tuple(
            state
            for state in self.states
            if state.cls != "dead" and not self._waits(state) and not self._is_opaque(state)
        )

    @cached_property
    def opaque(self) -> tuple[RankState, ...]:
        """Ranks whose stack does not show whether they wait for others."""
        return tuple(
            state
            for state in self.states
            if state.trace is not None and not self._waits(state) and self._is_opaque(state)
        )

    def peer_waits(self, state: RankState) -> tuple[PeerWait, ...]:
        """The ranks that can end a rank's wait outside of collectives and messages; empty if unknown."""
        if state.cls in WAITING or state.cls in HELD:
            return ()
        worker = self.blocking_worker(state)
        if worker is not None:
            return worker.peer_waits if worker.cls not in HELD else ()
        if not state.polls_memory:
            return state.peer_waits
        # ranks that all poll do not wait for each other: any of them may be between two steps
        return tuple(wait for wait in state.peer_waits if wait.rank not in self._polling)

    @cached_property
    def _polling(self) -> frozenset[int]:
        return frozenset(state.rank for state in self.states if state.rank is not None and state.polls_memory)

    @cached_property
    def pollers(self) -> tuple[RankState, ...]:
        """Ranks that poll, where no rank is known to wait for another: what they poll for is not visible."""
        polls = [state for state in self.states if state.poll is not None and state.cls not in HELD]
        pollers = [state for state in polls if (state.written_bytes or 0) < WRITES_BYTES]
        if any(state.cls in WAITING or (state not in pollers and self.peer_waits(state)) for state in self.states):
            return ()
        return tuple(pollers) if not any(map(self._polls_memory, pollers)) else ()

    def _polls_memory(self, state: RankState) -> bool:
        return state.polls_memory and bool(self.peer_waits(state))

    @cached_property
    def waited_for(self) -> Mapping[int, tuple[PeerWait, ...]]:
        """By rank, the ranks that it waits for outside of collectives and messages."""
        return {
            state.rank: peers
            for state in self.states
            if state.rank is not None
            and state.cls not in WAITING
            and state not in self.pollers
            and (peers := self.peer_waits(state))
        }

    @cached_property
    def shared_peer(self) -> RankState | None:
        """The process outside of the job that most ranks wait for, such as a controller; None if unknown or several."""
        counts = Counter(process for state in self.states for process in set(state.outside))
        most = [process for process, count in counts.items() if 2 * count > len(self.states)]
        peers = [peer for peer in self.peers if peer.key[:2] in most]
        return peers[0] if len(most) == 1 and peers else None

    def is_serving(self, state: RankState) -> bool:
        """Whether a rank waits for clients: its analysed thread, or another one while that waits in its own process."""
        worker = self.blocking_worker(state)
        if worker is not None and worker.cls in HELD:
            return False
        if is_waiting_for_clients(state.waits_for):
            return not state.peer_waits  # else ranks may be its clients, as where every rank has a server
        in_thread = state.cls in ("python_lock", "sleep", "network_io") and state.key in self._listening
        return in_thread and not self.waited_for  # else a rank that waits for it may wait for this thread

    def has_listener(self, state: RankState) -> bool:
        """Whether a thread of a rank waits for clients."""
        return state.key in self._listening

    @cached_property
    def _listening(self) -> frozenset[ProcessKey]:
        stacks = self.evidence.stacks
        return frozenset(
            (stack.node, stack.pid, stack.start_ticks)
            for stack in stacks
            if stack.waits_for is not None and is_waiting_for_clients(stack.waits_for)
        )

    def _waits(self, state: RankState) -> bool:
        return state.cls in WAITING or state in self.pollers or bool(self.peer_waits(state))

    @cached_property
    def device_waiting(self) -> tuple[RankState, ...]:
        """Opaque ranks that wait for their device: for its computation, or for a collective that runs on it."""
        return tuple(state for state in self.opaque if state.cls == "device_wait")

    @cached_property
    def gpu_states(self) -> Mapping[int, GpuState]:
        """What the GPU of each rank does, by rank."""
        return gpu_states(self.evidence.gpus)

    @cached_property
    def least_s(self) -> float:
        """Seconds without progress that a stall must last: longer than any pause from which the job recovered."""
        return max(self.evidence.min_frozen_s, PAUSES * self.evidence.longest_pause_s)

    @cached_property
    def unread(self) -> tuple[RankState, ...]:
        """Live ranks without any data."""
        apart = HELD | {"dead"}
        return tuple(
            state
            for state in self.states
            if state.trace is None and state.cls not in apart and not state.is_other_program
        )

    @cached_property
    def dead(self) -> tuple[int, ...]:
        """Ranks that have exited, by number."""
        exited = {missing.rank for missing in self.evidence.job.ranks_missing if missing.why == "exited"}
        ended = {state.rank for state in self.states if state.cls == "dead"}
        return tuple(sorted(rank for rank in exited | ended if rank is not None))

    @cached_property
    def not_found(self) -> tuple[MissingRank, ...]:
        """Ranks that were never found."""
        return tuple(missing for missing in self.evidence.job.ranks_missing if missing.why == "not_found")

    @cached_property
    def out_of_sight(self) -> tuple[MissingRank, ...]:
        """Ranks that may be alive: on a lost or unreachable node, or not readable."""
        apart = ("exited", "not_found")
        return tuple(missing for missing in self.evidence.job.ranks_missing if missing.why not in apart)

    @cached_property
    def uncaptured(self) -> tuple[int, ...]:
        """Ranks that are there and of which no capture has anything: they were found after it began."""
        job, seen = self.evidence.job, {state.rank for state in self.states}
        there = {row.rank for row in job.rows if row.attempt == job.attempt and row.status in _THERE}
        return tuple(sorted(rank for rank in there - seen if rank is not None))

    @property
    def captured(self) -> tuple[RankState, ...]:
        """Ranks with a readable stack."""
        return tuple(state for state in self.states if state.samples)

    @property
    def samples(self) -> int:
        """Samples of the rank that has the fewest."""
        return min((state.samples for state in self.captured), default=0)

    @property
    def watched_s(self) -> float:
        """Seconds of sampling: the low median over ranks, so that one poorly readable rank does not decide."""
        return median_low([state.watched_s for state in self.captured]) if self.captured else 0.0

    def state_of(self, rank: int) -> RankState | None:
        """The state of a rank by its number."""
        return self._by_rank.get(rank)

    @cached_property
    def _by_rank(self) -> dict[int, RankState]:
        return {state.rank: state for state in reversed(self.states) if state.rank is not None}

    def home_node(self, rank: int) -> str | None:
        """The node of the neighbouring ranks: launchers give each node a block of rank numbers."""
        sizes = {
            record.local_world_size for record in self.evidence.ranks if record.attempt == self.evidence.job.attempt
        }
        size = sizes.pop() if len(sizes) == 1 else None
        if not size:
            return None
        nodes = {state.node for state in self.states if state.rank is not None and state.rank // size == rank // size}
        return nodes.pop() if len(nodes) == 1 else None

    def blocking_worker(self, state: RankState) -> RankState | None:
        """The worker process that blocks a rank in its data loader or in a child process; None if none stands out.

        Idle workers wait for their next task; one that is stopped, or in the job's own code, does not.
        """
        if state.cls not in ("dataloader", "subprocess", "compile") or state.rank is None:
            return None
        busy = [
            worker
            for worker in self.workers.get(state.rank, ())
            if worker.cls in HELD or (worker.trace is not None and worker.cls not in ("dataloader", "python_lock"))
        ]
        return min(busy, key=lambda worker: (worker.cls not in HELD, -worker.place_s, worker.key), default=None)

    def last_record(self, rank: int | None) -> Rank | None:
        """The newest record of a rank that has exited."""
        attempt = self.evidence.job.attempt
        records = [record for record in self.evidence.ranks if record.rank == rank and record.attempt == attempt]
        return max(records, key=lambda record: (record.rx, record.seq), default=None)

    def _is_opaque(self, state: RankState) -> bool:
        if state.trace is None:
            return state.cls == "unknown" and not state.is_other_program
        if state.samples > 2 and state.place_s < state.watched_s / 2:
            return False  # it makes progress
        if state.cls == "compute" and state.trace.in_user and not state.native and state.key in self._on_gpus:
            return True  # may spin on its GPU: only native frames distinguish that from computing
        return state.cls in OPAQUE

    @property
    def was_restarted(self) -> bool:
        """Whether its ranks were monitored in an earlier attempt, and none of the newest one was captured."""
        attempt = self.evidence.job.attempt
        return not self.states and any(rank.attempt < attempt for rank in self.evidence.ranks)

    @property
    def uses_gpus(self) -> bool:
        """Whether any rank uses a GPU."""
        return bool(self._on_gpus)

    @cached_property
    def _on_gpus(self) -> frozenset[ProcessKey]:
        ranks = self.evidence.ranks
        return frozenset((rank.node, rank.pid, rank.start_ticks) for rank in ranks if rank.gpu is not None)


def job_view_of(evidence: Evidence) -> JobView:
    """The view of a job's newest attempt, from its stacks."""
    job = evidence.job
    reader = Reader(evidence.models)
    stacks = [stack for stack in evidence.stacks if (stack.job, stack.attempt) == (job.job, job.attempt)]
    natives, steps = native_classes(stacks, reader), step_loops(stacks, reader)
    live = {
        (row.node, row.pid, row.start_ticks) for row in job.rows if row.attempt == job.attempt and row.status in _THERE
    }
    states: list[RankState] = []
    workers: dict[int, list[RankState]] = {}
    by_process = samples_by_process(stacks)
    peers = [
        with_tasks(rank_state_of(key, samples, reader, natives, None), samples, reader, None)
        for key, samples in by_process.items()
        if samples[-1].main.role == PEER
    ]
    processes = Processes(stacks, evidence.connections, {peer.key[:2]: peer.waits_for for peer in peers})
    role = training_role(
        (
            [sample.threads for sample in samples if sample.is_read]
            for samples in by_process.values()
            if samples[-1].main.role == "rank" and any(sample.is_read for sample in samples)
        ),
        reader,
    )

    def state_of(key: ProcessKey, thread: Stack | None = None) -> RankState:
        samples = by_process[key]
        state = rank_state_of(key, samples, reader, natives, evidence.still.get(key), processes, role, thread, steps)
        state = _with_place(state, samples, evidence.places.get(key))
        if thread is not None:
            return state
        state = with_tasks(state, samples, reader, processes)
        worker = executor_thread(state, samples, reader)
        return state if worker is None else replace(state_of(key, worker), tasks=state.tasks)

    of_process = {key: state_of(key) for key, samples in by_process.items() if samples[-1].main.role != PEER}
    least_s = evidence.min_frozen_s
    for key, state in of_process.items():
        background = background_thread(state, by_process[key], processes, least_s, reader)
        if background is not None:
            of_process[key] = state_of(key, background)
    for key in _awaited(of_process.values()):
        handler = handler_thread(of_process[key], by_process[key], least_s, reader)
        if handler is not None:
            of_process[key] = state_of(key, handler)
    for key, state in of_process.items():
        if state.role == "rank" and key in live and state.rank is not None:
            states.append(state)
        elif state.role != "rank" and state.rank is not None:
            workers.setdefault(state.rank, []).append(state)
    for index, state in enumerate(states):
        below = workers.get(state.rank, ()) if state.rank is not None else ()
        if waits_for_pool(state, below):
            states[index] = replace(state, cls="subprocess")
        elif _waits_for_held_child(state, below):
            states[index] = replace(state, cls="subprocess", poll=None)
    states.sort(key=lambda state: (state.rank or 0, state.key))
    of_ranks = {rank: tuple(members) for rank, members in sorted(workers.items())}
    return JobView(evidence, tuple(states), of_ranks, tuple(peers))


def _waits_for_held_child(state: RankState, children: Iterable[RankState]) -> bool:
    """Whether a process below a rank is stopped or blocked while the rank waits, in whatever way, for no other rank.

    An inference engine, a simulator or a pool is waited for in an event loop, a lock, a pipe, or a sleep between two
    looks, which alone shows nothing.
    """
    if state.runs or state.cls not in _MAY_BE_FOR_A_CHILD:
        return False
    return any(_is_held_throughout(child) for child in children)


def _is_held_throughout(state: RankState) -> bool:
    """Whether a process is stopped or traced, or was in uninterruptible sleep without waking up in any sample."""
    is_asleep = state.samples > 1 and state.frozen_s >= state.watched_s
    return state.cls in HELD and (state.cls != "uninterruptible" or is_asleep)


def _with_place(state: RankState, samples: Sequence[StackSample], place: Place | None) -> RankState:
    """The state of a process that wakes up again and again, in one place since the light samples first saw it there.

    That is one that runs, that sleeps for a limited time, or that asks again and again whether its workers live.
    """
    wakes_up = state.runs or state.wakes_in_s is not None or state.cls == "dataloader"
    if place is None or not wakes_up or state.trace is None or state.thread is not None:
        return state
    is_recent = samples[0].at_s - LIGHT_GAP_S <= place.sampled / 1e9 <= samples[-1].at_s + LIGHT_GAP_S
    own = _own_calls(samples[-1].main.frames or ())
    was_there = bool(own) and place.samples > 1 and _own_calls(place.frames) == own
    if not (is_recent and was_there) or state.place_s < state.watched_s:
        return state
    return replace(state, place_s=max(state.place_s, samples[-1].at_s - place.path_since / 1e9))


def _own_calls(frames: Sequence[StackFrame]) -> list[tuple[str, str]]:
    """The innermost calls in the job's own code: function and file."""
    own = [(frame.function, frame.file) for frame in frames if not frame.native and not is_library(frame.file)]
    return own[-MOST_OWN_CALLS:]


def _awaited(states: Iterable[RankState]) -> list[ProcessKey]:
    """The processes that others wait for outside of collectives."""
    states = list(states)
    ends = {(wait.node, wait.pid) for state in states if not state.is_communicating for wait in state.peer_waits}
    return [state.key for state in states if state.key[:2] in ends]


class WaitGroup(msgspec.Struct, frozen=True):
    """Ranks that wait in one operation at one place in the job's code."""

    cls: FrameClass
    operation: str
    where: str  # `train.py:30`
    ranks: tuple[int, ...]


def wait_groups(waiting: Sequence[RankState]) -> tuple[WaitGroup, ...]:
    """The groups, largest first."""
    ranks_at: dict[tuple[FrameClass, str, str], set[int]] = defaultdict(set)
    for state in waiting:
        site = state.caller
        where = f"{site.file.rsplit('/', 1)[-1]}:{site.line}" if site else ""
        if state.rank is not None:
            ranks_at[state.cls, state.call, where].add(state.rank)
    groups = (WaitGroup(cls, call, where, tuple(sorted(ranks))) for (cls, call, where), ranks in ranks_at.items())
    return tuple(sorted(groups, key=lambda group: (-len(group.ranks), group.ranks)))


def is_in_subgroup(state: RankState) -> bool:
    """Whether the collective is known to run in a process group other than the default one."""
    return any(local.name == "kwargs" and _GROUP_GIVEN.search(local.value) for local in state.locals or ())


def cycles(waiting: Sequence[RankState]) -> tuple[tuple[int, ...], ...]:
    """Cycles of ranks in which each waits for a message of, or to, the next; each starts with its smallest rank.

    A receive that is matched by a send is not a cycle: that message is in flight.
    """
    edges = {state.rank: state.peers[0] for state in waiting if state.rank is not None and len(state.peers) == 1}
    closed: list[tuple[int, ...]] = []
    visited: set[int] = set()
    for start in sorted(edges):
        path: list[int] = []
        rank = start
        while rank in edges and rank not in visited and rank not in path:
            path.append(rank)
            rank = edges[rank].rank
        if rank in path:
            cycle = path[path.index(rank) :]
            if len(cycle) > 2 or (len(cycle) == 2 and edges[cycle[0]].direction == edges[cycle[1]].direction):
                first = cycle.index(min(cycle))
                closed.append(tuple(cycle[first:] + cycle[:first]))
        visited.update(path)
    return tuple(sorted(closed))
