"""Statistics of a session per GPU, rank or node: distribution of metrics, traffic, steps, idle time, energy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from ...records import Gpu
from ...records.metrics import fields_for
from ..format.table_schema import literal

By = Literal["gpu", "rank", "node"]
#: A row of `entities_query`.
Entity = Mapping[str, Any]

#: Columns of `gpu` of which the distribution is reported, and those of which mean and maximum are.
_METRICS: Final = fields_for(Gpu, "stat")
_TRAFFIC: Final = ("pcie_rx_bytes_s", "pcie_tx_bytes_s", "nvlink_rx_bytes_s", "nvlink_tx_bytes_s")
_NAMES: Final[dict[By, str]] = {
    "gpu": 'node, "index", uuid', "rank": "job, attempt, rank", "node": "node",
}  # fmt: skip
_ENTITIES: Final[dict[By, str]] = {
    "gpu": 'SELECT node, "index", uuid, list_value(node) AS nodes, count(*) AS samples FROM gpu GROUP BY ALL',
    "rank": """
        WITH counted AS (SELECT node, uuid, count(*) AS samples FROM gpu GROUP BY ALL),
        sampled AS (
            SELECT job, attempt, rank, list(DISTINCT node) AS nodes, sum(samples)::BIGINT AS samples
            FROM counted JOIN (SELECT DISTINCT node, uuid, job, attempt, rank FROM gpu_of_rank) USING (node, uuid)
            GROUP BY ALL
        ), stepping AS (
            SELECT job, attempt, rank, list(DISTINCT node) AS nodes FROM rank_stat WHERE step IS NOT NULL GROUP BY ALL
        )
        SELECT job, attempt, rank, coalesce(s.nodes, t.nodes) AS nodes, coalesce(samples, 0) AS samples
        FROM sampled s FULL JOIN stepping t USING (job, attempt, rank)
    """,
    "node": """
        SELECT node, list_value(node) AS nodes, sum(samples)::BIGINT AS samples FROM (
            SELECT node, count(*) AS samples FROM gpu GROUP BY node UNION ALL SELECT DISTINCT node, 0 FROM host
        ) GROUP BY node
    """,
}
#: Upper bound of the samples of one query, unless one entity has more: a median needs them in memory.
SAMPLES_AT_ONCE: Final = 800_000
#: Seconds of each step of each rank: the time between two samples, by the clock of its node, over the steps between
#: them; a sample shows when a step was seen, which is up to an interval late.
_EACH_STEP: Final = """
    SELECT job, attempt, rank, step, (mono - lag(mono) OVER run) / 1e9 / (step - lag(step) OVER run) AS step_s FROM (
        SELECT job, attempt, rank, node, pid, start_ticks, step, min(mono) AS mono FROM rank_stat
        WHERE step IS NOT NULL {more} GROUP BY ALL
    ) WINDOW run AS (PARTITION BY job, attempt, rank, node, pid, start_ticks ORDER BY step)
"""
#: Seconds of each step of a job: the median of its ranks.
STEP_TIMES: Final = f"""
    SELECT job, step, median(step_s) AS step_s FROM ({_EACH_STEP.format(more="")})
    WHERE step_s > 0 GROUP BY ALL ORDER BY job, step
