"""The samples of every metric family. `take_snapshot` is quick; the rest may run in any thread.

A value is written while its node is connected, its GPU reachable and its record at most a minute old; else it is left
out, so that its series ends. Label sets are bounded: existing nodes, GPUs and ports, the newest jobs and ranks.
"""

from __future__ import annotations

import os
import resource
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import psutil

from ... import __version__
from ...analysis.jobs import job_table
from ...core.control import ActiveRecording
from ...core.store import NodeNow, Store
from ...launch.state import JobStatus, job_statuses
from ...records import AgentCost, ClockNode, Finding, Gpu, GpuInfo, GpuProcess, Host, Nic, NodeState, Rank, RankStat
from ...report.nodes import own_name
from . import exposition as f
from .exposition import Family, MetricColumn, Sample, labels, sample

#: Nanoseconds. Older records are stale; a sampler that hangs stops only its own records.
STALE_NS: Final = 60_000_000_000
#: Jobs, and ranks of all jobs: jobs that restart all night must not fill Prometheus.
MAX_JOBS: Final = 128
MAX_RANKS: Final = 16_384
#: Series of one family.
MAX_SERIES: Final = 262_144

Families = Iterator[tuple[Family, list[Sample]]]


@dataclass(frozen=True)
class GpuSnapshot:
    """One reported GPU; `gpu` is None where its metrics are stale, or the driver has lost it."""

    node: str
    uuid: str
    info: GpuInfo | None
    gpu: Gpu | None


@dataclass(frozen=True)
class MetricsSnapshot:
    """Store contents at one instant; records are immutable, so any thread may read them."""

    nodes: tuple[tuple[str, NodeState | None], ...]
    connected: dict[str, NodeNow]
    hosts: tuple[Host, ...]
    costs: tuple[AgentCost, ...]
    gpus: tuple[GpuSnapshot, ...]
    gpu_processes: tuple[GpuProcess, ...]
    nics: tuple[Nic, ...]
    ranks: tuple[tuple[Rank, RankStat | None], ...]
    views: tuple[JobStatus, ...]
    findings: tuple[Finding, ...]
    clocks: tuple[ClockNode, ...]
    recordings: tuple[ActiveRecording, ...]

    @property
    def started(self) -> frozenset[str]:
        """Names of the jobs that gconsole started."""
        return frozenset(view.ordered.job for view in self.views)

    @property
    def states(self) -> list[NodeState]:
        """States of all nodes that have one."""
        return [state for _, state in self.nodes if state is not None]


def take_snapshot(store: Store, recordings: Sequence[ActiveRecording], now_ns: int) -> MetricsSnapshot:
    """Current entities of the store. `now_ns` is the console's clock."""
    nodes = store.nodes.values()
    connected = {now.name: now for now in nodes if now.state is not None and now.state.state == "ok"}

    def is_young(record: Any) -> bool:
        return record is not None and record.node in connected and now_ns - record.rx < STALE_NS

    gpus = [
        GpuSnapshot(node, uuid, now.info, now.gpu if is_young(now.gpu) and not (now.info and now.info.lost) else None)
        for (node, uuid), now in ((key, store.gpus[key]) for key in store.gpus)
        if node in connected
    ]
    return MetricsSnapshot(
        nodes=tuple((now.name, now.state) for now in nodes),
        connected=connected,
        hosts=tuple(now.host for now in connected.values() if now.host is not None and is_young(now.host)),
        costs=tuple(now.cost for now in connected.values() if now.cost is not None and is_young(now.cost)),
        gpus=tuple(gpus),
        gpu_processes=tuple(
            gpu_process for gpu_process in store.gpu_processes.values() if gpu_process.node in connected
        ),
        nics=tuple(filter(is_young, store.nics.values())),
        ranks=tuple((now.rank, now.stat if is_young(now.stat) else None) for now in store.ranks.values()),
        views=tuple(job_statuses(store)),
        findings=tuple(finding for finding in store.findings.values() if finding.cleared_at is None),
        clocks=tuple(kept[-1] for kept in store.clocks.nodes.values() if kept and is_young(kept[-1])),
        recordings=tuple(recordings),
    )


def families(snapshot: MetricsSnapshot) -> Families:
    """Every family with its samples, each family once."""
    left_out = 0
    for family, samples in _all(snapshot):
        left_out += max(0, len(samples) - MAX_SERIES)
        yield family, samples[:MAX_SERIES]
    yield f.LEFT_OUT, [sample(left_out)]


def _all(snapshot: MetricsSnapshot) -> Families:
    yield f.BUILD, [sample(1, labels(version=__version__))]
    yield f.NODES, [sample(count, labels(state=state)) for state, count in sorted(_states(snapshot).items())]
    yield from _of_nodes(snapshot)
    yield from _of_gpus(snapshot)
    yield from _of_nics(snapshot)
    yield from _of_jobs(snapshot)
    counts = Counter((finding.id, finding.severity) for finding in snapshot.findings)
    yield (
        f.FINDINGS,
        [sample(count, labels(id=name, severity=severity)) for (name, severity), count in sorted(counts.items())],
    )
    yield f.RECORDING, [sample(recording.bytes, labels(session=recording.name)) for recording in snapshot.recordings]
    used = resource.getrusage(resource.RUSAGE_SELF)
    yield f.PROCESS_CPU, [sample(round(used.ru_utime + used.ru_stime, 3))]
    yield f.PROCESS_MEMORY, [sample(psutil.Process(os.getpid()).memory_info().rss)]


def _states(snapshot: MetricsSnapshot) -> Counter[str]:
    return Counter(state.state if state is not None else "expected" for _, state in snapshot.nodes)


