"""A session in figures: per GPU, rank or node what its figures were, how long they were zero, what energy that took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from ...records import Gpu
from ...records.metrics import fields_for

if TYPE_CHECKING:
    from .engine import Database
    from .output import ResultColumn, Rows

By = Literal["gpu", "rank", "node"]
#: A row of `_THINGS`.
Thing = Mapping[str, Any]
BY: Final[tuple[By, ...]] = ("gpu", "rank", "node")

#: Figures that are told, as columns of `gpu`.
_FIGURES: Final = fields_for(Gpu, "stat")
_NAMES: Final[dict[By, str]] = {
    "gpu": 'node, "index", uuid', "rank": "job, attempt, rank", "node": "node",
}  # fmt: skip


#: What has figures of its own, in the order in which it is told; on which nodes, and how many samples there are.
_THINGS: Final[dict[By, str]] = {
    "gpu": 'SELECT node, "index", uuid, list_value(node) AS nodes, count(*) AS samples FROM gpu GROUP BY ALL',
    "rank": """
        WITH counted AS (SELECT node, uuid, count(*) AS samples FROM gpu GROUP BY ALL)
        SELECT job, attempt, rank, list(DISTINCT node) AS nodes, sum(samples)::BIGINT AS samples
        FROM counted JOIN (SELECT DISTINCT node, uuid, job, attempt, rank FROM gpu_of_rank) USING (node, uuid)
        GROUP BY ALL
    """,
    "node": "SELECT node, list_value(node) AS nodes, count(*) AS samples FROM gpu GROUP BY node",
}
#: Samples that one question looks at, where the thing itself does not have more: a median needs them all in memory.
SAMPLES_AT_ONCE: Final = 400_000


def figures(database: Database, by: By, deadline_s: float) -> tuple[tuple[ResultColumn, ...], Iterator[Rows]]:
    """A row each thing; some things at once, so that a long session needs no more memory than a short one.

    Raises QueryError, and what the source raises, also while the rows are read.
    """
    names = _NAMES[by].split(", ")
    things = database.query(f"{_THINGS[by]} ORDER BY {_NAMES[by]}", limit=None, deadline_s=deadline_s).to_dicts()
    slices = list(_slices(things)) or [[]]
    columns, first = database.stream(figures_query(by, names, slices[0]), deadline_s=deadline_s)

    def rows() -> Iterator[Rows]:
        yield from first
        for some in slices[1:]:
            yield from database.stream(figures_query(by, names, some), deadline_s=deadline_s)[1]

    return columns, rows()


def _slices(things: Sequence[Thing]) -> Iterator[list[Thing]]:
    held: list[Thing] = []
    samples = 0
    for thing in things:
        if held and samples + thing["samples"] > SAMPLES_AT_ONCE:
            yield held
            held, samples = [], 0
        held.append(thing)
        samples += thing["samples"]
    if held:
        yield held


def figures_query(by: By, names: Sequence[str], things: Sequence[Thing]) -> str:
    """The question whose answer are the figures of these things, a row each.

    `zero_s` is how long `util_pct` was 0: the samples that were, times the time between samples. `energy_j` is what the
    driver counted between the first and the last sample; of several GPUs together, all theirs.
    """
    named = _NAMES[by]
    keys = ", ".join(f"({', '.join(_literal(thing[name.strip(chr(34))]) for name in names)})" for thing in things)
    nodes = ", ".join(sorted({_literal(node) for thing in things for node in thing["nodes"]}))
    where = f"node IN ({nodes}) AND ({named}) IN ({keys})" if things else "false"
    source = f"{'gpu_by_rank' if by == 'rank' else 'gpu'} WHERE {where}"
    parts = ", ".join(
        f"avg({name}) AS mean_{name}, quantile_cont({name}, [0.5, 0.95]) AS q_{name}, max({name}) AS max_{name}"
        for name in _FIGURES
    )
    told = ", ".join(
        f"mean_{name}, q_{name}[1] AS p50_{name}, q_{name}[2] AS p95_{name}, max_{name}" for name in _FIGURES
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
        SELECT {named}, samples, {told}, zero_s, spent_j AS energy_j
        FROM figures JOIN spans USING ({named}) ORDER BY {named}
    """


def _literal(value: str | float | None) -> str:
    if value is None:
        return "NULL"
    return str(value) if isinstance(value, (int, float)) else "'" + value.replace("'", "''") + "'"


#: How long each step of a job took: from the first rank that was seen in it to the first one seen in the next.
STEP_TIMES: Final = """
    WITH first AS (SELECT job, step, min(t) AS t FROM rank_stat WHERE step IS NOT NULL GROUP BY ALL)
    SELECT job, step, (lead(t) OVER (PARTITION BY job ORDER BY step) - t) / 1e9
        / (lead(step) OVER (PARTITION BY job ORDER BY step) - step) AS step_s
    FROM first QUALIFY step_s IS NOT NULL ORDER BY job, step
"""
