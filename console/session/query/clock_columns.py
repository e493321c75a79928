"""`t_cluster` and `bound_ns`: the common clock as SQL columns beside each record's own stamps.

Stamps are never rewritten; records outside the clock model have null in both. SQL gets the model's line
(`analysis.clock.CommonClock`) as straight pieces: the same instants to a nanosecond, and bounds at least as large.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from ...analysis.clock.model import CommonClock
from ...records import ClockNode
from .views import SHORT_VIEWS, tables_named

#: ns. Extrapolation of a line beyond its first and last window.
BEYOND_NS: Final = 3_600_000_000_000
#: ns. Rounding of both ends of a piece, and between them.
_ROUNDING_NS: Final = 3


@dataclass(frozen=True)
class Piece:
    """One straight piece of a node's line, from `from_mono` to `to_mono` of its MONOTONIC_RAW, ns.

    common = common + (mono - mono0) * (1 + rate); bound = bound_ns + |mono - mono0| * growth.
    """

    node: str
    from_mono: int
    to_mono: int
    mono: int
    common: int
    rate: float
    bound_ns: int
    growth: float


def pieces(records: Iterable[ClockNode]) -> Iterator[Piece]:
    """Yield the lines of all nodes as pieces; `records` in order of arrival."""
    lines: dict[str, list[ClockNode]] = {}
    for record in records:
        if record.at_common is not None and record.alpha is not None and record.bound_ns is not None:
            line = lines.setdefault(record.node, [])
            if line and record.at_mono <= line[-1].at_mono:
                line.clear()  # after a reboot MONOTONIC_RAW restarts
            line.append(record)
    clock = CommonClock(lines, {})
    for node, line in lines.items():
        yield from _pieces_of(clock, node, [record.at_mono for record in line])


def _pieces_of(clock: CommonClock, node: str, middles: list[int]) -> Iterator[Piece]:
    first, last = middles[0], middles[-1]
    yield _end(clock, node, first, first - BEYOND_NS)
    for begin, end in pairwise(middles):
        yield _between(clock, node, begin, end)
    yield _end(clock, node, last, last + BEYOND_NS)


def _between(clock: CommonClock, node: str, begin: int, end: int) -> Piece:
    here, half, there = (_at(clock, node, mono) for mono in (begin, (begin + end) // 2, end))
    # between windows the bound grows with the unobserved drift, most in the middle
    wander = max(0, half[1] - (here[1] + there[1]) // 2)
    bound = max(here[1], there[1]) + wander + _ROUNDING_NS
    rate = (there[0] - here[0] - (end - begin)) / (end - begin)
    return Piece(node, begin, end, begin, here[0], rate, bound, 0.0)


def _end(clock: CommonClock, node: str, near: int, far: int) -> Piece:
    here, there = _at(clock, node, near), _at(clock, node, far)
    gone = far - near
    rate, growth = (there[0] - here[0] - gone) / gone, (there[1] - here[1]) / abs(gone)
    return Piece(node, min(near, far), max(near, far), near, here[0], rate, here[1] + _ROUNDING_NS, growth)


def _at(clock: CommonClock, node: str, mono: int) -> tuple[int, int]:
    common = clock.to_cluster(node, mono)
    assert common is not None  # the node has a line
    return common.ns, common.bound_ns


def with_cluster_time(sql: str, pieces_table: str = "") -> str:
    """Return a query of records with both columns added; null without a table of pieces."""
    if not pieces_table:
        return f"SELECT *, NULL::BIGINT AS t_cluster, NULL::BIGINT AS bound_ns FROM ({sql})"
    gone = "(r.mono - p.mono)"
    return f"""
        SELECT r.*,
               CASE WHEN r.mono <= p.to_mono THEN p.common + {gone} + floor({gone} * p.rate)::BIGINT END AS t_cluster,
               CASE WHEN r.mono <= p.to_mono THEN p.bound_ns + ceil(abs({gone}) * p.growth)::BIGINT END AS bound_ns
        FROM ({sql}) r ASOF LEFT JOIN {pieces_table} p ON r.node = p.node AND r.mono >= p.from_mono
    """


#: `*` as columns, not as multiplication.
_STAR: Final = re.compile(r"(\b(select|distinct|all)|,|\.|\bon\s*\([^)]*\))\s*\*", re.IGNORECASE)


def needs_cluster_time(sql: str) -> bool:
    """Whether a query may use either column: by name, by `*`, or by a short view that has them.

    Otherwise they are left out: they cost a lookup in the node's line per row.
    """
    words = re.sub(r"count\s*\(\s*\*\s*\)", "", sql, flags=re.IGNORECASE)
    named = set(re.findall(r"\w+", words.lower()))
    if named & {"t_cluster", "bound_ns", "columns", "summarize", "table"} or _STAR.search(words):
        return True
    if any(view.name in named and "t_cluster" in view.sql for view in SHORT_VIEWS):
        return True
    return (
        re.match(r"\s*(select|with)\b", words, re.IGNORECASE) is None
        or re.search(r"(^|[(;])\s*from\b", words, re.IGNORECASE) is not None
    )


def tables_for(sql: str) -> tuple[frozenset[str], bool]:
    """Return the tables a query needs, and whether it may use cluster time, which needs one more."""
    timed = needs_cluster_time(sql)
    return tables_named(sql) | ({"clock_node"} if timed else frozenset()), timed
