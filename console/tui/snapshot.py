"""Looks at the store once a frame and says what is true now: the only place where the screen reads it as a whole.

What many views need is folded here once: the nodes, the GPUs of each, the jobs, the header. Views get it as a `Frame`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..core.store import GpuPartKey, JobOutput, NodeNow, ProcessKey, Store
from ..core.versioned_table import Table
from ..launch.state import JobStatus, job_statuses
from ..monitor.topology import TopologyFold
from ..present.status import SEVERITY_STATUS, Status
from ..records import Finding, GpuLink, GpuProcess, Process
from ..text.nodeset_fold import natural
from .folds.clocks import EMPTY_CLOCK_SKEW, ClockSkewState
from .models.header import Header, RecordingStatus
from .models.heat_map import GpuIndex
from .models.job_ranks import JobsSummary
from .models.node_summary import FleetSummary, fleet_summary
from .views.events.model import EventLog

if TYPE_CHECKING:
    from ..core.control import ActiveRecording
    from ..core.metric_history import MetricHistory
    from .controllers.capture import CaptureProgress
    from .folds.verdicts import JobDiagnosis

#: The nodes are judged at most this often, in seconds; more cannot be read.
NODES_EVERY_S = 0.25
Staging = Callable[[], tuple[int, int]]


@dataclass(frozen=True)
class Frame:
    """What is true at one frame. The tables, `gpus`, `events` and `topology` are live: they change under the reader.

    `history` goes on also under a frame that stands still; it is None where nobody keeps curves.
    """

    now: int  # console time, ns
    fleet: FleetSummary
    nodes: dict[str, NodeNow]
    gpus: GpuIndex
    processes: Table[ProcessKey, Process]
    gpu_processes: Table[GpuPartKey, GpuProcess]
    gpu_links: Table[GpuPartKey, GpuLink]
    jobs: JobsSummary
    settled: bool  # every node that can be reached has been looked at once
    findings: tuple[Finding, ...]
    header: Header
    events: EventLog
    topology: TopologyFold
    history: MetricHistory | None
    started: tuple[JobStatus, ...]  # jobs that gconsole started, the newest first
    written: JobOutput  # what those that somebody looks at write
    hang: tuple[JobDiagnosis, ...] = ()  # every job, as its captures show it
    capturing: CaptureProgress | None = None  # the running capture
    time: ClockSkewState = EMPTY_CLOCK_SKEW  # the nodes' clocks, and who is late on the common one

    def standing_still(self) -> Frame:
        """The same, with copies of what is live: nothing in it changes any more."""
        nodes = {name: replace(node) for name, node in self.nodes.items()}
        return replace(
            self, nodes=nodes, gpus=self.gpus.copied(), processes=self.processes.copied(),
            gpu_processes=self.gpu_processes.copied(), gpu_links=self.gpu_links.copied(), events=self.events.copied(),
            topology=self.topology.still(), written=self.written.copied(),
        )  # fmt: skip

    @property
    def worst_finding(self) -> Status:
        return SEVERITY_STATUS[self.findings[0].severity] if self.findings else "ok"


class Watch:
    """`look` gives the present frame; `now` is console time. With `live` false it is that of a replay, and told."""

    def __init__(
        self, store: Store, cluster: str, expected_nodes: Sequence[str], *, live: bool, now: Callable[[], int],
        staging: Staging | None, recordings: Callable[[], Sequence[ActiveRecording]] = lambda: (),
    ) -> None:  # fmt: skip
        self._recordings = recordings
        self._store, self._cluster, self._live, self._clock, self._staging = store, cluster, live, now, staging
        self._names = list(expected_nodes)
        self._nodes: dict[str, NodeNow] = {}
        self._gpus = GpuIndex()
        self._events = EventLog()
        self.topology = TopologyFold(store)
        self.jobs = JobsSummary()  # the last fold; given by JobFold
        self._findings: tuple[Finding, ...] = ()
        self._fleet = FleetSummary()
        self._started: tuple[JobStatus, ...] = ()
        self._seen = -1  # version of the store up to which everything here is known
        self._nodes_due = 0.0

    def now(self) -> int:
        """Console time, ns."""
        return self._clock()

    def look(self, frozen: Frame | None = None) -> Frame:
        """What is true now; of a frozen frame the header alone goes on, to say so."""
        if frozen is not None:
            header = replace(
                frozen.header, frozen_at=frozen.now, staging=self._staging_now(), recordings=self._recorded(self.now())
            )
            return replace(frozen, header=header)
        self._take_in()
        now = self.now()
        return Frame(
            now, self._fleet, self._nodes, self._gpus, self._store.processes, self._store.gpu_processes,
            self._store.gpu_links, self.jobs, self._is_settled(), self._findings, self._header(now), self._events,
            self.topology, self._store.history, self._started, self._store.jobs.output,
        )  # fmt: skip

    def _take_in(self) -> None:
        store, since = self._store, self._seen
        version = store.version
        renamed = self._take_nodes(since)
        self._gpus.update(store.gpus, store.gpus.changed_since(since), version)
        if since < 0 or store.findings.changed_since(since):
            self._findings = _open_findings(store)
        self._events.add(store.events_since(since))
        self.topology.note()
        self._seen = version
        if renamed or time.monotonic() >= self._nodes_due:
            self._nodes_due = time.monotonic() + NODES_EVERY_S
            blamed = self._blamed()
            self._fleet = fleet_summary(self._names, self._nodes, self._gpus.simulated, blamed, self.now())
            started = tuple(job_statuses(store)) if store.jobs.ordered else ()
            if started != self._started:
                self._started = started

    def _blamed(self) -> dict[str, str]:
        """Nodes that an open finding blames, or a GPU or port of which (`node7:gpu4`), and its id; the worst one's."""
        blamed: dict[str, str] = {}
        for found in self._findings:
            for name in found.culprits if found.severity != "info" else ():
                blamed.setdefault(name if name in self._nodes else name.rpartition(":")[0], found.id)
        return blamed

    def _take_nodes(self, since: int) -> bool:
        """Follow nodes that come and go; whether any did."""
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
        """Whether a job that exists would have been seen: each node has had a full tick, or cannot have one."""
        return all(name in self._nodes and _has_spoken_or_failed(self._nodes[name]) for name in self._names)

    def _header(self, now: int) -> Header:
        fleet, gpus, jobs = self._fleet, self._gpus, self.jobs
        seen = sum(len(gpus.of(node.name)) for node in fleet.nodes if node.fresh) if gpus else None
        unknown = any(not gpus.of(name) and not _has_spoken(self._nodes.get(name)) for name in self._names)
        known = bool(jobs.jobs) or self._is_settled()
        return Header(
            self._cluster, fleet, seen, None if unknown else gpus.total,
            jobs.jobs[0].job if len(jobs.jobs) == 1 else None,
            len(jobs.jobs) if known else None, jobs.found, jobs.world_size,
            simulated=fleet.simulated or bool(gpus.simulated),
            replay_at=None if self._live else now,
            staging=self._staging_now(),
            age_ns=_silence(fleet),
            recordings=self._recorded(now),
        )  # fmt: skip

    def _recorded(self, now: int) -> tuple[RecordingStatus, ...]:
        return tuple(
            RecordingStatus(recording.name, max(0, now - recording.began), recording.trouble)
            for recording in self._recordings()
        )

    def _staging_now(self) -> tuple[int, int] | None:
        staged, expected = self._staging() if self._staging else (0, 0)
        return (staged, expected) if staged < expected else None


def _has_spoken(node: NodeNow | None) -> bool:
    return node is not None and node.cost is not None


def _has_spoken_or_failed(node: NodeNow) -> bool:
    return node.cost is not None or (node.state is not None and node.state.state in ("failed", "lost"))


def _silence(fleet: FleetSummary) -> int | None:
    """The age of the newest data, where no node's are fresh and some node's were."""
    ages = [node.age_ns for node in fleet.nodes if node.age_ns is not None]
    return min(ages) if ages and not fleet.ok else None


def _open_findings(store: Store) -> tuple[Finding, ...]:
    order = {"error": 0, "warning": 1, "info": 2}
    found = [finding for finding in store.findings.values() if finding.cleared_at is None]
    return tuple(sorted(found, key=lambda finding: (order[finding.severity], finding.first_seen, finding.id)))
