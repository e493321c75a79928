"""Where ranks should have come together: each collective, each step, each capture, with everybody's arrival."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from ...records import Collective, PgStatus, Stack
from ..clock import ClusterTime, CommonClock
from ..collectives.align import DEFAULT, WITNESSES
from ..collectives.operations import operation

SyncPointKind = Literal["collective", "step", "capture"]


@dataclass(frozen=True, slots=True)
class Arrival:
    """One rank at one meeting, on the common clock.

    At a collective the rank arrives when it enqueues the operation, as its CPU saw it: work that the GPU still has
    before it is not in this. `left` is when the rank knew that it was over, which may be later than it was.
    """

    rank: int
    node: str
    at: ClusterTime
    left: ClusterTime | None = None
    stamp: int = 0  # as the node's own clock had it, ns


@dataclass(frozen=True, slots=True)
class SyncPoint:
    """One collective, step or capture of one job. Arrivals are by rank; `is_whole` where every rank that takes part
    is among them."""

    kind: SyncPointKind
    job: str
    attempt: int
    group: str  # process group; "" where there is none
    name: str  # the operation's kind; "step"; the capture's id
    number: int
    arrivals: tuple[Arrival, ...]
    is_whole: bool
    #: A collective whose result needs everybody's part: nobody can leave before the last has come.
    is_binding: bool = False

    @property
    def title(self) -> str:
        """`all_reduce #1423 of dp_17`, as findings name it."""
        of = f" of {self.group}" if self.group else ""
        return f"{self.name} #{self.number}{of}" if self.kind == "collective" else f"{self.name} {self.number}"


#: Operations that nobody can leave before everybody has entered.
_BINDING = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})

#: Flight Recorders: nobody else tells instants.
_SOURCES = ("worker_server", "fr_dump")

#: (job, attempt, witness, name)
_Group = tuple[str, int, str, str]
_Key = tuple[str, int, str, str, int]
_JobKey = tuple[str, int]


@dataclass
class _Members:
    """Who takes part in the groups, as far as anybody says.

    Some sources list the members of a group. Of others only those are known that recorded something in it: then a rank
    of the job from which nothing has been read may be one, too.
    """

    world_sizes: Mapping[_JobKey, int]
    said: dict[_Group, set[int]] = field(default_factory=lambda: defaultdict(set))
    seen: dict[_Group, set[int]] = field(default_factory=lambda: defaultdict(set))
    heard: dict[_JobKey, set[int]] = field(default_factory=lambda: defaultdict(set))  # ranks that were read

    def hear(self, one: PgStatus | Collective) -> None:
        if one.rank is None or one.source not in _SOURCES:
            return
        if isinstance(one, Collective) or one.status == "ok":
            self.heard[one.job, one.attempt].add(one.rank)
        if one.process_group is not None:
            key = (one.job, one.attempt, WITNESSES[one.source], one.process_group[0])
            self.seen[key].add(one.rank)
            if isinstance(one, PgStatus):
                self.said[key].update(one.ranks or ())

    def are_all(self, group: _Group, entry: Collective, arrived: int) -> bool:
        """Whether so many that arrived are everybody."""
        world_size = self.world_sizes.get(group[:2])
        sizes = [len(self.seen[group]), len(self.said[group]), entry.group_size or 0]
        if entry.process_group is not None and entry.process_group[1] == DEFAULT:
            sizes.append(world_size or 0)
        is_known = self.said[group] or entry.group_size or world_size is None
        return arrived >= max(sizes) and (bool(is_known) or len(self.heard[group[:2]]) >= (world_size or 0))


def sync_points(
    collectives: Sequence[Collective], clock: CommonClock, statuses: Iterable[PgStatus] = (),
    world_sizes: Mapping[_JobKey, int] | None = None,
) -> list[SyncPoint]:  # fmt: skip
    """The collectives that at least two ranks recorded, oldest first; each once, however many captures have it.

    Entries without an instant or a number say nothing here, nor do those of nodes that nothing ties to the common
    clock. Several entries of one rank under one number (coalesced) count as the first. `statuses` list who is in a
    group, `world_sizes` how many ranks a job and its attempt has: while some have not been read, nobody can be called
    the last of a group whose members nothing lists.
    """
    first: dict[_Key, dict[int, Collective]] = defaultdict(dict)
    members = _Members(world_sizes or {})
    for said in (statuses, collectives):
        for one in said:
            members.hear(one)
    for entry in collectives:
        if not _counts(entry) or entry.rank is None or entry.process_group is None:
            continue
        witness, name = WITNESSES[entry.source], entry.process_group[0]
        assert entry.collective_seq_id is not None
        by_rank = first[entry.job, entry.attempt, witness, name, entry.collective_seq_id]
        known = by_rank.get(entry.rank)
        if known is None or _order(entry) < _order(known):
            by_rank[entry.rank] = entry
    found = [
        sync_point
        for key, by_rank in first.items()
        if (sync_point := _meeting(key, by_rank, members, clock)) is not None
    ]
    return sorted(found, key=lambda one: (one.job, one.attempt, one.arrivals[0].at.ns))


def _counts(entry: Collective) -> bool:
    numbered = entry.collective_seq_id is not None and not entry.is_p2p
    return numbered and entry.time_created_ns is not None and entry.source in _SOURCES


def _order(entry: Collective) -> tuple[int, int, int]:
    """Of several records of the same entry the newest reading is best: it knows when it was over."""
    return (entry.record_id or 0, entry.time_created_ns or 0, -(entry.read_at or 0))


def _meeting(key: _Key, by_rank: dict[int, Collective], members: _Members, clock: CommonClock) -> SyncPoint | None:
    job, attempt, _, _, number = key
    is_local = len({entry.node for entry in by_rank.values()}) == 1
    arrivals = [
        arrival for entry in by_rank.values() if (arrival := _arrival(entry, None if is_local else clock)) is not None
    ]
    if len(arrivals) < 2:
        return None
    kinds = {operation(entry.profiling_name).kind for entry in by_rank.values()}
    if len(kinds) != 1:
        return None  # they do not meet: each is in something else
    entry = next(iter(by_rank.values()))
    kind = kinds.pop()
    assert entry.process_group is not None
    return SyncPoint(
        "collective", job, attempt, entry.process_group[1] or entry.process_group[0], kind, number,
        tuple(sorted(arrivals, key=lambda one: one.at.ns)), members.are_all(key[:4], entry, len(arrivals)),
        kind in _BINDING,
    )  # fmt: skip


def _arrival(entry: Collective, clock: CommonClock | None) -> Arrival | None:
    """Where all ranks are of one node nothing needs converting, and no common clock is needed (None)."""
    assert entry.rank is not None
    assert entry.time_created_ns is not None
    at = _at(entry, entry.time_created_ns, clock)
    over = entry.time_discovered_completed_ns
    return None if at is None else Arrival(
        entry.rank, entry.node, at, None if over is None else _at(entry, over, clock), entry.time_created_ns
    )  # fmt: skip


def _at(entry: Collective, real: int, clock: CommonClock | None) -> ClusterTime | None:
    return ClusterTime(real, 0) if clock is None else clock.to_cluster(entry.node, real, "real")


def first_of_periods(found: Sequence[SyncPoint]) -> list[SyncPoint]:
    """Steps where no step variable is watched: the first collective of each repetition of the pattern of collectives.

    By job and group; a group whose operations do not repeat has no steps.
    """
    groups: dict[tuple[str, int, str], list[SyncPoint]] = defaultdict(list)
    for sync_point in found:
        if sync_point.kind == "collective":
            groups[sync_point.job, sync_point.attempt, sync_point.group].append(sync_point)
    steps = []
    for (job, attempt, group), own in groups.items():
        own.sort(key=lambda one: one.number)
        period = period_of([one.name for one in own])
        if period is None:
            continue
        for number, one in enumerate(own[::period]):
            steps.append(SyncPoint("step", job, attempt, group, "step", number, one.arrivals, one.is_whole))
    return steps


def period_of(names: Sequence[str], least: int = 3) -> int | None:
    """After how many the sequence repeats, at least so often; None where it does not."""
    for period in range(1, len(names) // least + 1):
        if all(names[index] == names[index - period] for index in range(period, len(names))):
            return period
    return None


def capture_sync_points(stacks: Iterable[Stack], clock: CommonClock) -> list[SyncPoint]:
    """How far apart the ranks' stacks were read: one meeting a capture and sample."""
    by_capture: dict[tuple[str, int, str, int], dict[int, Stack]] = defaultdict(dict)
    for stack in stacks:
        if stack.role == "rank" and stack.rank is not None and stack.began is not None and stack.job is not None:
            key = (stack.job, stack.attempt or 0, stack.capture, stack.sample)
            known = by_capture[key].get(stack.rank)
            if known is None or known.began is None or stack.began < known.began:
                by_capture[key][stack.rank] = stack
    found = []
    for (job, attempt, capture, sample), by_rank in by_capture.items():
        arrivals = [
            Arrival(rank, stack.node, at, None, stack.began or 0)
            for rank, stack in by_rank.items()
            if (at := clock.to_cluster(stack.node, stack.began or 0, "real")) is not None
        ]
        if len(arrivals) > 1:
            ordered = tuple(sorted(arrivals, key=lambda arrival: arrival.at.ns))
            found.append(
                SyncPoint("capture", job, attempt, "", capture, sample, ordered, len(arrivals) == len(by_rank))
            )
    return found
