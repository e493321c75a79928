"""Nodes, GPUs, network ports, topology classes, agent cost, jobs and ranks in the report."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, TypeVar

import msgspec

from ..analysis.jobs import JobRanks, RankSummary
from ..analysis.late_rank import StepLength
from ..analysis.rank_progress import ProgressState, RankProgress, Source
from ..analysis.stalls import JobKey
from ..core.store import GpuKey, GpuNow, NodeNow, ProcessKey, Store
from ..core.store.freshness import gpu_stale_ns
from ..monitor.coverage import NodeCoverage
from ..records import Failure, Gpu, GpuInfo, Watched
from ..text.nodeset_fold import natural
from ..topology.json_document import ClassLine

L = TypeVar("L", bound=msgspec.Struct)


def line_of(line: type[L], source: object, /, **own: Any) -> L:
    """A line with the fields of `source` that it has, by name; `own` replaces or adds fields."""
    names = line.__struct_fields__
    return line(**{name: own[name] if name in own else getattr(source, name) for name in names})


class NodeLine(msgspec.Struct):
    """One node: its state, and why it is not reached."""

    node: str
    state: str  # of its connection: ok, failed, lost; its GPUs: gpu_fault, gpus_seen, gpus_expected
    error: Failure | None
    hostname: str | None
    python: str | None
    kernel: str | None
    agent: str | None
    simulated: bool | None  # None where unknown
    gpus_expected: int | None  # GPUs that it should have, by its driver and its kernel; None if unknown
    gpus_seen: int  # without those that are lost or unusable; 0 while the driver cannot be used
    gpu_fault: Failure | None  # why its GPUs cannot be read
    awaits: list[str]  # devices that have not reported yet: "2 of 8 GPUs"
    unreadable: int | None  # Python processes of other users that the agent may not read: ranks may be among them
    via: str | None  # the gateway that reaches it, and that checked its host key; None: this machine did


class ProcessLine(msgspec.Struct):
    """One Python process that may be a job, and that was not judged: no rank was recognised."""

    node: str
    pid: int
    user: str | None
    cmdline: str | None
    program: str | None  # compute or script; service: only its use of a GPU counts


class GpuLine(msgspec.Struct):
    """One GPU or MIG device with its latest values. None is unknown; `GpuInfo` has the reason."""

    node: str
    index: int
    uuid: str
    name: str | None
    parent: str | None  # of a MIG device: the uuid of its GPU
    pci_bus_id: str | None
    mem_total_bytes: int | None
    mem_used_bytes: int | None
    util_pct: float | None
    power_w: float | None
    power_limit_w: float | None
    temp_c: float | None
    driver: str | None
    lost: str | None  # why the driver cannot reach it; None while it responds
    stale_s: float | None  # age of its figures if they no longer arrive; they are null then
    unusable: str | None  # why no call returns a value; None while calls do
    clocks_event_reasons: tuple[str, ...]
    ecc_uncorrected_volatile: int | None
    recovery_action: str | None
    ranks: list[int]  # ranks that use it, by its processes
    simulated: bool


class NicLine(msgspec.Struct):
    """One RDMA port or physical Ethernet interface with its latest values. None is unknown."""

    node: str
    device: str
    port: int
    rdma: bool
    state: str | None
    rate_bytes_s: float | None
    link_layer: str | None
    netdev: str | None
    pci_bus_id: str | None
    rx_bytes_s: float | None
    tx_bytes_s: float | None


class CostLine(msgspec.Struct):
    """The latest cost of an agent."""

    node: str
    cpu_pct: float | None
    rss_bytes: int | None
    tx_bytes_s: float | None
    watch_cpu_pct: float | None  # part of `cpu_pct` spent on watched variables, over the last minute


class TopologyLines(msgspec.Struct):
    """Classes of nodes with equal topology; `gconsole topo --format json` also has every link."""

    classes: list[ClassLine]


def node_line(now: NodeNow, coverage: NodeCoverage) -> NodeLine:
    """A node in the report."""
    state = now.state.state if now.state else "failed"
    node = now.node
    return NodeLine(
        node=now.name,
        state=state if state in ("ok", "lost") else "failed",
        error=now.state.error if now.state else None,
        hostname=node.hostname if node else None,
        python=node.python if node else None,
        kernel=node.kernel if node else None,
        agent=node.agent if node else None,
        simulated=node.simulated if node else None,
        gpus_expected=coverage.gpus_expected,
        gpus_seen=coverage.gpus_seen,
        gpu_fault=coverage.gpu_fault,
        awaits=list(coverage.awaits) if state == "ok" else [],
        unreadable=now.host.unreadable if now.host else None,
        via=now.state.via or None if now.state else None,
    )


def gpu_lines(store: Store, now_ns: int | None = None) -> list[GpuLine]:
    """Every GPU by node and index, MIG devices after their GPU; `now_ns` is the console's clock, if it runs on.

    Without `now_ns`, the ages of figures of nodes that are not connected end with the newest record.
    """
    ranks: dict[GpuKey, set[int]] = {}
    for process in store.gpu_processes.values():
        if process.rank is not None:
            ranks.setdefault((process.node, process.uuid), set()).add(process.rank)
    lines = [
        _gpu_line(key, now, _gpu_age_ns(store, key[0], now, now_ns), sorted(ranks.get(key, ())))
        for key, now in store.gpus.items()
    ]
    return sorted(lines, key=lambda line: (natural(line.node), line.index, line.parent is not None, line.uuid))


def nic_lines(store: Store) -> list[NicLine]:
    """Every port by node, RDMA first."""
    nics = sorted(store.nics.values(), key=lambda nic: (natural(nic.node), not nic.rdma, natural(nic.device), nic.port))
    return msgspec.convert(nics, list[NicLine], from_attributes=True)


def _gpu_age_ns(store: Store, node: str, now: GpuNow, now_ns: int | None) -> int | None:
    """Age of a GPU's figures if they no longer arrive; None while they do, or without any.

    The clock of a connected node counts; of another, that of the console.
    """
    of_node = store.nodes.get(node)
    if of_node is None or of_node.state is None or of_node.state.state == "ok":
        return gpu_stale_ns(now, of_node)
    return max(0, (now_ns or store.newest_rx) - now.gpu.rx) if now.gpu is not None and now.gpu.rx else None


def _gpu_line(key: GpuKey, now: GpuNow, stale_ns: int | None, ranks: list[int]) -> GpuLine:
    node, uuid = key
    info = now.info or GpuInfo(index=now.gpu.index if now.gpu else 0, uuid=uuid)
    is_current = now.gpu is not None and not info.lost and stale_ns is None
    gpu = now.gpu if now.gpu and is_current else Gpu(index=info.index, uuid=uuid)  # its last values are outdated
    own = {"node": node, "uuid": uuid, "ranks": ranks, "stale_s": None if stale_ns is None else stale_ns / 1e9}
    return line_of(GpuLine, gpu, **{**msgspec.structs.asdict(info), **own})


def cost_lines(nodes: Iterable[NodeNow]) -> list[CostLine]:
    """The cost of the agents of these nodes, where known."""
    return msgspec.convert([now.cost for now in nodes if now.cost], list[CostLine], from_attributes=True)


def topology_lines(store: Store) -> TopologyLines:
    """The topology classes; none for CPU-only nodes."""
    if not store.gpus and not store.nics:
        return TopologyLines([])
    from ..topology.json_document import class_lines  # imported only where there are GPUs or NICs
    from ..topology.snapshot import gather

    return TopologyLines(class_lines(gather(store).classes))


class MissingRankLine(msgspec.Struct):
    """A rank that is not running or not visible, and why."""

    rank: int | None
    reason: str


#: What shows how long a step takes, where no curve does.
WATCHED_STEP: Final = "watched step"


class JobLine(msgspec.Struct):
    """One job at its newest attempt."""

    job: str
    attempt: int
    world_size: int | None
    ranks_found: list[int]
    ranks_missing: list[MissingRankLine]
    conflicts: list[str]
    step_s: float | None  # how long a step takes, or a part of it if traffic shows it; None where it is unknown
    step_source: str | None  # what shows it: "watched step", "the traffic of rank 0"


class RankLine(msgspec.Struct):
    """One process that is a rank."""

    job: str
    attempt: int
    rank: int | None
    local_rank: int | None
    node: str
    pid: int
    gpu: str | None
    state: str  # of its process: moving, idle, stopped, …
    progress: ProgressState | None  # progressing, waiting, stalled, compiling, …; None of a rank that has ended
    progress_evidence: str | None  # what it does, and since when
    progress_source: Source | None  # steps, collectives, connections, gpu, nic, traffic, stacks, verdict
    step: int | None
    source: str
    watched: dict[str, Watched] | None  # [watch] locals by name; None where none was read


def job_line(job: JobRanks, steps: Mapping[JobKey, StepLength]) -> JobLine:
    """A job in the report."""
    missing = msgspec.convert(job.ranks_missing, list[MissingRankLine], from_attributes=True)
    conflicts = [conflict.text for conflict in job.conflicts]
    step = steps.get((job.job, job.attempt))
    return JobLine(
        job.job, job.attempt, job.world_size, list(job.ranks_found), missing, conflicts,
        step.seconds if step is not None else None, (step.curve or WATCHED_STEP) if step is not None else None,
    )  # fmt: skip


def rank_line(row: RankSummary, progress: Mapping[ProcessKey, RankProgress]) -> RankLine:
    """A rank in the report."""
    entry = progress.get((row.node, row.pid, row.start_ticks))
    return line_of(
        RankLine, row, progress=entry.state if entry else None, progress_evidence=entry.evidence if entry else None,
        progress_source=entry.source if entry else None,
        watched=None if row.watched is None else dict(row.watched),
    )  # fmt: skip


def is_of_job(reported: str, name: str) -> bool:
    """Whether ranks that report this job name belong to the job: `train-3f9a1c@10.0.0.1:29500` to `train-3f9a1c`."""
    return reported == name or reported.startswith(f"{name}@")


def own_name(reported: str, started: Collection[str]) -> str:
    """The name under which gconsole started the job that reports this name; otherwise the reported name."""
    name = reported.rpartition("@")[0]
    return name if name in started else reported
