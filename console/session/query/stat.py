"""Statistics of a session per GPU, rank or node: distribution of metrics, time at zero utilisation, energy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from ...records import Gpu
from ...records.metrics import fields_for
from ..format.table_schema import literal

if TYPE_CHECKING:
    from .engine import Database
    from .output import ResultColumn, Rows

By = Literal["gpu", "rank", "node"]
#: A row of `_ENTITIES`.
Entity = Mapping[str, Any]
BY: Final[tuple[By, ...]] = ("gpu", "rank", "node")

#: Reported metrics, as columns of `gpu`.
_METRICS: Final = fields_for(Gpu, "stat")
_NAMES: Final[dict[By, str]] = {
    "gpu": 'node, "index", uuid', "rank": "job, attempt, rank", "node": "node",
}  # fmt: skip


#: Entities in order, the nodes they use, and their numbers of samples.
_ENTITIES: Final[dict[By, str]] = {
    "gpu": 'SELECT node, "index", uuid, list_value(node) AS nodes, count(*) AS samples FROM gpu GROUP BY ALL',
    "rank": """
        WITH counted AS (SELECT node, uuid, count(*) AS samples FROM gpu GROUP BY ALL)
        SELECT job, attempt, rank, list(DISTINCT node) AS nodes, sum(samples)::BIGINT AS samples
        FROM counted JOIN (SELECT DISTINCT node, uuid, job, attempt, rank FROM gpu_of_rank) USING (node, uuid)
        GROUP BY ALL
    """,
    "node": "SELECT node, list_value(node) AS nodes, count(*) AS samples FROM gpu GROUP BY node",
}
#: Upper bound of the samples of one query, unless one entity has more: a median needs them in memory.
SAMPLES_AT_ONCE: Final = 400_000


def figures(database: Database, by: By, deadline_s: float) -> tuple[tuple[ResultColumn, ...], Iterator[Rows]]:
    """Return a row per entity, computed in slices of entities, so that memory does not grow with the session.

    Raises QueryError, and what the source raises, also while the rows are read.
    """
    names = _NAMES[by].split(", ")
    entities = database.query(f"{_ENTITIES[by]} ORDER BY {_NAMES[by]}", limit=None, deadline_s=deadline_s).to_dicts()
    slices = list(_slices(entities)) or [[]]
    columns, first = database.stream(figures_query(by, names, slices[0]), deadline_s=deadline_s)

    def rows() -> Iterator[Rows]:
        yield from first
        for some in slices[1:]:
            yield from database.stream(figures_query(by, names, some), deadline_s=deadline_s)[1]

    return columns, rows()


def _slices(entities: Sequence[Entity]) -> Iterator[list[Entity]]:
    held: list[Entity] = []
    samples = 0
    for entity in entities:
        if held and samples + entity["samples"] > SAMPLES_AT_ONCE:
            yield held
            held, samples = [], 0
        held.append(entity)
        samples += entity["samples"]
    if held:
        yield held


def figures_query(by: By, names: Sequence[str], entities: Sequence[Entity]) -> str:
    """Return the query of the statistics of these entities.

    `zero_s` is the time at `util_pct` = 0: the number of such samples times the mean interval. `energy_j` is the
    difference of the driver's counters between the first and last sample, summed over GPUs.
    """
    named = _NAMES[by]
    keys = ", ".join(f"({', '.join(_literal(entity[name.strip(chr(34))]) for name in names)})" for entity in entities)
    nodes = ", ".join(sorted({_literal(node) for entity in entities for node in entity["nodes"]}))
    where = f"node IN ({nodes}) AND ({named}) IN ({keys})" if entities else "false"
    source = f"{'gpu_by_rank' if by == 'rank' else 'gpu'} WHERE {where}"
    parts = ", ".join(
        f"avg({name}) AS mean_{name}, quantile_cont({name}, [0.5, 0.95]) AS q_{name}, max({name}) AS max_{name}"
        for name in _METRICS
    )
    columns = ", ".join(
        f"mean_{name}, q_{name}[1] AS p50_{name}, q_{name}[2] AS p95_{name}, max_{name}" for name in _METRICS
    )
    return f"""
        WITH each AS (
            SELECT {named}, uuid AS device, count(*) AS rows, min(mono) AS first, max(mono) AS last,
                   count(*) FILTER (WHERE util_pct = 0) AS zeros, max(energy_j) - min(energy_j) AS joules
            FROM {source} GROUP BY ALL
        ), spans AS (
            SELECT {named}, sum(rows)::BIGINT AS samples, sum(joules) AS spent_j,
                   sum(CASE WHEN rows > 1 THEN zeros * (last - first) / (rows - 1) / 1e9 END) AS zero_s
            FROM each GROUP BY {named}
        ), figures AS (
            SELECT {named}, {parts} FROM {source} GROUP BY {named}
        )
        SELECT {named}, samples, {columns}, zero_s, spent_j AS energy_j
        FROM figures JOIN spans USING ({named}) ORDER BY {named}
    """


def _literal(value: str | float | None) -> str:
    if isinstance(value, str):
        return literal(value)
    return "NULL" if value is None else str(value)


#: Seconds of each step of a job, the median of its ranks. Of one rank: the time between two samples, by the clock of
#: its node, over the steps between them; a sample shows when a step was seen, which is up to an interval late.
STEP_TIMES: Final = """
    WITH seen AS (
        SELECT job, attempt, rank, node, pid, start_ticks, step, min(mono) AS mono FROM rank_stat
        WHERE step IS NOT NULL GROUP BY ALL
    ), each AS (
        SELECT job, step, (mono - lag(mono) OVER run) / 1e9 / (step - lag(step) OVER run) AS step_s FROM seen
        WINDOW run AS (PARTITION BY job, attempt, rank, node, pid, start_ticks ORDER BY step)
    )
    SELECT job, step, median(step_s) AS step_s FROM each WHERE step_s > 0 GROUP BY ALL ORDER BY job, step
"""
