"""The GPUs view as a list: rows, columns, filter fields and groupings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from ....core.store import GpuKey, GpuNow, NodeNow
from ....core.store.freshness import gpu_stale_ns
from ....present.spans import GLYPHS, SEVERITY_STATUS, Span, state_word
from ....records import Finding, Gpu, GpuInfo, GpuProcess
from ....records.metrics import GPU as METRICS
from ....records.metrics import Noise, throttle_pct
from ....text import format
from ....text.cells import clean
from ....text.nodeset_fold import fold_ranks, natural
from ...models.column import ColumnField, column_field, fresh_style, keyed, metric_columns, plain_style, text_or_unknown
from ...models.filter_language import FilterField, Value, Vocabulary, metric_filters
from ...models.grouping import NONE, Grouping, RowInContext
from ...models.heat_map import GpuIndex, index_of, uuid_of
from ...models.job_ranks import JobsSummary
from ...models.list_kind import ListKind, attribute, state_filter, state_order, text_attribute
from ...models.node_summary import FleetSummary, NodeSummary
from ...models.plot import Floats, bars
from ...models.rows import PlainRow, RowState

#: Percent of a sampling interval. Clocks throttled for longer are a warning.
_THROTTLED_PCT = 5.0
#: Values of one metric of one GPU, oldest first: (key, metric, seconds).
Recent = Callable[[GpuKey, str, int], Floats]


@dataclass(frozen=True, slots=True)
class GpuRow(PlainRow):
    """One GPU (or MIG device) with its newest records; these are replaced, never changed."""

    summary: NodeSummary
    index: int
    uuid: str
    info: GpuInfo | None
    gpu: Gpu | None
    ranks: tuple[int, ...] = ()
    stale_ns: int | None = None  # age of its figures if they no longer arrive, while its node reports
    finding: Finding | None = None  # the most severe open one that has it as a culprit
    recent: Recent | None = None

    @property
    def key(self) -> GpuKey:
        """Node and uuid."""
        return (self.summary.name, self.uuid)

    @property
    def version(self) -> tuple[object, ...]:
        """Changes with every value that the row shows."""
        seen = tuple(record and (record.agent, record.seq) for record in (self.info, self.gpu))
        return (self.key, self.summary.word, age_text(self), self.ranks, self.finding and self.finding.id, seen)

    @property
    def note(self) -> Span | None:
        """Why the GPU reports no data; None if it does."""
        if self.info is not None and self.info.lost is not None:
            return Span(clean(self.info.lost), "failed")
        if self.info is not None and self.info.unusable is not None:
            return Span(clean(self.info.unusable), "failed")
        return None

    @property
    def name(self) -> str:
        """Its name in findings."""
        return f"{self.summary.name}:gpu{self.index}"

    @property
    def row_state(self) -> RowState:
        """Its status, and in one word why."""
        summary, now = self.summary, self.gpu
        if not summary.fresh:
            return summary.status, summary.word
        if self.info is not None and self.info.lost is not None:
            return "failed", "lost"
        if self.info is not None and self.info.unusable is not None:
            return "failed", "unusable"
        if self.stale_ns is not None:
            return "stale", "stale"
        if self.finding is not None:
            return SEVERITY_STATUS[self.finding.severity], clean(self.finding.id.removeprefix("gpu_"))
        if now is None:
            return "unknown", "no data"
        if now.recovery_action not in (None, "none"):
            return "failed", clean(now.recovery_action or "")
        if now.remap_failed or now.remap_pending or now.retire_pending:
            return "warning", "memory"
        held = throttle_pct(now)
        return ("warning", "held down") if held is not None and held > _THROTTLED_PCT else ("ok", "ok")


def age_text(row: GpuRow) -> str:
    """Age of its data; empty if fresh."""
    summary = row.summary
    if summary.fresh and row.stale_ns is not None:
        return format.age(row.stale_ns)
    return "" if summary.fresh or summary.age_ns is None else format.age(summary.age_ns)


def digest_text(row: GpuRow) -> str:
    """`~5s` where the figures are the last ones of a digest of 5 s, until the first sample arrives; "" for samples."""
    gpu = row.gpu
    is_digest = gpu is not None and gpu.samples > 1 and gpu.period_s is not None
    return f"~{gpu.period_s:g}s" if gpu is not None and is_digest else ""


def ranks_text(row: GpuRow) -> str:
    """The ranks that use it, folded."""
    return fold_ranks(row.ranks) if row.ranks else format.UNKNOWN


class GpuRows:
    """One row per GPU, in the order of the fleet and of the driver; a node's rows are remade once it changed."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[tuple[object, ...], list[GpuRow]]] = {}  # by node: what its rows were made from
        self._common: tuple[object, ...] = ()
        self._ranks: Mapping[GpuKey, Sequence[int]] = {}
        self._findings: tuple[Sequence[Finding], Mapping[str, Finding]] = ((), {})

    def rows(
        self, fleet: FleetSummary, gpus: GpuIndex, ranks: Mapping[GpuKey, Sequence[int]], findings: Sequence[Finding],
        recent: Recent | None = None, nodes: Mapping[str, NodeNow] | None = None,
    ) -> list[GpuRow]:  # fmt: skip
        """All rows now. `findings`: the open ones, worst first."""
        if ranks != self._ranks or findings is not self._findings[0] or (gpus, recent) != self._common:
            self._of.clear()
            self._ranks, self._common, self._findings = ranks, (gpus, recent), (findings, _by_culprit(findings))
        before, self._of = self._of, {}
        rows: list[GpuRow] = []
        for summary in fleet.nodes:
            node = (nodes or {}).get(summary.name)
            basis = (summary, gpus.version(summary.name), node and node.last_rx)
            made = before.get(summary.name)
            if made is None or made[0] != basis:
                made = basis, self._of_node(summary, gpus.of(summary.name), node, recent)
            self._of[summary.name] = made
            rows += made[1]
        return rows

    def _of_node(
        self, summary: NodeSummary, gpus: Sequence[GpuNow], node: NodeNow | None, recent: Recent | None
    ) -> list[GpuRow]:
        rows = []
        for now in gpus:
            index, uuid = index_of(now), uuid_of(now)
            used_by = tuple(self._ranks.get((summary.name, uuid), ()))
            finding = self._findings[1].get(f"{summary.name}:gpu{index}")
            rows.append(GpuRow(
                summary, index, uuid, now.info, now.gpu, used_by, gpu_stale_ns(now, node), finding, recent
            ))  # fmt: skip
        return rows


