"""The evidence on jobs that died, from a store: ends of ranks, outputs, faults of kernels, lost nodes."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from ..analysis.clock.model import CommonClock
from ..analysis.crash.verdict import (
    CrashEvidence,
    LauncherEnd,
    LauncherOutput,
    NodeFault,
    NodeLoss,
    RankEnd,
    RankOutput,
)
from ..core.store import RankNow, Store
from ..core.store.endings import LostNode
from ..records import Log, Output, Process, Rank
from ..records.kinds import is_gone
from .past_jobs import past_ends, past_launchers, past_outputs
from .skew import clock_of

#: (job, attempt)
AttemptKey = tuple[str, int]
#: Without a clock model: ns by which the fastest record of a node may have been delayed on its way.
DELAY_NS: Final = 250_000_000
#: Faults this long before the first end of a rank, and after the last one, may have to do with it.
FAULTS_BEFORE_NS: Final = 600_000_000_000
FAULTS_AFTER_NS: Final = 30_000_000_000
#: Exit codes of a launcher that was killed: SIGKILL, SIGSEGV, SIGABRT, SIGBUS.
KILLED: Final = frozenset((-9, -11, -6, -7))
_TORCHRUN: Final = re.compile(r"(?:^|/)torchrun$|^torch\.distributed\.(?:run|launch)$|torch/distributed/run\.py$")
#: Processes below one rank.
MOST_CHILDREN: Final = 1_024


class JobClock:
    """Instants of several nodes on one clock: the cluster clock, or the console's with wider bounds."""

    def __init__(self, store: Store, nodes: Iterable[str]) -> None:
        nodes = set(nodes)
        self._common: CommonClock | None = None
        self._offsets: dict[str, tuple[int, int]] = {}
        if len(nodes) == 1:
            self._offsets = dict.fromkeys(nodes, (0, 0))
            return
        common = clock_of(store)
        if all(common.to_cluster(node, store.nodes[node].last_rx, "real") for node in nodes if node in store.nodes):
            self._common = common
            return
        delays: dict[str, int] = {}
        for record in _stamped(store):
            if record.node in nodes and record.rx and record.t:
                delay_ns = record.rx - record.t
                delays[record.node] = min(delay_ns, delays.get(record.node, delay_ns))
        self._offsets = {node: (delay_ns - DELAY_NS, delay_ns) for node, delay_ns in delays.items()}

    def interval(self, node: str, lo_ns: int | None, hi_ns: int | None) -> tuple[int | None, int | None]:
        """An interval of a node's CLOCK_REALTIME on the common clock, widened by the bounds; None where unknown."""
        return self._at(node, lo_ns, 0), self._at(node, hi_ns, 1)

    def _at(self, node: str, instant: int | None, side: int) -> int | None:
        if instant is None:
            return None
        if self._common is not None:
            common = self._common.to_cluster(node, instant, "real")
            return None if common is None else common.ns + (common.bound_ns if side else -common.bound_ns)
        offset = self._offsets.get(node)
        return None if offset is None else instant + offset[side]


def _stamped(store: Store) -> Iterable[Rank | Output | Process]:
    """Records with the times of their node and of their arrival."""
    for now in store.ranks.values():
        yield now.rank
        if now.stat is not None:
            yield now.stat  # type: ignore[misc]
    for node in store.nodes.values():
        if node.host is not None:
            yield node.host  # type: ignore[misc]


def attempts_that_ended(store: Store) -> dict[AttemptKey, list[RankNow]]:
    """The ranks of every attempt of a job in which at least one process has ended, or whose node was lost."""
    attempts: dict[AttemptKey, list[RankNow]] = defaultdict(list)
    for now in store.ranks.values():
        attempts[now.rank.job, now.rank.attempt].append(now)
    ended = {key for key, ranks in attempts.items() if any(is_gone(now.rank) for now in ranks)}
    ended |= {(output.job, output.attempt) for output in store.endings.outputs.values() if output.pid is not None}
    ended |= past_outputs(store).keys()
    ended |= _without_launcher(store, attempts)
    ended |= {(rank.job, rank.attempt) for loss in store.endings.losses for rank in loss.ranks}
    return {key: attempts.get(key, []) for key in sorted(ended)}


def _without_launcher(store: Store, attempts: Iterable[AttemptKey]) -> set[AttemptKey]:
    """The newest attempt of each job of which a launcher was killed: its ranks may run on."""
    killed = {
        process.job for process in store.endings.processes.values()
        if process.role == "launcher" and process.gone and process.exit_code in KILLED
    }  # fmt: skip
    newest: dict[str, int] = {}
    for job, attempt in attempts:
        newest[job] = max(attempt, newest.get(job, attempt))
    return {(job, attempt) for job, attempt in newest.items() if job in killed}


