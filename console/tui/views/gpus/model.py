"""Rows of the GPUs view: records, ranks and state of each GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ....core.store import GpuKey
from ....present.spans import SEVERITY_STATUS, Span
from ....records import Finding, Gpu, GpuInfo, GpuProcess
from ....records.metrics import throttle_pct
from ....text import format
from ....text.cells import clean
from ....text.nodeset_fold import fold_ranks
from ...models.heat_map import GpuIndex, index_of, uuid_of
from ...models.job_ranks import JobsSummary
from ...models.node_summary import FleetSummary, NodeSummary
from ...models.plot import Floats
from ...models.row import PlainRow, RowState

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
    return "" if summary.fresh or summary.age_ns is None else format.age(summary.age_ns)


def ranks_text(row: GpuRow) -> str:
    """The ranks that use it, folded."""
    return fold_ranks(row.ranks) if row.ranks else format.UNKNOWN


def gpu_rows(
    fleet: FleetSummary, gpus: GpuIndex, ranks: Mapping[GpuKey, Sequence[int]], findings: Iterable[Finding],
    recent: Recent | None = None,
) -> list[GpuRow]:  # fmt: skip
    """One row per GPU, in the order of the fleet and of the driver. `findings`: the open ones, worst first."""
    by_culprit: dict[str, Finding] = {}
    for finding in findings:
        for culprit in finding.culprits:
            by_culprit.setdefault(culprit, finding)
    rows = []
    for summary in fleet.nodes:
        for now in gpus.of(summary.name):
            index, uuid = index_of(now), uuid_of(now)
            used_by = tuple(ranks.get((summary.name, uuid), ()))
            finding_of_gpu = by_culprit.get(f"{summary.name}:gpu{index}")
            rows.append(GpuRow(summary, index, uuid, now.info, now.gpu, used_by, finding_of_gpu, recent))
    return rows


def ranks_on(processes: Iterable[GpuProcess], jobs: JobsSummary, gpus: GpuIndex) -> dict[GpuKey, list[int]]:
    """The ranks of each GPU: those with a process on it; if there are none, those it is assigned to."""
    on_gpu: dict[GpuKey, set[int]] = {}
    for process in processes:
        if process.rank is not None:
            on_gpu.setdefault((process.node, process.uuid), set()).add(process.rank)
    assigned: dict[tuple[str, str], set[int]] = {}
    for row in (row for job in jobs.jobs for row in job.rows):
        if row.rank is not None and row.rank.gpu and row.number is not None and row.state != "exited":
            assigned.setdefault((row.rank.node, row.rank.gpu), set()).add(row.number)
    for (node, gpu), ranks in assigned.items():
        key = next(((node, uuid_of(now)) for now in gpus.of(node) if gpu in (str(index_of(now)), uuid_of(now))), None)
        if key is not None and key not in on_gpu:
            on_gpu[key] = ranks
    return {key: sorted(ranks) for key, ranks in on_gpu.items()}
