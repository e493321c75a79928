"""`/metrics`: latest values for Prometheus."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec
import psutil
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from ... import __version__
from ...core.control import ActiveRecording
from ...core.store import GpuNow, NodeNow, Store
from ...core.store.freshness import gpu_stale_ns
from ...launch.state import JobStatus, job_statuses
from ...monitor.coverage import NodeCoverage, coverage_of
from ...monitor.hang import jobs_of_ranks
from ...records import AgentCost, ClockNode, Finding, Gpu, GpuInfo, GpuProcess, Host, Nic, NodeState, Rank, RankStat
from ...report.nodes import own_name
from .. import exposition as f
from ..exposition import OPENMETRICS, PLAIN, Family, MetricColumn, Sample, block, end, labels, sample, wanted_format
from ..operation import WebContext, stream

#: Seconds. Requests within this time of another get the same text; nodes send new values once per second.
SHARED_S: Final = 0.5


@stream(
    "/metrics",
    PLAIN,
    OPENMETRICS,
    scope="metrics",
    headers=(("Accept", "application/openmetrics-text for OpenMetrics"),),
)
async def get_metrics(context: WebContext, request: Request) -> Response:
    """Latest values of all metrics for Prometheus, in OpenMetrics or the older text format."""
    media = wanted_format(request.headers.get("accept", ""))
    return StreamingResponse(_stream(context, media), media_type=None, headers={"content-type": media})


async def _stream(context: WebContext, media: str) -> AsyncIterator[bytes]:
    async with context.scrapes.sending:
        for part in await _parts(context, media):
            yield part


async def _parts(context: WebContext, media: str) -> list[bytes]:
    scrapes = context.scrapes
    async with scrapes.making:
        made_s, parts = scrapes.texts.get(media, (0.0, []))
        if parts and time.monotonic() - made_s < SHARED_S:
            return parts
        scrapes.texts.clear()  # one text of a large fleet is enough
        recordings = context.control.recordings
        snapshot = take_snapshot(context.store, recordings.active() if recordings is not None else (), time.time_ns())
        parts = await asyncio.to_thread(exposition, snapshot, media)
        scrapes.texts[media] = (time.monotonic(), parts)
        return parts


def exposition(snapshot: MetricsSnapshot, media: str) -> list[bytes]:
    """The text in format `media`, one part per metric family."""
    parts = [block(family, samples, media) for family, samples in families(snapshot)]
    return [part for part in (*parts, end(media)) if part]


#: Nanoseconds. Older records are stale; a sampler that hangs stops only its own records.
STALE_NS: Final = 60_000_000_000
#: Jobs, and ranks of all jobs: jobs that restart all night must not fill Prometheus.
MAX_JOBS: Final = 128
MAX_RANKS: Final = 16_384
#: Series of one family.
MAX_SERIES: Final = 262_144

Families = Iterator[tuple[Family, list[Sample]]]


class GpuSnapshot(msgspec.Struct, frozen=True):
    """One reported GPU; `gpu` is None where its metrics are stale, or the driver has lost it."""

    node: str
    uuid: str
    info: GpuInfo | None
    gpu: Gpu | None
    is_up: bool  # whether its figures arrive


class MetricsSnapshot(msgspec.Struct, frozen=True):
    """Store contents at one instant; records are immutable, so any thread may read them."""

    nodes: tuple[tuple[str, NodeState | None], ...]
    connected: dict[str, NodeNow]
    coverage: dict[str, NodeCoverage]  # of connected nodes whose agent has counted the GPUs, or why it cannot
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
        GpuSnapshot(node, uuid, now.info, now.gpu if is_up and is_young(now.gpu) else None, is_up)
        for (node, uuid), now in store.gpus.items()
        if node in connected
        for is_up in (_is_current(now, connected[node]),)
    ]
    return MetricsSnapshot(
        nodes=tuple((now.name, now.state) for now in nodes),
        connected=connected,
        coverage={
            name: own
            for name, own in coverage_of(store).items()
            if name in connected and (name, "gpu") in store.inventories
        },
        hosts=tuple(now.host for now in connected.values() if now.host is not None and is_young(now.host)),
        costs=tuple(now.cost for now in connected.values() if now.cost is not None and is_young(now.cost)),
        gpus=tuple(gpus),
        gpu_processes=tuple(process for process in store.gpu_processes.values() if process.node in connected),
        nics=tuple(filter(is_young, store.nics.values())),
        ranks=tuple((now.rank, now.stat if is_young(now.stat) else None) for now in store.ranks.values()),
        views=tuple(job_statuses(store)),
        findings=tuple(finding for finding in store.findings.values() if finding.cleared_at is None),
        clocks=tuple(kept[-1] for kept in store.clocks.nodes.values() if kept and is_young(kept[-1])),
        recordings=tuple(recordings),
    )


def _is_current(now: GpuNow, node: NodeNow) -> bool:
    """Whether the figures of a GPU arrive."""
    is_broken = now.info is not None and (now.info.lost is not None or now.info.unusable is not None)
    return not is_broken and gpu_stale_ns(now, node) is None


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
    counts = sorted(Counter((finding.id, finding.severity) for finding in snapshot.findings).items())
    yield f.FINDINGS, [sample(count, labels(id=name, severity=severity)) for (name, severity), count in counts]
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
    about = [(now.name, now.node) for now in up.values() if now.node is not None]
    yield (
        f.NODE_INFO,
        [sample(1, labels(node=name, hostname=n.hostname, kernel=n.kernel, python=n.python)) for name, n in about],
    )
    gpus = [(named[name], coverage) for name, coverage in snapshot.coverage.items()]
    expected = [(text, coverage.gpus_expected) for text, coverage in gpus]
    yield f.NODE_GPUS, [sample(coverage.gpus_seen, text) for text, coverage in gpus]
    yield f.NODE_GPUS_EXPECTED, [sample(count, text) for text, count in expected if count is not None]
    faults = [(text, coverage.gpu_fault.name) for text, coverage in gpus if coverage.gpu_fault is not None]
    yield f.NODE_GPU_FAULT, [sample(1, f"{text},{labels(fault=name)}") for text, name in faults]
    yield from _columns(f.HOST, [(named[host.node], host) for host in snapshot.hosts])
    yield from _columns(f.AGENT, [(named[cost.node], cost) for cost in snapshot.costs])
    yield from _columns(f.CLOCK, [(named[clock.node], clock) for clock in snapshot.clocks if clock.node in named])


def _of_gpus(snapshot: MetricsSnapshot) -> Families:
    named = {(now.node, now.uuid): _gpu_labels(now) for now in snapshot.gpus}
    gpus = [(named[now.node, now.uuid], now) for now in snapshot.gpus]
    infos = [(text, now.info) for text, now in gpus if now.info is not None]
    metrics = [(text, now.gpu) for text, now in gpus if now.gpu is not None]
    started = snapshot.started
    ranks = {
        f"{named[process.node, process.uuid]},{labels(job=own_name(process.job or '', started), rank=process.rank)}"
        for process in snapshot.gpu_processes
        if process.rank is not None and (process.node, process.uuid) in named
    }
    limited = [f"{text},{labels(reason=reason)}" for text, gpu in metrics for reason in gpu.clocks_event_reasons]
    yield f.GPU_UP, [sample(int(now.is_up), text) for text, now in gpus]
    yield f.GPU_INFO, [sample(1, f"{text},{_about(info)}") for text, info in infos]
    yield f.GPU_RANK, sorted(sample(1, text) for text in ranks)
    yield f.GPU_LIMITED, [sample(1, text) for text in limited]
    yield from _columns(f.GPU, metrics)
    yield from _columns(f.GPU_LIMITS, infos)


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
    jobs = jobs_of_ranks(snapshot.ranks, snapshot.states).jobs[:MAX_JOBS]
    started = snapshot.started
    named = {job.job: labels(job=own_name(job.job, started)) for job in jobs}
    yield f.JOB_FOUND, [sample(len(job.ranks_found), named[job.job]) for job in jobs]
    yield f.JOB_SIZE, [sample(job.world_size, named[job.job]) for job in jobs if job.world_size is not None]
    states = [(named[job.job], state, count) for job in jobs for state, count in job.states.items()]
    yield f.JOB_RANKS, [sample(count, f"{text},{labels(state=state)}") for text, state, count in states]
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


def _columns(columns: Mapping[Family, Sequence[MetricColumn]], rows: Sequence[tuple[str, Any]]) -> Families:
    """Families of the fields of records."""
    for family, parts in columns.items():
        yield family, [sample for column in parts for sample in _column(column, rows)]


def _column(column: MetricColumn, rows: Sequence[tuple[str, Any]]) -> list[Sample]:
    get, times, label = column.get, column.times, f",{column.label}" if column.label else ""
    values = [(text, value) for text, row in rows if (value := get(row)) is not None]
    if times is None:
        return [f"{{{text}{label}}} {value}\n" for text, value in values]
    return [f"{{{text}{label}}} {value * times:.12g}\n" for text, value in values]