def crash_evidence(store: Store, keys: Iterable[AttemptKey] | None = None) -> list[CrashEvidence]:
    """The evidence on these attempts, by job and attempt; None: on all in which a process has ended.

    Copies, so that a thread may evaluate it while the store changes. Secrets in outputs are not redacted yet: that
    takes milliseconds for each, and only what a verdict quotes of them is shown.
    """
    attempts = attempts_that_ended(store)
    wanted = attempts.keys() if keys is None else attempts.keys() & set(keys)
    past = past_outputs(store)
    return [
        CrashEvidence(
            job=key[0], attempt=key[1], ranks=tuple(past_ends(past[key])), launchers=tuple(past_launchers(past[key]))
        ) if key in past else _evidence_of(store, key, attempts[key])
        for key in sorted(wanted)
    ]  # fmt: skip


def _evidence_of(store: Store, key: AttemptKey, ranks: Sequence[RankNow]) -> CrashEvidence:
    job, attempt = key
    since = _superseded(ranks)
    ranks = [now for now in ranks if now.rank.start_ticks > since.get(now.rank.node, -1)]
    outputs = [
        output for output in store.endings.outputs.values()
        if (output.job, output.attempt) == key and output.start_ticks is not None
        and output.start_ticks > since.get(output.node, -1)
    ]  # fmt: skip
    losses = [loss for loss in store.endings.losses if any((rank.job, rank.attempt) == key for rank in loss.ranks)]
    processes = [process for process in store.endings.processes.values() if process.job == job]
    nodes = {now.rank.node for now in ranks} | {output.node for output in outputs} | {loss.node for loss in losses}
    clock = JobClock(store, nodes)
    own, launchers = _split(outputs, ranks, _earlier_sizes(store, job, attempt))
    children: dict[tuple[str, int | None], list[int]] = defaultdict(list)
    for process in processes:
        if process.rank is not None:
            children[process.node, process.rank].append(process.pid)
    ends = [
        _rank_end(
            store, now, own.pop(_process_of(now.rank), ()), children.get((now.rank.node, now.rank.rank), ()), clock
        )
        for now in _unique(ranks)
    ]
    lost = {_process_of(rank) for loss in losses for rank in loss.ranks} - {_process_of(now.rank) for now in ranks}
    ends += [
        RankEnd(rank=rank.rank, node=rank.node, pid=rank.pid, state="unknown")
        for loss in losses for rank in loss.ranks if _process_of(rank) in lost and (rank.job, rank.attempt) == key
    ]  # fmt: skip
    ends += [RankEnd(rank=rank, node=node, outputs=tuple(texts)) for (node, rank), texts in _unseen(own).items()]
    sizes = [now.rank.world_size for now in ranks if now.rank.world_size]
    return CrashEvidence(
        job=job, attempt=attempt, world_size=max(sizes, default=None), ranks=tuple(ends),
        launchers=tuple(LauncherOutput(text, output.node) for output, text in launchers),
        launcher_ends=tuple(
            _launcher_end(process, clock) for process in processes
            if process.role == "launcher" and process.gone and process.start_ticks > since.get(process.node, -1)
        ),
        faults=tuple(_faults(store, nodes, ranks, clock)),
        losses=tuple(NodeLoss(loss.node, loss.reason, *_lost_between(loss, clock)) for loss in losses),
    )  # fmt: skip


def _process_of(record: Rank | Output) -> tuple[str, int, int]:
    assert record.pid is not None and record.start_ticks is not None, "outputs of past jobs are judged apart"
    return record.node, record.pid, record.start_ticks


def _superseded(ranks: Sequence[RankNow]) -> dict[str, int]:
    """By node, the newest start of a process whose rank has a newer process: of an earlier run with the same name."""
    newest = {(now.rank.rank, now.rank.pid) for now in _unique(ranks)}
    since: dict[str, int] = {}
    for now in ranks:
        rank = now.rank
        if rank.rank is not None and (rank.rank, rank.pid) not in newest and is_gone(rank):
            since[rank.node] = max(rank.start_ticks, since.get(rank.node, -1))
    return since


def _unique(ranks: Sequence[RankNow]) -> list[RankNow]:
    """The newest process of each rank; processes that only claim a rank that another one has are left out."""
    newest: dict[object, RankNow] = {}
    for now in sorted(ranks, key=lambda now: (now.rank.status not in ("stale", "withdrawn"), now.rank.t)):
        rank = now.rank
        newest[rank.rank if rank.rank is not None else _process_of(rank)] = now
    return sorted(newest.values(), key=lambda now: (now.rank.rank is None, now.rank.rank or 0, now.rank.pid))


def _rank_end(
    store: Store, now: RankNow, texts: Sequence[RankOutput], children: Sequence[int], clock: JobClock
) -> RankEnd:
    rank = now.rank
    lo_ns, hi_ns = clock.interval(rank.node, rank.alive_at, rank.ended_at)
    node = store.nodes.get(rank.node)
    is_reachable = node is not None and node.state is not None and node.state.state == "ok"
    return RankEnd(
        rank=rank.rank, node=rank.node, pid=rank.pid,
        state="ended" if is_gone(rank) else "running" if is_reachable else "unknown",
        exit_code=rank.exit_code, ended_lo_ns=lo_ns, ended_hi_ns=hi_ns, outputs=tuple(texts),
        children=tuple(children[:MOST_CHILDREN]),
    )  # fmt: skip


# -- outputs -----------------------------------------------------------------------------------------------------------