def _by_culprit(findings: Sequence[Finding]) -> Mapping[str, Finding]:
    by_culprit: dict[str, Finding] = {}
    for finding in findings:
        for culprit in finding.culprits:
            by_culprit.setdefault(culprit, finding)
    return by_culprit


def ranks_on(processes: Iterable[GpuProcess], jobs: JobsSummary, gpus: GpuIndex) -> dict[GpuKey, list[int]]:
    """The ranks of each GPU: those with a process on it; if there are none, those it is assigned to."""
    on_gpu: dict[GpuKey, set[int]] = {}
    for process in processes:
        if process.rank is not None:
            on_gpu.setdefault((process.node, process.uuid), set()).add(process.rank)
    assigned: dict[str, dict[str, set[int]]] = {}
    for row in (row for job in jobs.jobs for row in job.rows):
        if row.rank is not None and row.rank.gpu and row.number is not None and row.state != "exited":
            assigned.setdefault(row.rank.node, {}).setdefault(row.rank.gpu, set()).add(row.number)
    for node, by_gpu in assigned.items():
        uuids: dict[str, str] = {}
        for now in gpus.of(node):
            uuid = uuid_of(now)
            uuids.setdefault(str(index_of(now)), uuid)
            uuids.setdefault(uuid, uuid)
        for gpu, ranks in by_gpu.items():
            if gpu in uuids and (node, uuids[gpu]) not in on_gpu:
                on_gpu[node, uuids[gpu]] = ranks
    return {key: sorted(ranks) for key, ranks in on_gpu.items()}


#: Cells of the utilisation curve in a row, and the seconds it covers.
CURVE_CELLS, _CURVE_S = 10, 60


def _state_text(row: GpuRow) -> str:
    status, state = row.row_state
    age = age_text(row)
    digest = digest_text(row)
    return f"{GLYPHS[status]} {state_word(state)}" + (f" {age}" if age else "") + (f" {digest}" if digest else "")


def _curve(row: GpuRow) -> str:
    """The utilisation of the last minute, oldest first."""
    if row.recent is None:
        return format.UNKNOWN
    return bars(row.recent(row.key, "util_pct", _CURVE_S), CURVE_CELLS, 0, 100)


def _throttle_reasons(row: GpuRow) -> str | None:
    """Why the clocks are throttled; being idle does not count."""
    reasons = [reason for reason in (row.gpu.clocks_event_reasons if row.gpu else ()) if reason != "gpu_idle"]
    return ", ".join(reasons) or None


def _slot(row: GpuRow) -> str | None:
    """PCIe generation and lanes now."""
    info = row.info
    return f"{info.pcie_gen}x{info.pcie_width}" if info and info.pcie_gen and info.pcie_width else None


def _model(name: str | None) -> str:
    """The model without its vendor, which all GPUs here have in common."""
    return text_or_unknown(name and name.removeprefix("NVIDIA "))


