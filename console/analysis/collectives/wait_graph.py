"""The wait-for graph across process groups: which fault is the cause, which follows from it, and circular waits.

A rank missing from one group may wait in another. Then it is a victim, and the rank that the other group waits for is
the cause, unless the path is a cycle.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from ...records import Collective
from .align import GroupKey, ProcessGroup
from .fault import Fault
from .operations import operation


class Wait(msgspec.Struct, frozen=True):
    """One edge: a rank waits for another, in a group or in a point-to-point operation."""

    rank: int
    on: int
    why: str  # `all_reduce #7 of group tp (3)`, `recv of group pp (2)`
    is_p2p: bool = False


class WaitGraph(msgspec.Struct, frozen=True):
    """Which rank waits for which. `causes` wait for no rank; `cycles` name each rank once, in order."""

    waits: tuple[Wait, ...]
    causes: tuple[int, ...]
    cycles: tuple[tuple[int, ...], ...]


def ordered(faults: Sequence[Fault], groups: Iterable[ProcessGroup]) -> list[Fault]:
    """The faults, root causes first; `held` and `follows` of the others state what they follow from."""
    by_rank: dict[int, list[tuple[str, str]]] = defaultdict(list)
    for group in groups:
        for rank, member in group.members.items():
            if member.waits_in():
                by_rank[rank].append((group.name, group.title))
    marked = [_marked(fault, by_rank) for fault in faults]
    return sorted(
        marked,
        key=lambda fault: (fault.confidence == "none", fault.follows, bool(fault.held), fault.kind == "missing_rank"),
    )


def _marked(fault: Fault, by_rank: Mapping[int, Sequence[tuple[str, str]]]) -> Fault:
    if fault.kind != "missing_rank":
        return fault
    held = tuple((rank, title) for rank in fault.ranks for name, title in by_rank.get(rank, ()) if name != fault.group)
    return replace(fault, held=held, follows=bool(fault.ranks) and {rank for rank, _ in held} >= set(fault.ranks))


def wait_graph(faults: Iterable[Fault], collectives: Iterable[Collective], groups: Sequence[ProcessGroup]) -> WaitGraph:
    """The edges from missing ranks and from unmatched sends and receives. A rank with an unknown wait is not a cause.

    gloo records neither sends nor receives, so the graph of a gloo job has no point-to-point edges.
    """
    waits = [
        Wait(rank, on, f"{fault.op} #{fault.seq} of group {fault.title}")
        for fault in faults if fault.kind == "missing_rank" and fault.confidence != "none"
        for rank in fault.waiting for on in fault.ranks
    ]  # fmt: skip
    waits += _p2p_waits(collectives, {(group.witness, group.name): group for group in groups})
    edges: dict[int, set[int]] = defaultdict(set)
    for wait in waits:
        edges[wait.rank].add(wait.on)
    targets = {wait.on for wait in waits}
    busy = {rank for group in groups for rank, member in group.members.items() if member.waits_in()}
    causes = tuple(sorted(rank for rank in targets if not edges.get(rank) and rank not in busy))
    return WaitGraph(tuple(waits), causes, tuple(_cycles(edges)))


def _p2p_waits(collectives: Iterable[Collective], groups: Mapping[GroupKey, ProcessGroup]) -> list[Wait]:
    pending: dict[tuple[str, int, int, str], list[Collective]] = defaultdict(list)
    for entry in collectives:
        op = operation(entry.profiling_name)
        group = groups.get(("flight recorder", entry.process_group[0])) if entry.process_group else None
        ends = group.ends(op) if group and entry.retired is False and entry.rank is not None else None
        if ends is not None and group is not None:
            pending[group.name, *ends, op.kind].append(entry)
    waits = []
    for (name, source, destination, kind), entries in sorted(pending.items()):
        other = "recv" if kind == "send" else "send"
        if (name, source, destination, other) in pending:
            continue  # both sides are posted: the message is in flight
        waiter, on = (source, destination) if kind == "send" else (destination, source)
        if any(entry.rank == waiter for entry in entries):
            waits.append(Wait(waiter, on, f"{kind} of group {name}", is_p2p=True))
    return waits


def _cycles(edges: Mapping[int, set[int]]) -> list[tuple[int, ...]]:
    """One cycle for each set of ranks that wait for each other, starting with the lowest rank."""
    cycles: list[tuple[int, ...]] = []
    for start in sorted(edges):
        if any(start in cycle for cycle in cycles):
            continue
        cycle = _cycle_through(edges, start)
        if cycle:
            cycles.append(cycle)
    return cycles


def _cycle_through(edges: Mapping[int, set[int]], start: int) -> tuple[int, ...]:
    """The shortest cycle through a rank; empty if there is none."""
    came_from: dict[int, int] = {}
    border = [start]
    while border:
        following = []
        for rank in border:
            for on in sorted(edges.get(rank, ())):
                if on == start:
                    path = [rank]
                    while path[-1] != start:
                        path.append(came_from[path[-1]])
                    return tuple(reversed(path))
                if on not in came_from:
                    came_from[on] = rank
                    following.append(on)
        border = following
    return ()
