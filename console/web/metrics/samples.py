"""The samples of every family, of what a store knows now. `look` is quick; the rest may be done by any thread.

A figure is told while its node is connected, its GPU reached and its record young; else it is left out, so that its
series ends. Label sets are bounded: nodes, GPUs and ports are those there are, jobs and ranks the newest so many.
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
from ..job_names import own_name
from . import families as f
from .exposition import Sample, labels, sample
from .families import Family, MetricColumn

#: A record older than that is no figure of now. A sampler that hangs stops its own records alone.
STALE_NS: Final = 60_000_000_000
#: So many jobs, and so many ranks of all of them: what restarts all night must not fill Prometheus.
MAX_JOBS: Final = 128
MAX_RANKS: Final = 16_384
#: So many series of one family.
MAX_SERIES: Final = 262_144

Families = Iterator[tuple[Family, list[Sample]]]


@dataclass(frozen=True)
class GpuSnapshot:
    """One GPU that is told of; `gpu` is None where its figures are old, or the driver has lost it."""

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
    """What is known now. `now_ns` is the console's clock."""
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


def families(seen: MetricsSnapshot) -> Families:
    """Every family with its samples, each family once."""
    left_out = 0
    for family, samples in _all(seen):
        left_out += max(0, len(samples) - MAX_SERIES)
        yield family, samples[:MAX_SERIES]
    yield f.LEFT_OUT, [sample(left_out)]


def _all(seen: MetricsSnapshot) -> Families:
    yield f.BUILD, [sample(1, labels(version=__version__))]
    yield f.NODES, [sample(count, labels(state=state)) for state, count in sorted(_states(seen).items())]
    yield from _of_nodes(seen)
    yield from _of_gpus(seen)
    yield from _of_nics(seen)
    yield from _of_jobs(seen)
    found = Counter((finding.id, finding.severity) for finding in seen.findings)
    yield f.FINDINGS, [sample(count, labels(id=name, severity=how)) for (name, how), count in sorted(found.items())]
    yield f.RECORDING, [sample(recording.bytes, labels(session=recording.name)) for recording in seen.recordings]
    used = resource.getrusage(resource.RUSAGE_SELF)
    yield f.PROCESS_CPU, [sample(round(used.ru_utime + used.ru_stime, 3))]
    yield f.PROCESS_MEMORY, [sample(psutil.Process(os.getpid()).memory_info().rss)]


def _states(seen: MetricsSnapshot) -> Counter[str]:
    return Counter(state.state if state is not None else "expected" for _, state in seen.nodes)


def _of_nodes(seen: MetricsSnapshot) -> Families:
    named = {name: labels(node=name) for name, _ in seen.nodes}
    up = seen.connected
    yield f.NODE_UP, [sample(int(name in up), named[name]) for name, _ in seen.nodes]
    yield (
        f.NODE_INFO,
        [
            sample(1, labels(node=now.name, hostname=now.node.hostname, kernel=now.node.kernel, python=now.node.python))
            for now in seen.connected.values()
            if now.node is not None
        ],
    )
    yield from _columns(f.HOST, [(named[host.node], host) for host in seen.hosts])
    yield from _columns(f.AGENT, [(named[cost.node], cost) for cost in seen.costs])
    yield from _columns(f.CLOCK, [(named[clock.node], clock) for clock in seen.clocks if clock.node in named])


def _of_gpus(seen: MetricsSnapshot) -> Families:
    named = {(one.node, one.uuid): _gpu_labels(one) for one in seen.gpus}
    yield f.GPU_UP, [sample(int(not (one.info and one.info.lost)), named[one.node, one.uuid]) for one in seen.gpus]
    yield (
        f.GPU_INFO,
        [sample(1, f"{named[one.node, one.uuid]},{_about(one.info)}") for one in seen.gpus if one.info is not None],
    )
    started = seen.started
    yield (
        f.GPU_RANK,
        sorted(
            {
                sample(
                    1,
                    f"{named[gpu_process.node, gpu_process.uuid]},"
                    f"{labels(job=own_name(gpu_process.job or '', started), rank=gpu_process.rank)}",
                )
                for gpu_process in seen.gpu_processes
                if gpu_process.rank is not None and (gpu_process.node, gpu_process.uuid) in named
            }
        ),
    )
    figures = [(named[one.node, one.uuid], one.gpu) for one in seen.gpus if one.gpu is not None]
    yield (
        f.GPU_LIMITED,
        [sample(1, f"{text},{labels(reason=reason)}") for text, gpu in figures for reason in gpu.clocks_event_reasons],
    )
    yield from _columns(f.GPU, figures)
    yield from _columns(f.GPU_LIMITS, [(named[one.node, one.uuid], one.info) for one in seen.gpus if one.info])


def _about(info: GpuInfo) -> str:
    return labels(name=info.name or "", driver=info.driver or "", simulated=str(info.simulated).lower())


def _gpu_labels(one: GpuSnapshot) -> str:
    index = one.info.index if one.info is not None else one.gpu.index if one.gpu is not None else ""
    return labels(node=one.node, gpu=index, uuid=one.uuid)


def _of_nics(seen: MetricsSnapshot) -> Families:
    named = [(labels(node=nic.node, device=nic.device, port=nic.port), nic) for nic in seen.nics]
    yield f.NIC_UP, [sample(int(nic.state in ("up", "active")), text) for text, nic in named if nic.state is not None]
    yield from _columns(f.NIC, named)


def _of_jobs(seen: MetricsSnapshot) -> Families:
    table = job_table((rank for rank, _ in seen.ranks), (stat for _, stat in seen.ranks if stat), seen.states)
    jobs = table.jobs[:MAX_JOBS]
    started = seen.started
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
    yield f.JOB_STATE, [sample(1, labels(job=view.ordered.job, state=view.state)) for view in seen.views[:MAX_JOBS]]
    told = {job.job: job.attempt for job in jobs}
    ranks = {
        (rank.job, rank.rank): (f"{named[rank.job]},{labels(rank=rank.rank, node=rank.node)}", stat)
        for rank, stat in seen.ranks
        if stat is not None
        and rank.rank is not None
        and told.get(rank.job) == rank.attempt
        and rank.status == "present"
        and rank.node in seen.connected
    }  # of several processes that claim one rank the last: a series has one value
    yield from _columns(f.RANK, list(ranks.values())[:MAX_RANKS])


def _columns(columns: Sequence[MetricColumn], rows: Sequence[tuple[str, Any]]) -> Families:
    """Families of the fields of records; columns of one family, which a label tells apart, stand together."""
    together: dict[Family, list[MetricColumn]] = defaultdict(list)
    for column in columns:
        together[column.family].append(column)
    for family, parts in together.items():
        yield family, [one for column in parts for one in _column(column, rows)]


def _column(column: MetricColumn, rows: Sequence[tuple[str, Any]]) -> list[Sample]:
    get, times, label = column.get, column.times, f",{column.label}" if column.label else ""
    found = [(text, figure) for text, row in rows if (figure := get(row)) is not None]
    if times is None:
        return [f"{{{text}{label}}} {figure}\n" for text, figure in found]
    return [f"{{{text}{label}}} {figure * times:.12g}\n" for text, figure in found]
