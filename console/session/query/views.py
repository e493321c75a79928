"""The columns and views that SQL gets beyond the records' tables: short views, and the common clock.

Short views are plain SQL; `gconsole query SESSION DESCRIBE` lists them beside the tables.

`t_cluster` and `bound_ns` are the common clock beside each record's own stamps, which are never rewritten; records
outside the clock model have null in both. SQL gets the line of `analysis.clock.model.CommonClock` as straight pieces:
the same instants to a nanosecond, and bounds at least as large.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final

import msgspec

from ...analysis.clock.model import CommonClock
from ...records import ClockNode, ClockSnapshot
from ..format.table_schema import TABLES


class ShortView(msgspec.Struct, frozen=True):
    """One query with a name. `tables` are those it reads."""

    name: str
    tables: tuple[str, ...]
    meaning: str
    sql: str


#: Which rank has which GPU: what the driver says of its processes, else what the rank's environment says.
_GPU_OF_RANK: Final = ShortView(
    "gpu_of_rank",
    ("gpu_process", "gpu_info", "rank"),
    "The GPU of each rank, from the processes on the GPU, else from the rank's environment.",
    """
    WITH reported AS (
        SELECT node, uuid, job, attempt, rank, max(t) AS t FROM gpu_process
        WHERE rank IS NOT NULL GROUP BY ALL
    ), latest AS (
        SELECT node, job, attempt, rank, arg_max(gpu, t) AS gpu FROM rank
        WHERE rank IS NOT NULL AND gpu IS NOT NULL GROUP BY ALL
    ), guessed AS (
        SELECT DISTINCT l.node, i.uuid, l.job, l.attempt, l.rank
        FROM latest l JOIN gpu_info i ON i.node = l.node AND (i.uuid = l.gpu OR i."index"::VARCHAR = l.gpu)
        WHERE (l.node, l.job, l.attempt, l.rank) NOT IN (SELECT (node, job, attempt, rank) FROM reported)
    )
    SELECT node, uuid, job, attempt, rank, 'gpu_process' AS source FROM reported
    UNION ALL SELECT node, uuid, job, attempt, rank, 'rank' AS source FROM guessed
    """,
)

SHORT_VIEWS: Final[tuple[ShortView, ...]] = (
    _GPU_OF_RANK,
    ShortView(
        "gpu_by_rank", ("gpu", *_GPU_OF_RANK.tables),
        "Samples of GPUs with the rank that uses them.",
        """
        SELECT o.job, o.attempt, o.rank, g.*
        FROM gpu g JOIN (SELECT DISTINCT node, uuid, job, attempt, rank FROM gpu_of_rank) o USING (node, uuid)
        """,
    ),
    ShortView(
        "ranks_now", ("rank", "rank_stat", "gpu", *_GPU_OF_RANK.tables),
        "Latest state of each rank, with the latest metrics of its process and of its GPU.",
        """
        WITH last_rank AS (
            SELECT * FROM rank
            QUALIFY row_number() OVER (PARTITION BY node, pid, start_ticks ORDER BY rx DESC, seq DESC) = 1
        ), last_stat AS (
            SELECT * FROM rank_stat
            QUALIFY row_number() OVER (PARTITION BY node, pid, start_ticks ORDER BY rx DESC, seq DESC) = 1
        ), last_gpu AS (
            SELECT node, uuid, "index", arg_max(util_pct, rx) AS util_pct,
                   arg_max(mem_used_bytes, rx) AS mem_used_bytes, arg_max(power_w, rx) AS power_w
            FROM gpu GROUP BY ALL
        )
        SELECT r.job, r.attempt, r.rank, r.local_rank, r.world_size, r.node, r.pid, r.status, s.state, s.step,
               s.cpu_pct, s.rss_bytes, s.wchan, o.uuid AS gpu, g."index" AS gpu_index, g.util_pct AS gpu_util_pct,
               g.mem_used_bytes AS gpu_mem_used_bytes, g.power_w AS gpu_power_w, r.reason,
               coalesce(s.t, r.t) AS t, coalesce(s.t_cluster, r.t_cluster) AS t_cluster,
               coalesce(s.bound_ns, r.bound_ns) AS bound_ns
        FROM last_rank r
        LEFT JOIN last_stat s USING (node, pid, start_ticks)
        LEFT JOIN gpu_of_rank o ON (o.node, o.job, o.attempt, o.rank) = (r.node, r.job, r.attempt, r.rank)
        LEFT JOIN last_gpu g ON (g.node, g.uuid) = (o.node, o.uuid)
        WHERE r.status <> 'withdrawn'
        ORDER BY r.job, r.attempt, r.rank, gpu_index
        """,
    ),
    ShortView(
        "backtrace", ("stack",),
        "One row per call of each stack of each capture; depth 0 is the innermost call.",
        """
        WITH read AS (
            SELECT * REPLACE (coalesce(frames, first_value(frames IGNORE NULLS)
                OVER (PARTITION BY node, agent, capture, path ORDER BY seq)) AS frames)
            FROM stack WHERE path IS NOT NULL OR frames IS NOT NULL
        )
        SELECT capture, sample, job, attempt, rank, node, pid, role, thread_id, thread_name,
               pid = os_thread_id AS is_main, active, gil, len(frames) - place AS depth,
               frames[place]."function" AS func, frames[place].file AS file, frames[place].line AS lineno,
               frames[place].source AS source, frames[place].native AS native, t, t_cluster, bound_ns
        FROM (SELECT *, unnest(range(1, len(frames) + 1)) AS place FROM read)
        """,
    ),
    ShortView(
        "stack_groups", ("stack",),
        "Ranks with the same stack of the main thread, in the last sample of each capture; smallest group first.",
        """
        WITH calls AS (
            SELECT capture, sample, job, attempt, rank, node, pid,
                   string_agg(func || ' ' || parse_filename(file) || ':' || lineno, ' < ' ORDER BY depth) AS stack
            FROM backtrace b
            WHERE is_main AND role = 'rank' AND sample = (SELECT max(sample) FROM stack s WHERE s.capture = b.capture)
            GROUP BY capture, sample, job, attempt, rank, node, pid
        )
        SELECT capture, job, attempt, count(*) AS count, list(rank ORDER BY rank) AS ranks,
               list(DISTINCT node ORDER BY node) AS nodes, stack
        FROM calls GROUP BY capture, job, attempt, stack
        ORDER BY capture, count, stack
        """,
    ),
    ShortView(
        "collective_waits", ("collective",),
        "Operations that ranks have entered and not left, from their communication libraries; longest wait first.",
        """
        SELECT capture, job, attempt, process_group[1] AS "group", process_group[2] AS group_description,
               coalesce(collective_seq_id, p2p_seq_id) AS seq_id, is_p2p, profiling_name AS operation,
               any_value(group_size) AS group_size, count(DISTINCT rank) AS waiting,
               list(DISTINCT rank ORDER BY rank) AS ranks, max(read_at - time_created_ns) / 1e9 AS waited_s
        FROM collective WHERE retired = false
        GROUP BY ALL ORDER BY waited_s DESC NULLS LAST
        """,
    ),
)  # fmt: skip


def views_named(sql: str) -> frozenset[str]:
    """Return the short views that a query may read: every word in it that is one, and those behind another."""
    words = _words(sql)
    for view in reversed(SHORT_VIEWS):  # a view reads only views above it
        if view.name in words:
            words |= _words(view.sql)
    return frozenset(view.name for view in SHORT_VIEWS if view.name in words)


def tables_named(sql: str) -> frozenset[str]:
    """Return the tables that a query may read: every word in it that is one, and those behind a short view."""
    named = views_named(sql)
    words = _words(sql).union(*(view.tables for view in SHORT_VIEWS if view.name in named))
    return frozenset(words & set(TABLES))


def _words(sql: str) -> set[str]:
    return {word.lower() for word in re.findall(r"\w+", sql)}


#: ns. Extrapolation of a line beyond its first and last window.
BEYOND_NS: Final = 3_600_000_000_000
#: ns. Rounding of both ends of a piece, and between them.
_ROUNDING_NS: Final = 3


class Piece(msgspec.Struct, frozen=True):
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


#: SQL functions of a node and its CLOCK_REALTIME in ns: the instant on the common clock, and its error bound.
TO_CLUSTER: Final = ("to_cluster", "to_cluster_bound_ns")


class RealPiece(msgspec.Struct, frozen=True):
    """One straight piece from a node's CLOCK_REALTIME to the common clock, from `from_real` to `to_real`, ns."""

    node: str
    from_real: int
    to_real: int
    common: int
    rate: float
    bound_ns: int


