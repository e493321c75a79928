"""Where ranks should have come together: each collective, each step, each capture, with everybody's arrival."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from ...records import Collective, Stack
from ..clock import At, CommonClock
from ..collectives.groups import WITNESSES
from ..collectives.operations import operation

MeetingKind = Literal["collective", "step", "capture"]


@dataclass(frozen=True, slots=True)
class Arrival:
    """One rank at one meeting, on the common clock.

    At a collective the rank arrives when it enqueues the operation, as its CPU saw it: work that the GPU still has
    before it is not in this. `left` is when the rank knew that it was over, which may be later than it was.
    """

    rank: int
    node: str
    at: At
    left: At | None = None
    stamp: int = 0  # as the node's own clock had it, ns


@dataclass(frozen=True, slots=True)
class Meeting:
    """One collective, step or capture of one job. Arrivals are by rank; `is_whole` where every rank that takes part
    is among them."""

    kind: MeetingKind
    job: str
    attempt: int
    group: str  # process group; "" where there is none
    name: str  # the operation's kind; "step"; the capture's id
    number: int
    arrivals: tuple[Arrival, ...]
    is_whole: bool
    #: A collective whose result needs everybody's part: nobody can leave before the last has come.
    binds: bool = False

    @property
    def title(self) -> str:
        """`all_reduce #1423 of dp_17`, as findings name it."""
        of = f" of {self.group}" if self.group else ""
        return f"{self.name} #{self.number}{of}" if self.kind == "collective" else f"{self.name} {self.number}"


#: Operations that nobody can leave before everybody has entered.
_BINDING = frozenset({"all_reduce", "all_gather", "reduce_scatter", "all_to_all", "barrier"})

_Key = tuple[str, int, str, str, int]
_Entry = tuple[str, int, int, int | None, int]


def meetings(collectives: Iterable[Collective], clock: CommonClock) -> list[Meeting]:
    """The collectives that at least two ranks recorded, oldest first; each once, however many captures have it.

    Entries without an instant or a number say nothing here, nor do those of nodes that nothing ties to the common
    clock. Several entries of one rank under one number (coalesced) count as the first.
    """
    first: dict[_Key, dict[int, Collective]] = defaultdict(dict)
    members: dict[tuple[str, int, str, str], set[int]] = defaultdict(set)
    for entry in collectives:
        if not _counts(entry) or entry.rank is None or entry.process_group is None:
            continue
        witness, name = WITNESSES[entry.source], entry.process_group[0]
        members[entry.job, entry.attempt, witness, name].add(entry.rank)
        assert entry.collective_seq_id is not None
        by_rank = first[entry.job, entry.attempt, witness, name, entry.collective_seq_id]
        known = by_rank.get(entry.rank)
        if known is None or _order(entry) < _order(known):
            by_rank[entry.rank] = entry
    found = [
        meeting
        for key, by_rank in first.items()
        if (meeting := _meeting(key, by_rank, members[key[:4]], clock)) is not None
    ]
    return sorted(found, key=lambda one: (one.job, one.attempt, one.arrivals[0].at.ns))


def _counts(entry: Collective) -> bool:
    numbered = entry.collective_seq_id is not None and not entry.is_p2p
    return numbered and entry.time_created_ns is not None and entry.source in ("worker_server", "fr_dump")


def _order(entry: Collective) -> tuple[int, int, int]:
    """Of several records of the same entry the newest reading is best: it knows when it was over."""
    return (entry.record_id or 0, entry.time_created_ns or 0, -(entry.read_at or 0))


def _meeting(key: _Key, by_rank: dict[int, Collective], members: set[int], clock: CommonClock) -> Meeting | None:
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
    size = max(len(members), entry.group_size or 0)
    kind = kinds.pop()
    assert entry.process_group is not None
    return Meeting(
        "collective", job, attempt, entry.process_group[1] or entry.process_group[0], kind, number,
        tuple(sorted(arrivals, key=lambda one: one.at.ns)), len(arrivals) >= size, kind in _BINDING,
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


def _at(entry: Collective, real: int, clock: CommonClock | None) -> At | None:
    return At(real, 0) if clock is None else clock.to_cluster(entry.node, real, "real")


def first_of_periods(found: Sequence[Meeting]) -> list[Meeting]:
    """Steps where no step variable is watched: the first collective of each repetition of the pattern of collectives.

    By job and group; a group whose operations do not repeat has no steps.
    """
    groups: dict[tuple[str, int, str], list[Meeting]] = defaultdict(list)
    for meeting in found:
        if meeting.kind == "collective":
            groups[meeting.job, meeting.attempt, meeting.group].append(meeting)
    steps = []
    for (job, attempt, group), own in groups.items():
        own.sort(key=lambda one: one.number)
        period = period_of([one.name for one in own])
        if period is None:
            continue
        for number, one in enumerate(own[::period]):
            steps.append(Meeting("step", job, attempt, group, "step", number, one.arrivals, one.is_whole))
    return steps


def period_of(names: Sequence[str], least: int = 3) -> int | None:
    """After how many the sequence repeats, at least so often; None where it does not."""
    for period in range(1, len(names) // least + 1):
        if all(names[index] == names[index - period] for index in range(period, len(names))):
            return period
    return None


def captures(stacks: Iterable[Stack], clock: CommonClock) -> list[Meeting]:
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
            ordered = tuple(sorted(arrivals, key=lambda one: one.at.ns))
            found.append(Meeting("capture", job, attempt, "", capture, sample, ordered, len(arrivals) == len(by_rank)))
    return found