"""


def entities_query(by: By) -> str:
    """Return the query of all entities in order, the nodes that they use, and their numbers of samples."""
    return f"{_ENTITIES[by]} ORDER BY {_NAMES[by]}"


def slices(entities: Sequence[Entity]) -> Iterator[list[Entity]]:
    """Yield the entities in slices for `figures_query`, so that memory does not grow with the session; at least one."""
    held: list[Entity] = []
    samples = 0
    for entity in entities:
        if held and samples + entity["samples"] > SAMPLES_AT_ONCE:
            yield held
            held, samples = [], 0
        held.append(entity)
        samples += entity["samples"]
    yield held


def figures_query(by: By, entities: Sequence[Entity]) -> str:
    """Return the query of the statistics of these entities.

    `zero_s` is the time at `util_pct` = 0: the number of such samples times the mean interval. `energy_j` is the
    difference of the driver's counters between the first and last sample, summed over GPUs. `nic_…` is the traffic of
    all ports of a node together.
    """
    named = _NAMES[by]
    names = [name.strip('"') for name in named.split(", ")]
    keys = ", ".join(f"({', '.join(_literal(entity[name]) for name in names)})" for entity in entities)
    nodes = ", ".join(sorted({_literal(node) for entity in entities for node in entity["nodes"]})) or "''"
    within = f"node IN ({nodes})"
    where = f"{within} AND ({named}) IN ({keys})" if entities else "false"
    table = "gpu_by_rank" if by == "rank" else "gpu"
    source = f"{table} WHERE {where}"
    parts = ", ".join(
        f"avg({name}) AS mean_{name}, quantile_cont({name}, [0.5, 0.95]) AS q_{name}, max({name}) AS max_{name}"
        for name in _METRICS
    )
    columns = ", ".join(
        f"mean_{name}, q_{name}[1] AS p50_{name}, q_{name}[2] AS p95_{name}, max_{name}" for name in _METRICS
    )
    wanted = f"VALUES {keys}" if entities else f"SELECT {named} FROM {table} WHERE false"
    beside = {"gpu": "", "rank": _steps(where), "node": _devices_of_nodes(within)}[by]
    more = f", {', '.join(_beside(by))}" if beside else ""
    return f"""
        WITH wanted({named}) AS ({wanted}), each AS (
            SELECT {named}, uuid AS device, count(*) AS rows, min(mono) AS first, max(mono) AS last,
                   count(*) FILTER (WHERE util_pct = 0) AS zeros, max(energy_j) - min(energy_j) AS joules
            FROM {source} GROUP BY ALL
        ), spans AS (
            SELECT {named}, sum(rows)::BIGINT AS samples, sum(joules) AS spent_j,
                   sum(CASE WHEN rows > 1 THEN zeros * (last - first) / (rows - 1) / 1e9 END) AS zero_s
            FROM each GROUP BY {named}
        ), figures AS (
            SELECT {named}, {parts}, {_mean_and_max(_TRAFFIC)} FROM {source} GROUP BY {named}
        )
        SELECT {named}, coalesce(samples, 0) AS samples, {columns}, {", ".join(_both(_TRAFFIC))}{more}, zero_s,
               spent_j AS energy_j
        FROM wanted LEFT JOIN figures USING ({named}) LEFT JOIN spans USING ({named}) {beside} ORDER BY {named}
    """


def _steps(where: str) -> str:
    return f"""LEFT JOIN (
        SELECT job, attempt, rank, max(step) - min(step) AS steps, median(step_s) AS p50_step_s,
               quantile_cont(step_s, 0.95) AS p95_step_s, max(step_s) AS max_step_s
        FROM ({_EACH_STEP.format(more=f"AND {where}")}) GROUP BY ALL
    ) USING (job, attempt, rank)"""


#: Traffic of a node: table, columns.
_NIC: Final = ("nic_rx_bytes_s", "nic_tx_bytes_s")
_DISK: Final = ("disk_read_bytes_s", "disk_write_bytes_s")


def _devices_of_nodes(within: str) -> str:
    ports = f"""SELECT node, t, sum(rx_bytes_s) AS nic_rx_bytes_s, sum(tx_bytes_s) AS nic_tx_bytes_s
                FROM nic WHERE {within} GROUP BY ALL"""
    return f"""LEFT JOIN (SELECT node, {_mean_and_max(_NIC)} FROM ({ports}) GROUP BY node) USING (node)
               LEFT JOIN (SELECT node, {_mean_and_max(_DISK)} FROM host WHERE {within} GROUP BY node) USING (node)"""


def _beside(by: By) -> list[str]:
    return ["steps", "p50_step_s", "p95_step_s", "max_step_s"] if by == "rank" else _both((*_NIC, *_DISK))


def _mean_and_max(names: Sequence[str]) -> str:
    return ", ".join(f"avg({name}) AS mean_{name}, max({name}) AS max_{name}" for name in names)


def _both(names: Sequence[str]) -> list[str]:
    return [f"{how}_{name}" for name in names for how in ("mean", "max")]


def _literal(value: str | float | None) -> str:
    if isinstance(value, str):
        return literal(value)
    return "NULL" if value is None else str(value)