def _split(
    outputs: Sequence[Output], ranks: Sequence[RankNow], earlier: Mapping[tuple[object, ...], int]
) -> tuple[dict[tuple[str, int, int], list[RankOutput]], list[tuple[Output, RankOutput]]]:
    """Outputs of ranks by process, or by ("", node, rank) for ranks never seen; outputs of launchers, or shared."""
    processes = {_process_of(now.rank): now.rank for now in ranks}
    by_rank = {(now.rank.node, now.rank.rank): _process_of(now.rank) for now in ranks}
    own: dict[tuple[str, int, int], list[RankOutput]] = defaultdict(list)
    others = []
    for output in outputs:
        made = _output(output, earlier.get(_source_of(output), 0))
        place = _process_of(output)
        if output.rank is None and output.stream == "file":
            others.append((output, made))
        elif place in processes and processes[place].rank == output.rank:
            own[place].append(made)
        elif output.rank is not None and (output.node, output.rank) in by_rank:
            own[by_rank[output.node, output.rank]].append(made)
        else:
            own[output.node, -1, -1 if output.rank is None else output.rank].append(made)
    return own, others


def _unseen(
    own: Mapping[tuple[str, int, int], list[RankOutput]],
) -> dict[tuple[str, int | None], list[RankOutput]]:
    """Outputs of ranks that ended before they were seen, by node and rank."""
    return {(node, None if rank < 0 else rank): texts for (node, pid, rank), texts in own.items() if pid == -1}


def _source_of(output: Output) -> tuple[object, ...]:
    return output.node, output.pid, output.start_ticks, output.stream, output.path


def _earlier_sizes(store: Store, job: str, attempt: int) -> dict[tuple[object, ...], int]:
    """How long each output already was when earlier attempts ended."""
    sizes: dict[tuple[object, ...], int] = {}
    for output in store.endings.outputs.values():
        if output.job == job and output.attempt < attempt and output.size:
            key = _source_of(output)
            sizes[key] = max(sizes.get(key, 0), output.size)
    return sizes


def _output(output: Output, earlier_size: int) -> RankOutput:
    """An output without what earlier attempts wrote to the same file."""
    text = output.text
    if text is not None and earlier_size and output.size is not None:
        grown = max(0, output.size - earlier_size)
        text = text.encode()[-grown:].decode("utf-8", "replace") if grown else ""
    return RankOutput(
        stream=output.stream, text=text, path=output.path, status=output.status, reason=output.reason,
        written_at_ns=output.written_at,
    )  # fmt: skip


def _launcher_end(process: Process, clock: JobClock) -> LauncherEnd:
    ended_hi_ns = clock.interval(process.node, None, process.ended_at)[1]
    return LauncherEnd(process.node, process.pid, _program(process), process.exit_code, ended_hi_ns)


def _program(process: Process) -> str:
    """The name of a launcher by its command line: `torchrun` for all ways to start it."""
    words = (process.cmdline or process.comm).split()
    if any(_TORCHRUN.search(word) for word in words[:6]):
        return "torchrun"
    names = [word.rsplit("/", 1)[-1] for word in words]
    if names[0].startswith("python"):
        names = [name for name in names[1:] if not name.startswith("-")] or names
    return names[0]


# -- nodes -------------------------------------------------------------------------------------------------------------


def _faults(store: Store, nodes: set[str], ranks: Sequence[RankNow], clock: JobClock) -> list[NodeFault]:
    """Faults of the job's nodes around the ends of its ranks; by the clock of each node."""
    ends: dict[str, list[int]] = defaultdict(list)
    for now in ranks:
        if now.rank.ended_at is not None:
            ends[now.rank.node].append(now.rank.ended_at)
    every = [end for node_ends in ends.values() for end in node_ends]
    faults = []
    for log in store.endings.faults:
        near = ends.get(log.node) or every
        if log.node not in nodes or log.is_over or not near or log.fault is None:
            continue
        if log.at is None or min(near) - FAULTS_BEFORE_NS <= log.at <= max(near) + FAULTS_AFTER_NS:
            faults.append(_fault(log, log.fault, clock))
    return faults


def _fault(log: Log, fault: str, clock: JobClock) -> NodeFault:
    at_ns = clock.interval(log.node, log.at, None)[0]
    return NodeFault(log.node, fault, log.text, log.pid, log.subject, at_ns, log.severity)


def _lost_between(loss: LostNode, clock: JobClock) -> tuple[int | None, int | None]:
    """Between the last record of a node and its loss; both are times of the console, close to the cluster clock."""
    return loss.last_rx or None, loss.rx


class LauncherState(msgspec.Struct, frozen=True):
    """The launchers of a job that are known."""

    living: int
    failed: tuple[Process, ...]  # ended with another exit code than 0


def launchers_of(store: Store, job: str) -> LauncherState:
    """The launchers of a job."""
    launchers = [each for each in store.endings.processes.values() if each.job == job and each.role == "launcher"]
    return LauncherState(
        sum(not each.gone for each in launchers),
        tuple(each for each in launchers if each.gone and each.exit_code not in (0, None)),
    )
