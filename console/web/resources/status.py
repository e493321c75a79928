"""`/status`, `/clients` and `/metrics/latest`: compatible with gswarm-profiler in paths, names and units.

As in its documentation, shares are percent from 0 to 100, rates are GB/s, and a GPU is `hostname:index:name`. Values
that were not measured are null. `/nodes` and `/gpus` have the same data under the names of this project.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from datetime import UTC, datetime
from typing import Final

import msgspec

from ...core.store import GpuKey, NodeNow, Store
from ...monitor.hang import jobs_of
from ...report.nodes import GpuLine, gpu_lines
from ...text.format import iso
from ...text.nodeset_fold import natural
from ..operation import NoParameters, OperationRequest, WebContext, operation
from .profiling import Running, running

_GB: Final = 1e9


class GswarmClient(msgspec.Struct):
    """A node, which gswarm calls a client. `healthy`: connected and sending records."""

    client_id: str
    hostname: str
    healthy: bool
    last_seen: str | None
    gpu_count: int
    gpus: list[GswarmGpu]


class GswarmGpu(msgspec.Struct):
    """One GPU of a client; `id` is hostname:index:name."""

    id: str
    physical_idx: int
    name: str | None
    uuid: str


class GswarmClientList(msgspec.Struct):
    """All nodes."""

    total_clients: int
    clients: list[GswarmClient]


class Status(msgspec.Struct):
    """State of this console: first the fields of gswarm, then further ones."""

    freq: int  # between samples, milliseconds
    enable_bandwidth_profiling: bool  # some GPU reports PCIe traffic
    enable_nvlink_profiling: bool  # some GPU reports NVLink traffic
    is_profiling: bool
    active_sessions: list[Running]
    connected_clients: list[str]
    total_gpus: int
    gpu_info: dict[str, list[GswarmGpu]]
    cluster: str
    simulated: bool  # part of the data is simulated
    nodes: dict[str, int]  # state → nodes in it
    jobs: int
    ranks: int
    findings: dict[str, int]  # severity → open findings
    records_unknown: int  # of kinds unknown to this version
    version: int  # grows with every batch of records


class GpuMetric(msgspec.Struct):
    """Metrics of one GPU: percent from 0 to 100, GB/s. `dram_*` is PCIe traffic, as in gswarm."""

    physical_idx: int
    name: str | None
    gpu_util: float | None
    mem_util: float | None  # memory in use
    dram_bandwidth_rx: float | None
    dram_bandwidth_tx: float | None
    nvlink_bandwidth_rx: float | None
    nvlink_bandwidth_tx: float | None


class SystemMetric(msgspec.Struct):
    """Metrics of one node, percent from 0 to 100."""

    cpu_util: float | None
    dram_util: float | None  # of the host's memory


class ClientMetrics(msgspec.Struct):
    """Latest metrics of one node."""

    hostname: str
    timestamp: str | None
    gpus_metrics: list[GpuMetric]
    system_metrics: SystemMetric


class LatestMetrics(msgspec.Struct):
    """Latest metrics of all connected nodes."""

    timestamp: str
    client_data: dict[str, ClientMetrics]


@operation("GET", "/status")
async def get_status(context: WebContext, request: OperationRequest[NoParameters]) -> Status:
    """State of this console: counts of nodes, GPUs, jobs, ranks and findings, active recordings."""
    store, by_node = context.store, _gpus_by_node(context.store)
    table = jobs_of(store)
    gpus = [now.gpu for now in store.gpus.values() if now.gpu is not None]
    recordings = context.control.recordings
    active = [running(now) for now in recordings.active()] if recordings is not None else []
    nodes = store.nodes.values()
    return Status(
        freq=min((now.node.sample_interval_ms for now in nodes if now.node), default=1000),
        enable_bandwidth_profiling=any(gpu.pcie_rx_bytes_s is not None for gpu in gpus),
        enable_nvlink_profiling=any(gpu.nvlink_rx_bytes_s is not None for gpu in gpus),
        is_profiling=bool(active), active_sessions=active,
        connected_clients=[now.name for now in nodes if is_ok(now)],
        total_gpus=sum(map(len, by_node.values())),
        gpu_info={node: [_client_gpu(line) for line in lines] for node, lines in by_node.items()},
        cluster=context.config.cluster,
        simulated=any(now.node.simulated for now in nodes if now.node),
        nodes=dict(Counter(now.state.state if now.state else "expected" for now in nodes)),
        jobs=len(table.jobs), ranks=sum(len(job.ranks_found) for job in table.jobs),
        findings=dict(Counter(finding.severity for finding in store.findings.values() if finding.cleared_at is None)),
        records_unknown=sum(store.counts.unknown_kinds.values()), version=store.version,
    )  # fmt: skip


@operation("GET", "/clients")
async def get_clients(context: WebContext, request: OperationRequest[NoParameters]) -> GswarmClientList:
    """Nodes with their GPUs, as in gswarm-profiler."""
    by_node = _gpus_by_node(context.store)
    clients = [
        _client(now, by_node.get(now.name, []))
        for now in sorted(context.store.nodes.values(), key=lambda now: natural(now.name))
    ]
    return GswarmClientList(len(clients), clients)


@operation("GET", "/metrics/latest", scope="metrics")
async def get_latest(context: WebContext, request: OperationRequest[NoParameters]) -> LatestMetrics:
    """Latest metrics of all nodes, as in gswarm-profiler."""
    by_node = _gpus_by_node(context.store)
    client_data = {
        now.name: ClientMetrics(
            hostname=_hostname(now), timestamp=iso(now.last_rx),
            gpus_metrics=[_metric(context.store, line) for line in by_node.get(now.name, [])],
            system_metrics=_system(now),
        )
        for now in context.store.nodes.values()
        if is_ok(now)
    }  # fmt: skip
    return LatestMetrics(datetime.now(UTC).isoformat(), client_data)


def is_ok(now: NodeNow) -> bool:
    """Whether a node is connected and has sent its node record."""
    return now.state is not None and now.state.state == "ok" and now.node is not None


def _gpus_by_node(store: Store) -> dict[str, list[GpuLine]]:
    by_node: dict[str, list[GpuLine]] = defaultdict(list)
    for line in gpu_lines(store):
        by_node[line.node].append(line)
    return dict(by_node)


def _hostname(now: NodeNow) -> str:
    return now.node.hostname if now.node else now.name


def _client(now: NodeNow, gpus: list[GpuLine]) -> GswarmClient:
    return GswarmClient(
        now.name, _hostname(now), is_ok(now), iso(now.last_rx), len(gpus), [_client_gpu(gpu) for gpu in gpus]
    )


def _client_gpu(line: GpuLine) -> GswarmGpu:
    return GswarmGpu(f"{line.node}:{line.index}:{line.name or 'GPU'}", line.index, line.name, line.uuid)


def _metric(store: Store, line: GpuLine) -> GpuMetric:
    key: GpuKey = (line.node, line.uuid)
    now = store.gpus.get(key)
    gpu = now.gpu if now is not None and line.lost is None and line.stale_s is None else None
    return GpuMetric(
        physical_idx=line.index,
        name=line.name,
        gpu_util=line.util_pct,
        mem_util=_share(line.mem_used_bytes, line.mem_total_bytes),
        dram_bandwidth_rx=_gigabytes(gpu.pcie_rx_bytes_s if gpu else None),
        dram_bandwidth_tx=_gigabytes(gpu.pcie_tx_bytes_s if gpu else None),
        nvlink_bandwidth_rx=_gigabytes(gpu.nvlink_rx_bytes_s if gpu else None),
        nvlink_bandwidth_tx=_gigabytes(gpu.nvlink_tx_bytes_s if gpu else None),
    )


def _system(now: NodeNow) -> SystemMetric:
    host, total = now.host, now.node.mem_total_bytes if now.node else None
    return SystemMetric(host.cpu_pct if host else None, _share(host.mem_used_bytes if host else None, total))


def _share(part: int | None, whole: int | None) -> float | None:
    return round(100 * part / whole, 3) if part is not None and whole else None


def _gigabytes(bytes_s: float | None) -> float | None:
    return None if bytes_s is None else round(bytes_s / _GB, 6)