#: Columns that are not metrics, each behind that of a metric.
_BETWEEN: Final[dict[str, tuple[ColumnField[GpuRow], ...]]] = {
    "util": (
        ColumnField("curve", "last minute", _curve, lambda row: row.gpu and row.gpu.util_pct,
            lambda row, _: "accent" if row.summary.fresh else "stale", Noise(2.0)),
    ),
    "held": (column_field("reasons", "throttle reasons", _throttle_reasons, text_or_unknown, fresh_style),),
    "pcie_tx": (column_field("slot", "PCIe", _slot, text_or_unknown, fresh_style),),
}  # fmt: skip
FIELDS: Final[dict[str, ColumnField[GpuRow]]] = keyed(
    column_field("state", "state", lambda row: row, _state_text, lambda row, _: row.row_state[0],
        lambda row: state_order(row.row_state)),
    column_field("node", "node", lambda row: row.summary.name, clean, plain_style, natural),
    column_field("gpu", "gpu", lambda row: row.index, format.integer, plain_style),
    *metric_columns(METRICS, lambda metric, row: metric.read(row.gpu, row.info), fresh_style, _BETWEEN),
    ColumnField("ranks", "ranks", ranks_text, lambda row: row.ranks or None, plain_style),
    column_field("model", "model", attribute("info", "name"), _model, plain_style, natural),
    column_field("driver", "driver", attribute("info", "driver"), text_or_unknown, plain_style, natural),
    column_field("uuid", "uuid", lambda row: row.uuid, text_or_unknown, plain_style),
)  # fmt: skip


def _node(entry: RowInContext[GpuRow]) -> str:
    return entry.row.summary.name


def _jobs(entry: RowInContext[GpuRow]) -> tuple[str, ...]:
    return entry.context.jobs_of.get(_node(entry), ())


def _reasons(entry: RowInContext[GpuRow]) -> Value:
    return tuple(clean(reason) for reason in entry.row.gpu.clocks_event_reasons) if entry.row.gpu else None


def _words(entry: RowInContext[GpuRow]) -> Iterable[str]:
    row = entry.row
    yield row.row_state[1]
    yield clean(row.summary.name)
    yield f"gpu{row.index}"
    yield clean(row.uuid)
    yield from entry.context.tags(_node(entry))
    yield from _jobs(entry)
    if row.info is not None:
        yield clean(row.info.name or "")
    if (row.gpu and row.gpu.simulated) or (row.info and row.info.simulated):
        yield "simulated"


GPUS: Final[Vocabulary[RowInContext[GpuRow]]] = Vocabulary(
    (
        state_filter(lambda row: row.row_state, "ok, lost, throttled, …; or warning, failed, stale"),
        FilterField("node", "word", lambda entry: clean(_node(entry)), "node name, e.g. node0[1-3]*"),
        FilterField("gpu", "number", lambda entry: entry.row.index, "index on its node, e.g. 4"),
        FilterField("job", "text", _jobs, "part of a job name"),
        FilterField("tag", "word", lambda entry: entry.context.tags(_node(entry)), "node tag in hosts.toml"),
        FilterField("rank", "number", lambda entry: tuple(map(float, entry.row.ranks)), "rank using it, e.g. 0-7"),
        *metric_filters(METRICS, lambda metric, entry: metric.read(entry.row.gpu, entry.row.info), {
            "held": (FilterField("reason", "word", _reasons, "throttle reason, e.g. *thermal*"),),
        }),
        FilterField("model", "text", text_attribute("info", "name"), "part of the model name"),
        FilterField("driver", "word", text_attribute("info", "driver"), "driver version"),
        FilterField("uuid", "text", lambda entry: clean(entry.row.uuid), "part of the UUID", offered=False),
    ),
    _words,
)  # fmt: skip
GROUPINGS: Final[tuple[Grouping[GpuRow], ...]] = (
    NONE,
    Grouping("node", _node),
    Grouping("state", lambda entry: entry.row.row_state[1], lambda word: (word == "ok", word), is_state=True),
    Grouping("model", lambda entry: entry.row.info.name if entry.row.info else None),
    Grouping("job", lambda entry: ", ".join(_jobs(entry)) or None),
    Grouping("tag", lambda entry: entry.context.all_tags(_node(entry))),
)


def _object(row: GpuRow) -> dict[str, Any]:
    """The state on the screen, and the records in their own units."""
    status, state = row.row_state
    return {
        "node": row.summary.name, "index": row.index, "uuid": row.uuid, "state": state, "status": status,
        "ranks": row.ranks, "finding": row.finding.id if row.finding else None, "gpu_info": row.info, "gpu": row.gpu,
    }  # fmt: skip


KIND: Final = ListKind("GPU", "node", FIELDS, GPUS, GROUPINGS, lambda row: row.row_state, _object, lambda row: row.name)