def _of_nodes(snapshot: MetricsSnapshot) -> Families:
    named = {name: labels(node=name) for name, _ in snapshot.nodes}
    up = snapshot.connected
    yield f.NODE_UP, [sample(int(name in up), named[name]) for name, _ in snapshot.nodes]
    yield (
        f.NODE_INFO,
        [
            sample(1, labels(node=now.name, hostname=now.node.hostname, kernel=now.node.kernel, python=now.node.python))
            for now in snapshot.connected.values()
            if now.node is not None
        ],
    )
    yield from _columns(f.HOST, [(named[host.node], host) for host in snapshot.hosts])
    yield from _columns(f.AGENT, [(named[cost.node], cost) for cost in snapshot.costs])
    yield from _columns(f.CLOCK, [(named[clock.node], clock) for clock in snapshot.clocks if clock.node in named])


def _of_gpus(snapshot: MetricsSnapshot) -> Families:
    named = {(gpu_now.node, gpu_now.uuid): _gpu_labels(gpu_now) for gpu_now in snapshot.gpus}
    yield (
        f.GPU_UP,
        [
            sample(int(not (gpu_now.info and gpu_now.info.lost)), named[gpu_now.node, gpu_now.uuid])
            for gpu_now in snapshot.gpus
        ],
    )
    yield (
        f.GPU_INFO,
        [
            sample(1, f"{named[gpu_now.node, gpu_now.uuid]},{_about(gpu_now.info)}")
            for gpu_now in snapshot.gpus
            if gpu_now.info is not None
        ],
    )
    started = snapshot.started
    yield (
        f.GPU_RANK,
        sorted(
            {
                sample(
                    1,
                    f"{named[gpu_process.node, gpu_process.uuid]},"
                    f"{labels(job=own_name(gpu_process.job or '', started), rank=gpu_process.rank)}",
                )
                for gpu_process in snapshot.gpu_processes
                if gpu_process.rank is not None and (gpu_process.node, gpu_process.uuid) in named
            }
        ),
    )
    metrics = [(named[gpu_now.node, gpu_now.uuid], gpu_now.gpu) for gpu_now in snapshot.gpus if gpu_now.gpu is not None]
    yield (
        f.GPU_LIMITED,
        [sample(1, f"{text},{labels(reason=reason)}") for text, gpu in metrics for reason in gpu.clocks_event_reasons],
    )
    yield from _columns(f.GPU, metrics)
    yield from _columns(
        f.GPU_LIMITS, [(named[gpu_now.node, gpu_now.uuid], gpu_now.info) for gpu_now in snapshot.gpus if gpu_now.info]
    )


def _about(info: GpuInfo) -> str:
    return labels(name=info.name or "", driver=info.driver or "", simulated=str(info.simulated).lower())


def _gpu_labels(gpu_now: GpuSnapshot) -> str:
    index = gpu_now.info.index if gpu_now.info is not None else gpu_now.gpu.index if gpu_now.gpu is not None else ""
    return labels(node=gpu_now.node, gpu=index, uuid=gpu_now.uuid)


def _of_nics(snapshot: MetricsSnapshot) -> Families:
    named = [(labels(node=nic.node, device=nic.device, port=nic.port), nic) for nic in snapshot.nics]
    yield f.NIC_UP, [sample(int(nic.state in ("up", "active")), text) for text, nic in named if nic.state is not None]
    yield from _columns(f.NIC, named)


def _of_jobs(snapshot: MetricsSnapshot) -> Families:
    table = job_table(
        (rank for rank, _ in snapshot.ranks), (stat for _, stat in snapshot.ranks if stat), snapshot.states
    )
    jobs = table.jobs[:MAX_JOBS]
    started = snapshot.started
    named = {job.job: labels(job=own_name(job.job, started)) for job in jobs}
    yield f.JOB_FOUND, [sample(len(job.ranks_found), named[job.job]) for job in jobs]
    yield f.JOB_SIZE, [sample(job.world_size, named[job.job]) for job in jobs if job.world_size is not None]
    yield (
        f.JOB_RANKS,
        [
            sample(count, f"{named[job.job]},{labels(state=state)}")
            for job in jobs
            for state, count in job.states.items()
        ],
    )
    yield f.JOB_STATE, [sample(1, labels(job=view.ordered.job, state=view.state)) for view in snapshot.views[:MAX_JOBS]]
    attempts = {job.job: job.attempt for job in jobs}
    ranks = {
        (rank.job, rank.rank): (f"{named[rank.job]},{labels(rank=rank.rank, node=rank.node)}", stat)
        for rank, stat in snapshot.ranks
        if stat is not None
        and rank.rank is not None
        and attempts.get(rank.job) == rank.attempt
        and rank.status == "present"
        and rank.node in snapshot.connected
    }  # the last of several processes that claim one rank: a series has one value
    yield from _columns(f.RANK, list(ranks.values())[:MAX_RANKS])


def _columns(columns: Sequence[MetricColumn], rows: Sequence[tuple[str, Any]]) -> Families:
    """Families of the fields of records; columns of one family, which differ in a label, are adjacent."""
    together: dict[Family, list[MetricColumn]] = defaultdict(list)
    for column in columns:
        together[column.family].append(column)
    for family, parts in together.items():
        yield family, [sample for column in parts for sample in _column(column, rows)]


def _column(column: MetricColumn, rows: Sequence[tuple[str, Any]]) -> list[Sample]:
    get, times, label = column.get, column.times, f",{column.label}" if column.label else ""
    values = [(text, value) for text, row in rows if (value := get(row)) is not None]
    if times is None:
        return [f"{{{text}{label}}} {value}\n" for text, value in values]
    return [f"{{{text}{label}}} {value * times:.12g}\n" for text, value in values]
