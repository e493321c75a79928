"""A row a GPU: the records it is told from, the ranks that use it, and how it is."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ....core.store import GpuKey
from ....present.spans import Span
from ....present.status import SEVERITY_STATUS
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

#: The clocks are held down where the driver or the hardware did so for more than this share of a tick, in percent.
_HELD_PCT = 5.0
#: The last minutes of one metric of one GPU, oldest first: (key, metric, seconds).
Recent = Callable[[GpuKey, str, int], Floats]


@dataclass(frozen=True, slots=True)
class GpuRow(PlainRow):
    """One GPU (or MIG device) with the records it is told from; those are replaced, never changed."""

    summary: NodeSummary
    index: int
    uuid: str
    info: GpuInfo | None
    gpu: Gpu | None
    ranks: tuple[int, ...] = ()
    finding: Finding | None = None  # the worst open one that blames it
    recent: Recent | None = None

    @property
    def key(self) -> GpuKey:
        return (self.summary.name, self.uuid)

    @property
    def version(self) -> tuple[object, ...]:
        seen = tuple(record and (record.agent, record.seq) for record in (self.info, self.gpu))
        return (self.key, self.summary.word, age_text(self), self.ranks, self.finding and self.finding.id, seen)

    @property
    def note(self) -> Span | None:
        """Why there are no figures, where there are none."""
        if self.info is not None and self.info.lost is not None:
            return Span(clean(self.info.lost), "failed")
        return None

    @property
    def name(self) -> str:
        """As findings call it."""
        return f"{self.summary.name}:gpu{self.index}"

    @property
    def row_state(self) -> RowState:
        """How bad it is, and in one word why."""
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
        return ("warning", "held down") if held is not None and held > _HELD_PCT else ("ok", "ok")


def age_text(row: GpuRow) -> str:
    """How old its figures are, where they are not fresh."""
    summary = row.summary
    return "" if summary.fresh or summary.age_ns is None else format.age(summary.age_ns)


def ranks_text(row: GpuRow) -> str:
    return fold_ranks(row.ranks) if row.ranks else format.UNKNOWN


def gpu_rows(
    fleet: FleetSummary, gpus: GpuIndex, ranks: Mapping[GpuKey, Sequence[int]], findings: Iterable[Finding],
    recent: Recent | None = None,
) -> list[GpuRow]:  # fmt: skip
    """A row a GPU, in the order of the fleet and of the driver. `findings`: the open ones, the worst first."""
    blamed: dict[str, Finding] = {}
    for finding in findings:
        for culprit in finding.culprits:
            blamed.setdefault(culprit, finding)
    rows = []
    for summary in fleet.nodes:
        for now in gpus.of(summary.name):
            index, uuid = index_of(now), uuid_of(now)
            finding_of_gpu = blamed.get(f"{summary.name}:gpu{index}")
            used_by = tuple(ranks.get((summary.name, uuid), ()))
            rows.append(GpuRow(summary, index, uuid, now.info, now.gpu, used_by, finding_of_gpu, recent))
    return rows


def ranks_on(processes: Iterable[GpuProcess], jobs: JobsSummary, gpus: GpuIndex) -> dict[GpuKey, list[int]]:
    """The ranks of each GPU: those whose processes the driver sees there; else those that say it is theirs."""
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
