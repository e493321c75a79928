"""Builds the snapshot of the store that all views draw from, once a frame: nodes, GPUs, jobs, findings, header."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from ..analysis.skew.findings import NO_SKEW, SkewSnapshot
from ..core.store import GpuPartKey, NodeNow, ProcessKey, RecentOutput, Store
from ..core.versioned_table import Table
from ..launch.state import JobStatus, job_statuses
from ..monitor.coverage import expected_gpus
from ..monitor.node_checks import NodeCheckCache
from ..monitor.topology import TopologyFold
from ..present.clocks import NO_CLOCKS, ClockSummary
from ..present.spans import SEVERITY_STATUS, Status
from ..records import Finding, GpuLink, GpuProcess, Process
from ..text.nodeset_fold import natural
from .models.header import Header, RecordingStatus
from .models.heat_map import GpuIndex
from .models.job_ranks import JobsSummary
from .models.node_summary import FleetSummary, fleet_summary
from .views.events.model import EventLog

if TYPE_CHECKING:
    from ..analysis.checks.result import CheckResult
    from ..core.control import ActiveRecording, BlackBoxStatus
    from ..core.metric_history import MetricHistory
    from ..monitor.crash import Crash
    from .controllers.capture import CaptureProgress
    from .derived import JobDiagnosis
    from .models.trends import Overview

#: Seconds between two summaries of the nodes; a reader cannot follow more.
NODES_EVERY_S = 0.25
Staging = Callable[[], tuple[int, int]]


class ScreenSnapshot(msgspec.Struct, frozen=True):
    """The state at one frame. The tables, `gpus`, `events` and `topology` are live: they change under the reader.

    `history` is live also in a frozen copy; None if no metric history is kept.
    """

    now: int  # console time, ns
    fleet: FleetSummary
    nodes: dict[str, NodeNow]
    gpus: GpuIndex
    processes: Table[ProcessKey, Process]
    gpu_processes: Table[GpuPartKey, GpuProcess]
    gpu_links: Table[GpuPartKey, GpuLink]
    jobs: JobsSummary
    settled: bool  # every reachable node has been sampled once
    findings: tuple[Finding, ...]
    header: Header
    events: EventLog
    topology: TopologyFold
    history: MetricHistory | None
    started: tuple[JobStatus, ...]  # jobs started by gconsole, newest first
    written: RecentOutput  # output of the jobs on the screen
    checks: NodeCheckCache  # node checks of the node on the screen
    hang: tuple[JobDiagnosis, ...] = ()  # the diagnosis of every job
    crashes: tuple[Crash, ...] = ()  # of jobs that died
    capturing: CaptureProgress | None = None  # the running capture
    clocks: ClockSummary = NO_CLOCKS  # the nodes' clocks
    skew: SkewSnapshot = NO_SKEW  # lateness of ranks on the common clock
    overview: Overview | None = None  # trends and resources; only while the Overview is shown

    @property
    def second(self) -> int:
        """Console time in whole seconds: changes when displayed ages do."""
        return self.now // 1_000_000_000

    def frozen_copy(self) -> ScreenSnapshot:
        """A copy in which nothing changes any more."""
        nodes = {name: replace(node) for name, node in self.nodes.items()}
        return replace(
            self, nodes=nodes, gpus=self.gpus.copied(), processes=self.processes.copied(),
            gpu_processes=self.gpu_processes.copied(), gpu_links=self.gpu_links.copied(), events=self.events.copied(),
            topology=self.topology.still(), written=self.written.copied(),
            checks=self.checks.copied(),
        )  # fmt: skip

    @property
    def worst_finding(self) -> Status:
        """Status of the most severe open finding; ok without one."""
        return SEVERITY_STATUS[self.findings[0].severity] if self.findings else "ok"


class SnapshotBuilder:
    """Builds snapshots of `store`. `now` returns console time in ns; `live` is false in a replay."""

    def __init__(
        self, store: Store, cluster: str, expected_nodes: Sequence[str], *, live: bool, now: Callable[[], int],
        staging: Staging | None, recordings: Callable[[], Sequence[ActiveRecording]] = lambda: (),
        black_box: Callable[[], BlackBoxStatus | None] = lambda: None,
        own_checks: Callable[[str], Sequence[CheckResult]] = lambda node: (),
    ) -> None:  # fmt: skip
        self._recordings, self._black_box = recordings, black_box
        self._store, self._cluster, self._live, self._clock, self._staging = store, cluster, live, now, staging
        self._names = list(expected_nodes)
        self._nodes: dict[str, NodeNow] = {}
        self._gpus = GpuIndex()
        self._events = EventLog()
        self.topology = TopologyFold(store)
        self._checks = NodeCheckCache(store, own_checks)
        self.jobs = JobsSummary()  # the newest result of JobFold
        self._findings: tuple[Finding, ...] = ()
        self._fleet = FleetSummary()
        self._started: tuple[JobStatus, ...] = ()
        self._seen = -1  # the store version of the last build
        self._nodes_due = 0.0

    def now(self) -> int:
        """Console time, ns."""
        return self._clock()

    def build(self, frozen: ScreenSnapshot | None = None) -> ScreenSnapshot:
        """The present snapshot; of a frozen one, the same with a new header."""
        if frozen is not None:
            header = replace(
                frozen.header,
                frozen_at=frozen.now,
                staging=self._staging_now(),
                recordings=self._recorded(self.now()),
                black_box=self._kept(self.now()),
            )
            return replace(frozen, header=header)
        self._update()
        now = self.now()
        return ScreenSnapshot(
            now, self._fleet, self._nodes, self._gpus, self._store.processes, self._store.gpu_processes,
            self._store.gpu_links, self.jobs, self._is_settled(), self._findings, self._header(now), self._events,
            self.topology, self._store.history, self._started, self._store.jobs.output,
            self._checks,
        )  # fmt: skip

    def _update(self) -> None:
        store, since = self._store, self._seen
        version = store.version
        renamed = self._update_nodes(since)
        self._gpus.update(store.gpus, store.gpus.changed_since(since), version)
        if since < 0 or store.findings.changed_since(since):
            self._findings = open_findings(store)
        self._events.append(store.events_since(since))
        self.topology.note()
        self._seen = version
        if renamed or time.monotonic() >= self._nodes_due:
            self._nodes_due = time.monotonic() + NODES_EVERY_S
            culprit_findings = self._culprit_findings()
            self._fleet = fleet_summary(self._names, self._nodes, self._gpus.simulated, culprit_findings, self.now())
            started = tuple(job_statuses(store)) if store.jobs.ordered else ()
            if started != self._started:
                self._started = started

    def _culprit_findings(self) -> dict[str, Finding]:
        """Culprit nodes of open findings, also by a GPU or port (`node7:gpu4`), with the worst finding."""
        culprit_findings: dict[str, Finding] = {}
        for finding in self._findings:
            for name in finding.culprits if finding.severity != "info" else ():
                culprit_findings.setdefault(name if name in self._nodes else name.rpartition(":")[0], finding)
        return culprit_findings

    def _update_nodes(self, since: int) -> bool:
        """Apply added and removed nodes; returns whether there were any."""
        store, renamed = self._store, since < 0
        for name in store.nodes.changed_since(since):
            node = store.nodes.get(name)
            if node is None:
                renamed |= self._nodes.pop(name, None) is not None
                if name in self._names:
                    self._names.remove(name)
                continue
            if self._nodes.get(name) is not node:
                self._nodes[name] = node
                renamed = True
        new = [name for name in self._nodes if name not in set(self._names)] if renamed else []
        if new:
            self._names.extend(sorted(new, key=natural))
        return renamed

    def _is_settled(self) -> bool:
        """Whether an existing job would be visible: every node sent a full sample, or failed."""
        return all(name in self._nodes and _has_sampled_or_failed(self._nodes[name]) for name in self._names)

    def _header(self, now: int) -> Header:
        fleet, gpus, jobs = self._fleet, self._gpus, self.jobs
        seen = sum(self._usable_gpus(node.name) for node in fleet.nodes if node.fresh)
        expected = sum(self._expected_gpus(name) for name in self._names)
        unknown = any(not gpus.of(name) and not _has_sampled(self._nodes.get(name)) for name in self._names)
        is_known = bool(jobs.jobs) or self._is_settled()
        return Header(
            self._cluster, fleet, seen if expected else None, None if unknown else expected,
            jobs.jobs[0].job if len(jobs.jobs) == 1 else None,
            len(jobs.jobs) if is_known else None, jobs.discovered, jobs.world_size,
            simulated=fleet.simulated or bool(gpus.simulated),
            replay_at=None if self._live else now,
            staging=self._staging_now(),
            age_ns=_silence(fleet),
            recordings=self._recorded(now), black_box=self._kept(now),
        )  # fmt: skip

    def _usable_gpus(self, node: str) -> int:
        inventory = self._store.inventories.get((node, "gpu"))
        return 0 if inventory is not None and inventory.fault is not None else self._gpus.usable(node)

    def _expected_gpus(self, node: str) -> int:
        """GPUs that the node has reported, or should have; MIG devices count."""
        return max(len(self._gpus.of(node)), expected_gpus(self._store.inventories.get((node, "gpu"))) or 0)

    def _recorded(self, now: int) -> tuple[RecordingStatus, ...]:
        return tuple(
            RecordingStatus(recording.name, max(0, now - recording.began), recording.trouble)
            for recording in self._recordings()
        )

    def _kept(self, now: int) -> RecordingStatus | None:
        box = self._black_box()
        return None if box is None else RecordingStatus("black box", max(0, now - box.since), box.trouble)

    def _staging_now(self) -> tuple[int, int] | None:
        staged, expected = self._staging() if self._staging else (0, 0)
        return (staged, expected) if staged < expected else None


def _has_sampled(node: NodeNow | None) -> bool:
    return node is not None and node.cost is not None


def _has_sampled_or_failed(node: NodeNow) -> bool:
    return node.cost is not None or (node.state is not None and node.state.state in ("failed", "lost"))


def _silence(fleet: FleetSummary) -> int | None:
    """Age of the newest data, if no node has fresh data and some had."""
    ages = [node.age_ns for node in fleet.nodes if node.age_ns is not None]
    return min(ages) if ages and not fleet.ok else None


def open_findings(store: Store) -> tuple[Finding, ...]:
    """The open findings of a store, the most severe first."""
    order = {"error": 0, "warning": 1, "info": 2}
    open_ = [finding for finding in store.findings.values() if finding.cleared_at is None]
    return tuple(sorted(open_, key=lambda finding: (order[finding.severity], finding.first_seen, finding.id)))
