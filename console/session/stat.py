"""A session in figures: per GPU, rank or node what its figures were, how long they were zero, what energy that took."""

from __future__ import annotations

from typing import Final, Literal

By = Literal["gpu", "rank", "node"]
BY: Final[tuple[By, ...]] = ("gpu", "rank", "node")

#: Figures that are told, as columns of `gpu`.
_FIGURES: Final = ("util_pct", "mem_used_bytes", "power_w", "temp_c")
_NAMES: Final[dict[By, str]] = {
    "gpu": 'node, "index", uuid', "rank": "job, attempt, rank", "node": "node",
}  # fmt: skip


def question(by: By) -> str:
    """The question whose answer are those figures, a row each thing.

    `zero_s` is how long `util_pct` was 0: the samples that were, times the time between samples. `energy_j` is what the
    driver counted between the first and the last sample; of several GPUs together, all theirs.
    """
    source = "gpu_by_rank" if by == "rank" else "gpu"
    figures = ", ".join(
        f"avg({name}) AS mean_{name}, quantile_cont({name}, 0.5) AS p50_{name}, "
        f"quantile_cont({name}, 0.95) AS p95_{name}, max({name}) AS max_{name}"
        for name in _FIGURES
    )
    names = _NAMES[by]
    return f"""
        WITH each AS (
            SELECT {names}, uuid AS device, count(*) AS rows, min(mono) AS first, max(mono) AS last,
                   count(*) FILTER (WHERE util_pct = 0) AS zeros, max(energy_j) - min(energy_j) AS joules
            FROM {source} GROUP BY ALL
        ), spans AS (
            SELECT {names}, sum(rows)::BIGINT AS samples, sum(joules) AS spent_j,
                   sum(CASE WHEN rows > 1 THEN zeros * (last - first) / (rows - 1) / 1e9 END) AS zero_s
            FROM each GROUP BY {names}
        )
        SELECT {names}, any_value(samples) AS samples, {figures},
               any_value(zero_s) AS zero_s, any_value(spent_j) AS energy_j
        FROM {source} JOIN spans USING ({names}) GROUP BY {names} ORDER BY {names}
    """


#: How long each step of a job took: from the first rank that was seen in it to the first one seen in the next.
STEP_TIMES: Final = """
    WITH first AS (SELECT job, step, min(t) AS t FROM rank_stat WHERE step IS NOT NULL GROUP BY ALL)
    SELECT job, step, (lead(t) OVER (PARTITION BY job ORDER BY step) - t) / 1e9
        / (lead(step) OVER (PARTITION BY job ORDER BY step) - step) AS step_s
    FROM first QUALIFY step_s IS NOT NULL ORDER BY job, step
"""
