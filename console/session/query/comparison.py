"""The facts, findings and metrics of two sessions, each from one query in the process that runs all queries."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from ...analysis.comparison import LINKS, ComparedSession, compare
from ...analysis.comparison import Comparison as Comparison
from ...analysis.comparison import Spread as Spread
from ...analysis.comparison import folded as folded
from ...records import KINDS, Link
from ...records.kinds import SPECS
from ...records.metrics import fields_for
from ..format.layout import SessionError
from .limits import QueryCancelled, QueryError
from .worker import QueryWorkerClient

#: Compared fields of a node and of its GPUs.
_OF_NODE: Final = ("kernel", "arch", "os", "python", "cpus", "mem_total_bytes")
_OF_GPU: Final = (
    "name", "driver", "cuda_driver", "vbios", "power_limit_w", "pcie_gen_max", "pcie_width_max", "nvlinks",
)  # fmt: skip
#: About so many samples of a metric are sorted.
KEPT: Final = 100_000
#: Seconds for the query of one session.
_DEADLINE_S: Final = 3600.0


def compare_sessions(a: Path, b: Path, queries: QueryWorkerClient) -> Comparison:
    """Compare two recorded sessions; `queries` cancels.

    Raises SessionError if one is damaged, QueryCancelled, OSError.
    """
    return compare(a.name, _read(a, queries), b.name, _read(b, queries))


def _read(path: Path, client: QueryWorkerClient) -> ComparedSession:
    try:
        result = client.query(_query(), path, limit=None, deadline_s=_DEADLINE_S)
    except QueryCancelled:
        raise
    except QueryError as error:
        raise SessionError(f"{path}: {error}") from error
    for damage in result.lost:
        raise SessionError(f"{path}: {damage}; try: gconsole sessions verify {path.name}, and recover")
    seen = ComparedSession()
    for section, node, what, value, samples, *spread in result.rows:
        match section:
            case "fact":
                seen.facts.setdefault(node, {})[what] = value
            case "finding":
                seen.findings.add(what)
            case _:
                seen.figures[what] = Spread(samples, *spread)
    return seen


def _query() -> str:
    """The query of a session: sections `fact`, `finding` and `figure`; null where a column is not of its section."""
    place = """'gpu' || "index" || coalesce('.' || mig_index, '') || ' '"""
    ends = ", ".join(SPECS[Link].key)
    figures = [_figures(kind, fields) for kind, struct in KINDS.items() if (fields := fields_for(struct, "diff"))]
    return f"""
        WITH facts AS (
            {_latest("node", _OF_NODE)}
            UNION ALL {_latest("gpu_info", _OF_GPU, place)}
            UNION ALL SELECT node, 'NCCL', last(nccl ORDER BY rx, seq) FROM rank WHERE nccl IS NOT NULL GROUP BY node
            UNION ALL SELECT node, type || '{LINKS}', count(*)::VARCHAR FROM (
                SELECT node, type, last(gone ORDER BY rx, seq) AS is_gone FROM link GROUP BY node, {ends}
            ) WHERE is_gone IS DISTINCT FROM true GROUP BY ALL
        )
        SELECT 'fact' AS section, node, what, value, NULL AS samples, NULL AS median, NULL AS p95, NULL AS p99,
               NULL AS max
        FROM facts
        UNION ALL BY NAME SELECT DISTINCT 'finding' AS section,
            id || CASE WHEN len(culprits) > 0 THEN ': ' || array_to_string(culprits, ', ') ELSE '' END AS what
        FROM finding
        UNION ALL BY NAME {" UNION ALL BY NAME ".join(figures)}
    """


def _latest(table: str, fields: Sequence[str], place: str = "''") -> str:
    """A row per node, place and field: its last value that is known."""
    values = ", ".join(
        f"last({name} ORDER BY rx, seq) FILTER (WHERE {name} IS NOT NULL)::VARCHAR AS {name}" for name in fields
    )
    return f"""SELECT node, prefix || what AS what, value FROM (
                   UNPIVOT (SELECT node, {place} AS prefix, {values} FROM {table} GROUP BY ALL)
                   ON {", ".join(fields)} INTO NAME what VALUE value)"""


def _figures(table: str, fields: Sequence[str]) -> str:
    """A row per metric; quantiles of every nth sample, by its hash, so that memory stays bounded."""
    spreads = ", ".join(
        f"""{{'samples': count({name}), 'max': max({name})::DOUBLE,
             'q': quantile_disc({name}::DOUBLE, [0.5, 0.95, 0.99]) FILTER (WHERE is_chosen)}} AS {name}"""
        for name in fields
    )
    return f"""
        SELECT 'figure' AS section, '{table}.' || what AS what, value.samples AS samples,
               value.q[1] AS median, value.q[2] AS p95, value.q[3] AS p99, value.max AS max
        FROM (UNPIVOT (
            SELECT {spreads} FROM (
                SELECT {", ".join(fields)},
                       hash(agent, seq) % (SELECT 1 + count(*) // {KEPT} FROM {table}) = 0 AS is_chosen
                FROM {table}
            )
        ) ON {", ".join(fields)} INTO NAME what VALUE value) WHERE value.samples > 0 AND value.q IS NOT NULL
    """
