"""Alignment of collectives: process groups of one job in one capture, and the progress of each rank in them.

Groups are matched by name, ranks by number; `pg_id` is local to a process. Entries leave the ring buffer, so absence
from it proves nothing: the progress of a rank is the newest sequence number that it has entered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Final, Literal

import msgspec

from ...records import Collective, CollectiveSource, PgStatus, Rank
from .operations import CollectiveOp, operation

Witness = Literal["flight recorder", "NCCL RAS", "NCCL log", "NCCL Inspector"]
WITNESSES: Final[dict[CollectiveSource, Witness]] = {
    "worker_server": "flight recorder", "fr_dump": "flight recorder", "ras": "NCCL RAS", "nccl_log": "NCCL log",
    "inspector": "NCCL Inspector",
}  # fmt: skip
#: A group as one kind of source names it.
GroupKey = tuple[Witness, str]
#: (job, attempt)
JobKey = tuple[str, int]
#: The group of all ranks, as PyTorch describes it.
DEFAULT: Final = "default_pg"
#: A sequence number before the first: PyTorch counts from 1, NCCL's log from 0.
NONE: Final = -1


def group_key(record: Collective | PgStatus) -> GroupKey | None:
    """The group of a record; None without one."""
    return (WITNESSES[record.source], record.process_group[0]) if record.process_group else None


class Member(msgspec.Struct, frozen=True):
    """One rank in one group."""

    rank: int
    last: int  # newest sequence number that it has entered; `NONE`: none yet
    entered: Mapping[int, tuple[Collective, ...]]  # by sequence number; several where they were coalesced
    completed: int  # newest completed sequence number in the buffer, or `NONE`
    read_at: int | None  # when its source was read, CLOCK_REALTIME of its node
    path: str  # where the records came from: `worker_server rank 3`
    node: str = ""
    took_ns: int = 0  # the read ended this long after `read_at`; 0 where the source is a file, written at `read_at`
    is_live: bool = False  # read from the process, so that its state is not older than `read_at`

    def waits_in(self) -> list[int]:
        """Sequence numbers that it has entered and not completed, lowest first."""
        return sorted(seq for seq, entries in self.entered.items() if any(entry.retired is False for entry in entries))


class ProcessGroup(msgspec.Struct, frozen=True):
    """One process group, as one kind of source reports it."""

    witness: Witness
    name: str
    desc: str
    ranks: tuple[int, ...]  # known members
    is_whole: bool  # whether those are all
    members: Mapping[int, Member]  # members that a source covers

    @property
    def unseen(self) -> tuple[int, ...]:
        """Members that no source covers."""
        return tuple(rank for rank in self.ranks if rank not in self.members)

    def ends(self, op: CollectiveOp) -> tuple[int, int] | None:
        """Ranks of the job that send and receive; None for other operations, or where the members are not known."""
        if op.source is None or op.destination is None or not self.is_whole:
            return None
        is_valid = max(op.source, op.destination) < len(self.ranks)
        return (self.ranks[op.source], self.ranks[op.destination]) if is_valid else None

    @property
    def title(self) -> str:
        """`pairs (1)`: its description and its name."""
        return f"{self.desc} ({self.name})" if self.desc and self.desc != "undefined" else self.name


def groups_of(
    collectives: Iterable[Collective], statuses: Iterable[PgStatus], world_size: int | None
) -> list[ProcessGroup]:
    """The groups of one job, from the sources with sequence numbers, by source and name.

    RAS only counts (`ras.count_faults`), and Inspector numbers each kind of operation separately. A rank whose newest
    operations have not arrived yet is one that no source covers.
    """
    entries: dict[GroupKey, dict[int, list[Collective]]] = defaultdict(lambda: defaultdict(list))
    lines: dict[GroupKey, dict[int, PgStatus]] = defaultdict(dict)
    descs: dict[GroupKey, str] = {}
    covered: dict[Witness, dict[int, PgStatus]] = defaultdict(dict)
    collectives, statuses = list(collectives), list(statuses)
    incomplete = _incomplete(collectives, statuses)
    for status in statuses:
        if status.source in ("ras", "inspector") or status.status != "ok" or status.rank is None:
            continue
        if (status.source, status.rank) in incomplete:
            continue
        witness = WITNESSES[status.source]
        covered[witness].setdefault(status.rank, status)
        if status.process_group:
            key = (witness, status.process_group[0])
            lines[key][status.rank] = status
            descs[key] = descs.get(key) or status.process_group[1]
    for entry in collectives:
        if entry.process_group and entry.rank is not None and entry.source not in ("ras", "inspector"):
            if (entry.source, entry.rank) in incomplete:
                continue
            key = (WITNESSES[entry.source], entry.process_group[0])
            entries[key][entry.rank].append(entry)
            descs[key] = descs.get(key) or entry.process_group[1]
    return [_group(key, descs[key], entries[key], lines[key], covered[key[0]], world_size) for key in sorted(descs)]


def _incomplete(collectives: Sequence[Collective], statuses: Sequence[PgStatus]) -> set[tuple[str, int]]:
    """(source, rank) of the dumps whose newest operation is not among these: their records arrive in parts."""
    newest: dict[tuple[str, int], int] = {}
    for entry in collectives:
        if entry.rank is not None and entry.record_id is not None:
            key = (entry.source, entry.rank)
            newest[key] = max(newest.get(key, NONE), entry.record_id)
    return {
        (status.source, status.rank)
        for status in statuses
        if status.rank is not None and status.oldest_record_id is not None and status.entries and status.entries_sent
        and newest.get((status.source, status.rank), NONE) < status.oldest_record_id + status.entries - 1
    }  # fmt: skip


def _group(
    key: GroupKey, desc: str, entries: Mapping[int, Sequence[Collective]],
    lines: Mapping[int, PgStatus], covered: Mapping[int, PgStatus], world_size: int | None,
) -> ProcessGroup:  # fmt: skip
    listed = {rank for line in lines.values() for rank in line.ranks or ()}
    sizes = {entry.group_size for rank in entries for entry in entries[rank] if entry.group_size}
    seen = {*entries, *lines}
    ranks, is_whole = members_of(listed, seen, sizes, desc, world_size)
    counts_p2p = any(_counts_p2p(entries.get(rank, ()), lines.get(rank)) for rank in seen)
    folded = [_member(rank, entries.get(rank, ()), lines.get(rank), counts_p2p) for rank in sorted(seen)]
    members = {member.rank: member for member in folded if member is not None}
    for rank in ranks:
        if rank in seen:
            continue
        line = covered.get(rank)
        if line is not None and (line.oldest_record_id == 0 or line.entries == 0):
            # its buffer is complete and does not contain this group
            members[rank] = Member(rank, NONE, {}, NONE, line.read_at, _path(line), *_reading(line, line))
    return ProcessGroup(key[0], key[1], desc, ranks, is_whole, members)


def members_of(
    listed: Set[int], seen: Set[int], sizes: Set[int], desc: str, world_size: int | None
) -> tuple[tuple[int, ...], bool]:
    """The members of a group (`listed` by a source or `seen` in it), and whether those are all.

    Without a list they are all if it is the default group, or if as many were seen as `sizes` states.
    """
    is_whole = bool(listed)
    if not listed and desc == DEFAULT and world_size:
        listed, is_whole = set(range(world_size)), True
    if not is_whole and len(sizes) == 1 and len(seen) == next(iter(sizes)):
        is_whole = True
    return tuple(sorted(listed | seen)), is_whole


def _member(rank: int, entries: Sequence[Collective], line: PgStatus | None, counts_p2p: bool) -> Member | None:
    """The progress of one rank; None where it is unknown.

    The counter of `line` is used only for a rank without entries, and not where it counts sends and receives too.
    """
    by_seq = _collectives_of(entries)
    last = max(by_seq, default=NONE)
    if not by_seq and line is not None and line.last_enqueued_collective is not None:
        is_complete = line.oldest_record_id == 0 and line.entries == line.entries_sent
        if counts_p2p and not is_complete:
            return None
        last = NONE if counts_p2p else line.last_enqueued_collective
    over = [seq for seq, same_seq in by_seq.items() if all(entry.retired for entry in same_seq)]
    source = entries[0] if entries else line
    assert source is not None
    return Member(
        rank, last, {seq: tuple(same_seq) for seq, same_seq in sorted(by_seq.items())}, max(over, default=NONE),
        source.read_at, _path(source), *_reading(source, line),
    )  # fmt: skip


def _collectives_of(entries: Sequence[Collective]) -> dict[int, list[Collective]]:
    """The collectives of one rank in one group by sequence number, without sends and receives."""
    by_seq: dict[int, list[Collective]] = defaultdict(list)
    for entry in sorted(entries, key=lambda entry: entry.record_id or 0):
        if not entry.is_p2p and entry.collective_seq_id is not None:
            by_seq[entry.collective_seq_id].append(entry)
    return by_seq


def _counts_p2p(entries: Sequence[Collective], line: PgStatus | None) -> bool:
    """Whether the counters of a group count sends and receives, too: gloo's do, and NCCL's.

    gloo has no entry for a send, but `op_id` counts it.
    """
    numbers = [entry.collective_seq_id for entry in entries if not entry.is_p2p and entry.collective_seq_id is not None]
    enqueued = line.last_enqueued_collective if line is not None else None
    return (
        any(entry.is_p2p for entry in entries)
        or any((entry.op_id or 0) > entry.collective_seq_id for entry in entries if entry.collective_seq_id is not None)
        or (bool(numbers) and enqueued is not None and enqueued > max(numbers))
    )


def _reading(source: Collective | PgStatus, line: PgStatus | None) -> tuple[str, int, bool]:
    """`node`, `took_ns` and `is_live` of a member."""
    is_live = source.source == "worker_server"
    return source.node, (line.took_ns or 0) if is_live and line is not None else 0, is_live


def _path(source: Collective | PgStatus) -> str:
    return f"{source.source} rank {source.rank}"


class Membership(msgspec.Struct, frozen=True):
    """One process group of a job: `ranks` are its known members, `is_whole` whether those are all."""

    name: str
    desc: str
    ranks: tuple[int, ...]
    is_whole: bool


def memberships(
    collectives: Iterable[Collective], statuses: Iterable[PgStatus], job: JobKey, ranks: Sequence[Rank] = ()
) -> tuple[Membership, ...]:
    """The groups of a job in one capture, by name, from one source: each source has names of its own.

    Flight Recorder precedes NCCL's log: it has PyTorch's names. `ranks` are the current records of processes.
    """
    own = [rank for rank in ranks if (rank.job, rank.attempt) == job]
    world_size = max((rank.world_size for rank in own if rank.world_size), default=None)
    listed: dict[GroupKey, set[int]] = defaultdict(set)
    seen: dict[GroupKey, set[int]] = defaultdict(set)
    sizes: dict[GroupKey, set[int]] = defaultdict(set)
    descs: dict[GroupKey, str] = {}
    lines = with_ranks([status for status in statuses if (status.job, status.attempt) == job], own)
    entries = [collective for collective in collectives if (collective.job, collective.attempt) == job]
    records: list[Collective | PgStatus] = [*lines, *entries]
    for record in records:
        if record.process_group is None or record.rank is None or record.source in ("ras", "inspector"):
            continue
        key = (WITNESSES[record.source], record.process_group[0])
        descs[key] = descs.get(key) or record.process_group[1]
        seen[key].add(record.rank)
        listed[key].update((record.ranks or ()) if isinstance(record, PgStatus) else ())
        if record.group_size:
            sizes[key].add(record.group_size)
    first = min((witness for witness, _ in descs), key=list(WITNESSES.values()).index, default=None)
    return tuple(
        Membership(key[1], descs[key], *members_of(listed[key], seen[key], sizes[key], descs[key], world_size))
        for key in sorted(descs)
        if key[0] == first
    )


# -- ranks of RAS records ----------------------------------------------------------------------------------------------


def with_ranks(statuses: Iterable[PgStatus], ranks: Sequence[Rank]) -> list[PgStatus]:
    """RAS records with global ranks, as far as they are certain.

    RAS has ranks of a communicator and pids of a PID namespace: a pid that only one rank of the job has is that rank;
    in the communicator of all ranks both numbers are equal.
    """
    by_pid: dict[tuple[str, int], set[int]] = defaultdict(set)
    sizes: dict[str, int] = {}
    for rank in ranks:
        if rank.rank is not None and rank.status in ("present", "no_permission"):
            by_pid[rank.job, rank.ns_pid or rank.pid].add(rank.rank)
        if rank.world_size:
            sizes[rank.job] = max(sizes.get(rank.job, 0), rank.world_size)
    named = []
    for status in statuses:
        if status.source == "ras" and status.rank is None:
            number = _number(status, by_pid, sizes.get(status.job))
            if number is not None:
                status = msgspec.structs.replace(status, rank=number)
        named.append(status)
    return named


def _number(status: PgStatus, by_pid: Mapping[tuple[str, int], set[int]], world_size: int | None) -> int | None:
    if status.group_size is not None and status.group_size == world_size:
        return status.group_rank
    candidates = by_pid.get((status.job, status.pid or 0), set())
    return next(iter(candidates)) if len(candidates) == 1 else None


def kind_at(member: Member, seq: int) -> tuple[str, ...]:
    """The kinds of operation of a rank at a sequence number; empty where unknown."""
    return tuple(operation(entry.profiling_name).kind for entry in member.entered.get(seq, ()))
