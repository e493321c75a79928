"""Traffic matrix of ranks, and its pattern.

The matrix holds operations that name pairs of ranks: sends and receives exactly, and collectives with a separate part
for each peer (all_to_all, all_gather, reduce_scatter). An all_reduce or a broadcast names no pair: its links are chosen
by the library at run time, and no source records them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from ...records import Collective
from .align import GroupKey, ProcessGroup, group_key
from .operations import operation, payload_bytes

Pattern = Literal["ring", "tree", "all_to_all", "pairwise", "butterfly", "custom"]
#: Kinds with data for each peer, and whether the input is divided among the members.
_PAIRED: Final[dict[str, bool]] = {"all_gather": False, "reduce_scatter": True, "all_to_all": True}


class TrafficCell(msgspec.Struct, frozen=True):
    """Traffic from one rank to another. `mean_latency_ms` is over the operations whose duration was measured."""

    source: int
    destination: int
    count: int
    bytes: int | None  # None where no operation reports its size
    mean_latency_ms: float | None


class TrafficMatrix(msgspec.Struct, frozen=True):
    """Rank × rank without empty cells. `left_out` counts operations that name no pair, by kind."""

    ranks: tuple[int, ...]
    cells: tuple[TrafficCell, ...]
    left_out: Mapping[str, int]
    refused: str | None  # why there are no cells


class PatternFound(msgspec.Struct, frozen=True):
    """The communication pattern; None with the reason where it is unknown."""

    pattern: Pattern | None
    refused: str | None


class _Sum(msgspec.Struct):
    count: int = 0
    bytes: int | None = None
    latencies: list[float] | None = None

    def add(self, size: int | None, took_ms: float | None) -> None:
        self.count += 1
        if size is not None:
            self.bytes = (self.bytes or 0) + size
        if took_ms is not None:
            self.latencies = [*(self.latencies or ()), took_ms]


def matrix_of(collectives: Iterable[Collective], groups: Iterable[ProcessGroup], ranks: Sequence[int]) -> TrafficMatrix:
    """The traffic matrix of one job in one capture, from buffers that reach back differently far."""
    by_key = {(group.witness, group.name): group for group in groups}
    sums: dict[tuple[int, int], _Sum] = defaultdict(_Sum)
    left_out: dict[str, int] = defaultdict(int)
    operations = 0
    for entry in collectives:
        operations += 1
        pairs = _pairs(entry, by_key)
        if not pairs:
            left_out[operation(entry.profiling_name).kind] += 1
            continue
        size = payload_bytes(entry)
        share = size // (len(pairs) + 1) if size is not None and _is_divided(entry) else size
        for pair in pairs:
            sums[pair].add(share, entry.duration_ms)
    cells = tuple(_cell(pair, total) for pair, total in sorted(sums.items()))
    return TrafficMatrix(
        tuple(ranks), cells, dict(sorted(left_out.items())), None if cells else _why_empty(operations, left_out)
    )


def _cell(pair: tuple[int, int], total: _Sum) -> TrafficCell:
    took = total.latencies
    return TrafficCell(*pair, total.count, total.bytes, sum(took) / len(took) if took else None)


def _why_empty(total: int, left_out: Mapping[str, int]) -> str:
    if not total:
        return "no operation was recorded"
    kinds = ", ".join(left_out)
    return f"none of the {total} operations names a pair of ranks, or its group's members are not known: {kinds}"


def _is_divided(entry: Collective) -> bool:
    """Whether the input of a rank is divided among all members, itself included."""
    return _PAIRED.get(operation(entry.profiling_name).kind, False)


def _pairs(entry: Collective, groups: Mapping[GroupKey, ProcessGroup]) -> list[tuple[int, int]]:
    """The pairs of ranks of an operation; none for a receive whose sender records the send."""
    key = group_key(entry)
    group, op = groups.get(key) if key else None, operation(entry.profiling_name)
    if group is None or not group.is_whole:
        return []
    if op.source is not None:
        pair = group.ends(op)
        return [] if pair is None or (op.kind == "recv" and pair[0] in group.members) else [pair]
    if entry.rank is None or op.kind not in _PAIRED:
        return []
    return [(entry.rank, other) for other in group.ranks if other != entry.rank]


# -- the pattern -------------------------------------------------------------------------------------------------------


def pattern_of(matrix: TrafficMatrix) -> PatternFound:
    """The pattern of the ranks with any traffic."""
    if not matrix.cells:
        return PatternFound(None, matrix.refused)
    edges = {(cell.source, cell.destination) for cell in matrix.cells}
    ranks = {rank for edge in edges for rank in edge}
    if len(ranks) < 3:
        return PatternFound("pairwise", None)
    for name, fits in _SHAPES:
        if fits(ranks, edges):
            return PatternFound(name, None)
    return PatternFound("custom", None)


_Edges = set[tuple[int, int]]


def _is_all_to_all(ranks: set[int], edges: _Edges) -> bool:
    return len(edges) == len(ranks) * (len(ranks) - 1)


def _is_ring(ranks: set[int], edges: _Edges) -> bool:
    """One cycle through every rank, in one or both directions."""
    neighbours = _neighbours(edges)
    one_way = all(sum(source == rank for source, _ in edges) == 1 for rank in ranks)
    if not all(len(neighbours[rank]) == 2 for rank in ranks) or not (one_way or _is_symmetric(edges)):
        return False
    return _reached(neighbours, min(ranks)) == ranks


def _is_pairwise(ranks: set[int], edges: _Edges) -> bool:
    neighbours = _neighbours(edges)
    return all(len(neighbours[rank]) == 1 for rank in ranks)


def _is_tree(ranks: set[int], edges: _Edges) -> bool:
    """Connected and acyclic, including a pipeline."""
    neighbours = _neighbours(edges)
    links = sum(map(len, neighbours.values())) // 2
    return links == len(ranks) - 1 and _reached(neighbours, min(ranks)) == ranks


def _is_butterfly(ranks: set[int], edges: _Edges) -> bool:
    """Each rank with the ranks whose number differs in one bit, as in recursive doubling."""
    size = len(ranks)
    if size & (size - 1) or ranks != set(range(size)) or size < 4:
        return False
    return edges == {
        (rank, rank ^ bit) for rank in ranks for bit in (1 << shift for shift in range(size.bit_length() - 1))
    }


def _neighbours(edges: _Edges) -> dict[int, set[int]]:
    neighbours: dict[int, set[int]] = defaultdict(set)
    for source, destination in edges:
        neighbours[source].add(destination)
        neighbours[destination].add(source)
    return neighbours


def _is_symmetric(edges: _Edges) -> bool:
    return all((destination, source) in edges for source, destination in edges)


def _reached(neighbours: Mapping[int, set[int]], start: int) -> set[int]:
    seen, border = {start}, [start]
    while border:
        border = list({neighbour for rank in border for neighbour in neighbours[rank]} - seen)
        seen.update(border)
    return seen


#: In order of precedence: three ranks in a bidirectional ring are all-to-all, too.
_SHAPES: Final[tuple[tuple[Pattern, Callable[[set[int], _Edges], bool]], ...]] = (
    ("all_to_all", _is_all_to_all),
    ("pairwise", _is_pairwise),
    ("ring", _is_ring),
    ("butterfly", _is_butterfly),
    ("tree", _is_tree),
)  # fmt: skip
