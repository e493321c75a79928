"""Comparison of two sessions: nodes, versions, links, findings and metrics; equal facts are omitted.

Each session is read by one query, in the process that runs all queries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from ...records import KINDS, Link
from ...records.kinds import SPECS
from ...records.metrics import fields_for
from ..format.layout import Session, SessionError
from ..query.limits import QueryCancelled, QueryError
from ..query.worker import QueryWorkerClient

#: Compared fields of a node and of its GPUs.
_OF_NODE: Final = ("kernel", "arch", "os", "python", "cpus", "mem_total_bytes")
_OF_GPU: Final = (
    "name", "driver", "cuda_driver", "vbios", "power_limit_w", "pcie_gen_max", "pcie_width_max", "nvlinks",
)  # fmt: skip
#: Suffix of the facts that count the links of a type.
LINKS: Final = " links"
#: About so many samples of a metric are sorted.
KEPT: Final = 100_000
#: Seconds for the query of one session.
_DEADLINE_S: Final = 3600.0


class Spread(msgspec.Struct, frozen=True):
    """Distribution of one metric; of more than `KEPT` samples, of a choice by their hash."""

    samples: int
    median: float
    p95: float
    p99: float
    max: float


class Figure(msgspec.Struct, frozen=True):
    """One metric in both sessions; None where it was not measured."""

    name: str  # gpu.power_w
    a: Spread | None
    b: Spread | None


class ChangedFact(msgspec.Struct, frozen=True):
    """One fact of one node that differs."""

    node: str
    what: str
    a: str | None
    b: str | None


class Comparison(msgspec.Struct, frozen=True):
    """The differences between two sessions."""

    schema: str
    a: str  # names of the sessions
    b: str
    nodes_only_a: tuple[str, ...]
    nodes_only_b: tuple[str, ...]
    changed: tuple[ChangedFact, ...]
    findings_only_a: tuple[str, ...]  # "id: culprits"
    findings_only_b: tuple[str, ...]
    findings_both: tuple[str, ...]
    figures: tuple[Figure, ...]  # all measured in either

    @property
    def is_different(self) -> bool:
        """Whether nodes, facts or findings differ; metrics always do."""
        return bool(
            self.nodes_only_a or self.nodes_only_b or self.changed or self.findings_only_a or self.findings_only_b
        )


class Alike(msgspec.Struct, frozen=True):
    """Nodes with the same change of one fact."""

    nodes: tuple[str, ...]
    what: str
    a: str | None
    b: str | None


def folded(changed: Iterable[ChangedFact]) -> list[Alike]:
    """Return the changes, grouped over nodes with the same change."""
    alike: dict[tuple[str, str | None, str | None], list[str]] = {}
    for change in changed:
        alike.setdefault((change.what, change.a, change.b), []).append(change.node)
    return [Alike(tuple(nodes), what, a, b) for (what, a, b), nodes in alike.items()]


class ComparedSession(msgspec.Struct):
    """Facts, metrics and findings of one session."""

    facts: dict[str, dict[str, str]] = msgspec.field(default_factory=dict)  # node → what → value
    figures: dict[str, Spread] = msgspec.field(default_factory=dict)
    findings: set[str] = msgspec.field(default_factory=set)


def compare_sessions(a: Session, b: Session, client: QueryWorkerClient) -> Comparison:
    """Compare two recorded sessions; `client` cancels.

    Raises SessionError if one is damaged, QueryCancelled, OSError.
    """
    seen_a, seen_b = _read(a, client), _read(b, client)
    names = sorted(seen_a.figures.keys() | seen_b.figures.keys())
    return Comparison(
        schema="gconsole.diff/1", a=a.name, b=b.name,
        nodes_only_a=tuple(sorted(seen_a.facts.keys() - seen_b.facts.keys())),
        nodes_only_b=tuple(sorted(seen_b.facts.keys() - seen_a.facts.keys())),
        changed=tuple(_changed(seen_a.facts, seen_b.facts)),
        findings_only_a=tuple(sorted(seen_a.findings - seen_b.findings)),
        findings_only_b=tuple(sorted(seen_b.findings - seen_a.findings)),
        findings_both=tuple(sorted(seen_a.findings & seen_b.findings)),
        figures=tuple(Figure(name, seen_a.figures.get(name), seen_b.figures.get(name)) for name in names),
    )  # fmt: skip


def _read(session: Session, client: QueryWorkerClient) -> ComparedSession:
    try:
        result = client.query(_query(), session.path, limit=None, deadline_s=_DEADLINE_S)
    except QueryCancelled:
        raise
    except QueryError as error:
        raise SessionError(f"{session.path}: {error}") from error
    for damage in result.lost:
        raise SessionError(f"{session.path}: {damage}; try: gconsole sessions verify {session.name}, and recover")
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


def _changed(a: Mapping[str, Mapping[str, str]], b: Mapping[str, Mapping[str, str]]) -> Iterator[ChangedFact]:
    for node in sorted(a.keys() & b.keys()):
        for what in sorted(a[node].keys() | b[node].keys()):
            before, after = a[node].get(what), b[node].get(what)
            if before != after:
                yield ChangedFact(node, what, before, after)
