"""Sync points: collectives, steps and captures with the arrival of every rank."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from ...records import Collective, PgStatus, Stack
from ..clock.model import ClusterInstant, CommonClock
from ..collectives.align import DEFAULT, WITNESSES
from ..collectives.operations import BINDING, operation
from ..collectives.period import period_of

#: (job, attempt, rank)
RankKey = tuple[str, int, int]
SyncPointKind = Literal["collective", "step", "capture"]
#: Flight Recorder sources: the only ones with timestamps.
_SOURCES = ("worker_server", "fr_dump")
#: (job, attempt, witness, name)
_Group = tuple[str, int, str, str]
_Key = tuple[str, int, str, str, int]
_JobKey = tuple[str, int]


class Arrival(msgspec.Struct, frozen=True):
    """Arrival of one rank at a sync point, on the common clock.

    At a collective: when the CPU enqueued the operation (pending GPU work is not included). `left` is when the rank
    noticed completion, which may be later than the completion.
    """

    rank: int
    node: str
    instant: ClusterInstant
    left: ClusterInstant | None = None
    stamp: int = 0  # node clock, ns


class SyncPoint(msgspec.Struct, frozen=True):
    """One collective, step or capture of one job; `is_whole`: all participating ranks have arrivals."""

    kind: SyncPointKind
    job: str
    attempt: int
    group: str  # process group; "" without one
    name: str  # the operation's kind; "step"; the capture's id
    number: int
    arrivals: tuple[Arrival, ...]
    is_whole: bool
    #: A collective that no rank can leave before the last has entered.
    is_binding: bool = False
    numel: int | None = None  # elements of a collective's input; None: unknown, or different on the ranks
    #: Of the process group within its job: several may have one description, by which `group` calls them.
    group_id: str = ""

    @property
    def group_key(self) -> str:
        """What distinguishes the process group from all others of the job."""
        return self.group_id or self.group

    @property
    def title(self) -> str:
        """`all_reduce #1423 of dp_17`, as findings name it."""
        of = f" of {self.group}" if self.group else ""
        return f"{self.name} #{self.number}{of}" if self.kind == "collective" else f"{self.name} {self.number}"


class _Members(msgspec.Struct):
    """Members of the process groups.

    Some sources list the members. With others only ranks with entries are known, and unread ranks may be members, too.
    """

    world_sizes: Mapping[_JobKey, int]
    listed: dict[_Group, set[int]] = msgspec.field(default_factory=lambda: defaultdict(set))
    seen: dict[_Group, set[int]] = msgspec.field(default_factory=lambda: defaultdict(set))
    read_ranks: dict[_JobKey, set[int]] = msgspec.field(default_factory=lambda: defaultdict(set))

    def add(self, record: PgStatus | Collective) -> None:
        if record.rank is None or record.source not in _SOURCES:
            return
        if isinstance(record, Collective) or record.status == "ok":
            self.read_ranks[record.job, record.attempt].add(record.rank)
        if record.process_group is not None:
            key = (record.job, record.attempt, WITNESSES[record.source], record.process_group[0])
            self.seen[key].add(record.rank)
            if isinstance(record, PgStatus):
                self.listed[key].update(record.ranks or ())

    def are_all(self, group: _Group, entry: Collective, arrived: int) -> bool:
        """Whether `arrived` ranks are all members."""
        world_size = self.world_sizes.get(group[:2])
        sizes = [len(self.seen[group]), len(self.listed[group]), entry.group_size or 0]
        if entry.process_group is not None and entry.process_group[1] == DEFAULT:
            sizes.append(world_size or 0)
        is_known = self.listed[group] or entry.group_size or world_size is None
        return arrived >= max(sizes) and (bool(is_known) or len(self.read_ranks[group[:2]]) >= (world_size or 0))


def sync_points(
    collectives: Sequence[Collective], clock: CommonClock, statuses: Iterable[PgStatus] = (),
    world_sizes: Mapping[_JobKey, int] | None = None,
) -> list[SyncPoint]:  # fmt: skip
    """Collectives recorded by at least two ranks, oldest first, deduplicated over captures.

    Entries without a timestamp, a number or a common clock are skipped; coalesced entries count as the first.
    `statuses` list group members, `world_sizes` the ranks per job attempt, to decide whether a sync point is whole.
    """
    first: dict[_Key, dict[int, Collective]] = defaultdict(dict)
    members = _Members(world_sizes or {})
    for records in (statuses, collectives):
        for record in records:
            members.add(record)
    for entry in collectives:
        if not _counts(entry) or entry.rank is None or entry.process_group is None:
            continue
        witness, name = WITNESSES[entry.source], entry.process_group[0]
        assert entry.collective_seq_id is not None
        by_rank = first[entry.job, entry.attempt, witness, name, entry.collective_seq_id]
        earlier = by_rank.get(entry.rank)
        if earlier is None or _order(entry) < _order(earlier):
            by_rank[entry.rank] = entry
    points = [
        sync_point
        for key, by_rank in first.items()
        if (sync_point := _sync_point(key, by_rank, members, clock)) is not None
    ]
    return sorted(points, key=lambda record: (record.job, record.attempt, record.arrivals[0].instant.ns))


def _counts(entry: Collective) -> bool:
    numbered = entry.collective_seq_id is not None and not entry.is_p2p
    return numbered and entry.time_created_ns is not None and entry.source in _SOURCES


def _order(entry: Collective) -> tuple[int, int, int]:
    """Sort key for duplicates: the newest reading first, because it may include the completion."""
    return (entry.record_id or 0, entry.time_created_ns or 0, -(entry.read_at or 0))


def _sync_point(key: _Key, by_rank: dict[int, Collective], members: _Members, clock: CommonClock) -> SyncPoint | None:
    job, attempt, witness, name, number = key
    is_local = len({entry.node for entry in by_rank.values()}) == 1
    arrivals = [
        arrival for entry in by_rank.values() if (arrival := _arrival(entry, None if is_local else clock)) is not None
    ]
    if len(arrivals) < 2:
        return None
    kinds = {operation(entry.profiling_name).kind for entry in by_rank.values()}
    if len(kinds) != 1:
        return None  # mismatched operations
    entry = next(iter(by_rank.values()))
    kind = kinds.pop()
    assert entry.process_group is not None
    return SyncPoint(
        "collective", job, attempt, entry.process_group[1] or entry.process_group[0], kind, number,
        tuple(sorted(arrivals, key=lambda arrival: arrival.instant.ns)), members.are_all(key[:4], entry, len(arrivals)),
        kind in BINDING, _common_numel(by_rank.values()), f"{witness} {name}",
    )  # fmt: skip


def _common_numel(entries: Iterable[Collective]) -> int | None:
    numels = {entry.input_numel for entry in entries}
    return numels.pop() if len(numels) == 1 else None


def _arrival(entry: Collective, clock: CommonClock | None) -> Arrival | None:
    """Arrival of an entry; `clock` is None if all ranks are on one node."""
    assert entry.rank is not None
    assert entry.time_created_ns is not None
    instant = _at(entry, entry.time_created_ns, clock)
    over = entry.time_discovered_completed_ns
    return None if instant is None else Arrival(
        entry.rank, entry.node, instant, None if over is None else _at(entry, over, clock), entry.time_created_ns
    )  # fmt: skip


def _at(entry: Collective, real: int, clock: CommonClock | None) -> ClusterInstant | None:
    return ClusterInstant(real, 0) if clock is None else clock.to_cluster(entry.node, real, "real")


def first_of_periods(sync_points: Sequence[SyncPoint]) -> list[SyncPoint]:
    """Steps without a step variable: the first collective of each repetition of a group's operation pattern."""
    groups: dict[tuple[str, int, str], list[SyncPoint]] = defaultdict(list)
    for sync_point in sync_points:
        if sync_point.kind == "collective":
            groups[sync_point.job, sync_point.attempt, sync_point.group_key].append(sync_point)
    steps = []
    for (job, attempt, _), own in groups.items():
        own.sort(key=lambda point: point.number)
        period = period_of([(point.name, point.numel) for point in own])
        if period is None:
            continue
        for number, point in enumerate(own[::period]):
            steps.append(SyncPoint("step", job, attempt, point.group, "step", number, point.arrivals, point.is_whole))
    return steps


