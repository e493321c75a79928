"""The short names for common questions: each a query over the records' tables, and what it is for.

They are plain SQL that anybody could type; `gconsole query SESSION DESCRIBE` lists them beside the tables.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from ..format.table_schema import TABLES


@dataclass(frozen=True)
class ShortView:
    """One query with a name. `tables` are those it reads."""

    name: str
    tables: tuple[str, ...]
    meaning: str
    sql: str


#: Which rank has which GPU: what the driver says of its processes, else what the rank's environment says.
_GPU_OF_RANK: Final = ShortView(
    "gpu_of_rank",
    ("gpu_process", "gpu_info", "rank"),
    "Which rank has which GPU: of processes on it, else as the rank's own environment says.",
    """
    WITH told AS (
        SELECT node, uuid, job, attempt, rank, max(t) AS t FROM gpu_process
        WHERE rank IS NOT NULL GROUP BY ALL
    ), latest AS (
        SELECT node, job, attempt, rank, arg_max(gpu, t) AS gpu FROM rank
        WHERE rank IS NOT NULL AND gpu IS NOT NULL GROUP BY ALL
    ), guessed AS (
        SELECT DISTINCT l.node, i.uuid, l.job, l.attempt, l.rank
        FROM latest l JOIN gpu_info i ON i.node = l.node AND (i.uuid = l.gpu OR i."index"::VARCHAR = l.gpu)
        WHERE (l.node, l.job, l.attempt, l.rank) NOT IN (SELECT (node, job, attempt, rank) FROM told)
    )
    SELECT node, uuid, job, attempt, rank, 'gpu_process' AS source FROM told
    UNION ALL SELECT node, uuid, job, attempt, rank, 'rank' AS source FROM guessed
    """,
)

SHORT_VIEWS: Final[tuple[ShortView, ...]] = (
    _GPU_OF_RANK,
    ShortView(
        "gpu_by_rank", ("gpu", *_GPU_OF_RANK.tables),
        "Every sample of every GPU that a rank has, with that rank.",
        """
        SELECT o.job, o.attempt, o.rank, g.*
        FROM gpu g JOIN (SELECT DISTINCT node, uuid, job, attempt, rank FROM gpu_of_rank) o USING (node, uuid)
        """,
    ),
    ShortView(
        "ranks_now", ("rank", "rank_stat", "gpu", *_GPU_OF_RANK.tables),
        "Each rank as it was last seen, with the last figures of its process and of its GPU.",
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
        "Every call of every stack of every capture, a row each; depth 0 is the innermost.",
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
        "Ranks whose main threads stand at the same calls, in the last sample of each capture; the smallest first.",
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
        "Operations that ranks have entered and not left, as their own libraries recorded it, the longest wait first.",
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


def tables_named(sql: str) -> frozenset[str]:
    """Return the tables that a query may read: every word in it that is one, and those behind a short view."""
    words = {word.lower() for word in re.findall(r"\w+", sql)}
    for view in SHORT_VIEWS:
        if view.name in words:
            words |= set(view.tables)
    return frozenset(words & set(TABLES))
