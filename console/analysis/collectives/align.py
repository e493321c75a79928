"""Process groups of one job in one capture: who is in them, how far each rank is, and what each did at which number.

Groups are matched by name, ranks by number; `pg_id` is only a process's own. What is not in a buffer may have left it,
so absence from it proves nothing: how far a rank is, is the newest number that it has entered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from ...records import Collective, CollectiveSource, PgStatus, Rank
from .operations import operation

Witness = Literal["flight recorder", "NCCL RAS", "NCCL log", "NCCL Inspector"]
WITNESSES: Final[dict[CollectiveSource, Witness]] = {
    "worker_server": "flight recorder", "fr_dump": "flight recorder", "ras": "NCCL RAS", "nccl_log": "NCCL log",
    "inspector": "NCCL Inspector",
}  # fmt: skip
#: A group as one kind of witness names it.
GroupKey = tuple[Witness, str]
#: The group of all ranks, as PyTorch describes it.
DEFAULT: Final = "default_pg"
#: A sequence number before the first: PyTorch counts from 1, NCCL's log from 0.
NONE: Final = -1


@dataclass(frozen=True, slots=True)
class Member:
    """One rank in one group."""

    rank: int
    last: int  # newest sequence number that it has entered; `NONE`: none yet
    entered: Mapping[int, tuple[Collective, ...]]  # by sequence number; several where they were coalesced
    completed: int  # newest sequence number that is over, of those in the buffer, or `NONE`
    read_at: int | None  # when its source was read, CLOCK_REALTIME of its node
    path: str  # where the records came from: `worker_server rank 3`

    def waits_in(self) -> list[int]:
        """Sequence numbers that it has entered and that are not over, lowest first."""
        return sorted(seq for seq, entries in self.entered.items() if any(entry.retired is False for entry in entries))


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """One process group, as one kind of witness knows it."""

    witness: Witness
    name: str
    desc: str
    ranks: tuple[int, ...]  # members, as far as anybody says
    is_whole: bool  # whether those are all
    members: Mapping[int, Member]  # those that a source has spoken for

    @property
    def unseen(self) -> tuple[int, ...]:
        """Members that no source has spoken for: nothing is known of them."""
        return tuple(rank for rank in self.ranks if rank not in self.members)

    @property
    def title(self) -> str:
        """`pairs (1)`: what it is for, and its name."""
        return f"{self.desc} ({self.name})" if self.desc and self.desc != "undefined" else self.name


def groups_of(
    collectives: Iterable[Collective], statuses: Iterable[PgStatus], world_size: int | None
) -> list[ProcessGroup]:
    """The groups of one job, of the sources that number what ranks enter; by witness and name.

    RAS only counts (`counts_of`), and Inspector numbers each kind of operation of its own.
    """
    entries: dict[GroupKey, dict[int, list[Collective]]] = defaultdict(lambda: defaultdict(list))
    lines: dict[GroupKey, dict[int, PgStatus]] = defaultdict(dict)
    descs: dict[GroupKey, str] = {}
    heard: dict[Witness, dict[int, PgStatus]] = defaultdict(dict)
    for status in statuses:
        if status.source in ("ras", "inspector") or status.status != "ok" or status.rank is None:
            continue
        witness = WITNESSES[status.source]
        heard[witness].setdefault(status.rank, status)
        if status.process_group:
            key = (witness, status.process_group[0])
            lines[key][status.rank] = status
            descs[key] = descs.get(key) or status.process_group[1]
    for entry in collectives:
        if entry.process_group and entry.rank is not None and entry.source not in ("ras", "inspector"):
            key = (WITNESSES[entry.source], entry.process_group[0])
            entries[key][entry.rank].append(entry)
            descs[key] = descs.get(key) or entry.process_group[1]
    return [_group(key, descs[key], entries[key], lines[key], heard[key[0]], world_size) for key in sorted(descs)]


def _group(
    key: GroupKey, desc: str, entries: Mapping[int, Sequence[Collective]],
    lines: Mapping[int, PgStatus], heard: Mapping[int, PgStatus], world_size: int | None,
) -> ProcessGroup:  # fmt: skip
    said = {rank for line in lines.values() for rank in line.ranks or ()}
    sizes = {entry.group_size for rank in entries for entry in entries[rank] if entry.group_size}
    seen = {*entries, *lines}
    ranks, is_whole = who_is_in(said, seen, sizes, desc, world_size)
    members = {rank: _member(rank, entries.get(rank, ()), lines.get(rank)) for rank in sorted(seen)}
    for rank in ranks:
        if rank in seen:
            continue
        line = heard.get(rank)
        if line is not None and (line.oldest_record_id == 0 or line.entries == 0):
            # all that the rank ever did is in its buffer, and this group is not
            members[rank] = Member(rank, NONE, {}, NONE, line.read_at, _path(line))
    return ProcessGroup(key[0], key[1], desc, ranks, is_whole, members)


def who_is_in(
    said: Set[int], seen: Set[int], sizes: Set[int], desc: str, world_size: int | None
) -> tuple[tuple[int, ...], bool]:
    """The members of a group, and whether those are all: those that a source lists, and those that were seen in it.

    Without a list they are all where it is the group of all ranks, or where as many were seen as it has by `sizes`.
    """
    is_whole = bool(said)
    if not said and desc == DEFAULT and world_size:
        said, is_whole = set(range(world_size)), True
    if not is_whole and len(sizes) == 1 and len(seen) == next(iter(sizes)):
        is_whole = True
    return tuple(sorted(said | seen)), is_whole


def _member(rank: int, entries: Sequence[Collective], line: PgStatus | None) -> Member:
    by_seq: dict[int, list[Collective]] = defaultdict(list)
    for entry in sorted(entries, key=lambda one: one.record_id or 0):
        if not entry.is_p2p and entry.collective_seq_id is not None:
            by_seq[entry.collective_seq_id].append(entry)
    said = line.last_enqueued_collective if line else None
    last = max([*by_seq, NONE if said is None else said], default=NONE)
    over = [seq for seq, found in by_seq.items() if all(entry.retired for entry in found)]
    source = entries[0] if entries else line
    assert source is not None
    return Member(
        rank=rank, last=last, entered={seq: tuple(found) for seq, found in sorted(by_seq.items())},
        completed=max(over, default=NONE), read_at=source.read_at, path=_path(source),
    )  # fmt: skip


def _path(source: Collective | PgStatus) -> str:
    return f"{source.source} rank {source.rank}"


# -- who is who --------------------------------------------------------------------------------------------------------


def with_ranks(statuses: Iterable[PgStatus], ranks: Sequence[Rank]) -> list[PgStatus]:
    """What RAS says, with the job's own numbers of the ranks, as far as they are certain.

    RAS numbers ranks within a communicator, and knows processes as their own PID namespace counts: a pid that only one
    rank of the job has is that rank; in the communicator of all ranks the numbers are the same.
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
    """The kinds of what a rank did at a sequence number; empty where that is not known."""
    return tuple(operation(entry.profiling_name).kind for entry in member.entered.get(seq, ()))