def capture_sync_points(stacks: Iterable[Stack], clock: CommonClock) -> list[SyncPoint]:
    """Stack reads as sync points: one per capture and sample."""
    by_capture: dict[tuple[str, int, str, int], dict[int, Stack]] = defaultdict(dict)
    for stack in stacks:
        if stack.role == "rank" and stack.rank is not None and stack.began is not None and stack.job is not None:
            key = (stack.job, stack.attempt or 0, stack.capture, stack.sample)
            earlier = by_capture[key].get(stack.rank)
            if earlier is None or earlier.began is None or stack.began < earlier.began:
                by_capture[key][stack.rank] = stack
    points = []
    for (job, attempt, capture, sample), by_rank in by_capture.items():
        arrivals = [
            Arrival(rank, stack.node, instant, None, stack.began or 0)
            for rank, stack in by_rank.items()
            if (instant := clock.to_cluster(stack.node, stack.began or 0, "real")) is not None
        ]
        if len(arrivals) > 1:
            ordered = tuple(sorted(arrivals, key=lambda arrival: arrival.instant.ns))
            points.append(
                SyncPoint("capture", job, attempt, "", capture, sample, ordered, len(arrivals) == len(by_rank))
            )
    return points


#: First reading of a step by one rank: (step, previous reading, this reading), MONOTONIC_RAW of the node, ns.
StepReading = tuple[int, int, int]


class StepProgress(msgspec.Struct, frozen=True):
    """Step readings of one rank, its last step, and the steps gained since the previous reading."""

    node: str
    step: int
    seen: Iterable[StepReading] = ()
    gained: int | None = 0  # None: it was read once
    read: int | None = None  # the last reading, MONOTONIC_RAW of the node, ns


def step_sync_points(progress: Mapping[RankKey, StepProgress], clock: CommonClock) -> list[SyncPoint]:
    """Steps reached by at least two ranks; an arrival is the middle between two readings, ± half their distance.

    A rank that passed several steps between two readings arrives at the newest of them only.
    """
    arrivals: dict[tuple[str, int, int], list[Arrival]] = defaultdict(list)
    sizes: dict[tuple[str, int], int] = defaultdict(int)
    for (job, attempt, rank), rank_progress in progress.items():
        sizes[job, attempt] += 1
        for step, before, mono in rank_progress.seen:
            instant = _between(clock, rank_progress.node, before, mono)
            if instant is not None:
                arrivals[job, attempt, step].append(Arrival(rank, rank_progress.node, instant))
    return [
        SyncPoint(
            "step", job, attempt, "", "step", step, tuple(sorted(reached, key=lambda arrival: arrival.instant.ns)),
            len(reached) == sizes[job, attempt],
        )
        for (job, attempt, step), reached in sorted(arrivals.items())
        if len(reached) > 1
    ]  # fmt: skip


def _between(clock: CommonClock, node: str, before: int, mono: int) -> ClusterInstant | None:
    instant = clock.to_cluster(node, (before + mono) // 2)
    return None if instant is None else ClusterInstant(instant.ns, instant.bound_ns + (mono - before) // 2)