def real_pieces(records: Iterable[ClockNode | ClockSnapshot]) -> Iterator[RealPiece]:
    """Yield the conversion of CLOCK_REALTIME for all nodes, between their snapshots; `records` in order of arrival."""
    records = list(records)
    clock = CommonClock.of(records)
    stamps: dict[str, list[int]] = {}
    for record in records:
        if isinstance(record, ClockSnapshot):
            stamps.setdefault(record.node, []).append(record.real)
    for node, reals in stamps.items():
        reals = sorted(set(reals))
        edges = [reals[0] - BEYOND_NS, *reals, reals[-1] + BEYOND_NS]
        for begin, end in pairwise(edges):
            here, half, there = (clock.to_cluster(node, real, "real") for real in (begin, (begin + end) // 2, end - 1))
            if here is None or half is None or there is None:
                continue
            took = max(1, end - 1 - begin)
            bent = abs(half.ns - (here.ns + there.ns) // 2)
            bound_ns = max(here.bound_ns, half.bound_ns, there.bound_ns) + bent + _ROUNDING_NS
            yield RealPiece(node, begin, end, here.ns, (there.ns - here.ns - took) / took, bound_ns)


def to_cluster_macros(pieces_table: str) -> str:
    """SQL that creates the functions `TO_CLUSTER`; without a table of pieces they return null."""
    if not pieces_table:
        return "".join(f"CREATE MACRO {name}(node, t) AS NULL::BIGINT;" for name in TO_CLUSTER)
    gone = "(of_t - p.from_real)"
    values = (f"p.common + {gone} + floor({gone} * p.rate)::BIGINT", "p.bound_ns")
    return "".join(
        f"""CREATE MACRO {name}(of_node, of_t) AS (
                SELECT max({value}) FROM {pieces_table} p
                WHERE p.node = of_node AND p.from_real <= of_t AND of_t < p.to_real);"""
        for name, value in zip(TO_CLUSTER, values, strict=True)
    )


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
    tables = tables_named(sql) | ({"clock_node"} if timed else frozenset())
    return tables | ({"clock_node", "clock_snapshot"} if has_to_cluster(sql) else frozenset()), timed


def has_to_cluster(sql: str) -> bool:
    """Whether a query may call one of `TO_CLUSTER`."""
    return not _words(sql).isdisjoint(TO_CLUSTER)
