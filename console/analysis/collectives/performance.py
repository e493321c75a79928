"""Performance of collectives: load imbalance, slow links, durations.

Durations are those that the source measured on the device (TORCH_NCCL_ENABLE_TIMING, NCCL Inspector); without them
results about time are refused, because CPU timestamps do not give a duration.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean, median
from typing import Final

import msgspec

from ...records import Collective
from .align import WITNESSES, GroupKey, ProcessGroup, group_key
from .operations import operation, payload_bytes
from .traffic import TrafficMatrix

#: Measured operations a link needs to be judged, and the share of the median bandwidth below which it is slow.
MIN_MEASURED: Final = 3
SLOW_SHARE: Final = 0.5


class Load(msgspec.Struct, frozen=True):
    """Input bytes of one rank, over the operations that all compared ranks have in their buffers."""

    rank: int
    bytes: int
    total_ms: float | None  # of measured durations
    deviation: float  # of its bytes from the mean of all, as a share: 0.1 is 10 % more


class Imbalance(msgspec.Struct, frozen=True):
    """All ranks, the farthest from the mean first, or the reason why they are not comparable."""

    loads: tuple[Load, ...]
    refused: str | None


class SlowLink(msgspec.Struct, frozen=True):
    """One direction between two ranks. `utilisation` is its bandwidth as a share of the median link's."""

    source: int
    destination: int
    bytes_s: float
    utilisation: float
    measured: int


class SlowLinks(msgspec.Struct, frozen=True):
    """Links far below the median, the slowest first, or the reason why that is unknown."""

    links: tuple[SlowLink, ...]
    refused: str | None


class Statistics(msgspec.Struct, frozen=True):
    """All operations of one kind in one group, of all ranks together."""

    group: str
    op: str
    count: int
    pending: int  # entered and not completed
    bytes: int | None  # input bytes of all ranks; None where no operation reports its size
    measured: int
    mean_ms: float | None
    least_ms: float | None
    most_ms: float | None
    red_ops: tuple[str, ...] = ()  # distinct reductions, where the record has them
    streams: int | None = None  # most distinct CUDA streams of one rank, where the record has them


def imbalance_of(collectives: Sequence[Collective], groups: Iterable[ProcessGroup]) -> Imbalance:
    """Load imbalance of the ranks. Buffers reach back differently far, so only common operations are compared."""
    common = {(group.witness, group.name): _common(group) for group in groups}
    sizes: dict[int, int] = defaultdict(int)
    times: dict[int, list[float]] = defaultdict(list)
    for entry in collectives:
        key = group_key(entry)
        if entry.rank is None or key is None or entry.collective_seq_id not in common.get(key, ()) or entry.is_p2p:
            continue
        size = payload_bytes(entry)
        if size is not None:
            sizes[entry.rank] += size
        if entry.duration_ms is not None:
            times[entry.rank].append(entry.duration_ms)
    if len(sizes) < 2:
        return Imbalance((), "fewer than two ranks have operations with known sizes in common")
    mean = fmean(sizes.values())
    if mean == 0:
        return Imbalance((), "the operations that ranks have in common carry no data")
    loads = [
        Load(rank, size, sum(times[rank]) if times.get(rank) else None, size / mean - 1)
        for rank, size in sorted(sizes.items())
    ]
    return Imbalance(tuple(sorted(loads, key=lambda load: (-abs(load.deviation), load.rank))), None)


def _common(group: ProcessGroup) -> frozenset[int]:
    """Sequence numbers that every member has in its buffer."""
    members = list(group.members.values())
    if len(members) < 2 or group.unseen:
        return frozenset()
    return frozenset.intersection(*(frozenset(member.entered) for member in members))


def slow_links_of(
    collectives: Iterable[Collective], groups: Iterable[ProcessGroup], matrix: TrafficMatrix
) -> SlowLinks:
    """Links far below the median. Only sends and receives measure a link: a collective's time is that of all ranks."""
    if not matrix.cells:
        return SlowLinks((), matrix.refused)
    by_key = {(group.witness, group.name): group for group in groups}
    measured: dict[tuple[int, int], list[float]] = defaultdict(list)
    for entry in collectives:
        key, took, size = group_key(entry), entry.duration_ms, payload_bytes(entry)
        ends = by_key[key].ends(operation(entry.profiling_name)) if key in by_key else None
        if ends is not None and took and size:
            measured[ends].append(size / (took / 1e3))
    speeds = {pair: median(rates) for pair, rates in measured.items() if len(rates) >= MIN_MEASURED}
    if len(speeds) < 3:
        return SlowLinks((), "fewer than three links have measured sends or receives; see TORCH_NCCL_ENABLE_TIMING")
    middle = median(speeds.values())
    slow = [
        SlowLink(*pair, speed, speed / middle, len(measured[pair]))
        for pair, speed in speeds.items() if speed <= SLOW_SHARE * middle
    ]  # fmt: skip
    return SlowLinks(tuple(sorted(slow, key=lambda link: (link.bytes_s, link.source, link.destination))), None)


def statistics_of(collectives: Iterable[Collective], titles: Mapping[GroupKey, str]) -> list[Statistics]:
    """Statistics of every kind of operation in every group; `titles` by source and name."""
    operations: dict[tuple[str, str], list[Collective]] = defaultdict(list)
    for entry in collectives:
        name = entry.process_group[0] if entry.process_group else "–"
        title = titles.get((WITNESSES[entry.source], name), name)
        operations[title, operation(entry.profiling_name).kind].append(entry)
    return [_statistics(*key, entries) for key, entries in sorted(operations.items())]


def _statistics(group: str, op: str, entries: Sequence[Collective]) -> Statistics:
    took = [time for entry in entries if (time := entry.duration_ms) is not None]
    sizes = [size for entry in entries if (size := payload_bytes(entry)) is not None]
    streams: dict[int | None, set[str]] = defaultdict(set)
    for entry in entries:
        if entry.stream:
            streams[entry.rank].add(entry.stream)
    return Statistics(
        group=group, op=op, count=len(entries), pending=sum(entry.retired is False for entry in entries),
        bytes=sum(sizes) if sizes else None, measured=len(took), mean_ms=fmean(took) if took else None,
        least_ms=min(took, default=None), most_ms=max(took, default=None),
        red_ops=tuple(sorted({entry.red_op for entry in entries if entry.red_op})),
        streams=max(map(len, streams.values()), default=None),
    )  # fmt: skip
